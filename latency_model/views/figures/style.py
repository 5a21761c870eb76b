"""The house style: colours, type, axes with units, buttons, and the notes under every figure."""

from __future__ import annotations

import html
import itertools
import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from attrs import frozen

from latency_model.errors import InputError
from latency_model.views.axes import AXES
from latency_model.views.sweep import QUANTITIES, sweep

if TYPE_CHECKING:
    from plotly.graph_objects import Figure as Figure

    from latency_model.views.sweep import Dataset

__all__ = [
    "PALETTE",
    "SYMBOLS",
    "AxisStyle",
    "Choice",
    "Notes",
    "axis_style",
    "choices",
    "data_of",
    "finish",
    "label",
    "label_of",
    "line_axis",
    "line_names",
    "not_fitting",
    "pale",
    "template",
]

#: Eight colours that stay apart for colour-blind readers (after Okabe and Ito, jfly.uni-koeln.de/color), each
#: with enough contrast on white and on black; lines also differ in their markers.
PALETTE = ("#2f7fc1", "#d55e00", "#009e73", "#b3629d", "#c98a00", "#45a5dc", "#808080", "#8a6d3b")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "triangle-down", "x", "star")
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
THEMES = {
    "light": {"paper": "#ffffff", "ink": "#1b1f24", "grid": "#e3e6ea", "zero": "#aeb4bb", "faint": "#59626c"},
    "dark": {"paper": "#14171a", "ink": "#e8eaed", "grid": "#2c3238", "zero": "#59626c", "faint": "#a3acb5"},
}

#: Dark on light in either theme: plotly paints the button in use almost white.
BUTTON: dict[str, Any] = {"bgcolor": "#ced3d9", "bordercolor": "#808080", "font": {"size": 12, "color": "#1b1f24"}}

#: Lines in one picture at most, and pictures one can choose between.
MOST_LINES = len(PALETTE)
MOST_CHOICES = 60
#: From this ratio of largest to smallest value on, an axis starts out logarithmic.
LOG_FROM = 20.0
#: Beyond this ratio ticks of a log axis stand at every other power of two.
MANY_OCTAVES = 600.0
FOOTER_WIDTH = 130  # characters


class AxisStyle(NamedTuple):
    """Title with unit, whether the axis starts out logarithmic, and whether a log scale makes sense at all.

    ``octave`` is the step between ticks of a log scale in powers of two, 0 for ticks at 1, 2 and 5.
    """

    title: str
    log: bool = False
    can_log: bool = True
    octave: int = 0
    ticks: str = ","


class Choice(NamedTuple):
    """One picture of a figure: the labels of the remaining axes and the data that belong to them."""

    labels: dict[str, str]
    data: Dataset


@frozen(kw_only=True)
class Notes:
    """What stands under a figure: device, assumptions, what is left out, version."""

    device: str
    assumptions: tuple[str, ...]
    not_modelled: tuple[str, ...]
    version: str

    @classmethod
    def of(cls, dataset: Dataset) -> Notes:
        """The notes a sweep carries."""
        attributes = dataset.attrs
        profiles = [profile.partition(" ") for profile in attributes["profiles"].splitlines()]
        return cls(
            device=", ".join(f"{name} (profile {digest})" for name, _, digest in profiles),
            assumptions=tuple(attributes["assumptions"].splitlines()),
            not_modelled=tuple(attributes["not_modelled"].splitlines()),
            version=attributes["latency_model_version"],
        )

    def lines(self) -> list[str]:
        """Sentences, plain text."""
        said = {"Assumed": self.assumptions, "Not modelled": self.not_modelled}
        return [
            f"Hardware: {self.device}. latency-model {self.version}, a closed-form prediction.",
            *(f"{name}: {'; '.join(texts)}." for name, texts in said.items() if texts),
        ]


