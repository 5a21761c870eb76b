"""How many experts a step touches, and how many tokens share each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from latency_model.decisions.loading import ExpertLoading, expert_loading
from latency_model.errors import InputError
from latency_model.views.figures.style import MOST_LINES, PALETTE, SYMBOLS, AxisStyle, Notes, finish, label
from latency_model.views.version import package_version

if TYPE_CHECKING:
    from latency_model.views.figures.style import Figure

__all__ = ["experts"]

BATCHES = tuple(int(2**power) for power in range(11))


def experts(
    model: Any,
    hardware: Any,
    *,
    batch: Sequence[int] = BATCHES,
    tokens_per_sequence: Sequence[int] = (1, 2, 4, 8),
    theme: str = "light",
    **asked: Any,
) -> Figure:
    """Distinct experts and tokens per expert of one layer against the tokens of a step.

    Parameters
    ----------
    model, hardware
        As :func:`latency_model.expert_loading` takes them, with its other arguments in ``asked``.
    batch, tokens_per_sequence : sequence of int
        A point for every batch [1], a line for every number of tokens each sequence feeds [token].
    theme : str
        ``light`` or ``dark``.

    Returns
    -------
    plotly.graph_objects.Figure
        Above, experts touched: most when every token comes from another sequence.  Below, tokens that share one
        touched expert, and the number from which multiplying takes longer than loading.
    """
    from plotly.subplots import make_subplots

    if not 1 <= np.size(tokens_per_sequence) <= MOST_LINES or np.size(batch) < 2:
        raise InputError(f"the figure needs at least 2 batches and 1 to {MOST_LINES} numbers of tokens")
    loading = expert_loading(model, hardware, batch=batch, tokens_per_sequence=tokens_per_sequence, **asked)
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.06)
    for number in range(np.size(tokens_per_sequence)):
        for trace, row in _traces(loading, number):
            figure.add_trace(trace, row=row, col=1)
    figure.add_trace(_crossover(loading), row=2, col=1)
    setting, machine = loading.setting, loading.setting.hardware
    return finish(
        figure,
        title="Experts a step touches, and tokens that share one",
        subtitle=(
            f"{label(setting.model.name)} on {label(machine.title)}: {loading.block.num_experts} experts, "
            f"{loading.block.top_k} for each token, one layer"
        ),
        x=AxisStyle("Tokens in the step [tokens]", log=True, octave=1 if np.size(batch) < 9 else 2),
        y=AxisStyle("Touched [experts]", log=True, octave=1),
        lower=AxisStyle("Sharing one [tokens]", log=True),
        notes=Notes(
            device=f"{machine.title} (profile {machine.name} {machine.digest})",
            assumptions=loading.assumptions,
            not_modelled=loading.not_modelled,
            version=package_version(),
        ),
        theme=theme,
    )


def _traces(loading: ExpertLoading, number: int) -> Iterator[tuple[Any, int]]:
    import plotly.graph_objects as go

    each = int(loading.tokens_per_sequence[number])
    tokens = loading.batch[:, 0] * each
    name = f"{each} {'token' if each == 1 else 'tokens'} of each sequence"
    colour, symbol = PALETTE[number], SYMBOLS[number]
    shared = {"x": tokens, "legendgroup": name}
    said = [
        f"<b>batch {size:.0f} × {each} tokens</b><br>{touched:.1f} experts touched ({growth:.2f} times a plain step)"
        f"<br>{shares:.2f} tokens share one<br>{1e6 * seconds:.3g} µs a layer, bound by {bound}"
        for size, touched, growth, shares, seconds, bound in zip(
            loading.batch[:, 0],
            loading.distinct[:, number],
            loading.growth[:, number],
            loading.tokens_per_expert[:, number],
            loading.time[:, number],
            loading.bound[:, number],
            strict=True,
        )
    ]
    look = {
        "mode": "lines+markers",
        "line": {"color": colour, "width": 2.5},
        "marker": {"color": colour, "symbol": symbol, "size": 8},
        "customdata": said,
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    yield go.Scatter(**shared, **look, y=loading.distinct[:, number], name=name), 1
    yield go.Scatter(**shared, **look, y=loading.tokens_per_expert[:, number], showlegend=False), 2


def _crossover(loading: ExpertLoading) -> Any:
    """Where computing takes over from loading."""
    import plotly.graph_objects as go

    tokens = loading.batch * loading.tokens_per_sequence
    return go.Scatter(
        x=[tokens.min(), tokens.max()],
        y=[loading.crossover_tokens] * 2,
        name=f"computing outlasts loading from {loading.crossover_tokens:.0f} tokens",
        mode="lines",
        line={"color": PALETTE[6], "dash": "dash", "width": 2},
        hoverinfo="name",
    )
