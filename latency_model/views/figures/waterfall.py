"""Where the time of one round goes, and how much time it may take before speculation stops paying."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from latency_model.costs.round import Round, speculate
from latency_model.errors import InputError
from latency_model.views.figures.style import PALETTE, AxisStyle, Notes, finish, label
from latency_model.views.version import package_version

if TYPE_CHECKING:
    from latency_model.costs.setting import Setting
    from latency_model.decisions.serving import ServingCurve
    from latency_model.views.figures.style import Figure

__all__ = ["waterfall"]

#: Smaller shares of a round are shown as one bar.
SMALL = 0.01


def waterfall(point: Round | Any = None, hardware: Any = None, *, theme: str = "light", **asked: Any) -> Figure:
    """The time of one round, term by term, against the time plain decoding takes for as many tokens.

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
        Bars add up from top to bottom; where they end left of the dashed line, speculation pays.
    """
    import plotly.graph_objects as go

    round_ = single_point(point, hardware, asked)
    steps = _steps(round_)
    total, plain = float(round_.time), float(round_.baseline_time)
    tokens, speedup = float(round_.tokens_per_round), float(round_.speedup)
    in_plain = {name: float(seconds) for name, seconds in round_.cost.baseline.terms().items()}
    names = [*steps, "whole round"]
    seconds = [*steps.values(), total]
    figure = go.Figure(
        go.Waterfall(
            orientation="h",
            y=names,
            x=[1e3 * value for value in seconds],
            measure=["relative"] * len(steps) + ["total"],
            text=[f"{1e3 * value:.3g} ms" for value in seconds],
            textposition="auto",
            constraintext="none",
            increasing={"marker": {"color": PALETTE[0]}},
            totals={"marker": {"color": PALETTE[6]}},
            connector={"line": {"width": 1, "dash": "dot", "color": PALETTE[6]}},
            customdata=[
                f"<b>{name}: {1e3 * value:.3g} ms</b>, {value / total:.0%} of the round"
                f"<br>a plain step spends {1e3 * in_plain.get(name, 0.0):.3g} ms on it"
                for name, value in steps.items()
            ]
            + [f"<b>{1e3 * total:.3g} ms for {tokens:.2f} tokens</b><br>a plain step takes {1e3 * plain:.3g} ms"],
            hovertemplate="%{customdata}<extra></extra>",
            showlegend=False,
        )
    )
    figure.add_trace(
        go.Scatter(
            x=[1e3 * plain * tokens] * 2,
            y=[names[0], names[-1]],
            mode="lines",
            line={"color": PALETTE[1], "width": 2.5, "dash": "dash"},
            name=f"plain decoding of {tokens:.2f} tokens: {1e3 * plain * tokens:.3g} ms",
            hoverinfo="name",
        )
    )
    return finish(
        figure,
        title=f"Where a round of {1e3 * total:.3g} ms goes: {tokens:.2f} tokens, speedup {speedup:.2f}",
        subtitle=point_subtitle(round_),
        x=AxisStyle("Time [ms]", can_log=False),
        y=AxisStyle("", can_log=False),
        notes=notes_of(round_),
        theme=theme,
        layout={
            "xaxis": {"range": [0.0, 1.2e3 * max(total, plain * tokens)], "autorange": False},
            "yaxis": {"type": "category", "autorange": "reversed", "tickformat": None, "rangemode": None},
            "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"},
        },
    )


def single_point(point: Round | Any, hardware: Any, asked: dict[str, Any]) -> Round:
    """The Round given, or the one that model, hardware and arguments describe; one point in either case."""
    round_ = point if isinstance(point, Round) else speculate(point, hardware, **({"draft_length": 3} | asked))
    if round_.time.size != 1:
        raise InputError(f"the figure shows one point, got {round_.time.size}; give one of everything")
    return round_


def point_subtitle(round_: Round) -> str:
    """Model, machine and load of a point."""
    return (
        f"{served(round_.setting)}, batch {float(round_.batch):.0f}, context {float(round_.context):,.0f}, "
        f"draft length {float(round_.draft_length):.0f} ({round_.draft.kind})"
    )


def served(setting: Setting) -> str:
    """Model and machine, with the layout where there are several devices."""
    where = "" if setting.parallelism.devices == 1 else f", {setting.parallelism.describe()}"
    return f"{label(setting.model.name)} on {label(setting.hardware.title)}{where}"


def notes_of(shown: Round | ServingCurve) -> Notes:
    """The notes of rounds, or of rounds under load, on one machine."""
    machine = shown.setting.hardware
    return Notes(
        device=f"{machine.title} (profile {machine.name} {machine.digest})",
        assumptions=shown.assumptions,
        not_modelled=shown.not_modelled,
        version=package_version(),
    )


def _steps(round_: Round) -> dict[str, float]:
    """Seconds by term: drafting first, then by size, with what is small under one name."""
    terms = {name: float(np.max(seconds)) for name, seconds in round_.cost.terms().items()}
    total = sum(terms.values())
    drafting = terms.pop("drafting")
    large = {name: value for name, value in terms.items() if value >= SMALL * total}
    ordered = dict(sorted(large.items(), key=lambda item: -item[1]))
    rest = sum(terms.values()) - sum(large.values())
    steps = {"drafting": drafting} if drafting > 0 else {}
    return steps | ordered | ({"all else": rest} if rest > 0 else {})
