"""One draft length for the whole day against a dial that follows the batch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latency_model.decisions.optimize import Plan, optimize
from latency_model.evidence.published.record import Group, Row, read_table
from latency_model.specs.draft import Draft
from latency_model.views.figures.style import AxisStyle, finish
from latency_model.views.figures.waterfall import notes_of
from latency_model.views.gallery.claim import Claim
from latency_model.views.gallery.drawing import curve, published

__all__ = ["Day", "claim", "day", "sequences"]

MODELS = ("Llama-3.1-8B", "Qwen3-30B-A3B")
DEVICE = "h200-sxm"
#: The assumed day: sequences in flight at night and at the peak, and the quietest hour.
QUIET, BUSY, QUIET_HOUR = 4.0, 256.0, 4.0
SHAPE = 1.5  # above 1 the night is longer than the peak
HOURS = np.arange(0.0, 24.0, 0.25)
LONGEST = 8

FloatArray = NDArray[np.float64]


class Day(NamedTuple):
    """Draft lengths and tokens a second over a day, by policy."""

    plan: Plan
    lengths: dict[str, FloatArray]
    rates: dict[str, FloatArray]


def sequences() -> FloatArray:
    """Sequences in flight through the assumed day [1].

    >>> sequences()[[16, 64]].tolist()  # at 4 h and at 16 h
    [4.0, 256.0]
    """
    level = ((1.0 - np.cos(2.0 * np.pi * (HOURS - QUIET_HOUR) / 24.0)) / 2.0) ** SHAPE
    return np.round(QUIET + (BUSY - QUIET) * level)


def day(model: str) -> Day:
    """Plain decoding, the best single draft length, vLLM's example table and the dial, quarter by quarter."""
    batch = sequences()
    plan = optimize(model, DEVICE, draft=Draft.eagle(), batch=batch, context=1024, max_draft_length=LONGEST)
    plain = batch / plan.best.baseline_time  # tokens a second
    fixed = int((plain[:, None] * plan.curve).sum(0).argmax())
    lengths = {
        "plain": np.zeros(batch.shape),
        "fixed": np.full(batch.shape, float(fixed)),
        "night": np.full(batch.shape, float(plan.draft_length[batch.argmin()])),
        "table": _table(batch),
        "dial": plan.draft_length.astype(float),
    }
    hours = np.arange(len(batch))
    rates = {name: plain * plan.curve[hours, chosen.astype(int)] for name, chosen in lengths.items()}
    return Day(plan, lengths, rates)


def _table(batch: FloatArray) -> FloatArray:
    """Draft lengths of vLLM's example table for EAGLE-3."""
    rows = [row for row in read_table("vllm_dynamic_tables").rows if row["method"] == "EAGLE-3"]
    ends = np.array([float(row["batch_to"]) for row in rows])
    return np.array([float(row["drafts"]) for row in rows])[np.searchsorted(ends, batch)]


