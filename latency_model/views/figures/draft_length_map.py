"""Where speculation pays, and with how many drafted tokens: a map over batch and context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from latency_model.decisions.optimize import PLATEAU
from latency_model.errors import InputError
from latency_model.views.figures.speedup import at_best_length, explained, subtitle
from latency_model.views.figures.style import Notes, axis_style, choices, data_of, finish

if TYPE_CHECKING:
    from latency_model.views.figures.style import Figure
    from latency_model.views.sweep import Dataset

__all__ = ["draft_length_map"]

NEEDED = ("speedup", "tpot", "held_back_by", "held_back_share", "fits")
#: Draft lengths from light to dark (after viridis, with white for plain decoding); dark text reads on all of them.
LENGTHS = ("#fde725", "#c5e021", "#8fd744", "#5ec962", "#35b779", "#28a08a", "#3f8fae", "#5a7fc0")
PLAIN = "#f2f3f5"
INK = "#1b1f24"
DOTTED = "#c026d3"  # stands out from the map and from paper of either theme
#: So many lengths within 1 % of the best make the choice a matter of taste.
FLAT = 3
#: Draft lengths that share the darkest colour are too many to tell apart.
MOST_LENGTHS = 64


def draft_length_map(data: Any = None, *, theme: str = "light", **axes: Any) -> Figure:
    """The best draft length over batch and context, with lines of equal speedup and where speculation breaks even.

    Parameters
    ----------
    data
        A Dataset of :func:`latency_model.sweep` with several batches, contexts and draft lengths, 0 among them;
        or a model with the other ``axes`` of a sweep by name.
    theme : str
        ``light`` or ``dark``.

    Returns
    -------
    plotly.graph_objects.Figure
        A grey veil covers what does not fit the memory.  Inside the dotted line at least three lengths lie within
        1 % of the best.  Dots mark what goes beyond the inputs: contexts longer than the model's, drafts longer
        than the acceptance given.
    """
    import plotly.graph_objects as go

    grid = data_of(data, axes, NEEDED)
    for name in ("batch", "context", "draft_length"):
        if grid.sizes.get(name, 1) < 2:
            raise InputError(f"a map needs several values of {name}")
    traces: list[Any] = []
    pictures = []
    lengths = grid.draft_length.values
    for index, picture in enumerate(choices(grid, ("batch", "context", "draft_length", "term"))):
        pictures.append(picture.labels)
        traces += [trace.update(meta={"picture": index}) for trace in _traces(picture.data, lengths)]
    return finish(
        go.Figure(traces),
        title="Best draft length by batch and context",
        subtitle=subtitle(grid, ("batch", "context", "draft_length")),
        x=axis_style(grid, "batch"),
        y=axis_style(grid, "context"),
        notes=Notes.of(grid),
        pictures=pictures,
        theme=theme,
        layout={"legend": {"x": 1.02, "y": 0.0, "yanchor": "bottom"}},
    )


def _traces(plane: Dataset, lengths: NDArray[Any]) -> list[Any]:
    import plotly.graph_objects as go

    best = at_best_length(plane)
    order = ("context", "batch")
    where = {"x": best.batch.values, "y": best.context.values}
    cells = {
        axis: _edges(where[axis], log=axis_style(plane, name).log) for axis, name in zip("xy", order[::-1], strict=True)
    }
    chosen = best.best_draft_length.where(best.speedup.notnull()).transpose(*order).values
    speedup = best.speedup.transpose(*order).values
    fits = best.fits.transpose(*order).values
    drafting = plane.speedup.where(plane.draft_length > 0).max("draft_length").transpose(*order).values
    near = plane.speedup.transpose(*order, "draft_length").values >= (1.0 - PLATEAU) * speedup[..., None]
    traces = [
        go.Heatmap(
            **cells,
            z=chosen,
            zmin=lengths.min() - 0.5,
            zmax=lengths.max() + 0.5,
            colorscale=_colours(lengths),
            colorbar={
                "title": {"text": "best draft<br>length [tokens]", "font": {"size": 13}},
                "tickvals": lengths[:: len(lengths) // 12 + 1],
                "len": 0.6,
                "y": 1.0,
                "yanchor": "top",
            },
            customdata=_explained(best, order, lengths, near),
            hovertemplate="%{customdata}<extra></extra>",
        )
    ]
    if not fits.all():
        traces.append(_veil(cells, fits))
    # Dark on light, so that lines stand out from every colour and from the veil.
    halo = {"contours": {"coloring": "none"}, "line": {"color": "rgba(255,255,255,0.75)", "width": 3.5}}
    level = {"contours": {"coloring": "none", "showlabels": True, "labelfont": {"size": 12, "color": INK}}}
    common = {"z": speedup, "ncontours": 8, "hoverinfo": "skip", "showscale": False, "legendgroup": "levels"}
    traces += [
        go.Contour(**where, **common, **halo, showlegend=False),
        go.Contour(
            **where, **common, **level, line={"color": "#59626c", "width": 1.5}, name="equal speedup", showlegend=True
        ),
    ]
    flat = near.sum(-1)
    if (flat >= FLAT).any() and (flat < FLAT).any():
        dotted = {"color": DOTTED, "width": 2.5, "dash": "dot"}
        name = f"inside, {FLAT} or more lengths<br>within 1 % of the best"
        traces.append(_boundary(where, flat, FLAT - 0.5, dotted, name))
    if (drafting < 1.0).any() and (drafting > 1.0).any():
        traces.append(_boundary(where, drafting, 1.0, {"color": "#d55e00", "width": 4}, "break-even"))
    traces += _beyond(plane, where, chosen)
    return traces


def _explained(
    best: Dataset, order: tuple[str, str], lengths: NDArray[Any], near: NDArray[np.bool_]
) -> NDArray[np.object_]:
    """What hovering says of each cell, with the lengths that are nearly as good."""
    shape = near.shape[:-1]
    first, last = lengths[near.argmax(-1)], lengths[near.shape[-1] - 1 - near[..., ::-1].argmax(-1)]
    texts = np.array(explained(best.stack(point=order), ("batch", "context")), dtype=object).reshape(shape)
    for place in np.ndindex(shape):
        texts[place] += f"<br>within 1 % of the best: {first[place]} to {last[place]} tokens"
    return texts


def _edges(values: NDArray[Any], *, log: bool) -> NDArray[np.floating[Any]]:
    """Where cells around values begin and end, halfway on the scale drawn and never below nothing.

    >>> _edges(np.array([1.0, 4.0, 16.0]), log=True).tolist()
    [0.5, 2.0, 8.0, 32.0]
    >>> _edges(np.array([1024, 8192]), log=False).tolist()
    [512.0, 4608.0, 11776.0]
    """
    if log:
        return np.asarray(np.exp(_halfway(np.log(values))).round(9))
    edges = _halfway(values)
    return np.concatenate(([max(edges[0], values[0] / 2.0)], edges[1:]))


def _halfway(values: NDArray[Any]) -> NDArray[np.floating[Any]]:
    middle = (values[1:] + values[:-1]) / 2.0
    return np.concatenate(([2.0 * values[0] - middle[0]], middle, [2.0 * values[-1] - middle[-1]]))


def _veil(cells: dict[str, Any], fits: NDArray[np.bool_]) -> Any:
    """A grey cover over what does not fit the memory."""
    import plotly.graph_objects as go

    return go.Heatmap(
        **cells,
        z=np.where(fits, np.nan, 1.0),
        colorscale=[[0, "rgba(120,120,120,0.6)"], [1, "rgba(120,120,120,0.6)"]],
        showscale=False,
        hoverinfo="skip",
        name="does not fit the memory",
        showlegend=True,
    )


def _beyond(plane: Dataset, where: dict[str, Any], chosen: NDArray[Any]) -> list[Any]:
    """Dots where the context or the best draft length goes beyond what the inputs say."""
    import plotly.graph_objects as go

    longest = {name: plane[name].attrs.get("known_to", np.inf) for name in ("context", "draft_length")}
    rows, columns = np.nonzero((chosen > longest["draft_length"]) | (where["y"][:, None] > longest["context"]))
    if not rows.size:
        return []
    return [
        go.Scatter(
            x=where["x"][columns],
            y=where["y"][rows],
            mode="markers",
            marker={"size": 6, "color": "#ffffff", "line": {"color": INK, "width": 1}},
            name="beyond the acceptance<br>or the context known",
            hoverinfo="skip",
        )
    ]


def _boundary(where: dict[str, Any], values: NDArray[Any], level: float, line: dict[str, Any], name: str) -> Any:
    import plotly.graph_objects as go

    return go.Contour(
        **where,
        z=values,
        contours={"coloring": "none", "start": level, "end": level, "size": 1},
        autocontour=False,
        line=line,
        hoverinfo="skip",
        name=name,
        showlegend=True,
        showscale=False,
    )


def _colours(lengths: NDArray[Any]) -> list[tuple[float, str]]:
    """One flat colour for each whole draft length from the shortest to the longest."""
    first, last = int(lengths.min()), int(lengths.max())
    if last > MOST_LENGTHS:
        raise InputError(f"draft lengths up to {last} are too many to tell apart, the most is {MOST_LENGTHS}")
    count = last - first + 1
    scale = []
    for step, length in enumerate(range(first, last + 1)):
        place = round((length - 1) / max(last - 1, 1) * (len(LENGTHS) - 1))
        colour = LENGTHS[place] if length else PLAIN
        scale += [(step / count, colour), ((step + 1) / count, colour)]
    return scale