def data_of(data: Any, axes: Mapping[str, Any], quantities: Iterable[str]) -> Dataset:
    """The Dataset given, or the one that ``data`` (a model) and ``axes`` ask for."""
    import xarray

    if not isinstance(data, xarray.Dataset):
        given = dict(axes) if data is None else {"model": data} | dict(axes)
        return sweep(**given, quantity=quantities)
    if axes:
        raise InputError(f"a Dataset has its axes already, got {', '.join(axes)} beside it")
    missing = [name for name in quantities if name not in data and not QUANTITIES[name].costly]
    if missing:
        raise InputError(f"the Dataset lacks {', '.join(missing)}; sweep with quantity={missing}")
    return data


def not_fitting(symbol: str = "circle-open") -> Any:
    """An entry of the legend that says what hollow points mean."""
    import plotly.graph_objects as go

    marker = {"symbol": symbol, "color": PALETTE[6], "size": 8}
    return go.Scatter(x=[None], y=[None], mode="markers", marker=marker, name="hollow: does not fit the memory")


def label(text: object) -> str:
    """Text that a figure shows as it is, tags included."""
    return html.escape(str(text), quote=False)


def value_label(value: Any) -> str:
    """A value of an axis as legends and menus show it."""
    if isinstance(value, str):
        return label(value.replace(",", ", "))
    return f"{value:,}" if isinstance(value, int | np.integer) else f"{value:.4g}"


def label_of(name: str, value: Any) -> str:
    """A value with the name of its axis, where that is not plain from the value."""
    shown = value_label(value)
    return shown if name in ("model", "hardware") else f"{SHORT.get(name, name.replace('_', ' '))} {shown}"


SHORT = {"draft": "drafter", "draft_length": "draft length", "kv_dtype": "KV cache", "tp": "TP", "ep": "EP"}


def axis_style(dataset: Dataset, name: str) -> AxisStyle:
    """How an axis of a sweep is drawn."""
    values = np.asarray(dataset[name].values, dtype=float)
    ratio = values.max() / values.min() if values.min() > 0 else 1.0
    return AxisStyle(
        TITLES[name],
        log=ratio >= LOG_FROM,
        can_log=name in ("batch", "context") and values.min() > 0,
        octave=2 if ratio > MANY_OCTAVES else 1,
    )


TITLES = {
    "batch": "Batch [sequences]",
    "context": "Context [cached tokens]",
    "draft_length": "Draft length γ [tokens]",
    "acceptance": "Acceptance α [probability]",
}


def line_axis(dataset: Dataset, against: str | None, names: Sequence[str]) -> str:
    """The axis lines run along: the one asked for, or the first of ``names`` that is a dimension."""
    swept = [name for name in names if name in dataset.sizes]
    if against is None and swept:
        return swept[0]
    if against is None:
        raise InputError(f"nothing to draw along: give several values of {' or '.join(names)}")
    if against not in swept:
        raise InputError(f"there are not several values of {against} to draw along; try {', '.join(swept) or names[0]}")
    return against


def line_names(dataset: Dataset, by: str | None, drawn: Sequence[str]) -> str | None:
    """The axis that tells lines apart: the one asked for, or the first that is free and short enough."""
    free = [str(name) for name in dataset.sizes if name not in (*drawn, "term")]
    if by is None:
        return next((name for name in free if dataset.sizes[name] <= MOST_LINES), None)
    if by not in free:
        raise InputError(
            f"there are not several values of {by} to tell lines apart by; try {', '.join(free) or 'none'}"
        )
    if dataset.sizes[by] > MOST_LINES:
        raise InputError(f"{dataset.sizes[by]} lines are too many, the most is {MOST_LINES}; choose some with .sel()")
    return by


