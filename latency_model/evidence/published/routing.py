"""Distinct experts in published traces, and in the trace of a real router that lies beside the tables."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latency_model.evidence.published.record import DATA, Group, Row, published_model, read_table
from latency_model.evidence.routing_trace import fit_routing
from latency_model.formulas.routing import (
    distinct_experts,
    persistence_from_overlap,
    routing_overlap,
    stickiness_from_overlap,
)
from latency_model.specs.model import MoE

__all__ = ["UnionFit", "activated_share", "fitted_unions", "small_moe", "union_fits", "unions_from_overlaps"]

FloatArray = NDArray[np.floating[Any]]


def _fit_unions(predicted: Callable[[float, float], FloatArray], measured: FloatArray) -> tuple[float, float]:
    """Persistence and stickiness whose unions come closest to the measured ones, in relative terms [1], [1]."""
    from scipy.optimize import least_squares

    def residuals(parameters: FloatArray) -> FloatArray:
        return np.log(predicted(*parameters) / measured)

    fit = least_squares(residuals, x0=[0.15, 0.15], bounds=([0.0, 0.0], [0.95, 0.95]), xtol=1e-10)
    return float(fit.x[0]), float(fit.x[1])


class UnionFit(NamedTuple):
    """Distinct experts of consecutive tokens in one published trace, and the two parameters that fit them."""

    model: str
    num_experts: int
    top_k: int
    tokens: FloatArray
    measured: FloatArray
    persistence: float
    stickiness: float

    def union(self, tokens: FloatArray) -> FloatArray:
        """Distinct experts of so many consecutive tokens [expert]."""
        return _consecutive_union(self.num_experts, self.top_k, tokens, self.persistence, self.stickiness)


def union_fits() -> list[UnionFit]:
    """Two parameters fitted to each published trace of several lengths."""
    fits = []
    for model, group in itertools.groupby(read_table("expert_unions").rows, lambda row: row["model"]):
        points = list(group)
        if len(points) < 2:
            continue
        tokens, measured = _columns(points, "t_tokens", "unique_experts")
        experts, top_k = int(points[0]["E"]), int(points[0]["k"])
        rho, s = _fit_unions(partial(_consecutive_union, experts, top_k, tokens), measured)
        fits.append(UnionFit(model, experts, top_k, tokens, measured, rho, s))
    return fits


def fitted_unions() -> Group:
    """Distinct experts of consecutive tokens, two parameters fitted to each trace of several lengths."""
    fits = union_fits()
    said = (f"{fit.model} persistence {fit.persistence:.3f}, stickiness {fit.stickiness:.3f}" for fit in fits)
    return Group(
        name="unions-fitted",
        quantity="distinct experts, two parameters fitted per trace [expert]",
        rows=tuple(
            Row(case=f"{fit.model}, {n:.0f} tokens", predicted=u, measured=m)
            for fit in fits
            for n, u, m in zip(fit.tokens, fit.union(fit.tokens), fit.measured, strict=True)
        ),
        sources=read_table("expert_unions").sources,
        assumptions=("fitted: " + "; ".join(said),),
    )


def _columns(rows: Iterable[Mapping[str, str]], *names: str) -> list[FloatArray]:
    rows = list(rows)
    return [np.array([float(row[name]) for row in rows]) for name in names]


def _consecutive_union(
    experts: int, top_k: int, tokens: FloatArray, persistence: float, stickiness: float
) -> FloatArray:
    return distinct_experts(experts, top_k, tokens, persistence=persistence, stickiness=stickiness)


def unions_from_overlaps() -> Group:
    """Distinct experts of 4 tokens and overlaps in between, from the overlaps at the nearest and farthest lag."""
    table = read_table("cohere_expert_overlap_by_lag")
    union = next(row for row in read_table("expert_unions").rows if row["model"].startswith("Cohere"))
    experts, top_k, tokens = int(union["E"]), int(union["k"]), int(union["t_tokens"])
    overlap = {int(row["lag"]): float(row["overlap"]) for row in table.rows}
    nearest, farthest = min(overlap), max(overlap)
    rho = persistence_from_overlap(top_k / experts, overlap[farthest])
    s = stickiness_from_overlap(adjacent_overlap=overlap[nearest], distant_overlap=overlap[farthest])
    rows = [
        Row(
            case=f"distinct experts of {tokens} tokens",
            predicted=distinct_experts(experts, top_k, tokens, persistence=rho, stickiness=s),
            measured=float(union["unique_experts"]),
        )
    ]
    rows += [
        Row(
            case=f"overlap at lag {lag}",
            predicted=routing_overlap(top_k / experts, lag, persistence=rho, stickiness=s),
            measured=measured,
        )
        for lag, measured in overlap.items()
        if nearest < lag < farthest
    ]
    return Group(
        name="unions-overlaps",
        quantity="distinct experts and overlaps, from two lags",
        rows=tuple(rows),
        sources=table.sources,
        assumptions=(f"persistence from the overlap at lag {farthest}, stickiness from lag {nearest}",),
    )


#: Tokens of each sequence that the unions were drawn from.
HELD_OUT = slice(32, 192)


def small_moe() -> Group:
    """Distinct experts of B sequences of n tokens, from single sequences and popularity of the same trace."""
    table = read_table("small_moe_unions")
    with np.load(DATA / "small_moe_routing_trace.npz") as trace:
        fits = fit_routing(trace["expert_ids"][:, :, HELD_OUT], int(trace["num_experts"])).layers
    rows = []
    for layer, group in itertools.groupby(table.rows, lambda row: int(row["layer"])):
        sequences, tokens, measured = _columns(group, "sequences", "tokens_per_sequence", "distinct_experts")
        predicted = fits[layer].distinct_experts(tokens, sequences)
        rows += [
            Row(case=f"layer {layer}, {b:.0f} sequences of {n:.0f}", predicted=u, measured=m)
            for b, n, u, m in zip(sequences, tokens, predicted, measured, strict=True)
        ]
    return Group(
        name="unions-batched",
        quantity="distinct experts of many sequences, a small real router [expert]",
        rows=tuple(rows),
        sources=table.sources,
        assumptions=(
            "popularity of every expert as counted in the trace",
            "persistence and stickiness fitted to unions of single sequences: "
            + "; ".join(f"layer {i} {fit.persistence:.3f} and {fit.stickiness:.3f}" for i, fit in enumerate(fits)),
        ),
    )


def activated_share() -> Group:
    """Share of a model's parameters that one decoding step of 8 sequences reads (MoE-CAP)."""
    table = read_table("moecap_activation")
    spread = {row["model"]: float(row["cv"]) for row in read_table("expert_popularity_cv_by_model").rows}
    rows = []
    for row in table.rows:
        model = published_model(row["model"])
        everything = model.total_parameters
        routed = touched = 0.0
        for layer, count in model.layer_kinds:
            for block in layer.feed_forward:
                if isinstance(block, MoE):
                    one = sum(matrix.parameters for part in block.expert for matrix in part.matrices) * count
                    cv = spread.get(row["model"], 0.0)
                    routed += block.num_experts * one
                    touched += one * float(distinct_experts(block.num_experts, block.top_k, 1, 8, popularity_cv=cv))
        predicted = 100.0 * (everything - routed + touched) / everything
        rows.append(Row(case=row["model"], predicted=predicted, measured=float(row["measured_all_param_pct"])))
    return Group(
        name="activated-share",
        quantity="share of all parameters a batch of 8 activates [%]",
        rows=tuple(rows),
        sources=table.sources,
        assumptions=("popularity as in arXiv 2505.16056 where listed, else equal; sequences independent",),
    )
