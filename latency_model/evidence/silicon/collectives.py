"""All-reduce and all-to-all over the devices of one node.

Traps of these tables.  Message sizes are elements, two bytes each.  The kernels of vLLM and SGLang were timed eagerly
and in a CUDA graph; decoding runs the graph.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from latency_model.evidence.silicon.rows import Rows
from latency_model.evidence.silicon.tables import read_table

__all__ = ["all_reduce_rows", "all_to_all_rows"]

COLUMNS = ("kernel_source", "num_gpus", "message_size", "latency")
ELEMENT_BYTES = 2.0
MOST_RANKS = 8


def all_reduce_rows(device: str, engine: str) -> Iterator[Rows]:
    """All-reduces of 2 to 8 devices, every message size, in a CUDA graph where that was timed."""
    table = read_table(device, engine, "comm", "custom_allreduce_perf", COLUMNS)
    if table is None:
        return
    graph = np.char.find(table["kernel_source"], "eager") < 0
    ranks = (table["num_gpus"] > 1) & (table["num_gpus"] <= MOST_RANKS)
    chosen = table.where(graph & ranks) if graph.any() else table.where(ranks)
    group = chosen["num_gpus"]
    yield Rows.of(
        chosen,
        operation="all_reduce",
        dtype="any",
        table_format="bf16",
        kernel=", ".join(np.unique(chosen["kernel_source"])),
        flops=np.zeros(len(chosen)),
        traffic=2.0 * (group - 1.0) / group * chosen["message_size"] * ELEMENT_BYTES,
        milliseconds=chosen["latency"],
        subsets={f"{size} devices": group == size for size in (2, 4, 8) if np.any(group == size)},
        dropped={"eager": int((~graph).sum()) if graph.any() else 0},
    )


def all_to_all_rows(device: str, engine: str) -> Iterator[Rows]:
    """Dispatch and combine of the low-latency kernels: each token goes to min(k, G) ranks, (G - 1)/G of them remote."""
    names = ("comm_backend", "kernel_source", "ep_size", "hidden_size", "topk", "num_tokens", "latency")
    table = read_table(device, engine, "comm", "moe_a2a_perf", names)
    if table is None or "deepep_ll" not in table["comm_backend"]:
        return
    chosen = table.where(table["comm_backend"] == "deepep_ll")
    ranks = chosen["ep_size"]
    copies = np.minimum(chosen["topk"], ranks) * (1.0 - 1.0 / ranks)
    yield Rows.of(
        chosen,
        operation="all_to_all",
        dtype="any",
        table_format="bf16",
        kernel="deepep_ll",
        flops=np.zeros(len(chosen)),
        traffic=chosen["num_tokens"] * chosen["hidden_size"] * ELEMENT_BYTES * copies,
        milliseconds=chosen["latency"] * 1e-3,  # this table is in microseconds
        dropped={"throughput kernels": len(table) - len(chosen)},
    )
