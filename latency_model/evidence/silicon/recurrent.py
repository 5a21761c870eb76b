"""Recurrent mixers: one decode step of a gated delta net."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from latency_model.evidence.silicon.rows import Rows
from latency_model.evidence.silicon.tables import read_table

__all__ = ["recurrence_rows"]

COLUMNS = ("kernel_source", "phase", "batch_size", "num_v_heads", "head_k_dim", "head_v_dim", "latency")
STATE_BYTES = 4.0  # fp32


def recurrence_rows(device: str, engine: str) -> Iterator[Rows]:
    """Recurrence kernels of a decode step, which read and write the state of every sequence; reported, not stored."""
    table = read_table(device, engine, "linear_attention", "gdn_perf", COLUMNS)
    if table is None:
        return
    recurrent = np.char.find(table["kernel_source"], "recurrent") >= 0
    chosen = table.where((table["phase"] == "generation") & recurrent)
    if len(chosen) == 0:
        return
    elements = chosen["batch_size"] * chosen["num_v_heads"] * chosen["head_k_dim"] * chosen["head_v_dim"]
    yield Rows.of(
        chosen,
        operation="recurrence",
        dtype="bf16",
        table_format="fp32 state",
        kernel=", ".join(np.unique(chosen["kernel_source"])),
        flops=8.0 * elements,
        traffic=2.0 * elements * STATE_BYTES,
        milliseconds=chosen["latency"],
        stored=False,
        dropped={"convolutions and prompts": len(table) - len(chosen)},
    )
