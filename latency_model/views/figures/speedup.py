"""Speedup along one axis, with the interval it is known to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from latency_model.views.figures.style import (
    PALETTE,
    SYMBOLS,
    AxisStyle,
    Notes,
    axis_style,
    choices,
    data_of,
    finish,
    label,
    label_of,
    line_axis,
    line_names,
    not_fitting,
    pale,
)

if TYPE_CHECKING:
    from latency_model.views.figures.style import Figure
    from latency_model.views.sweep import Dataset

__all__ = ["speedup"]

ALONG = ("batch", "context", "acceptance", "draft_length")
NEEDED = ("speedup", "tpot", "held_back_by", "held_back_share", "fits", "speedup_low", "speedup_high")


def speedup(
    data: Any = None, *, against: str | None = None, by: str | None = None, theme: str = "light", **axes: Any
) -> Figure:
    """Speedup against batch, context, acceptance or draft length, a line for every value of a second axis.

    Parameters
    ----------
    data
        A Dataset of :func:`latency_model.sweep`, or a model with the other ``axes`` of a sweep by name.
    against : str, optional
        The axis along which lines run; the first of batch, context, acceptance and draft length that has values.
    by : str, optional
        The axis that tells lines apart; where it is not ``draft_length``, each point takes the best draft length.
    theme : str
        ``light`` or ``dark``.

    Returns
    -------
    plotly.graph_objects.Figure
        Bands are 80 % intervals where the Dataset has them; hollow points do not fit the memory.
    """
    import plotly.graph_objects as go

    grid = data_of(data, axes, NEEDED)
    along = line_axis(grid, against, ALONG)
    if along != "draft_length" and by != "draft_length" and "draft_length" in grid.sizes:
        grid = at_best_length(grid)
    several = line_names(grid, by, (along,))
    figure = go.Figure()
    pictures = []
    for index, picture in enumerate(choices(grid, (along, several or "", "term"))):
        pictures.append(picture.labels)
        for number, (name, line) in enumerate(_lines(picture.data, several)):
            for trace in _traces(line, along, name, number):
                figure.add_trace(trace.update(meta={"picture": index}))
    if not grid.fits.all():
        figure.add_trace(not_fitting())
    ends = [grid[along].values.min(), grid[along].values.max()]
    plain = {"color": PALETTE[6], "dash": "dash", "width": 1.5}
    figure.add_trace(go.Scatter(x=ends, y=[1, 1], mode="lines", line=plain, name="plain decoding", hoverinfo="name"))
    _shade_extrapolated(figure, grid, along)
    return finish(
        figure,
        title=f"Speedup of speculative decoding against {along.replace('_', ' ')}",
        subtitle=subtitle(grid, (along, several)),
        x=axis_style(grid, along),
        y=AxisStyle("Speedup over plain decoding [×]"),
        notes=Notes.of(grid),
        pictures=pictures,
        theme=theme,
    )


def at_best_length(grid: Dataset) -> Dataset:
    """The same sweep at the draft length with the highest speedup of every point."""
    best = grid.speedup.fillna(0.0).argmax("draft_length")
    at = grid.isel(draft_length=best)
    return at.reset_coords("draft_length").rename(draft_length="best_draft_length").assign_attrs(grid.attrs)


def subtitle(grid: Dataset, drawn: tuple[str | None, ...]) -> str:
    """What is the same everywhere in a figure: model, device, drafter and fixed numbers."""
    fixed = [
        label_of(str(name), grid[name].values[()])
        for name in ("model", "hardware", "draft", "tp", "ep", "batch", "context", "acceptance", "draft_length")
        if name in grid.coords and name not in drawn and grid[name].ndim == 0
    ]
    chosen = ["the best draft length of each point"] if "best_draft_length" in grid else []
    return ", ".join(fixed + chosen)


def _lines(grid: Dataset, several: str | None) -> Iterator[tuple[str, Dataset]]:
    if several is None:
        yield "speedup", grid
        return
    for value in grid[several].values:
        yield label_of(several, value), grid.sel({several: value})


def _traces(line: Dataset, along: str, name: str, number: int) -> Iterator[Any]:
    import plotly.graph_objects as go

    colour, x = PALETTE[number], line[along].values
    if "speedup_low" in line:
        yield go.Scatter(
            x=np.concatenate((x, x[::-1])),
            y=np.concatenate((line.speedup_low.values, line.speedup_high.values[::-1])),
            mode="lines",
            fill="toself",
            fillcolor=pale(colour),
            line={"width": 0},
            hoverinfo="skip",
            legendgroup=name,
            showlegend=False,
        )
    fits = np.broadcast_to(line.fits.values, x.shape)
    symbol = SYMBOLS[number]
    yield go.Scatter(
        x=x,
        y=line.speedup.values,
        name=name,
        legendgroup=name,
        mode="lines+markers" if len(x) <= 40 else "lines",
        line={"color": colour, "width": 2.5},
        marker={"size": 8, "color": colour, "symbol": [symbol if fit else f"{symbol}-open" for fit in fits]},
        customdata=explained(line, (along,)),
        hovertemplate="%{customdata}<extra></extra>",
    )


def explained(points: Dataset, along: tuple[str, ...]) -> list[str]:
    """What hovering over each point says: how much, how sure, and what holds it back."""
    optional = [name for name in ("speedup_low", "speedup_high", "best_draft_length") if name in points]
    names = {*along, "speedup", "tpot", "held_back_by", "held_back_share", "fits", *optional}
    columns = {name: np.broadcast_to(points[name].values, points.speedup.shape) for name in names}
    texts = []
    for index in range(points.speedup.size):
        at = {name: values[index] for name, values in columns.items()}
        text = f"<b>{', '.join(label_of(name, at[name]) for name in along)}: speedup {at['speedup']:.2f}</b>"
        if "speedup_low" in at:
            text += f"<br>80 % interval {at['speedup_low']:.2f} to {at['speedup_high']:.2f}"
        if "best_draft_length" in at:
            text += f"<br>best draft length {at['best_draft_length']:.0f}"
        text += f"<br>{1e3 * at['tpot']:.3g} ms per output token"
        text += f"<br>held back by {label(at['held_back_by'])}: {at['held_back_share']:.0%} of a round"
        texts.append(text if at["fits"] else f"{text}<br>does not fit the memory")
    return texts


def _shade_extrapolated(figure: Figure, grid: Dataset, along: str) -> None:
    """Shade what lies beyond the positions of an acceptance vector, or the longest context of a model."""
    end, why = grid[along].attrs.get("known_to"), grid[along].attrs.get("beyond", "")
    last = float(grid[along].values.max())
    if end is not None and last > end:
        figure.add_vrect(x0=end, x1=last, fillcolor=pale("#808080", 0.18), line_width=0, layer="below")
        figure.add_annotation(
            x=1,
            xref="paper",
            xanchor="right",
            y=0,
            yref="paper",
            yanchor="bottom",
            text=f"shaded: {why}",
            showarrow=False,
        )
