"""What fills the memory of a device, and how much room is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from latency_model.costs.memory import USABLE_FRACTION, MemoryUse, memory_use
from latency_model.costs.round import Round
from latency_model.views.figures.style import PALETTE, AxisStyle, finish
from latency_model.views.figures.waterfall import notes_of, point_subtitle, single_point

if TYPE_CHECKING:
    from latency_model.views.figures.style import Figure

__all__ = ["memory"]

GIGABYTE = 1e9


def memory(point: Round | Any = None, hardware: Any = None, *, theme: str = "light", **asked: Any) -> Figure:
    """Bytes on the fullest device: weights, drafter and cache, against what there is.

    Parameters
    ----------
    point
        A Round of :func:`latency_model.speculate` at a single point; or a model, with ``hardware`` and the other
        arguments of that function.
    theme : str
        ``light`` or ``dark``.

    Returns
    -------
    plotly.graph_objects.Figure
        One bar; what reaches beyond the dashed line does not fit.
    """
    import plotly.graph_objects as go

    round_ = single_point(point, hardware, asked)
    place = {name: np.ravel(getattr(round_, name)) for name in ("batch", "context", "draft_length")}
    use = memory_use(round_.setting, round_.draft, **place)
    capacity = round_.setting.hardware.memory_capacity.value
    parts = {
        "weights": use.weights,
        "drafter": use.draft_weights,
        f"cache of {float(use.batch.max()):,.0f} sequences": float(use.cache.max()),
    }
    bars = [
        go.Bar(
            y=["one device"],
            x=[size / GIGABYTE],
            name=name,
            orientation="h",
            marker={"color": colour},
            text=f"{size / GIGABYTE:.3g} GB" if size > 0.12 * capacity else "",
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            constraintext="none",
            hovertemplate=f"<b>{name}: {size / GIGABYTE:.3g} GB</b>, {size / capacity:.0%} of it<extra></extra>",
        )
        for (name, size), colour in zip(parts.items(), (PALETTE[0], PALETTE[3], PALETTE[2]), strict=True)
        if size > 0
    ]
    limits = [
        go.Scatter(
            x=[bytes_ / GIGABYTE] * 2,
            y=[-0.5, 0.5],
            yaxis="y2",
            mode="lines",
            line={"color": PALETTE[1], "dash": dash, "width": 2.5},
            name=f"{name}, {bytes_ / GIGABYTE:.3g} GB",
            hoverinfo="name",
        )
        for bytes_, name, dash in (
            (use.capacity, f"usable: {USABLE_FRACTION:.0%} of the device", "dash"),
            (capacity, "the device", "solid"),
        )
    ]
    return finish(
        go.Figure([*bars, *limits]),
        title=_title(use),
        subtitle=point_subtitle(round_),
        x=AxisStyle("Memory [GB]", can_log=False),
        y=AxisStyle("", can_log=False),
        notes=notes_of(round_),
        theme=theme,
        layout={
            "yaxis": {"type": "category", "tickformat": None, "rangemode": None},
            "yaxis2": {"overlaying": "y", "range": [-0.5, 0.5], "visible": False, "fixedrange": True},
            "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "traceorder": "normal"},
            "barmode": "stack",
            "bargap": 0.35,
        },
    )


def _title(use: MemoryUse) -> str:
    """How full the device is, and how many sequences it can hold."""
    most = float(use.largest_batch.max())
    room = "any number of sequences" if np.isinf(most) else f"{most:,.0f} sequences"
    return f"Memory: {float(use.total.max()) / use.capacity:.0%} of what is usable, room for {room}"