def choices(dataset: Dataset, drawn: Iterable[str]) -> Iterator[Choice]:
    """Every combination of the values of the axes that are not drawn."""
    rest = [name for name in AXES if name in dataset.sizes and name not in set(drawn)]
    count = math.prod(dataset.sizes[name] for name in rest)
    if count > MOST_CHOICES:
        shown = " × ".join(f"{dataset.sizes[name]} {name}" for name in rest)
        raise InputError(f"{shown} are {count} pictures, more than {MOST_CHOICES}; choose some with .sel()")
    for values in itertools.product(*(dataset[name].values for name in rest)):
        chosen = dict(zip(rest, values, strict=True))
        yield Choice({name: value_label(value) for name, value in chosen.items()}, dataset.sel(chosen))


def pale(colour: str, alpha: float = 0.16) -> str:
    """The same colour, see-through.

    >>> pale("#ff0000")
    'rgba(255,0,0,0.16)'
    """
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"


@cache
def template(theme: str) -> Any:
    """The plotly template of a theme, ``light`` or ``dark``; figures take copies of it."""
    import plotly.graph_objects as go

    if theme not in THEMES:
        raise InputError(f"theme must be light or dark, got {theme!r}")
    colour = THEMES[theme]
    axis = {
        "gridcolor": colour["grid"],
        "zerolinecolor": colour["grid"],
        "linecolor": colour["zero"],
        "tickcolor": colour["zero"],
        "showline": True,
        "ticks": "outside",
        "ticklen": 4,
        "automargin": True,
        "title": {"standoff": 10, "font": {"size": 15}},
    }
    return go.layout.Template(
        layout={
            "font": {"family": FONT, "size": 14, "color": colour["ink"]},
            "paper_bgcolor": colour["paper"],
            "plot_bgcolor": colour["paper"],
            "colorway": PALETTE,
            "xaxis": axis,
            "yaxis": axis,
            "title": {"x": 0.0, "xref": "container", "xanchor": "left", "pad": {"l": 24}, "font": {"size": 20}},
            "hoverlabel": {"font": {"family": FONT, "size": 13}, "align": "left"},
            "legend": {"bgcolor": "rgba(0,0,0,0)", "font": {"size": 13}},
            "shapedefaults": {"line": {"color": colour["faint"]}},
            "annotationdefaults": {"font": {"color": colour["faint"]}},
        }
    )


def finish(
    figure: Figure,
    *,
    title: str,
    subtitle: str,
    x: AxisStyle,
    y: AxisStyle,
    notes: Notes,
    lower: AxisStyle | None = None,
    pictures: Sequence[Mapping[str, str]] = (),
    theme: str = "light",
    layout: Mapping[str, Any] = MappingProxyType({}),
) -> Figure:
    """Give a figure its axes, buttons, choices and notes, and what else its ``layout`` holds.

    A figure of two rows names the vertical axis of its ``lower`` one; both are linear or logarithmic together.
    Traces that belong to one picture say so in ``meta["picture"]``, its index in ``pictures``.  What a page needs
    to draw controls of its own is kept in ``layout.meta``.
    """
    axes = _axes(x, y, lower)
    footer = notes.lines()
    wrapped = [piece for line in footer for piece in textwrap.wrap(label(line), FOOTER_WIDTH)]
    menus = [_scale_buttons(x, y, axes)] if x.can_log or y.can_log else []
    if len(pictures) > 1:
        menus.append(_picture_menu(figure, pictures))
    drawn = figure.layout.to_plotly_json()
    finished = drawn | {
        "template": template(theme),
        "title": {"text": f"{title}<br><span style='font-size:14px'>{subtitle}</span>", "y": 0.97, "yanchor": "top"},
        "margin": {"l": 70, "r": 30, "t": 120, "b": 90 + 15 * len(wrapped)},
        "height": 560 + 15 * len(wrapped) + (200 if lower else 0),
        "hovermode": "closest",
        "meta": {
            "title": title,
            "subtitle": subtitle,
            "footer": footer,
            "pictures": [dict(picture) for picture in pictures],
            "axes": {name: axis._asdict() for name, axis in axes.items()},
        },
        **{
            name: drawn.get(name, {}) | _nested(_scale(axis, x.log if name.startswith("x") else y.log))
            for name, axis in axes.items()
        },
        "annotations": [*drawn.get("annotations", ()), _footer(wrapped)],
        "updatemenus": menus,
    }
    for name, value in layout.items():
        finished[name] = finished.get(name, {}) | value if isinstance(value, dict) else value
    figure.layout = finished  # at once: plotly takes milliseconds for every update
    return figure


