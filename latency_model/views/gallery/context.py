"""The context from which a larger batch helps speculation."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latency_model.costs.round import Round
from latency_model.evidence.published.record import Group, Row, read_table
from latency_model.evidence.published.speculation import magicdec_rounds
from latency_model.formulas.acceptance import speedup
from latency_model.specs.acceptance import Acceptance
from latency_model.views.figures.style import AxisStyle, finish
from latency_model.views.gallery.claim import Claim, replay
from latency_model.views.gallery.drawing import along, curve, joint_notes, published, rows_of, told

if TYPE_CHECKING:
    from latency_model.views.figures.style import Figure

__all__ = ["claim"]

DRAFTS = 2
CONTEXTS = np.round(np.geomspace(1000.0, 128000.0, 57))
#: The batches whose order turns round.
FEW, MANY = 32, 128
TURNING = ("LLaMA-3.1-8B", "self (StreamingLLM 512)")


def claim(theme: str = "light") -> Claim:
    """Beyond some context larger batches gain more, not less."""
    check = replay("magicdec")
    turning = Group(
        name="magicdec-crossing",
        quantity="context where batch 128 overtakes batch 32 [token]",
        rows=(
            Row(
                case=f"{TURNING[0]} drafting for itself",
                predicted=_predicted_crossing(),
                measured=_measured_crossing(),
            ),
            Row(
                case="the same from step times fitted to their table",
                predicted=_fitted_crossing(),
                measured=_measured_crossing(),
            ),
        ),
        sources=read_table("magicdec_a100").sources,
        assumptions=("the measured crossing is interpolated between 8,000 and 16,000 tokens",),
    )
    return Claim(
        name="context",
        title="Beyond some context a larger batch helps speculation",
        text=(
            "At short contexts a larger batch brings a step nearer to its limit of compute, and speculation loses. "
            "At long contexts the cache, which every sequence reads for itself, dominates: no batch makes it free, but "
            "a draft that reads a small part of it, and one verification that reads it once for several tokens, do. "
            "From some context on the gain therefore grows with the batch."
        ),
        figures=(_figure(check, theme),),
        checks=(check, turning),
        read=read_table("magicdec_affine_fits").sources,
        findings=(
            "Around the crossing gains hardly depend on the batch, so that its place is less certain than they are.",
        ),
    )


@functools.cache
def _series() -> dict[tuple[str, str], list[tuple[int, dict[str, str], Round]]]:
    """The rows of the table with the rounds predicted for them, by target and drafter."""
    series: dict[tuple[str, str], list[tuple[int, dict[str, str], Round]]] = {}
    for index, (row, _, round_) in enumerate(magicdec_rounds()):
        series.setdefault((row["target"], row["draft"]), []).append((index, row, round_))
    return series


def _along(rows: list[tuple[int, dict[str, str], Round]], batch: int) -> Round:
    """Rounds along the context, at the mean tokens per round of the rows."""
    tokens = float(np.mean([float(row["Omega"]) for _, row, _ in rows]))
    return along(
        rows[0][2],
        acceptance=Acceptance.mean_length(tokens, draft_length=DRAFTS),
        batch=batch,
        context=CONTEXTS,
    )


COEFFICIENTS = ("t0_ms", "t_seq_ms_per_sequence", "t_kv_ms_per_kv_token")


def _fitted(rows: list[tuple[int, dict[str, str], Round]], batch: ArrayLike, context: ArrayLike) -> NDArray[Any]:
    """The speedup by step times fitted to the same rows, which hold their engine's overheads [1]."""
    example = rows[0][1]
    fits = [row for row in read_table("magicdec_affine_fits").rows if row["draft"] == example["draft"]]
    times = {}
    for fit in (fit for fit in fits if fit["target"] == example["target"]):
        fixed, each, cached = (float(fit[name] or 0.0) for name in COEFFICIENTS)
        times[fit["quantity"]] = fixed + np.asarray(batch) * (each + cached * np.asarray(context))
    tokens = float(np.mean([float(row["Omega"]) for _, row, _ in rows]))
    return np.asarray(speedup(tokens, times["T_T"], DRAFTS * times["T_D"] + times["T_V(gamma=2)"]))


def _figure(check: Group, theme: str) -> Figure:
    import plotly.graph_objects as go

    figure, pictures, rounds, said = go.Figure(), [], [], rows_of(check)
    ordered = sorted(_series().items(), key=lambda item: item[0] != TURNING)
    for picture, ((target, draft), rows) in enumerate(ordered):
        pictures.append({"models": f"{target}, draft: {draft}"})
        batches = sorted({int(row["B"]) for _, row, _ in rows})
        for number, batch in enumerate(batches):
            name = f"batch {batch}"
            round_ = _along(rows, batch)
            rounds.append(round_)
            mine = [(index, row) for index, row, _ in rows if int(row["B"]) == batch]
            contexts = [float(row["S"]) for _, row in mine]
            measured = [float(row["speedup_x"]) for _, row in mine]
            fitted = _fitted(rows, batch, CONTEXTS)
            for trace in (
                curve(CONTEXTS, round_.speedup, name, number, said=told(round_, name)),
                curve(CONTEXTS, fitted, f"{name}, their own step times", number, dash="dot"),
                published(contexts, measured, name, number, [said[index] for index, _ in mine]),
            ):
                figure.add_trace(trace.update(meta={"picture": picture}))
    figure.add_trace(curve([CONTEXTS[0], CONTEXTS[-1]], [1.0, 1.0], "plain decoding", 6, dash="dash"))
    return finish(
        figure,
        title="Speedup against context, by batch",
        subtitle=f"{DRAFTS} drafted tokens, 8x A100 (MagicDec); dotted: the formula, step times fitted to their table",
        x=AxisStyle("Context [cached tokens]", log=True, octave=1),
        y=AxisStyle("Speedup over plain decoding [×]"),
        notes=joint_notes(rounds),
        pictures=pictures,
        theme=theme,
    )


def _predicted_crossing() -> float:
    rows = _series()[TURNING]
    few, many = (_along(rows, batch).speedup for batch in (FEW, MANY))
    return crossing(CONTEXTS, many - few)


def _fitted_crossing() -> float:
    few, many = (_fitted(_series()[TURNING], batch, CONTEXTS) for batch in (FEW, MANY))
    return crossing(CONTEXTS, many - few)


def _measured_crossing() -> float:
    table = {
        batch: {int(row["S"]): float(row["speedup_x"]) for _, row, _ in _series()[TURNING] if int(row["B"]) == batch}
        for batch in (FEW, MANY)
    }
    contexts = sorted(table[FEW].keys() & table[MANY].keys())
    return crossing(np.array(contexts, float), np.array([table[MANY][s] - table[FEW][s] for s in contexts]))


def crossing(x: NDArray[np.floating[Any]], y: NDArray[np.floating[Any]]) -> float:
    """Where a line through points first rises through 0; NaN where it does not.

    >>> crossing(np.array([1.0, 2.0, 3.0]), np.array([-1.0, -0.5, 0.5]))
    2.5
    """
    rising = np.flatnonzero((y[:-1] < 0.0) & (y[1:] >= 0.0))
    if not rising.size:
        return float("nan")
    at = rising[0]
    return float(x[at] - y[at] * (x[at + 1] - x[at]) / (y[at + 1] - y[at]))
