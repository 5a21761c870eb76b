"""Matrix products: one weight matrix [k, n] times m rows.

Traps of these tables.  Times of fp8 and fp4 include quantising the activations.  The collectors rotate 5-6 copies
of the weights so that the L2 cache forgets them (vLLM's fp8_block and nvfp4 use one copy), so a row is cold only
where all copies together exceed the L2.  vLLM's fp8_block ran outside a CUDA graph: 70-200 us of every row are
launches, so it is reported and not stored.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from latency_model.costs.counts import TILE
from latency_model.evidence.silicon.rows import Rows, most_used_kernel
from latency_model.evidence.silicon.tables import DEVICES, read_table
from latency_model.specs.dtypes import dtype_bytes
from latency_model.specs.hardware import load_hardware
from latency_model.specs.quantization import weight_format

__all__ = ["gemm_rows"]

#: Format of the table: (format of the weights, block of the profile).
FORMATS = {
    "bfloat16": ("bf16", "bf16"),
    "fp8": ("fp8", "fp8"),
    "fp8_block": ("fp8_block", "fp8"),
    "nvfp4": ("nvfp4", "fp4"),
}
#: Copies of the weights a collector rotates.
COPIES = {"vllm": 6, "sglang": 6, "trtllm": 5}
SINGLE_COPY = {("vllm", "fp8_block"), ("vllm", "nvfp4")}
SMALLEST, LONGEST = 512, 16384  # sides of the matrices that models have; rows of one step
ACTIVATION_BYTES = 2.0


def gemm_rows(device: str, engine: str) -> Iterator[Rows]:
    """Cold matrix products with n, k ≥ 512 and m ≤ 16384, one set per number format."""
    table = read_table(device, engine, "gemm", "gemm_perf", ("gemm_dtype", "kernel_source", "m", "n", "k", "latency"))
    if table is None:
        return
    cache = load_hardware(DEVICES[device]).on_chip
    for table_format, (stored_as, dtype) in FORMATS.items():
        every = table.where(table["gemm_dtype"] == table_format)
        if len(every) == 0:
            continue
        usual = (every["n"] >= SMALLEST) & (every["k"] >= SMALLEST) & (every["m"] <= LONGEST)
        chosen, kernel, other = most_used_kernel(every.where(usual))
        weights = matrix_bytes(stored_as, chosen["k"], chosen["n"])
        copies = 1 if (engine, table_format) in SINGLE_COPY else COPIES[engine]
        cold = copies * weights >= (cache.value if cache else 0.0)
        m, n, k = chosen["m"], chosen["n"], chosen["k"]
        narrow = dtype_bytes(dtype)
        yield Rows.of(
            chosen,
            operation="gemm",
            dtype=dtype,
            table_format=table_format,
            kernel=kernel,
            flops=2.0 * m * n * k,
            traffic=weights + m * (k * narrow + n * ACTIVATION_BYTES),
            piece=2.0 * TILE**2 * k,
            rounded=m * k * (2.0 * ACTIVATION_BYTES + narrow) if narrow < ACTIVATION_BYTES else 0.0,
            milliseconds=chosen["latency"],
            stored=table_format != "fp8_block",
            subsets={"m <= 64": m <= 64, "m > 64": m > 64},
            dropped={
                "n or k < 512, or m > 16384": int((~usual).sum()),
                "another kernel": other,
                "weights fit the L2": int((~cold).sum()),
            },
        ).where(cold)


def matrix_bytes(name: str, inputs: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """Bytes of [inputs, outputs] matrices with their scales [B]."""
    form = weight_format(name)
    pairs, where = np.unique(np.stack([inputs, outputs]), axis=1, return_inverse=True)
    sizes = np.array([form.matrix_bytes(int(i), int(o)) for i, o in pairs.T])
    return sizes[where]
