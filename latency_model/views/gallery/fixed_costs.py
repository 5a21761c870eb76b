"""At batch 1 a step is mostly fixed cost, which verification shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from latency_model.costs.step import StepCost, step_cost
from latency_model.evidence.published.record import Group, Row, read_table
from latency_model.formulas.routing import distinct_experts
from latency_model.specs.routing import Routing
from latency_model.views.figures.style import AxisStyle, finish
from latency_model.views.figures.waterfall import notes_of
from latency_model.views.gallery.claim import Claim, replay
from latency_model.views.gallery.drawing import curve, published, rows_of
from latency_model.views.gallery.moe_batch import STAND_IN, cohere, cohere_routing, stand_in

if TYPE_CHECKING:
    from latency_model.views.figures.style import Figure

__all__ = ["claim"]

TOKENS = np.arange(1.0, 9.0)
BYTES = ("weight bytes", "expert bytes", "KV bytes", "activation bytes")


def claim(theme: str = "light") -> Claim:
    """Fixed costs of a step are paid once for all verified tokens."""
    said, layer = cohere(), replay("moe-layer")
    fed, share = said["draft length"] + 1.0, said["expert share of a step"]
    experts, top_k = int(said["routed experts"]), int(said["experts per token"])
    routing = cohere_routing()
    touched = distinct_experts(experts, top_k, fed, persistence=routing.persistence, stickiness=routing.stickiness)
    mixture = _steps(cohere_routing())
    ratio = np.asarray(mixture.time / mixture.time[0])
    at = int(np.flatnonzero(fed == TOKENS)[0])
    check = Group(
        name="cohere-verification",
        quantity="time to verify 4 tokens over a plain step, batch 1 [1]",
        rows=(
            Row(
                case="from routing alone, Cohere's expert share",
                predicted=1.0 - share + share * touched / top_k,
                measured=said["verify ratio from routing alone"],
            ),
            Row(
                case=f"{STAND_IN} with fixed costs, against Cohere's measurement",
                predicted=ratio[at],
                measured=said["verify ratio measured"],
            ),
        ),
        sources=read_table("cohere_scalars").sources,
        assumptions=(f"the size of Cohere's mixture is not published: {STAND_IN} on one H100 stands in",),
    )
    terms = {name: float(np.ravel(seconds)[0]) for name, seconds in mixture.terms().items()}
    fixed = terms["kernel launches"] + terms["engine overhead"]
    return Claim(
        name="fixed-costs",
        title="At batch 1 fixed costs are shared by all verified tokens",
        text=(
            "A step at batch 1 launches hundreds of kernels and waits for the host; none of this grows with the tokens "
            "it verifies. So verification costs less than the added expert bytes suggest, and the gain at batch 1 is "
            "higher than routing alone explains. The same shows in one layer: its time is a fixed part plus the bytes "
            "of the experts it touches."
        ),
        figures=(_ratios(mixture, theme), _layer(layer, theme)),
        checks=(check, layer),
        findings=(
            f"Launches and host take {fixed / mixture.time[0]:.0%} of a plain step of {STAND_IN} at batch 1; they "
            f"bring the cost of verifying 4 tokens from {_bytes(mixture)[at]:.2f} steps by bytes to {ratio[at]:.2f}.",
        ),
    )


def _steps(routing: Routing) -> StepCost:
    setting = stand_in().setting
    return step_cost(
        setting.model, setting.hardware, batch=1, context=1024, tokens_per_sequence=TOKENS, routing=routing
    )


def _bytes(cost: StepCost) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Time spent on bytes over that of a plain step [1]."""
    terms = cost.terms()
    total = sum(np.broadcast_to(terms[name], TOKENS.shape) for name in BYTES)
    return np.asarray(total / np.asarray(total)[0])


def _ratios(mixture: StepCost, theme: str) -> Figure:
    import plotly.graph_objects as go

    said = cohere()
    apart = _steps(Routing.uniform())
    figure = go.Figure(curve(TOKENS, _bytes(apart), "bytes alone, independent tokens", 6, dash="dash"))
    figure.add_trace(curve(TOKENS, _bytes(mixture), "bytes alone, tokens choose alike", 1, dash="dot"))
    figure.add_trace(curve(TOKENS, mixture.time / mixture.time[0], "with launches and host", 0))
    fed = [said["draft length"] + 1.0]
    for name, number in (("verify ratio from routing alone", 1), ("verify ratio measured", 0)):
        text = f"Cohere's mixture, {name}: {said[name]}"
        figure.add_trace(published(fed, [said[name]], f"Cohere, {name}", number, [text]))
    return finish(
        figure,
        title="Time of a verification over that of a plain step",
        subtitle=f"batch 1; lines: {STAND_IN} on one H100 with Cohere's routing",
        x=AxisStyle("Verified tokens [tokens]", can_log=False),
        y=AxisStyle("Verification over a plain step [×]"),
        notes=notes_of(stand_in()),
        theme=theme,
    )


def _layer(check: Group, theme: str) -> Figure:
    import plotly.graph_objects as go

    rows = read_table("oea_qwen3_30b_moe_layer_latency").rows
    experts = np.array([float(row["avg_active_experts_per_layer"]) for row in rows])
    order = np.argsort(experts)
    predicted, measured = (np.array([getattr(row, name) for row in check.rows]) for name in ("predicted", "measured"))
    slope, fixed = np.polyfit(experts, predicted, 1)
    figure = go.Figure(curve(experts[order], predicted[order], "router and routed experts", 0))
    ends = np.array([0.0, experts.min()])
    figure.add_trace(curve(ends, fixed + slope * ends, f"continued to its fixed part, {fixed:.0f} µs", 6, dash="dot"))
    figure.add_trace(published(experts, measured, "Qwen3-30B-A3B on H100 in SGLang", 0, rows_of(check)))
    return finish(
        figure,
        title="Time of one mixture-of-experts layer against the experts it touches",
        subtitle=f"Qwen3-30B-A3B on H100: {slope:.2f} µs for each expert and {fixed:.0f} µs whatever it touches",
        x=AxisStyle("Experts touched [experts]", can_log=False),
        y=AxisStyle("Time of the layer [µs]", can_log=False),
        notes=notes_of(stand_in()),
        theme=theme,
    )
