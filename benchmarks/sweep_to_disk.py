"""Stream a hundred million points to Zarr, alone and by two workers, and print rates and memory.

Run with ``python benchmarks/sweep_to_disk.py [POINTS]`` where the extra ``cluster`` is installed; it needs about a byte
for each bit of noise in a speedup, 0.8 GB for the default, in a temporary directory.  Some points of each store are
compared with single calls of ``speculate``.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from pathlib import Path

import distributed
import numpy as np
import psutil
import xarray

import latency_model as lm
from latency_model.views.axes import Grid
from latency_model.views.chunked import save_zarr

MODEL, MACHINE = lm.load_model("Qwen3-30B-A3B"), lm.load_hardware("h100-sxm")
CONTEXT, LENGTHS = range(0, 131072, 64), range(17)
CHECKED = 20


class Memory(threading.Thread):
    """Largest resident memory of this process and of its children since it was started, sampled [B]."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.own, self.child, self.done = 0, 0, threading.Event()

    def run(self) -> None:
        """Sample until told to stop."""
        process = psutil.Process()
        while not self.done.wait(0.1):
            self.own = max(self.own, process.memory_info().rss)
            for child in process.children(recursive=True):
                try:
                    self.child = max(self.child, child.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue


def grid(points: int) -> Grid:
    """About so many points."""
    rows = max(points // (len(CONTEXT) * len(LENGTHS)), 1)
    return Grid.of(
        {
            "model": MODEL,
            "hardware": MACHINE,
            "acceptance": 0.7,
            "batch": range(1, rows + 1),
            "context": CONTEXT,
            "draft_length": LENGTHS,
        }
    )


def check(path: Path) -> None:
    """Compare some points of a store with single calls."""
    random = np.random.default_rng(0)
    with xarray.open_zarr(path) as store:
        for _ in range(CHECKED):
            place = {name: int(random.integers(size)) for name, size in store.speedup.sizes.items()}
            point = store.speedup[place]
            load = {name: float(point[name]) for name in place}
            alone = lm.speculate(MODEL, MACHINE, acceptance=0.7, **load).speedup
            np.testing.assert_allclose(point.values, alone, rtol=1e-12)


def measure(name: str, points: int, client: distributed.Client | None, folder: Path) -> float:
    """Write one store, print a line, return the seconds it took [s]."""
    asked, path, memory = grid(points), folder / f"{name}.zarr".replace(" ", "-"), Memory()
    memory.start()
    start = time.perf_counter()
    save_zarr(asked, ["speedup"], path, client=client)
    took = time.perf_counter() - start
    memory.done.set()
    check(path)
    size = sum(file.stat().st_size for file in path.rglob("*"))
    sys.stdout.write(
        f"{name:14s} {asked.size:>13,d} points  {took:7.1f} s  {asked.size / took:12,.0f} points/s  "
        f"{size / 1e6:6.0f} MB on disk, at most {memory.own / 1e6:.0f} MB in this process, "
        f"{memory.child / 1e6:.0f} MB in a worker\n"
    )
    return took


def main() -> None:
    """Measure and print."""
    points = int(sys.argv[1]) if len(sys.argv) > 1 else 10**8
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measure("a tenth, alone", points // 10, None, folder)
        measure("alone", points, None, folder)
        took = {}
        for workers in (1, 2):
            with (
                distributed.LocalCluster(
                    n_workers=workers, threads_per_worker=1, dashboard_address=":0", local_directory=name
                ) as cluster,
                distributed.Client(cluster) as client,
            ):
                took[workers] = measure(f"{workers} workers", points, client, folder)
        sys.stdout.write(f"two workers take {took[1] / took[2]:.2f} times less than one\n")


if __name__ == "__main__":
    main()
