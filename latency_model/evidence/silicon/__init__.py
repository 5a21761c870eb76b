"""Measured kernels of the aiconfigurator-core package, read as FLOPs, bytes and seconds (extra ``silicon``)."""

from latency_model.evidence.silicon.attention import decode_rows, latent_rows, prefill_rows
from latency_model.evidence.silicon.collectives import all_reduce_rows, all_to_all_rows
from latency_model.evidence.silicon.gemm import gemm_rows
from latency_model.evidence.silicon.moe import moe_rows, power_law_load
from latency_model.evidence.silicon.recurrent import recurrence_rows
from latency_model.evidence.silicon.rows import Rows
from latency_model.evidence.silicon.tables import DEVICES, ENGINES, package_version

__all__ = [
    "DEVICES",
    "ENGINES",
    "READERS",
    "Rows",
    "all_reduce_rows",
    "all_to_all_rows",
    "decode_rows",
    "gemm_rows",
    "latent_rows",
    "moe_rows",
    "package_version",
    "power_law_load",
    "prefill_rows",
    "recurrence_rows",
]

#: One reader per kind of operation: device folder and engine in, sets of rows out.
READERS = (
    gemm_rows,
    decode_rows,
    prefill_rows,
    moe_rows,
    latent_rows,
    recurrence_rows,
    all_to_all_rows,
    all_reduce_rows,
)
