"""Latency against request rate: how far speculation helps under load, where it turns, where the machine is full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from latency_model.decisions.serving import ServingCurve, checked_limit, serve
from latency_model.errors import InputError
from latency_model.units import format_quantity
from latency_model.views.figures.style import MOST_LINES, PALETTE, SYMBOLS, AxisStyle, finish, label, pale
from latency_model.views.figures.waterfall import notes_of, served

if TYPE_CHECKING:
    from latency_model.views.figures.style import Figure

__all__ = ["latency_against_load"]

#: Rates where none are given, from nearly none to just short of the highest saturation rate.
SHARES = np.linspace(0.01, 0.999, 100)
#: Bands that can be told apart; with more lines, intervals are only named where one hovers.
MOST_BANDS = 2
#: An axis ends at this many times the latency of a lone request, so that what matters stays large.
HIGHEST = 5.0


class Quantity(NamedTuple):
    """One of the means of a curve: its title, the seconds one unit of its axis stands for, and that unit."""

    title: str
    seconds: float
    unit: str


QUANTITIES = {
    "latency": Quantity("Mean latency of a request", 1.0, "s"),
    "tpot": Quantity("Mean time per output token", 1e-3, "ms"),
    "ttft": Quantity("Mean time to first token", 1.0, "s"),
}


def latency_against_load(
    curve: ServingCurve | Any = None,
    hardware: Any = None,
    *,
    quantity: str = "latency",
    limit: float | None = None,
    theme: str = "light",
    **asked: Any,
) -> Figure:
    """Latency against request rate, a line for plain decoding and for each draft length.

    Parameters
    ----------
    curve
        A ServingCurve of :func:`latency_model.serve`; or a model, with ``hardware`` and the other arguments of that
        function.
    quantity : str
        What is drawn: ``latency`` of a whole request, ``tpot`` or ``ttft``.
    limit : float, optional
        What the service promises for it [s].
    theme : str
        ``light`` or ``dark``.

    Returns
    -------
    plotly.graph_objects.Figure
        Dotted lines are saturation rates, stars the rates at which drafting stops (or starts) to pay, crosses the
        highest rates within the limit, and bands 80 % intervals where there is one draft length beside plain decoding.
    """
    import plotly.graph_objects as go

    if quantity not in QUANTITIES:
        raise InputError(f"quantity must be {', '.join(QUANTITIES)}, got {quantity!r}")
    shown, drawn = QUANTITIES[quantity], _curve(curve, hardware, asked)
    if len(drawn.draft_length) > MOST_LINES:
        raise InputError(f"{len(drawn.draft_length)} lines are too many, the most is {MOST_LINES}; give fewer lengths")
    promised = None if limit is None else checked_limit(quantity, limit) / shown.seconds
    top = _highest(drawn, quantity, promised or 0.0)
    figure = go.Figure()
    if len(drawn.draft_length) <= MOST_BANDS:
        for number in range(len(drawn.draft_length)):
            figure.add_trace(_band(drawn, number, quantity, top))
    for number in range(len(drawn.draft_length)):
        figure.add_trace(_line(drawn, number, quantity))
    _mark_full(figure, drawn)
    if quantity == "latency":
        _mark_break_even(figure, drawn)
    if promised is not None:
        _mark_limit(figure, drawn, quantity, promised)
    figure = finish(
        figure,
        title=f"{shown.title} against request rate",
        subtitle=_subtitle(drawn),
        x=AxisStyle("Request rate [requests/s]"),
        y=AxisStyle(f"{shown.title} [{shown.unit}]"),
        notes=notes_of(drawn),
        theme=theme,
    )
    return figure.update_yaxes(range=[0.0, top], autorange=False)


def _highest(curve: ServingCurve, quantity: str, promised: float) -> float:
    """Where the axis ends: above all that is drawn, or some times above what a lone request takes."""
    seconds = QUANTITIES[quantity].seconds
    lone = getattr(curve.at(max(1e-6 * curve.saturation_rate.min(), 1e-12)), quantity).max() / seconds
    values = getattr(curve, quantity)
    longest = values[np.isfinite(values)].max(initial=0.0) / seconds
    return 1.05 * float(min(max(longest, promised), max(HIGHEST * lone, 1.3 * promised)))


def _curve(curve: ServingCurve | Any, hardware: Any, asked: dict[str, Any]) -> ServingCurve:
    """The curve given, or the one that model, hardware and arguments describe, at rates close enough for a line."""
    if isinstance(curve, ServingCurve):
        if hardware is not None or asked:
            raise InputError("a ServingCurve has its hardware and arguments already; give it alone")
        drawn = curve
    else:
        drawn = serve(curve, hardware, **asked)
        if asked.get("rate") is None:
            drawn = drawn.at(SHARES * drawn.saturation_rate.max())
    if drawn.rate.ndim != 1 or drawn.rate.size < 2:
        raise InputError("the figure needs several request rates in one list")
    return drawn


def _name(curve: ServingCurve, number: int) -> str:
    length = curve.draft_length[number]
    return f"{length} drafted" if length else "plain decoding"


def _colour(number: int) -> str:
    """Grey for plain decoding, as in every figure, and a colour for each draft length."""
    return PALETTE[6] if number == 0 else (*PALETTE[:6], PALETTE[7])[number - 1]


def _band(curve: ServingCurve, number: int, quantity: str, top: float) -> Any:
    """The 80 % interval of one draft length, cut off where the axis ends."""
    import plotly.graph_objects as go

    low, high = (getattr(end, quantity)[number] / QUANTITIES[quantity].seconds for end in curve.interval)
    drawn = ~curve.saturated[number] & (low < top)
    rates = curve.rate[drawn]
    return go.Scatter(
        x=np.concatenate((rates, rates[::-1])),
        y=np.concatenate((low[drawn], np.minimum(high, top)[drawn][::-1])),
        mode="lines",
        fill="toself",
        fillcolor=pale(_colour(number), 0.1),
        line={"width": 0},
        hoverinfo="skip",
        legendgroup=str(number),
        showlegend=False,
    )


def _line(curve: ServingCurve, number: int, quantity: str) -> Any:
    """The line of one draft length, up to where its machine is full."""
    import plotly.graph_objects as go

    values = getattr(curve, quantity)[number] / QUANTITIES[quantity].seconds
    return go.Scatter(
        x=curve.rate,
        y=np.where(curve.saturated[number], np.nan, values),
        name=f"{_name(curve, number)}, full at {curve.saturation_rate[number]:.3g}/s",
        legendgroup=str(number),
        mode="lines+markers" if curve.rate.size <= 40 else "lines",
        line={"color": _colour(number), "width": 2.5, "dash": "solid" if number else "dash"},
        marker={"size": 7, "color": _colour(number), "symbol": SYMBOLS[number]},
        customdata=_explained(curve, number),
        hovertemplate="%{customdata}<extra></extra>",
    )


def _explained(curve: ServingCurve, number: int) -> list[str]:
    """What hovering over each point says: how long, how many together, and what holds it back."""
    held_back_by, held_back_share = (each[number] for each in curve.held_back)
    share, speedup = curve.prefill_share[number], curve.speedup[number]
    low, high = curve.interval
    texts = []
    for index, rate in enumerate(curve.rate):
        lines = [
            f"<b>{rate:.3g} requests/s, {_name(curve, number)}: {_seconds(curve.latency[number, index])}</b>",
            f"first token after {_seconds(curve.ttft[number, index])}, "
            f"then {_seconds(curve.tpot[number, index])} for each",
            f"{curve.batch[number, index]:.3g} of at most {curve.max_batch[number]:,} sequences decode together, "
            f"prefills take {share[index]:.0%} of the time",
            f"80 % interval {_seconds(low.latency[number, index])} to {_seconds(high.latency[number, index])}",
            f"held back by {label(held_back_by[index])}: {held_back_share[index]:.0%} of a round",
        ]
        if number and np.isfinite(speedup[index]):
            lines.insert(1, f"{speedup[index]:.2f} times as fast as plain decoding at this rate")
        texts.append("<br>".join(lines))
    return texts


def _seconds(value: float) -> str:
    return format_quantity(float(value), "time")


def _mark_full(figure: Figure, curve: ServingCurve) -> None:
    """A dotted line at every saturation rate that the rates drawn reach."""
    for number, rate in enumerate(curve.saturation_rate):
        if rate <= 1.05 * curve.rate.max():
            line = {"color": _colour(number), "width": 1.5, "dash": "dot"}
            figure.add_vline(x=float(rate), line=line, layer="below")


def _mark_break_even(figure: Figure, curve: ServingCurve) -> None:
    """A star where drafting starts or stops to pay."""
    import plotly.graph_objects as go

    turns = [
        (number, rate, turned)
        for number, ranges in enumerate(curve.pays)
        for pays in ranges
        for rate, turned in zip(pays, ("starts to pay", "no longer pays"), strict=True)
        if curve.rate.min() <= rate <= curve.rate.max()
    ]
    if not turns:
        return
    figure.add_trace(
        go.Scatter(
            x=[rate for _, rate, _ in turns],
            y=[float(curve.at(rate).latency[number]) for number, rate, _ in turns],
            name="break-even",
            mode="markers+text",
            marker={"symbol": "star", "size": 14, "color": [_colour(number) for number, _, _ in turns]},
            text=[f"break-even {rate:.3g}/s" for _, rate, _ in turns],
            textposition="top left",
            customdata=[
                f"<b>{_name(curve, number)} {turned} above {rate:.3g} requests/s</b>" for number, rate, turned in turns
            ],
            hovertemplate="%{customdata}<extra></extra>",
        )
    )


def _mark_limit(figure: Figure, curve: ServingCurve, quantity: str, limit: float) -> None:
    """The limit promised, and a cross where each line meets it."""
    import plotly.graph_objects as go

    shown = QUANTITIES[quantity]
    rates = curve.goodput(**{quantity: limit * shown.seconds})
    figure.add_hline(y=limit, line={"width": 1.5, "dash": "dashdot"}, layer="below")
    met = [number for number, rate in enumerate(rates) if rate > 0.0]
    figure.add_trace(
        go.Scatter(
            x=rates[met],
            y=[limit] * len(met),
            name=f"highest rate within {limit:g} {shown.unit}",
            mode="markers",
            marker={"symbol": "x", "size": 11, "color": [_colour(number) for number in met]},
            customdata=[
                f"<b>{_name(curve, number)}: up to {rates[number]:.3g} requests/s within {limit:g} {shown.unit}</b>"
                for number in met
            ],
            hovertemplate="%{customdata}<extra></extra>",
        )
    )


def _subtitle(curve: ServingCurve) -> str:
    return (
        f"{served(curve.setting)}, drafter {curve.draft.kind}, "
        f"{curve.prompt_tokens:,.0f} tokens in, {curve.output_tokens:,.0f} out"
    )
