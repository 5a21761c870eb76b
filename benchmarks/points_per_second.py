"""Print how many points of a full MoE speculative round are evaluated per second, scattered and on a grid.

Run with ``python benchmarks/points_per_second.py``; both rates come from one process in one run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

import latency_model as lm

POINTS = 10**6
REPEATS = 5


def seconds(run: Callable[[], object]) -> float:
    """Best of a few runs after a warm-up [s]."""
    run()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Measure and print."""
    model, machine = lm.load_model("Qwen3-30B-A3B"), lm.load_hardware("h100-sxm")
    acceptance = lm.Acceptance.conditional([0.70, 0.62, 0.60, 0.58])

    def speedup(batch: np.ndarray, context: np.ndarray, draft_length: np.ndarray) -> np.ndarray:
        return lm.speculate(
            model, machine, acceptance=acceptance, batch=batch, context=context, draft_length=draft_length
        ).speedup

    random = np.random.default_rng(0)
    scattered = (
        random.integers(1, 513, POINTS),
        random.integers(0, 131073, POINTS),
        random.integers(0, 17, POINTS),
    )
    grid = (
        np.arange(1, 513, 4)[:, None, None],
        np.linspace(0, 131072, 460)[None, :, None],
        np.arange(17)[None, None, :],
    )
    for name, points in (("scattered", scattered), ("grid", grid)):
        count = np.prod(np.broadcast_shapes(*(axis.shape for axis in points)))
        took = seconds(lambda points=points: speedup(*points))
        sys.stdout.write(f"{name:10s} {count:>9,d} points  {took:6.3f} s  {count / took / 1e6:6.1f} million points/s\n")


if __name__ == "__main__":
    main()
