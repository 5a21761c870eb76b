"""Tokens of one request choose alike, so that verifying them loads fewer experts than independent ones would."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from latency_model.evidence.published.record import read_table
from latency_model.evidence.published.routing import union_fits
from latency_model.formulas.routing import distinct_experts, routing_overlap
from latency_model.views.figures.style import AxisStyle, finish
from latency_model.views.gallery.claim import Claim, replay
from latency_model.views.gallery.drawing import curve, formula_notes, published
from latency_model.views.gallery.moe_batch import cohere, cohere_routing

if TYPE_CHECKING:
    from latency_model.views.figures.style import Figure

__all__ = ["claim"]

LAGS = np.arange(1, 33)
TOKENS = np.arange(1.0, 33.0)


def claim(theme: str = "light") -> Claim:
    """Correlated choices of experts make verification cheaper."""
    said, routing = cohere(), cohere_routing()
    experts, top_k = int(said["routed experts"]), int(said["experts per token"])
    alike = {"persistence": routing.persistence, "stickiness": routing.stickiness}
    fed = said["draft length"] + 1.0
    apart, together = (float(distinct_experts(experts, top_k, fed, **given)) for given in ({}, alike))
    return Claim(
        name="correlation",
        title="Temporal correlation of experts cuts the cost of verification",
        text=(
            "Neighbouring tokens of one request share more experts than chance would have it: some because a request "
            "keeps its topic (persistence), some because a token tends to stay where its predecessor was "
            "(stickiness). Two numbers, read off overlaps at a near and a far lag, say how many different experts "
            "the tokens of one verification touch, and so how many bytes it loads."
        ),
        figures=(_overlaps(theme), _unions(theme)),
        checks=(replay("unions-overlaps"), replay("unions-fitted")),
        read=read_table("cohere_scalars").sources,
        findings=(
            f"Verifying {fed:.0f} tokens of one request loads {together:.1f} experts a layer instead of the "
            f"{apart:.1f} of independent tokens, {1.0 - together / apart:.0%} fewer expert bytes.",
        ),
    )


def _overlaps(theme: str) -> Figure:
    import plotly.graph_objects as go

    said, routing = cohere(), cohere_routing()
    chance = said["experts per token"] / said["routed experts"]
    overlap = routing_overlap(chance, LAGS, persistence=routing.persistence, stickiness=routing.stickiness)
    rows = read_table("cohere_expert_overlap_by_lag").rows
    figure = go.Figure(curve(LAGS, overlap, "persistent and sticky routing", 0))
    figure.add_trace(curve(LAGS, np.full(len(LAGS), chance), "independent, equally popular", 6, dash="dash"))
    skewed = said["overlap of independent tokens, popularity kept"]
    figure.add_trace(curve(LAGS, np.full(len(LAGS), skewed), "published: independent, popularity kept", 1, dash="dot"))
    lags, measured = ([float(row[name]) for row in rows] for name in ("lag", "overlap"))
    texts = [f"lag {lag:.0f}: {value:.3f} of the experts shared" for lag, value in zip(lags, measured, strict=True)]
    figure.add_trace(published(lags, measured, "Cohere's mixture", 0, texts))
    return finish(
        figure,
        title="Experts that two tokens share, against how far apart they stand",
        subtitle=f"{said['routed experts']:.0f} experts, {said['experts per token']:.0f} a token",
        x=AxisStyle("Lag [tokens]", log=True, octave=1),
        y=AxisStyle("Shared experts over experts a token [1]"),
        notes=formula_notes("persistence from the overlap at the farthest lag, stickiness from the nearest"),
        theme=theme,
    )


def _unions(theme: str) -> Figure:
    import plotly.graph_objects as go

    figure = go.Figure()
    fits = union_fits()
    independent = {(fit.num_experts, fit.top_k) for fit in fits}
    for number, (experts, top_k) in enumerate(sorted(independent)):
        name = f"independent tokens, {top_k} of {experts}"
        union = distinct_experts(experts, top_k, TOKENS)
        figure.add_trace(curve(TOKENS, union, name, 6, dash=("dash", "dot")[number % 2]))
    for number, fit in enumerate(fits):
        name = fit.model.partition(" (inferred")[0]
        figure.add_trace(curve(TOKENS, fit.union(TOKENS), name, number))
        texts = [
            f"<b>{name}</b>, {n:.0f} tokens: {seen:.1f} experts, fitted {guess:.1f}"
            for n, seen, guess in zip(fit.tokens, fit.measured, fit.union(fit.tokens), strict=True)
        ]
        figure.add_trace(published(fit.tokens, fit.measured, name, number, texts))
    return finish(
        figure,
        title="Different experts that consecutive tokens touch",
        subtitle="one layer, one request; two parameters fitted to each trace",
        x=AxisStyle("Consecutive tokens [tokens]", log=True, octave=1),
        y=AxisStyle("Experts touched [experts]"),
        notes=formula_notes("experts equally popular over all traffic"),
        theme=theme,
    )
