"""Fused mixture-of-experts layers: routing, both projections of every touched expert, and the weighted sum.

Traps of these tables.  "balanced" rows spread the tokens over disjoint experts, so min(E, t·k) are touched; power-law
rows draw how many tokens each expert gets and are the mean of five draws.  With ep > 1 tokens are global and the time
is that of the busiest rank.  Per-rank widths below 256 run kernels nobody deploys.  A few shapes have no gate.
vLLM's per-tensor fp8 on Hopper is a slow kernel, so fp8 means the block-scaled one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np

from latency_model.evidence.silicon.rows import FloatArray, Rows, most_used_kernel
from latency_model.evidence.silicon.tables import Table, read_table
from latency_model.formulas.routing import distinct_experts
from latency_model.specs.quantization import weight_format

__all__ = ["drawn_loads", "even_loads", "moe_rows", "power_law_load", "uniform_loads"]

COLUMNS = (
    "moe_dtype",
    "kernel_source",
    "num_tokens",
    "hidden_size",
    "inter_size",
    "topk",
    "num_experts",
    "moe_tp_size",
    "moe_ep_size",
    "distribution",
    "latency",
)
#: Format of the table: (format of the weights, operation and format of the profile's block, whether it is stored).
#: Of two formats with one block the first is stored: mxfp4 runs with activations in mxfp8 where kernels for it exist.
FORMATS = {
    "bfloat16": ("bf16", "moe", "bf16", True),
    "fp8_block": ("fp8_block", "moe", "fp8", True),
    "fp8": ("fp8", "moe", "fp8", False),
    "nvfp4": ("nvfp4", "moe", "fp4", True),
    "int4_wo": ("int4", "moe_int4", "bf16", True),
    "w4a8_mxfp4_mxfp8": ("mxfp4", "moe_mxfp4", "bf16", True),
    "w4a16_mxfp4": ("mxfp4", "moe_mxfp4", "bf16", True),
}
NARROWEST, MOST_TOKENS, FEW_TOKENS = 256, 16384, 256
UNGATED = {(2688, 1856), (2048, 5120), (1024, 2688)}  # (hidden, intermediate) of Nemotron layers
ACTIVATION_BYTES = 2.0
DRAWS = 12


#: Distinct experts and (token, expert) visits on the rank that was timed, for every row of a table.
Loads = Callable[[Table], tuple[FloatArray, FloatArray]]


def moe_rows(device: str, engine: str, *, loads: Loads | None = None, several_ranks: bool = False) -> Iterator[Rows]:
    """Gated layers, one set per number format.

    Parameters
    ----------
    device, engine : str
        Folder of the package and engine.
    loads : callable, optional
        How many experts a row touches; by default what the row was measured with.
    several_ranks : bool
        Rows of the busiest of several expert-parallel ranks instead of those of a single one.
    """
    table = read_table(device, engine, "moe", "moe_perf", COLUMNS)
    if table is None:
        return
    for table_format, (stored_as, operation, dtype, stored) in FORMATS.items():
        every = table.where(table["moe_dtype"] == table_format)
        if len(every) == 0:
            continue
        shapes = zip(every["hidden_size"], every["inter_size"], strict=True)
        gated = np.array([(int(h), int(m)) not in UNGATED for h, m in shapes])
        gated &= np.char.find(every["kernel_source"], "nongated") < 0
        width = every["inter_size"] / every["moe_tp_size"]
        usual = (width >= NARROWEST) & (every["num_tokens"] <= MOST_TOKENS)
        local = (every["moe_ep_size"] > 1) == several_ranks
        kept = every.where(gated & usual & local)
        if len(kept) == 0:
            continue
        chosen, kernel, other = most_used_kernel(kept)
        flops, traffic = _counts(chosen, stored_as, loads or drawn_loads)
        balanced = chosen["distribution"] == "balanced"
        yield Rows.of(
            chosen,
            operation=operation,
            dtype=dtype,
            table_format=table_format,
            kernel=kernel,
            flops=flops,
            traffic=traffic,
            milliseconds=chosen["latency"],
            stored=stored and not several_ranks,
            subsets={
                "t <= 256": chosen["num_tokens"] <= FEW_TOKENS,
                "balanced": balanced,
                "power law": ~balanced,
            },
            dropped={
                "width per rank < 256, or t > 16384": int((~usual).sum()),
                "no gate": int((usual & ~gated).sum()),
                "ep > 1": int((usual & gated & ~local).sum()),
                "another kernel": other,
            },
        )


def _counts(table: Table, stored_as: str, loads: Loads) -> tuple[FloatArray, FloatArray]:
    """FLOPs and bytes of routed experts, as ``costs.counts`` counts them."""
    hidden, width = table["hidden_size"], table["inter_size"] / table["moe_tp_size"]
    touched, visits = loads(table)
    form = weight_format(stored_as)
    shapes, where = np.unique(np.stack([hidden, width]), axis=1, return_inverse=True)
    expert = np.array([2 * form.matrix_bytes(int(h), int(m)) + form.matrix_bytes(int(m), int(h)) for h, m in shapes.T])
    moved = visits * (2.0 * hidden + 3.0 * width) * ACTIVATION_BYTES
    return 6.0 * visits * hidden * width, touched * expert[where] + moved


def even_loads(table: Table) -> tuple[FloatArray, FloatArray]:
    """Loads if tokens spread over disjoint experts: min(E, t·k), shared by the ranks."""
    visits = table["num_tokens"] * table["topk"]
    return np.minimum(table["num_experts"], visits) / table["moe_ep_size"], visits / table["moe_ep_size"]


def uniform_loads(table: Table) -> tuple[FloatArray, FloatArray]:
    """Loads if every token chose its experts independently and uniformly, shared by the ranks."""
    touched = distinct_experts(table["num_experts"], table["topk"], table["num_tokens"])
    return touched / table["moe_ep_size"], table["num_tokens"] * table["topk"] / table["moe_ep_size"]


def drawn_loads(table: Table) -> tuple[FloatArray, FloatArray]:
    """Loads of the routing each row was measured with, on its busiest rank."""
    names = ("num_tokens", "num_experts", "topk", "moe_ep_size")
    keys, where = np.unique(np.stack([*(table[name] for name in names), _exponent(table)]), axis=1, return_inverse=True)
    loads = np.array([_rank_load(*map(int, key[:4]), exponent=float(key[4])) for key in keys.T])
    return loads[where, 0], loads[where, 1]


def _exponent(table: Table) -> FloatArray:
    """Exponent of a power-law row, 0 of a balanced one."""
    names, where = np.unique(table["distribution"], return_inverse=True)
    return np.array([0.0 if name == "balanced" else float(name.rpartition("_")[2]) for name in names])[where]


def _rank_load(tokens: int, experts: int, top_k: int, ranks: int, *, exponent: float) -> tuple[float, float]:
    if exponent == 0.0:
        return min(experts, tokens * top_k) / ranks, tokens * top_k / ranks
    return power_law_load(tokens, experts, top_k, ranks, exponent)


@cache
def power_law_load(tokens: int, experts: int, top_k: int, ranks: int, exponent: float) -> tuple[float, float]:
    """Mean distinct experts and visits on the busiest rank when experts draw their share from a power law.

    Shares x have density ∝ x^(−exponent) on [1, 0.8 t], or on [0.01, 2] while t·k ≤ E; counts are the shares
    rounded, at most t each, and what rounding leaves is dealt rank by rank to the emptiest or from the fullest expert.
    This is how the collectors of aiconfigurator draw them (collector/helper.py, Apache-2.0).
    """
    rng = np.random.default_rng(1)
    low, high = (1.0, 0.8 * tokens) if tokens * top_k > experts else (0.01, 2.0)
    power = 1.0 - exponent
    shares = (low**power + rng.random((DRAWS, experts)) * (high**power - low**power)) ** (1.0 / power)
    counts = np.rint(shares / shares.sum(axis=1, keepdims=True) * tokens * top_k)
    counts = np.minimum(counts, tokens).reshape(DRAWS, ranks, experts // ranks)
    for draw in counts:
        _settle(draw, tokens * top_k, tokens)
    busiest = counts[np.arange(DRAWS), counts.sum(axis=2).argmax(axis=1)]
    return float((busiest > 0).sum(axis=1).mean()), float(busiest.sum(axis=1).mean())


def _settle(counts: FloatArray, total: int, most: int) -> None:
    """Deal out one visit per rank in turn until ``counts`` [ranks, experts] add up to ``total``."""
    missing = int(total - counts.sum())
    ranks = len(counts)
    for turn in range(abs(missing)):
        rank = counts[turn % ranks]
        if missing > 0:
            expert = rank.argmin()
            rank[expert] += rank[expert] < most
        else:
            expert = rank.argmax()
            rank[expert] -= rank[expert] > 0
