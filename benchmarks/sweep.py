"""Print how many points a second a sweep evaluates, and how far that is from bare NumPy.

Run with ``python benchmarks/sweep.py``.  The bound computes the one operation of a speculative round that depends on
every axis, attention of the verification, as plain array expressions; all that depends on fewer axes it gets for
nothing.  Where GenZ (``pip install genz-llm``) is installed, its plain decoding steps are timed on the same points.
"""

from __future__ import annotations

import importlib.util
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
BLOCK_ROWS = 4  # batches of the grid evaluated at once: about 2^15 points
PEER_GRID = {"batch": [1, 4, 16], "context": [1024, 4096, 16384]}
PEER_POINTS = len(PEER_GRID["batch"]) * len(PEER_GRID["context"])
REPEATS = 7


def seconds(run: Callable[[], object]) -> float:
    """Processor seconds of the best of a few runs after a warm-up, which other processes do not disturb [s]."""
    run()
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def bare_numpy() -> None:
    """Speedup over the grid with no profile, no model and no check; constants have the size of real ones."""
    batch, context, length = np.ix_(*(np.asarray(axis, dtype=float) for axis in GRID.values()))
    tokens = length + 1.0
    speedup = np.empty((batch.size, context.size, length.size))
    # Given, not computed: everything that does not depend on all three axes.
    weights = 1e-3 * np.ones((batch.size, 1, length.size))
    plain, draft = (1e-3 * np.ones((batch.size, context.size, 1)) for _ in range(2))
    reached = np.linspace(1.0, 4.0, length.size)
    for start in range(0, batch.size, BLOCK_ROWS):
        rows = slice(start, start + BLOCK_ROWS)
        pairs = tokens * (context + (tokens + 1.0) / 2.0)
        compute = batch[rows] * pairs * 1e-9
        memory = batch[rows] * (context * 1e-8 + tokens * 1e-8)
        larger = np.maximum(compute, memory)
        ratio = np.minimum(compute, memory) / larger
        attention = larger * (1.0 + ratio**2.5) ** 0.4
        verify = weights[rows] + attention + 1e-5
        overhead = 1e-4 + 0.01 * verify
        speedup[rows] = reached * plain[rows] / (length * draft[rows] + verify + overhead)


def genz() -> Callable[[], object] | None:
    """Plain decoding steps of GenZ on the points of ``PEER_GRID``, where it is installed."""
    if importlib.util.find_spec("GenZ") is None:
        return None
    from GenZ import decode_moddeling

    machine = {"Flops": 989, "Memory_size": 80, "Memory_BW": 3350, "ICN": 450, "real_values": True}
    fixed = {"model": "meta-llama/Llama-3.1-8B", "system_name": machine, "bits": "bf16", "output_tokens": 1}

    def run() -> None:
        for batch in PEER_GRID["batch"]:
            for context in PEER_GRID["context"]:
                decode_moddeling(batch_size=batch, input_tokens=context, tensor_parallel=1, **fixed)

    return run


def main() -> None:
    """Measure and print."""
    model, machine = lm.load_model("Qwen3-30B-A3B"), lm.load_hardware("h100-sxm")
    points = int(np.prod([len(axis) for axis in GRID.values()]))
    runs: dict[str, tuple[int, Callable[[], object]]] = {
        "speedup alone": (points, lambda: lm.sweep(model, machine, quantity="speedup", acceptance=0.7, **GRID)),
        "everything but intervals": (points, lambda: lm.sweep(model, machine, acceptance=0.7, **GRID)),
        "bare NumPy bound": (points, bare_numpy),
        "the peers' points": (
            PEER_POINTS,
            lambda: lm.sweep("Meta-Llama-3.1-8B", machine, quantity="baseline_time", draft_length=0, **PEER_GRID),
        ),
    }
    if (peer := genz()) is not None:
        runs["the same with GenZ"] = (PEER_POINTS, peer)
    for name, (count, run) in runs.items():
        took = seconds(run)
        sys.stdout.write(f"{name:26s} {count:>9,d} points  {took:8.4f} s  {count / took:14,.0f} points/s\n")


if __name__ == "__main__":
    main()
