"""Print how many points a second a sweep evaluates, how far that is from bare NumPy, and how others compare.

Run with ``python benchmarks/sweep.py`` on a machine with nothing else to do.  The bound computes the one operation of a
speculative round that depends on every axis, attention of the verification, as plain array expressions; all that
depends on fewer axes it gets for nothing.  Peers time plain decoding steps of a dense model on the same points, where
they are installed (``pip install genz-llm``, ``pip install aiconfigurator-core``); LLM-Viewer is no package that pip
could install.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import multiprocessing
import platform
import sys
import time
from collections.abc import Callable

import numpy as np

import latency_model as lm

MODEL, MACHINE = "Qwen3-30B-A3B", "h100-sxm"
GRID = {
    "batch": np.arange(1, 513, 4),
    "context": np.round(np.linspace(0, 131072, 460)),
    "draft_length": np.arange(17),
}
POINTS = int(np.prod([len(axis) for axis in GRID.values()]))
BLOCK_ROWS = 4  # batches of the grid evaluated at once: about 2^15 points
PEER_GRID = {"batch": range(1, 17), "context": range(1024, 16385, 256)}
PEER_POINTS = [(batch, context) for batch in PEER_GRID["batch"] for context in PEER_GRID["context"]]
PEER_SECONDS = 5.0  # a peer answers as many of these points as it can in this time, in an order that is no order
REPEATS = 15
MINIMUM = 2.0  # seconds that both processes of the last measurement run

Step = Callable[[int, int], object]


def seconds(*runs: Callable[[], object]) -> list[float]:
    """Processor seconds of the best of some repeats, which other processes disturb least [s].

    The runs take turns, so that all have the same quiet moments.
    """
    best = [np.inf] * len(runs)
    for _ in range(REPEATS):
        for index, run in enumerate(runs):
            start = time.process_time()
            run()
            best[index] = min(best[index], time.process_time() - start)
    return best


def everything() -> object:
    """All quantities a sweep gives by default."""
    return lm.sweep(MODEL, MACHINE, acceptance=0.7, **GRID)


def speedup() -> object:
    """One quantity of the same grid."""
    return lm.sweep(MODEL, MACHINE, acceptance=0.7, quantity="speedup", **GRID)


def scattered() -> Callable[[], object]:
    """The speedup at as many points that share nothing."""
    random = np.random.default_rng(0)
    points = {
        "batch": random.integers(1, 513, POINTS),
        "context": random.integers(0, 131073, POINTS),
        "draft_length": random.integers(0, 17, POINTS),
    }
    return lambda: lm.speculate(MODEL, MACHINE, acceptance=0.7, **points).speedup


def bare_numpy() -> None:
    """Speedup over the grid with no profile, no model and no check; constants have the size of real ones."""
    batch, context, length = np.ix_(*(np.asarray(axis, dtype=float) for axis in GRID.values()))
    tokens = length + 1.0
    result = np.empty((batch.size, context.size, length.size))
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
        result[rows] = reached * plain[rows] / (length * draft[rows] + verify + overhead)


def genz() -> Step:
    """A decoding step of GenZ."""
    from GenZ import decode_moddeling

    machine = {"Flops": 989, "Memory_size": 80, "Memory_BW": 3350, "ICN": 450, "real_values": True}
    fixed = {"model": "meta-llama/Llama-3.1-8B", "system_name": machine, "bits": "bf16", "output_tokens": 1}
    return lambda batch, context: decode_moddeling(batch_size=batch, input_tokens=context, tensor_parallel=1, **fixed)


def aiconfigurator() -> Step:
    """A decoding step of aiconfigurator-core, its tables loaded."""
    from aiconfigurator_core.sdk.engine import EngineHandle

    logging.disable(logging.WARNING)
    engine = EngineHandle.compile("meta-llama/Meta-Llama-3.1-8B", "h100_sxm", "vllm")
    return lambda batch, context: engine.decode_step_latency(batch, context, 2)


PEERS: dict[str, tuple[str, Callable[[], Step]]] = {
    "GenZ": ("GenZ", genz),
    "aiconfigurator-core": ("aiconfigurator_core", aiconfigurator),
}


def steps() -> object:
    """The peers' points: plain decoding steps of a dense model."""
    return lm.sweep("Meta-Llama-3.1-8B", MACHINE, quantity="baseline_time", draft_length=0, **PEER_GRID)


def report(name: str, count: int, took: float, note: str = "") -> None:
    """Print one line."""
    sys.stdout.write(f"{name:34s} {count:>9,d} points  {took:9.4f} s  {count / took:14,.0f} points/s{note}\n")


def rates(_: int) -> tuple[float, float]:
    """Points a second of the speedup in this process, by the clock and by its processor time."""
    speedup()
    done, start, own = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - start < MINIMUM:
        speedup()
        done += POINTS
    return done / (time.perf_counter() - start), done / (time.process_time() - own)


def processes() -> None:
    """Print what two processes do together."""
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(1) as pool:
        alone = np.sum(pool.map(rates, range(1)), axis=0)
    with spawn.Pool(2) as pool:
        together = np.sum(pool.map(rates, range(2), chunksize=1), axis=0)
    clock, own = together / alone
    sys.stdout.write(f"two processes: {clock:.2f} times the points a second of one, {own:.2f} by processor time\n")


def main() -> None:
    """Measure and print."""
    sys.stdout.write(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, one process\n")
    runs = {
        "bare NumPy bound": bare_numpy,
        "grid, speedup": speedup,
        "grid, all but intervals": everything,
        "scattered": scattered(),
    }
    bound, *_ = times = seconds(*runs.values())
    for name, took in zip(runs, times, strict=True):
        report(name, POINTS, took, f"  {took / bound:5.2f} x the bound")
    processes()
    report("peers' points, latency-model", len(PEER_POINTS), seconds(steps)[0])
    for name, (module, build) in PEERS.items():
        if importlib.util.find_spec(module) is None:
            sys.stdout.write(f"peers' points, {name}: not installed\n")
        else:
            report(f"peers' points, {name}", *answered(build))
    sys.stdout.write("peers' points, LLM-Viewer: pip installs no such package\n")


def answered(build: Callable[[], Step]) -> tuple[int, float]:
    """How many of the peers' points a step answers, and the processor seconds that took [s]."""
    with contextlib.redirect_stdout(io.StringIO()):
        step = build()
        step(*PEER_POINTS[0])
        start, done = time.process_time(), 0
        for place in np.random.default_rng(0).permutation(len(PEER_POINTS)):
            step(*PEER_POINTS[place])
            done += 1
            if time.process_time() - start > PEER_SECONDS:
                break
        return done, time.process_time() - start


if __name__ == "__main__":
    main()
