"""Print how many points a second a sweep evaluates, and how far that is from a bare NumPy lower bound.

Run with ``python benchmarks/sweep.py``.  The bound makes as many element-wise passes over blocks of the same size
as evaluating a round takes at least: one multiply-add, division or p-norm term per operation that depends on every
axis of the grid.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

import latency_model as lm

GRID = {
    "batch": np.arange(1, 513, 4),
    "context": np.round(np.linspace(0, 131072, 460)),
    "draft_length": np.arange(17),
}
BLOCK = 1 << 15
#: Attention of the target, verifying and plain, and of the drafter, each a p-norm of two affine terms:
#: tokens × context × two constants, two powers, a sum, a root; and the sums and the ratio that make a speedup.
PASSES = {"multiply": 14, "power": 6, "add": 10, "divide": 2}
REPEATS = 3


def seconds(run: Callable[[], object]) -> float:
    """Best of a few runs after a warm-up [s]."""
    run()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def lower_bound(points: int) -> None:
    """The passes alone, in blocks that stay in the cache."""
    values, out = np.linspace(0.5, 1.5, BLOCK), np.empty(BLOCK)
    for _ in range(points // BLOCK):
        for name, count in PASSES.items():
            operation = getattr(np, name)
            for _ in range(count):
                operation(values, 1.7, out=out)


def main() -> None:
    """Measure and print."""
    model, machine = lm.load_model("Qwen3-30B-A3B"), lm.load_hardware("h100-sxm")
    points = int(np.prod([len(axis) for axis in GRID.values()]))
    runs: dict[str, Callable[[], object]] = {
        "speedup alone": lambda: lm.sweep(model, machine, quantity="speedup", acceptance=0.7, **GRID),
        "everything but intervals": lambda: lm.sweep(model, machine, acceptance=0.7, **GRID),
        "bare NumPy bound": lambda: lower_bound(points),
    }
    for name, run in runs.items():
        took = seconds(run)
        rate = points / took / 1e6
        sys.stdout.write(f"{name:26s} {points:>9,d} points  {took:6.3f} s  {rate:6.1f} million points/s\n")


if __name__ == "__main__":
    main()