def _nested(scale: dict[str, Any]) -> dict[str, Any]:
    """The same with the title as an object."""
    return {name: value for name, value in scale.items() if name != "title.text"} | {
        "title": {"text": scale["title.text"]}
    }


def _footer(lines: Iterable[str]) -> dict[str, Any]:
    """The notes, under the axis."""
    return {
        "name": "footer",
        "text": "<br>".join(lines),
        "showarrow": False,
        "align": "left",
        "font": {"size": 11},
        "x": 0,
        "xref": "paper",
        "xanchor": "left",
        "y": 0,
        "yref": "paper",
        "yanchor": "top",
        "yshift": -66,
    }


def _axes(x: AxisStyle, y: AxisStyle, lower: AxisStyle | None) -> dict[str, AxisStyle]:
    """Every axis by its name in a layout; of two rows only the lower one names the horizontal axis."""
    if lower is None:
        return {"xaxis": x, "yaxis": y}
    return {"xaxis": x._replace(title=""), "yaxis": y, "xaxis2": x, "yaxis2": lower}


def _scale(axis: AxisStyle, log: bool) -> dict[str, Any]:
    """An axis on a linear or a logarithmic scale; the title says which."""
    return {
        "type": "log" if log else "linear",
        "title.text": f"{axis.title}, log scale" if log and axis.title else axis.title,
        "dtick": axis.octave * math.log10(2) if log and axis.octave else None,
        "tickformat": axis.ticks,
        "rangemode": "normal" if log else "tozero",
        "autorange": True,
    }


def _scale_buttons(x: AxisStyle, y: AxisStyle, axes: Mapping[str, AxisStyle]) -> dict[str, Any]:
    """One row of buttons for every pair of scales that makes sense."""
    pairs = [(a, b) for b in (False, True)[: 1 + y.can_log] for a in (False, True)[: 1 + x.can_log]]
    words = {(False, False): "linear", (True, False): "log x", (False, True): "log y", (True, True): "log x and y"}
    return {
        "type": "buttons",
        "direction": "right",
        "active": pairs.index((x.log, y.log)),
        "buttons": [{"label": words[pair], "method": "relayout", "args": [_scales(axes, *pair)]} for pair in pairs],
        "x": 1.0,
        "xanchor": "right",
        "y": 1.0,
        "yanchor": "bottom",
        "pad": {"b": 8},
        **BUTTON,
    }


def _scales(axes: Mapping[str, AxisStyle], x_log: bool, y_log: bool) -> dict[str, Any]:
    """All axes on the scales named, as plotly.js takes them."""
    logarithmic = {"x": x_log, "y": y_log}
    return {
        f"{name}.{key}": value
        for name, axis in axes.items()
        for key, value in _scale(axis, logarithmic[name[0]]).items()
    }


def _picture_menu(figure: Figure, pictures: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """A menu of the values of the remaining axes; the first is shown."""
    of_trace = [(trace.meta or {}).get("picture") for trace in figure.data]
    for trace, picture in zip(figure.data, of_trace, strict=True):
        trace.visible = picture in (None, 0)
    buttons = [
        {
            "label": ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in picture.items()),
            "method": "restyle",
            "args": ["visible", [shown in (None, index) for shown in of_trace]],
        }
        for index, picture in enumerate(pictures)
    ]
    return {
        "type": "dropdown",
        "buttons": buttons,
        "x": 0.0,
        "xanchor": "left",
        "y": 1.0,
        "yanchor": "bottom",
        "pad": {"b": 8},
        **BUTTON,
    }
