"""The roofline of a device with the operations of a round on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from latency_model.costs.round import Round
from latency_model.costs.step import StepCost, step_cost
from latency_model.errors import InputError
from latency_model.views.figures.style import PALETTE, SYMBOLS, AxisStyle, finish, label
from latency_model.views.figures.waterfall import notes_of, point_subtitle, single_point

if TYPE_CHECKING:
    from latency_model.views.figures.style import Figure

__all__ = ["roofline"]

PROMPT = 2048
#: Shares of a step that are worth a point.
SMALL = 0.001


class Phase(NamedTuple):
    """A step whose operations are shown, with its mark."""

    name: str
    step: StepCost


def roofline(
    point: Round | Any = None, hardware: Any = None, *, prompt: int = PROMPT, theme: str = "light", **asked: Any
) -> Figure:
    """Operations of decoding, verification, drafting and prefill under the roof of the device.

    Parameters
    ----------
    point
        A Round of :func:`latency_model.speculate` at a single point; or a model, with ``hardware`` and the other
        arguments of that function.
    prompt : int
        Tokens of the prompt whose prefill is shown, 0 for none [token].
    theme : str
        ``light`` or ``dark``.

    Returns
    -------
    plotly.graph_objects.Figure
        Full lines are the datasheet's roof, dashed ones what kernels reach; a point below the dashed line loses
        the difference to launches.  Areas of marks are shares of their step.
    """
    import plotly.graph_objects as go

    round_ = single_point(point, hardware, asked)
    setting = round_.setting
    cost = round_.cost
    drafts = float(round_.draft_length) > 0
    phases = [Phase(f"prefill {prompt:,} tokens", _prefill(round_, prompt))] if prompt else []
    if drafts and cost.draft_step is not None:
        phases.append(Phase("draft", cost.draft_step))
    if drafts:
        phases.append(Phase(f"verify {float(round_.draft_length) + 1:.0f} tokens", cost.verify))
    phases.append(Phase("decode", cost.baseline))
    figure = go.Figure()
    points = [point for number, phase in enumerate(phases) for point in _points(phase, number)]
    intensities = np.concatenate([np.asarray(point.x) for point in points])
    span = np.geomspace(intensities.min() / 3, max(intensities.max() * 3, 2000.0), 200)
    for roof in _roofs(round_, phases, span):
        figure.add_trace(roof)
    for trace in points:
        figure.add_trace(trace)
    return finish(
        figure,
        title="Roofline: how hard each operation works the device",
        subtitle=point_subtitle(round_) + ("" if setting.parallelism.devices == 1 else ", per device"),
        x=AxisStyle("Arithmetic intensity [FLOP/B]", log=True),
        y=AxisStyle("Rate reached [FLOP/s]", log=True, ticks="~s"),
        notes=notes_of(round_),
        theme=theme,
    )


def _prefill(round_: Round, prompt: int) -> StepCost:
    setting = round_.setting
    return step_cost(
        setting.model,
        setting.hardware,
        batch=1,
        context=0,
        tokens_per_sequence=prompt,
        prefill=True,
        parallelism=setting.parallelism,
        routing=setting.routing,
        dtypes=setting.dtypes,
        engine=setting.engine,
    )


def _points(phase: Phase, number: int) -> Iterator[Any]:
    import plotly.graph_objects as go

    rows: list[dict[str, Any]] = [
        {name: value if isinstance(value, str) else np.asarray(value).reshape(-1)[0] for name, value in row.items()}
        for row in phase.step.table
        if row["group"] != "communication"
    ]
    shown = [row for row in rows if row["flops"] > 0 and row["traffic_bytes"] > 0 and row["share"] > SMALL]
    if not shown:
        raise InputError(f"{phase.name} has no operations that compute")
    yield go.Scatter(
        x=[row["flops"] / row["traffic_bytes"] for row in shown],
        y=[row["flops"] / row["time_s"] for row in shown],
        mode="markers+text",
        text=["experts" if row["group"] == "experts" else "" for row in shown],
        textposition="top center",
        textfont={"size": 11},
        name=phase.name,
        marker={
            "size": [8 + 26 * float(row["share"]) ** 0.5 for row in shown],
            "color": PALETTE[number],
            "symbol": SYMBOLS[number],
            "opacity": 0.75,
            "line": {"width": 1, "color": "rgba(255,255,255,0.8)"},
        },
        customdata=[
            f"<b>{label(row['name'])}</b>, {phase.name}<br>{row['share']:.0%} of the step, {1e6 * row['time_s']:.3g} µs"
            f"<br>{row['flops']:.3g} FLOP over {row['traffic_bytes']:.3g} B in {row['dtype']}"
            f"<br>bound by {row['bound']}"
            for row in shown
        ],
        hovertemplate="%{customdata}<extra></extra>",
    )


def _roofs(round_: Round, phases: list[Phase], span: np.ndarray[Any, Any]) -> Iterator[Any]:
    """The datasheet's roof of every number format used, and the one that matrix kernels reach."""
    import plotly.graph_objects as go

    setting = round_.setting
    machine = setting.hardware
    bandwidth = machine.memory_bandwidth.value
    formats = {row["dtype"] for phase in phases for row in phase.step.table if row["dtype"]}
    peaks = {
        peak.dtype: peak.value
        for dtype in sorted(formats)
        for peak in [machine.peak_flops(dtype, allow_fallback=setting.dtypes.allow_fallback)]
    }
    for dash, (dtype, peak) in enumerate(peaks.items()):
        reached = machine.efficiency("gemm", dtype)
        width = 2.5 if dash == 0 else 1.5
        yield go.Scatter(
            x=span,
            y=np.minimum(peak, span * bandwidth),
            mode="lines",
            name=f"datasheet, {dtype}",
            line={"color": PALETTE[6], "width": width},
            hovertemplate=f"datasheet: {peak:.3g} FLOP/s in {dtype}, {bandwidth:.3g} B/s<extra></extra>",
        )
        yield go.Scatter(
            x=span,
            y=np.minimum(peak * reached.compute, span * bandwidth * reached.memory),
            mode="lines",
            name=f"reached by GEMM, {dtype}",
            line={"color": PALETTE[6], "width": width, "dash": "dash"},
            hovertemplate=(
                f"GEMM kernels reach {reached.compute:.0%} of compute and {reached.memory:.0%} of bandwidth "
                f"({reached.kind})<extra></extra>"
            ),
        )