def claim(theme: str = "light") -> Claim:
    """A dial never loses to a fixed draft length over a day whose load moves."""
    from plotly.subplots import make_subplots

    days = {model: day(model) for model in MODELS}
    check = _check(days[MODELS[0]].plan)
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.06)
    pictures, batch = [], sequences()
    for picture, (model, found) in enumerate(days.items()):
        pictures.append({"model": model})
        fixed = f"best single draft length: {found.lengths['fixed'][0]:.0f}"
        night = f"length best at night: {found.lengths['night'][0]:.0f}"
        names = {"plain": "plain decoding", "fixed": fixed, "night": night, "table": "vLLM's example table"}
        names["dial"] = "dial"
        for number, (policy, name) in zip((6, 1, 3, 2, 0), names.items(), strict=True):
            length, rate = found.lengths[policy], found.rates[policy]
            said = [
                f"<b>{name}</b> at {hour:.2f} h, batch {size:.0f}: {drafts:.0f} drafted tokens, {each:,.0f} tokens/s"
                for hour, size, drafts, each in zip(HOURS, batch, length, rate, strict=True)
            ]
            if policy == "table":
                upper = published(HOURS[::4], length[::4], name, number, said[::4])
            else:
                upper = curve(HOURS, length, name, number, said=said).update(line={"shape": "hv"})
            lower = curve(HOURS, rate / found.rates["plain"], name, number, said=said)
            for trace, row in ((upper, 1), (lower.update(showlegend=False), 2)):
                figure.add_trace(trace.update(meta={"picture": picture}), row=row, col=1)
    note = (
        f"the day is assumed: {QUIET:.0f} sequences in flight at {QUIET_HOUR:.0f} h, {BUSY:.0f} at "
        f"{QUIET_HOUR + 12:.0f} h, a raised cosine in between; context 1024"
    )
    notes = notes_of(days[MODELS[0]].plan.best)
    return Claim(
        name="dial",
        title="A dial against fixed draft lengths through a day",
        text=(
            "At night few sequences share the machine, in the afternoon hundreds; the best draft length moves with "
            "them, up or down as the model has it. One length tuned at night is wrong at the peak, where most tokens "
            "are made; the best compromise loses little, but it has to be known. A dial asks for the best length at "
            "every batch and never loses. The day's shape is assumed; all policies see the same batches."
        ),
        figures=(
            finish(
                figure,
                title="Draft length and speedup through a day",
                subtitle=f"EAGLE-3 head with its published acceptance on one {DEVICE}; an assumed day",
                x=AxisStyle("Time of day [h]", can_log=False),
                y=AxisStyle("Draft length γ [tokens]", can_log=False),
                lower=AxisStyle("Speedup over plain decoding [×]", can_log=False),
                notes=notes.__class__(
                    device=notes.device,
                    assumptions=(note, *notes.assumptions),
                    not_modelled=(*notes.not_modelled, "the batch stays as assumed, however fast it is served"),
                    version=notes.version,
                ),
                pictures=pictures,
                theme=theme,
            ),
        ),
        checks=(check,),
        findings=tuple(_finding(model, found) for model, found in days.items()),
    )


def _finding(model: str, found: Day) -> str:
    mean = {name: float(rate.mean()) for name, rate in found.rates.items()}
    others = {
        "plain decoding": "plain",
        f"the length best at night ({found.lengths['night'][0]:.0f})": "night",
        "vLLM's example table": "table",
        f"the best single length ({found.lengths['fixed'][0]:.0f})": "fixed",
    }
    gains = (
        f"{mean['dial'] - mean[policy]:,.0f} ({mean['dial'] / mean[policy] - 1.0:.1%}) over {name}"
        for name, policy in others.items()
    )
    return f"{model}: the dial yields {mean['dial']:,.0f} tokens/s in the mean of the day, {', '.join(gains)}."


def _check(plan: Plan) -> Group:
    """Best lengths in the middle of the ranges of vLLM's table, bonus token included so that 0 drafts count."""
    table = read_table("vllm_dynamic_tables")
    rows = [row for row in table.rows if row["method"] == "EAGLE-3"]
    middle = np.array([np.sqrt(float(row["batch_from"]) * float(row["batch_to"])) for row in rows]).round()
    setting = plan.best.setting
    best = optimize(
        setting.model, setting.hardware, draft=Draft.eagle(), batch=middle, context=1024, max_draft_length=LONGEST
    ).draft_length
    return Group(
        name="vllm-table",
        quantity="tokens verified per sequence (drafts + 1), dial against vLLM's example table [token]",
        rows=tuple(
            Row(
                case=f"batch {row['batch_from']}-{row['batch_to']}",
                predicted=drafts + 1,
                measured=int(row["drafts"]) + 1,
            )
            for row, drafts in zip(rows, best, strict=True)
        ),
        sources=table.sources,
        assumptions=(f"the example's model and device are not stated: {setting.model.name} on {DEVICE} stands in",),
    )
