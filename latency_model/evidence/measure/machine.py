"""The device measured on: torch, its clock, and memory enough that weights come from it and not from a cache."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, field, frozen
from numpy.typing import NDArray

from latency_model.errors import InputError, nearest
from latency_model.specs.dtypes import canonical_dtype, dtype_bytes

__all__ = ["Case", "Machine", "Samples", "time_cases"]

FloatArray = NDArray[np.floating[Any]]

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
SMALLEST_POOL, LARGEST_POOL = 1 << 28, 1 << 30  # [B]
CACHES = 4.0  # pool over last-level cache: what is read again has left the cache
SHORTEST_SAMPLE = 2e-3  # [s]; a clock that ticks in microseconds and an interrupt now and then are small against it
FEWEST_PASSES = 3


@frozen(kw_only=True, eq=False)
class Case:
    """Something to time: ``run`` executes it once.

    ``flops`` and ``traffic`` are those the step model counts for it [FLOP], [B]; for a whole step they are 0.
    """

    name: str
    operation: str
    run: Callable[[], object]
    flops: float = 0.0
    traffic: float = 0.0


@frozen(kw_only=True, eq=False)
class Samples:
    """Seconds of each case over the passes, shape [passes, cases] [s]."""

    seconds: FloatArray

    @property
    def median(self) -> FloatArray:
        """Median of each case, shape [cases] [s]."""
        return np.asarray(np.median(self.seconds, axis=0))

    @property
    def spread(self) -> FloatArray:
        """Half the distance between the quartiles over the median, shape [cases] [1]."""
        low, high = np.quantile(self.seconds, [0.25, 0.75], axis=0)
        return np.asarray((high - low) / 2.0 / self.median)


@define(kw_only=True, eq=False)
class Machine:
    """A torch device with a pool of memory to read weights from."""

    torch: Any
    device: str
    dtype: str
    _pool: Any = field(init=False, repr=False)
    _next: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        elements = int(self.pool_bytes / dtype_bytes(self.dtype))
        block = self.torch.randn(1 << 20, device=self.device).mul_(0.02).to(self.torch_dtype)
        self._pool = block.repeat(-(-elements // block.numel()))

    @classmethod
    def on(cls, device: str, dtype: str = "bf16", threads: int | None = None) -> Machine:
        """Open a device; a sentence where torch or the device is missing."""
        try:
            torch = import_module("torch")
        except ImportError:
            raise InputError("measuring needs torch: pip install 'latency-model[measure]'") from None
        if device not in ("cpu", "cuda"):
            raise InputError(f"device must be cpu or cuda; {nearest(device, ('cpu', 'cuda'))}")
        if device == "cuda" and not torch.cuda.is_available():
            raise InputError("torch sees no CUDA device; use --device cpu, or install torch with CUDA")
        name = canonical_dtype(dtype)
        if name not in DTYPES:
            raise InputError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
        if threads is not None:
            if threads < 1:
                raise InputError(f"threads must be at least 1, got {threads}")
            torch.set_num_threads(threads)
        return cls(torch=torch, device=device, dtype=name)

    @property
    def torch_dtype(self) -> Any:
        """The number format as torch names it."""
        return getattr(self.torch, DTYPES[self.dtype])

    @property
    def is_gpu(self) -> bool:
        """True on CUDA."""
        return self.device == "cuda"

    @property
    def pool_bytes(self) -> float:
        """Memory that weights are taken from in turn [B]."""
        cache = 64e6 if self.is_gpu else _last_level_cache()
        return min(max(CACHES * cache, SMALLEST_POOL), LARGEST_POOL)

    @property
    def memory_capacity(self) -> float:
        """Memory of the device [B]."""
        if self.is_gpu:
            return float(self.torch.cuda.get_device_properties(0).total_memory)
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))

    @property
    def title(self) -> str:
        """What the machine is."""
        if self.is_gpu:
            return str(self.torch.cuda.get_device_name(0))
        threads = self.torch.get_num_threads()
        return f"{_cpu_name()}, {threads} thread{'s' if threads > 1 else ''}"

    @property
    def software(self) -> str:
        """What ran the measurements."""
        return f"torch {self.torch.__version__} on {platform.system()} {platform.machine()}"

    def take(self, *shape: int) -> Any:
        """The next piece of the pool in this shape: memory that was not touched for a while."""
        size = int(np.prod(shape))
        if size > self._pool.numel():
            raise InputError(f"a tensor of shape {shape} is larger than the pool of {self.pool_bytes:.3g} B")
        if self._next + size > self._pool.numel():
            self._next = 0
        piece = self._pool[self._next : self._next + size].view(*shape)
        self._next += size
        return piece

    def random(self, *shape: int) -> Any:
        """A tensor of its own with random content."""
        return self.torch.randn(*shape, device=self.device).mul_(0.02).to(self.torch_dtype)

    @property
    def one_thread(self) -> bool:
        """True where all work is that of the calling thread."""
        return not self.is_gpu and self.torch.get_num_threads() == 1

    def time(self, run: Callable[[], object], times: int) -> float:
        """Mean seconds of one execution out of so many [s].

        Work of one thread is timed by the processor time it got: other programs then disturb less, and on an idle
        machine it is the same.
        """
        clock = time.thread_time if self.one_thread else time.perf_counter
        self.wait()
        start = clock()
        for _ in range(times):
            run()
        self.wait()
        return (clock() - start) / times

    def wait(self) -> None:
        """Until the device has finished."""
        if self.is_gpu:
            self.torch.cuda.synchronize()


def time_cases(
    machine: Machine,
    cases: Sequence[Case],
    *,
    seconds: float,
    progress: Callable[[float], None] = lambda share: None,
) -> Samples:
    """Time all cases in turn, pass after pass, until the time is up.

    Passes in turn let a slow spell of the machine meet all cases alike.

    Parameters
    ----------
    machine : Machine
        Where they run.
    cases : sequence of Case
        What runs.
    seconds : float
        Time for all of it [s].
    progress : callable
        Told the share of the time that has passed [1].

    Returns
    -------
    Samples
        At least three passes.

    Raises
    ------
    InputError
        When the time does not suffice.
    """
    start = time.perf_counter()
    with machine.torch.inference_mode():
        counts = []
        for place, case in enumerate(cases):
            machine.time(case.run, 1)  # the first run compiles and allocates
            counts.append(max(1, round(SHORTEST_SAMPLE / max(machine.time(case.run, 1), 1e-9))))
            _check_time(start, seconds, passes=0, share=(place + 1) / len(cases))
        passes: list[list[float]] = []
        while True:
            row = []
            for case, count in zip(cases, counts, strict=True):
                row.append(machine.time(case.run, count))
                if len(passes) >= FEWEST_PASSES and time.perf_counter() - start > seconds:
                    return Samples(seconds=np.array(passes))
            passes.append(row)
            progress(min((time.perf_counter() - start) / seconds, 1.0))
            _check_time(start, seconds, passes=len(passes), share=1.0)


def _check_time(start: float, seconds: float, *, passes: int, share: float) -> None:
    """Give up where three passes cannot be done within twice the time allowed."""
    gone = time.perf_counter() - start
    if passes < FEWEST_PASSES and gone > 2.0 * seconds:
        done = f"{passes} of {FEWEST_PASSES} passes" if passes else f"{share:.0%} of the warm-up"
        raise InputError(f"{seconds:g} s are too short here: {done} took {gone:.1f} s; give more with --seconds")


def _last_level_cache() -> float:
    """Size of the largest cache [B]; 32 MB where the system does not say."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        if match := re.fullmatch(r"(\d+)([KM])\s*", path.read_text()):
            sizes.append(float(match[1]) * {"K": 1024.0, "M": 1024.0**2}[match[2]])
    return max(sizes, default=32e6)


def _cpu_name() -> str:
    path = Path("/proc/cpuinfo")
    if path.is_file():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
