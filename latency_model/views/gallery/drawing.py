"""What the figures of the gallery share: lines of formulas, diamonds of published numbers, notes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latency_model.costs.round import Round, speculate
from latency_model.specs.hardware import HardwareProfile
from latency_model.views.figures.style import PALETTE, Notes, label
from latency_model.views.figures.waterfall import notes_of
from latency_model.views.version import package_version

__all__ = ["along", "curve", "formula_notes", "joint_notes", "level", "powers", "published", "rows_of", "told"]


def curve(
    x: ArrayLike, y: ArrayLike, name: str, number: int, *, dash: str = "solid", said: Sequence[str] | None = None
) -> Any:
    """A line of our formulas."""
    import plotly.graph_objects as go

    hover = {} if said is None else {"customdata": list(said), "hovertemplate": "%{customdata}<extra></extra>"}
    return go.Scatter(
        x=np.asarray(x),
        y=np.asarray(y),
        name=name,
        mode="lines",
        line={"color": PALETTE[number], "width": 2.5 if dash == "solid" else 1.8, "dash": dash},
        **hover,
    )


def published(x: ArrayLike, y: ArrayLike, name: str, number: int, said: Iterable[str]) -> Any:
    """Published numbers: diamonds with a rim, each with what it is and how far off the prediction was."""
    import plotly.graph_objects as go

    return go.Scatter(
        x=np.asarray(x),
        y=np.asarray(y),
        name=f"published: {name}",
        mode="markers",
        marker={"symbol": "diamond", "size": 11, "color": PALETTE[number], "line": {"color": "#808080", "width": 1.5}},
        customdata=list(said),
        hovertemplate="%{customdata}<extra></extra>",
        cliponaxis=False,
    )


def level(ends: tuple[float, float], height: float, name: str, number: int, said: str) -> Any:
    """A published number that holds over a range, or whose place on the axis is not published."""
    import plotly.graph_objects as go

    x = np.geomspace(*ends, 25)
    return go.Scatter(
        x=x,
        y=np.full(x.shape, height),
        name=f"published: {name}",
        mode="lines+markers",
        line={"color": PALETTE[number], "width": 1.5, "dash": "dot"},
        marker={"symbol": "diamond", "size": [9, *[0] * (len(x) - 2), 9]},
        customdata=[said] * len(x),
        hovertemplate="%{customdata}<extra></extra>",
    )


def joint_notes(rounds: Sequence[Round]) -> Notes:
    """Notes of a figure that shows several rounds: every device and every assumption once."""
    each = [notes_of(round_) for round_ in rounds]
    return Notes(
        device=", ".join(dict.fromkeys(notes.device for notes in each)),
        assumptions=tuple(dict.fromkeys(text for notes in each for text in notes.assumptions)),
        not_modelled=tuple(dict.fromkeys(text for notes in each for text in notes.not_modelled)),
        version=each[0].version,
    )


def formula_notes(*assumptions: str, machine: HardwareProfile | None = None) -> Notes:
    """Notes of a figure drawn from formulas, with the machine whose datasheet they take, if any."""
    return Notes(
        device=f"{machine.title} (profile {machine.name} {machine.digest})" if machine else "none, formulas alone",
        assumptions=assumptions,
        not_modelled=(),
        version=package_version(),
    )


def powers(last: int, *, each: int = 4) -> NDArray[np.floating[Any]]:
    """Whole numbers from 1 to ``last``, about ``each`` to an octave."""
    return np.unique(np.round(np.geomspace(1.0, last, each * int(np.log2(last)) + 1)))


def along(example: Round, **elsewhere: Any) -> Round:
    """The round of a replay at other batches, contexts, acceptances or draft lengths."""
    setting = example.setting
    same = {name: getattr(example, name) for name in ("draft", "acceptance", "draft_length", "batch", "context")}
    names = ("model", "hardware", "parallelism", "routing", "dtypes", "engine", "kv_reread")
    return speculate(**({name: getattr(setting, name) for name in names} | same | elsewhere))


def told(round_: Round, name: str) -> list[str]:
    """What hovering says of every point of a round: speedup, time, and what takes most of it."""
    shape = round_.speedup.shape
    terms = {term: np.broadcast_to(seconds, shape).ravel() for term, seconds in round_.cost.terms().items()}
    batch, context = (np.broadcast_to(values, shape).ravel() for values in (round_.batch, round_.context))
    said = []
    for index, (gain, total) in enumerate(zip(round_.speedup.ravel(), round_.time.ravel(), strict=True)):
        largest = max(terms, key=lambda term: terms[term][index])
        said.append(
            f"<b>{label(name)}</b>, batch {batch[index]:,.0f}, context {context[index]:,.0f}: speedup {gain:.2f}"
            f"<br>held back by {largest}: {terms[largest][index] / total:.0%} of a round of {1e3 * total:.3g} ms"
        )
    return said


def rows_of(check: Any) -> list[str]:
    """What hovering over a published point says: the case, both numbers, the error."""
    return [
        f"<b>{label(row.case)}</b><br>published {row.measured:.3g}, predicted {row.predicted:.3g} ({row.error:+.1%})"
        for row in check.rows
    ]
