"""One page that shows a result: interactive figures, notes, no network, one copy of plotly.js."""

from __future__ import annotations

import html
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen

from latency_model.costs.round import Round, speculate
from latency_model.errors import InputError
from latency_model.views import figures
from latency_model.views.axes import Grid
from latency_model.views.figures.style import THEMES, label_of, template
from latency_model.views.save import whole_file
from latency_model.views.sweep import QUANTITIES, Progress, evaluated

if TYPE_CHECKING:
    from latency_model.views.figures.style import Figure
    from latency_model.views.sweep import Dataset

__all__ = ["page", "plain_figure", "save_page", "sweep_figures"]

TEMPLATE = Path(__file__).with_name("report.html")
#: Points beyond which a page would be slow to open.
MOST_POINTS = 200_000
#: Values of an axis that a menu offers.
MOST_IN_MENU = 7
#: Of a sweep, what the figures of a page need.
NEEDED = tuple(name for name in QUANTITIES if name not in ("term_time", "tpot_low", "tpot_high"))


@frozen(kw_only=True, eq=False)
class Section:
    """Figures of a page under one heading.

    Parameters
    ----------
    name, title, text : str
        The anchor, the heading and a paragraph, plain text.
    figures : tuple of plotly Figure
        What is shown.
    findings : tuple of str
        Sentences under the figures.
    links : tuple of (str, str)
        Texts with the address each leads to.
    """

    name: str
    title: str
    text: str
    figures: tuple[Figure, ...]
    findings: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()


def page(title: str, parts: Sequence[Figure | Section], *, summary: str = "") -> str:
    """A self-contained HTML page of figures.

    Parameters
    ----------
    title, summary : str
        Plain text; the summary stands under the title.
    parts : sequence of plotly Figure or Section
        Figures of :mod:`latency_model.views.figures`; sections get a list of links to them.

    Returns
    -------
    str
        HTML that works offline, by keyboard, on a phone, in light and in dark.
    """
    from plotly.offline import get_plotlyjs

    sections = [part for part in parts if isinstance(part, Section)]
    shown = [figure for part in parts for figure in (part.figures if isinstance(part, Section) else (part,))]
    texts = {
        "TITLE": html.escape(title),
        "SUMMARY": html.escape(summary),
        "CONTENTS": _contents(sections),
        "MAIN": "".join(_chapters(parts)),
        "FIGURES": _script_json([plain_figure(figure) for figure in shown]),
        "TEMPLATES": _script_json({theme: template(theme).to_plotly_json() for theme in THEMES}),
        "PLOTLY": get_plotlyjs(),
    }
    text = TEMPLATE.read_text(encoding="utf-8")
    for name, value in texts.items():
        text = text.replace(f"<!--{name}-->", value)
    return text


def _contents(sections: Sequence[Section]) -> str:
    """A list of links to the sections."""
    if not sections:
        return ""
    items = (f'<li><a href="#{html.escape(part.name)}">{html.escape(part.title)}</a></li>' for part in sections)
    return f'<nav id="contents" aria-label="Contents"><ul>{"".join(items)}</ul></nav>'


def _chapters(parts: Sequence[Figure | Section]) -> Iterator[str]:
    """The frame of a page: texts of sections, and a place for every figure in their order."""
    number = itertools.count()
    for part in parts:
        if not isinstance(part, Section):
            yield _place(next(number), 2)
            continue
        name = html.escape(part.name)
        yield f'<article aria-labelledby="{name}"><h2 id="{name}">{html.escape(part.title)}</h2>'
        yield f"<p>{html.escape(part.text)}</p>"
        yield from (_place(next(number), 3) for _ in part.figures)
        yield "<ul>" + "".join(f"<li>{html.escape(finding)}</li>" for finding in part.findings) + "</ul>"
        links = (
            f'<a href="{html.escape(address)}" rel="noreferrer">{html.escape(text)}</a>' for text, address in part.links
        )
        yield f'<p class="links">Sources: {"; ".join(links)}</p>' if part.links else ""
        yield '<p class="links"><a href="#contents">Back to the list</a></p></article>'


def _place(number: int, heading: int) -> str:
    return f'<div class="figure" data-figure="{number}" data-heading="h{heading}"></div>'


def plain_figure(figure: Figure) -> dict[str, Any]:
    """A figure as JSON values, with its controls and notes left to the page."""
    document: dict[str, Any] = json.loads(figure.to_json())
    layout = document["layout"]
    for name in ("template", "title", "updatemenus", "margin", "height"):
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
        yield figures.draft_length_map(_thinned(dataset, ("batch", "context", "draft_length")))
    for along in ("batch", "context", "acceptance", "draft_length"):
        if sizes.get(along, 1) > 1:
            yield figures.speedup(_thinned(dataset, (along, "draft_length")), against=along)
    if sizes.get("batch", 1) > 1 and sizes.get("draft_length", 1) > 1 and 0 in dataset.draft_length.values:
        yield figures.pareto(_thinned(dataset, ("batch", "draft_length")))


def _thinned(dataset: Dataset, drawn: Sequence[str]) -> Dataset:
    """The same sweep with long axes that are not drawn cut to a few values that span them."""
    long = {name: size for name, size in dataset.sizes.items() if name not in drawn and size > MOST_IN_MENU}
    few = {name: np.unique(np.linspace(0, size - 1, MOST_IN_MENU).round().astype(int)) for name, size in long.items()}
    return dataset.isel(few)


def _point_figures(point: Round) -> Iterator[Figure]:
    """Where the time of one round goes."""
    setting = point.setting
    yield figures.waterfall(point)
    yield figures.roofline(point)
    if setting.model.is_moe:
        chosen: dict[str, Any] = {
            "parallelism": setting.parallelism,
            "routing": setting.routing,
            "dtypes": setting.dtypes,
        }
        yield figures.experts(setting.model, setting.hardware, **chosen)


def _first_point(grid: Grid) -> Round:
    """The first batch, context and acceptance of the first possible cell, at its best draft length."""
    load = {name: grid.axes[name].values[0] for name in ("batch", "context", "acceptance")}
    lengths = grid.axes["draft_length"].values
    why: InputError | None = None
    for cell in grid.cells():
        try:
            arguments = cell.arguments() | load
            best = int(np.argmax(speculate(**arguments, draft_length=lengths).speedup))
            return speculate(**arguments, draft_length=lengths[best])
        except InputError as error:
            why = why or error
    raise why or InputError("the sweep has no points")


def save_page(grid: Grid, path: Path, *, force: bool = False, progress: Progress | None = None) -> None:
    """Evaluate a grid and write its figures as a page."""
    if grid.size > MOST_POINTS:
        raise InputError(
            f"{grid.size:,} points are too many for a page, the most is {MOST_POINTS:,}; take fewer values, or write "
            ".csv or .nc"
        )
    dataset = evaluated(grid, NEEDED, progress=progress)
    title = " and ".join(map(str, grid.axes["model"].labels)) + " on " + " and ".join(grid.axes["hardware"].labels)
    text = page(title, [*sweep_figures(dataset), *_point_figures(_first_point(grid))], summary=summary(dataset))
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
