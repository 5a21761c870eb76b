"""Latency against request rate, with and without speculation, and the load at which both are equal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from latency_model.decisions.serving import ServingCurve, serve
from latency_model.evidence.published.record import Group, Row, read_table
from latency_model.specs.draft import Draft
from latency_model.views.figures.load import latency_against_load
from latency_model.views.gallery.claim import Claim

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["claim"]

DEVICE = "h100-sxm"
DENSE, MIXTURE = "Llama-3.1-8B", "Qwen3-30B-A3B"
LENGTHS = (2, 4)
PROMPT, LONG_PROMPT, ANSWER = 128, 1024, 256  # tokens
#: A mixture whose fit is published, and the share of its saturation rate that "the lower half of the loads" ends at.
HALF = 0.5
POINTS = 60


def claim(theme: str = "light") -> Claim:
    """Speculation shortens requests at low load and lengthens them from the break-even load on."""
    curves = {model: _curve(model) for model in (DENSE, MIXTURE)}
    check = _linear_form()
    return Claim(
        name="load",
        title="Latency against request rate: where speculation stops paying under load",
        text=(
            "Requests that arrive faster share the machine with more others, and every round takes longer. Speculation "
            "cuts the rounds a request needs but lengthens each one. For a dense model the second effect wins beyond "
            "some request rate: the curves cross. For a mixture, whose larger batches touch all experts anyway, "
            "speculation may even raise the rate at which the machine is full."
        ),
        figures=tuple(latency_against_load(curve, theme=theme) for curve in curves.values()),
        checks=(check,),
        findings=tuple(_finding(model, curve) for model, curve in curves.items()),
        unpublished=(
            "No published point stands in these figures: Kong et al. print how well their forms fit, but neither the "
            "latencies they measured nor the coefficients."
        ),
    )


def _curve(model: str, prompt: int = PROMPT) -> ServingCurve:
    curve = serve(model, DEVICE, draft=Draft.eagle(), draft_length=LENGTHS, prompt_tokens=prompt, output_tokens=ANSWER)
    return curve.at(np.linspace(0.01, 0.999, POINTS) * curve.saturation_rate.max())


def _finding(model: str, curve: ServingCurve) -> str:
    parts = []
    for number, length in enumerate(curve.draft_length):
        full = f"full at {curve.saturation_rate[number]:.3g} requests/s"
        if number == 0:
            parts.append(f"plain decoding is {full}")
            continue
        even = float(curve.break_even_rate[number])
        closed = float(curve.linear_break_even_rate[number])
        pays = f"breaks even at {even:.3g} requests/s" if np.isfinite(even) and even > 0.0 else "has no break-even"
        form = f" (closed form: {closed:.3g})" if np.isfinite(closed) and closed > 0.0 else ""
        parts.append(f"{length} drafted tokens are {full} and drafting {pays}{form}")
    return f"{model}: {'; '.join(parts)}."


def _linear_form() -> Group:
    """How well the closed form of a dense model fits our curves of a mixture, as published of measured ones."""
    table = read_table("kong_moe_fit_r2")
    published = next(row for row in table.rows if row["model"] == MIXTURE)
    rows = []
    for prompt in (PROMPT, LONG_PROMPT):
        curve = _curve(MIXTURE, prompt)
        lower = curve.rate <= HALF * curve.saturation_rate[0]
        rows.append(
            Row(
                case=f"prompts of {prompt:,} tokens",
                predicted=_r_squared(curve.rate[lower], curve.latency[0][lower]),
                measured=published["r2_dense_form"],
            )
        )
    return Group(
        name="kong-linear-form",
        quantity=f"R² of L = C1/(1 - λ C2) on the lower half of the loads, {MIXTURE} without speculation [1]",
        rows=tuple(rows),
        sources=table.sources,
        assumptions=(f"their device, prompts and answers are not stated: {DEVICE}, answers of {ANSWER} tokens",),
    )


def _r_squared(rate: NDArray[np.float64], latency: NDArray[np.float64]) -> float:
    """Share of the variance of latency that C1/(1 - λ C2), fitted to its inverse, explains [1]."""
    slope, intercept = np.polyfit(rate, 1.0 / latency, 1, w=latency**2)
    left = latency - 1.0 / (intercept + slope * rate)
    return float(1.0 - (left**2).sum() / ((latency - latency.mean()) ** 2).sum())
