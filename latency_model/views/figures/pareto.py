"""What a user sees against what a device yields: tokens a second per sequence and per device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from latency_model.errors import InputError
from latency_model.views.figures.speedup import at_best_length, subtitle
from latency_model.views.figures.style import (
    PALETTE,
    SYMBOLS,
    AxisStyle,
    Notes,
    choices,
    data_of,
    finish,
    label,
    label_of,
    line_names,
    not_fitting,
)

if TYPE_CHECKING:
    from latency_model.views.figures.style import Figure
    from latency_model.views.sweep import Dataset

__all__ = ["pareto"]

NEEDED = ("speedup", "sequence_rate", "device_rate", "held_back_by", "held_back_share", "fits")


def pareto(data: Any = None, *, by: str | None = None, theme: str = "light", **axes: Any) -> Figure:
    """Tokens a second per user against per device as the batch grows, with and without speculation.

    Parameters
    ----------
    data
        A Dataset of :func:`latency_model.sweep` with several batches and several draft lengths, 0 among them; or a
        model with the other ``axes`` of a sweep by name.
    by : str, optional
        The axis that tells curves apart; the first with at most eight values when not given.
    theme : str
        ``light`` or ``dark``.

    Returns
    -------
    plotly.graph_objects.Figure
        Full curves take the best draft length of each point, dashed ones decode plainly; hollow points do not fit
        the memory.
    """
    import plotly.graph_objects as go

    grid = data_of(data, axes, NEEDED)
    if grid.sizes.get("batch", 1) < 2:
        raise InputError("a Pareto curve needs several values of batch")
    if "draft_length" not in grid.sizes or 0 not in grid.draft_length.values:
        raise InputError("a Pareto curve compares with plain decoding: give several draft lengths, 0 among them")
    several = line_names(grid, by, ("batch", "draft_length"))
    figure = go.Figure()
    pictures = []
    for index, picture in enumerate(choices(grid, ("batch", "draft_length", several or "", "term"))):
        pictures.append(picture.labels)
        values = [None] if several is None else picture.data[several].values
        for number, value in enumerate(values):
            data_here = picture.data if several is None else picture.data.sel({several: value})
            name = "" if several is None else label_of(str(several), value)
            for trace in _traces(data_here, name, number):
                figure.add_trace(trace.update(meta={"picture": index}))
    if not grid.fits.all():
        figure.add_trace(not_fitting())
    return finish(
        figure,
        title="Speed for a user against yield of a device",
        subtitle=subtitle(grid, ("batch", "draft_length", several)),
        x=AxisStyle("One user sees [tokens/s]"),
        y=AxisStyle("One device yields [tokens/s]"),
        notes=Notes.of(grid),
        pictures=pictures,
        theme=theme,
    )


def _traces(line: Dataset, name: str, number: int) -> list[Any]:
    best, plain = at_best_length(line), line.sel(draft_length=0)
    return [
        _curve(best, f"{name}, speculative".lstrip(", "), number, "solid"),
        _curve(plain, f"{name}, plain".lstrip(", "), number, "dash"),
    ]


def _curve(curve: Dataset, name: str, number: int, dash: str) -> Any:
    import plotly.graph_objects as go

    batch = curve.batch.values
    symbol, colour = SYMBOLS[number], PALETTE[number]
    fits = np.broadcast_to(curve.fits.values, batch.shape)
    lengths = curve.best_draft_length.values if "best_draft_length" in curve else np.zeros(batch.shape)
    return go.Scatter(
        x=curve.sequence_rate.values,
        y=curve.device_rate.values,
        name=name,
        mode="lines+markers",
        line={"color": colour, "width": 2.5 if dash == "solid" else 1.5, "dash": dash},
        marker={"size": 8, "color": colour, "symbol": [symbol if fit else f"{symbol}-open" for fit in fits]},
        customdata=[
            f"<b>batch {size:,}, {name}</b><br>draft length {length:.0f}"
            f"<br>{user:.3g} tokens/s for each user, {device:.4g} tokens/s of each device"
            f"<br>held back by {label(term)}: {share:.0%} of a round{'' if fit else '<br>does not fit the memory'}"
            for size, length, user, device, term, share, fit in zip(
                batch,
                lengths,
                curve.sequence_rate.values,
                curve.device_rate.values,
                np.broadcast_to(curve.held_back_by.values, batch.shape),
                np.broadcast_to(curve.held_back_share.values, batch.shape),
                fits,
                strict=True,
            )
        ],
        hovertemplate="%{customdata}<extra></extra>",
    )
