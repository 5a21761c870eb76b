"""Popular experts make ranks wait for each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from latency_model.errors import InputError
from latency_model.evidence.published.record import Group, Row, read_table
from latency_model.formulas.parallel import hot_expert_imbalance, rank_imbalance
from latency_model.formulas.roofline import crossover_tokens
from latency_model.specs.hardware import load_hardware
from latency_model.views.figures.style import AxisStyle, finish
from latency_model.views.gallery.claim import Claim, replay
from latency_model.views.gallery.drawing import curve, formula_notes, published, rows_of

if TYPE_CHECKING:
    from latency_model.views.figures.style import Figure

__all__ = ["claim"]

SHARES = np.linspace(0.0, 1.0, 201)
#: Bytes of a weight in the experiment, which ran in fp32.
FP32 = 4.0
V100 = "v100-sxm2"


def claim(theme: str = "light") -> Claim:
    """Idle time grows with the skew of the experts; moving work pays from a number of tokens on."""
    idle, moving, loads = _idle_check(), _moving_check(), replay("rank-imbalance")
    return Claim(
        name="skew",
        title="Skewed experts leave ranks idle",
        text=(
            "With experts spread over ranks a layer ends when the busiest rank does. If few popular experts live on "
            "one rank, the others compute their little and wait. Idle time is one minus mean over largest load, "
            "whatever the experts' size. Moving an expert to an idle rank pays when the tokens that go with it keep "
            "the rank busy for longer than its weights take to arrive."
        ),
        figures=(_idle(idle, loads, theme), _moving(moving, theme)),
        checks=(idle, loads, moving),
        findings=(
            "The sweep of the threshold was run once: neighbouring values differ by up to a fifth in no order, so the "
            "published best is known to a factor of a few.",
        ),
    )


def _rank_share(row: dict[str, str]) -> float:
    """Share of all tokens that the rank with the hot experts gets [1]; the other experts share the rest evenly."""
    return _share_of_rank(float(row["hot_share"]), int(row["experts"]), int(row["hot_experts"]), int(row["ranks"]))


def _share_of_rank(hot: float, experts: int, hot_experts: int, ranks: int) -> float:
    neighbours = max(experts // ranks - hot_experts, 0)
    return hot + (1.0 - hot) * neighbours / (experts - hot_experts)


def _idle_of(imbalance: float) -> float:
    return 1.0 - 1.0 / imbalance


def _idle_check() -> Group:
    table = read_table("harmoeny_layer_breakdown")
    rows = []
    for row in table.rows:
        ranks = int(row["ranks"])
        hot, other = float(row["hot_rank_compute_ms"]), float(row["other_ranks_compute_ms"])
        busiest = float(hot_expert_imbalance(_rank_share(row), ranks, ranks))
        measured = 1.0 - (hot + (ranks - 1) * other) / (ranks * hot)
        rows.append(Row(case=f"{row['model']}, {ranks} ranks", predicted=_idle_of(busiest), measured=measured))
    return Group(
        name="harmoeny-idle",
        quantity="idle share of expert compute, mean over ranks [1]",
        rows=tuple(rows),
        sources=table.sources,
        assumptions=("idle: one minus mean over largest compute time of the ranks",),
    )


def _idle(check: Group, loads: Group, theme: str) -> Figure:
    import plotly.graph_objects as go

    figure = go.Figure()
    rows, said = read_table("harmoeny_layer_breakdown").rows, rows_of(check)
    for number, row in enumerate(rows):
        experts, hot, ranks = (int(row[name]) for name in ("experts", "hot_experts", "ranks"))
        share = np.array([s for s in SHARES if s >= hot / experts])
        on_rank = np.array([_share_of_rank(float(s), experts, hot, ranks) for s in share])
        idle = 1.0 - 1.0 / hot_expert_imbalance(on_rank, ranks, ranks)
        figure.add_trace(curve(share, idle, f"{hot} hot of {experts} experts on one of {ranks} ranks", number))
        figure.add_trace(
            published([float(row["hot_share"])], [check.rows[number].measured], row["model"], number, [said[number]])
        )
    row = next(row for row in read_table("trtllm_eplb_imbalance_deepseek_r1").rows if row["config"].startswith("no"))
    experts, ranks = 256, int(row["config"].split("EP")[-1])
    share = SHARES[1.0 / experts <= SHARES]
    idle = 1.0 - 1.0 / hot_expert_imbalance(share, experts, ranks)
    number = len(rows)
    figure.add_trace(curve(share, idle, f"1 hot of {experts} experts on one of {ranks} ranks", number))
    hottest = (1.0 + float(row["slot_imbalance_ratio"])) / experts
    measured = _idle_of(1.0 + float(row["rank_imbalance_ratio"]))
    spread = float(row["slot_std"]) / float(row["slot_mean_tokens"])
    guess = _idle_of(
        float(
            max(
                rank_imbalance(spread, experts, ranks, float(row["rank_mean_tokens"])),
                hot_expert_imbalance(hottest, experts, ranks),
            )
        )
    )
    text = f"<b>DeepSeek-R1</b>, {row['config']}<br>published {measured:.1%}, predicted {guess:.1%}"
    figure.add_trace(published([hottest], [measured], "DeepSeek-R1, no balancing", number, [text]))
    return finish(
        figure,
        title="Idle share of expert compute against skew",
        subtitle="mean over ranks; HarMoEny forces 90 % of the tokens to 10 experts, DeepSeek-R1's skew is its own",
        x=AxisStyle("Share of tokens that go to the hot experts [1]", can_log=False),
        y=AxisStyle("Idle share of expert compute [1]", can_log=False),
        notes=formula_notes(*check.assumptions, *loads.assumptions),
        theme=theme,
    )


def _moving_check() -> Group:
    table = read_table("harmoeny_q_sweep")
    best = min(table.rows, key=lambda row: float(row["duration_s"]))
    return Group(
        name="harmoeny-threshold",
        quantity="tokens from which moving an expert pays [token]",
        rows=(Row(case="best threshold, V100 over PCIe, tokens", predicted=_threshold(), measured=best["q_tokens"]),),
        sources=table.sources,
        assumptions=("datasheet rates: fp32 arithmetic, PCIe in one direction",),
    )


def _threshold() -> float:
    """Tokens whose multiplication takes as long as fetching the weights over PCIe."""
    machine = load_hardware(V100)
    if machine.pcie is None:
        raise InputError(f"{machine.name}: no rate of its host link is known")
    return float(
        crossover_tokens(
            peak_flops=machine.peak_flops("fp32").value, bandwidth=machine.pcie.value, bytes_per_weight=FP32
        )
    )


def _moving(check: Group, theme: str) -> Figure:
    import plotly.graph_objects as go

    rows = read_table("harmoeny_q_sweep").rows
    tokens, seconds = ([float(row[name]) for row in rows] for name in ("q_tokens", "duration_s"))
    said = [f"threshold {q:.0f} tokens: {s:.1f} s" for q, s in zip(tokens, seconds, strict=True)]
    predicted = check.rows[0].predicted
    figure = go.Figure(published(tokens, seconds, "time of the whole run", 0, said).update(mode="lines+markers"))
    figure.add_vline(x=predicted, line={"color": "#d55e00", "width": 2.5, "dash": "dash"})
    figure.add_trace(curve([np.nan], [np.nan], f"predicted: pays from {predicted:,.0f} tokens", 1, dash="dash"))
    return finish(
        figure,
        title="Time of a run against the tokens from which work moves",
        subtitle="Switch-128 in fp32, 8x V100 (HarMoEny); the line: multiplying takes as long as fetching the weights",
        x=AxisStyle("Threshold q [tokens]", log=True, octave=2),
        y=AxisStyle("Time of the run [s]", can_log=False),
        notes=formula_notes(*check.assumptions, machine=load_hardware(V100)),
        theme=theme,
    )
