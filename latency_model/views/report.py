"""One page that shows a result: interactive figures, notes, no network, one copy of plotly.js."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from latency_model.costs.round import speculate
from latency_model.errors import InputError
from latency_model.views import figures
from latency_model.views.axes import Grid
from latency_model.views.figures.style import THEMES, label_of, template
from latency_model.views.save import whole_file
from latency_model.views.sweep import QUANTITIES, Progress, evaluated

if TYPE_CHECKING:
    from latency_model.views.figures.style import Figure
    from latency_model.views.sweep import Dataset

__all__ = ["page", "save_page", "sweep_figures"]

TEMPLATE = Path(__file__).with_name("report.html")
#: Points beyond which a page would be slow to open.
MOST_POINTS = 200_000
#: Of a sweep, what the figures of a page need.
NEEDED = tuple(name for name in QUANTITIES if name not in ("term_time", "tpot_low", "tpot_high"))


def page(title: str, parts: Sequence[Figure], *, summary: str = "") -> str:
    """A self-contained HTML page of figures.

    Parameters
    ----------
    title, summary : str
        Plain text; the summary stands under the title.
    parts : sequence of plotly Figure
        Figures of :mod:`latency_model.views.figures`.

    Returns
    -------
    str
        HTML that works offline, by keyboard, on a phone, in light and in dark.
    """
    from plotly.offline import get_plotlyjs

    texts = {
        "TITLE": html.escape(title),
        "SUMMARY": html.escape(summary),
        "FIGURES": _script_json([_plain(figure) for figure in parts]),
        "TEMPLATES": _script_json({theme: template(theme).to_plotly_json() for theme in THEMES}),
        "PLOTLY": get_plotlyjs(),
    }
    text = TEMPLATE.read_text(encoding="utf-8")
    for name, value in texts.items():
        text = text.replace(f"<!--{name}-->", value)
    return text


def _plain(figure: Figure) -> dict[str, Any]:
    """A figure as JSON values, with its controls and notes left to the page."""
    document: dict[str, Any] = json.loads(figure.to_json())
    layout = document["layout"]
    for name in ("template", "title", "updatemenus", "margin"):
        layout.pop(name, None)
    layout["annotations"] = [note for note in layout.get("annotations", []) if note.get("name") != "footer"]
    return {"data": document["data"], "layout": layout}


def _script_json(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c").replace("\u2028", "\\u2028")


def sweep_figures(dataset: Dataset) -> Iterator[Figure]:
    """The figures a sweep has enough axes for, most telling first."""
    sizes = dataset.sizes
    if all(sizes.get(name, 1) > 1 for name in ("batch", "context", "draft_length")):
        yield figures.draft_length_map(dataset)
    for along in ("batch", "context", "acceptance", "draft_length"):
        if sizes.get(along, 1) > 1:
            yield figures.speedup(dataset, against=along)
    if sizes.get("batch", 1) > 1 and sizes.get("draft_length", 1) > 1 and 0 in dataset.draft_length.values:
        yield figures.pareto(dataset)


def _cell_figures(grid: Grid) -> Iterator[Figure]:
    """Figures of a single point: the first choice of every axis, at its best draft length."""
    cell = next(grid.cells())
    arguments = cell.arguments()
    load = {name: grid.axes[name].values[0] for name in ("batch", "context")}
    acceptance = grid.axes["acceptance"].values[0]
    lengths = np.array(grid.axes["draft_length"].values)
    curve = speculate(**arguments, **load, acceptance=acceptance, draft_length=lengths)
    best = lengths[int(np.argmax(curve.speedup))]
    point = speculate(**arguments, **load, acceptance=acceptance, draft_length=best)
    yield figures.waterfall(point)
    yield figures.roofline(point)
    if point.setting.model.is_moe:
        chosen = {name: arguments[name] for name in ("parallelism", "routing", "dtypes")}
        yield figures.experts(arguments["model"], arguments["hardware"], **chosen)


def save_page(grid: Grid, path: Path, *, force: bool = False, progress: Progress | None = None) -> None:
    """Evaluate a grid and write its figures as a page."""
    if grid.size > MOST_POINTS:
        raise InputError(
            f"{grid.size:,} points are too many for a page, the most is {MOST_POINTS:,}; take fewer values, or write "
            ".csv or .nc"
        )
    dataset = evaluated(grid, NEEDED, progress=progress)
    title = " and ".join(map(str, grid.axes["model"].labels)) + " on " + " and ".join(grid.axes["hardware"].labels)
    text = page(title, [*sweep_figures(dataset), *_cell_figures(grid)], summary=summary(dataset))
    with whole_file(path, force=force) as beside:
        beside.write_text(text, encoding="utf-8")


def summary(dataset: Dataset) -> str:
    """The finding in a sentence or two: the largest speedup that fits the memory, and where drafting does not pay."""
    speedup = dataset.speedup.where(dataset.fits)
    if bool(speedup.isnull().all()):
        return "Nothing that was asked fits the memory: the figures show what it would take."
    top = speedup.isel(speedup.argmax(...))
    where = ", ".join(label_of(str(name), top[name].values[()]) for name in speedup.dims)
    sentence = f"Speculation gains most, {float(top):.2f} times, at {html.unescape(where)}." if where else ""
    if "draft_length" not in speedup.dims or 0 not in dataset.draft_length.values:
        return sentence
    best = speedup.max("draft_length")
    share = float((best <= 1.0).sum() / best.notnull().sum())
    plain = f"Plain decoding is best at {share:.0%} of the settings that fit." if share else "It pays everywhere asked."
    return f"{sentence} {plain}"
