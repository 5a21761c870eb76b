"""Sparser models peak higher and later; shared experts lower the price of verification."""

from __future__ import annotations

import json
from typing import NamedTuple

import attrs
import numpy as np
from numpy.typing import NDArray

from latency_model.costs.round import Round
from latency_model.evidence.published.record import Group, read_table
from latency_model.evidence.published.speculation import moesd_round
from latency_model.specs.loader import BUNDLED, load_model
from latency_model.specs.model import ModelArchitecture, MoE
from latency_model.views.figures.style import AxisStyle, finish
from latency_model.views.figures.waterfall import notes_of
from latency_model.views.gallery.claim import Claim, replay
from latency_model.views.gallery.drawing import along, curve, powers, published, rows_of

__all__ = ["claim"]

BASE = "Qwen2-57B-A14B"
EXPERTS = (8, 12, 16, 24, 32, 64, 128, 256, 512)
SHARES = (0.0, 0.25, 0.5, 0.75)
BATCHES = powers(2048, each=2)
GAMMA = 4


class Peak(NamedTuple):
    """Where the speedup of one design is highest over batches."""

    round: Round
    height: float
    batch: float


def claim(theme: str = "light") -> Claim:
    """Sparsity and shared experts decide how much speculation can gain, and at which batch."""
    from plotly.subplots import make_subplots

    peaks = {(share, experts): _peak(experts, share) for share in SHARES for experts in EXPERTS}
    check = replay("moesd")
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.06)
    activity = np.array([_config()["num_experts_per_tok"] / experts for experts in EXPERTS])
    for number, share in enumerate(SHARES):
        mine = [peaks[share, experts] for experts in EXPERTS]
        tokens = float(mine[0].round.tokens_per_round)
        said = [
            f"<b>{experts} experts, {share:.0%} shared</b><br>peak {peak.height:.2f} at batch {peak.batch:.0f}"
            for experts, peak in zip(EXPERTS, mine, strict=True)
        ]
        name = f"{share:.0%} of active expert weights shared"
        kept = curve(activity, np.array([peak.height for peak in mine]) / tokens, name, number, said=said)
        figure.add_trace(kept, row=1, col=1)
        where = curve(activity, [peak.batch for peak in mine], name, number, said=said)
        figure.add_trace(where.update(showlegend=False), row=2, col=1)
    for number, (model, points) in enumerate(_points(check).items(), start=4):
        figure.add_trace(published(points.activity, points.kept, model, number, points.said), row=1, col=1)
    sparse, dense = peaks[0.0, EXPERTS[-1]], peaks[0.0, EXPERTS[0]]
    shared = peaks[SHARES[-1], BASE_EXPERTS], peaks[0.0, BASE_EXPERTS]
    return Claim(
        name="sparsity",
        title="Sparsity and shared experts set the height and the place of the peak",
        text=(
            "The peak comes where a plain step touches nearly all experts already, so that verification adds tokens "
            "but no bytes. The sparser the model, the larger that batch, and the higher the peak, since it arrives "
            "with few tokens on every expert and compute to spare. Shared experts work like a dense part: loaded and "
            "multiplied for every token, they raise the gain at batch 1 and lower the peak."
        ),
        figures=(
            finish(
                figure,
                title="Peak speedup over batch, and the batch it comes at",
                subtitle=f"{BASE} with more or fewer experts, same active weights; {GAMMA} drafted tokens, 2x H800",
                x=AxisStyle("Experts a token over all experts k/E [1]", log=True, octave=1, ticks=".3~g"),
                y=AxisStyle("Peak speedup over tokens a round [1]", can_log=False),
                lower=AxisStyle("Batch of the peak [sequences]", can_log=False),
                notes=notes_of(sparse.round),
                theme=theme,
            ),
        ),
        checks=(check,),
        findings=(
            f"Without shared experts the peak is {dense.height:.2f} at batch {dense.batch:.0f} when all {EXPERTS[0]} "
            f"experts are used by every token, and {sparse.height:.2f} at batch {sparse.batch:.0f} at "
            f"{EXPERTS[-1]} experts.",
            f"With {BASE_EXPERTS} experts, {SHARES[-1]:.0%} shared gives {_alone(shared[0]):.2f} at batch 1 and a peak "
            f"of {shared[0].height:.2f}, none shared {_alone(shared[1]):.2f} and {shared[1].height:.2f}.",
            "The two published models differ in more than sparsity: Mixtral drafts with an EAGLE head, Qwen2 with a "
            "model of half a billion parameters.",
        ),
    )


def _alone(peak: Peak) -> float:
    """Speedup at batch 1 [1]."""
    return float(peak.round.speedup[0])


def _config() -> dict[str, int]:
    config: dict[str, int] = json.loads((BUNDLED / f"{BASE}.json").read_text(encoding="utf-8"))
    return config


BASE_EXPERTS = _config()["num_experts"]


def _example() -> Round:
    """The published round that designs are compared at."""
    rows = read_table("moesd_peak_speedup").rows
    wanted = {"model": BASE, "hardware": "2xGPU-B", "dataset": "humaneval", "gamma": str(GAMMA)}
    return moesd_round(next(row for row in rows if wanted.items() <= row.items()))


def _peak(experts: int, share: float) -> Peak:
    """The peak of a design whose active weights are those of the base model, a share of them in shared experts."""
    config = _config()
    top_k = config["num_experts_per_tok"]
    active = top_k * config["moe_intermediate_size"] + config["shared_expert_intermediate_size"]
    alone = share == 0.0
    design = {
        "num_experts": experts,
        "moe_intermediate_size": round((1.0 - share) * active / top_k),
        "shared_expert_intermediate_size": 1 if alone else round(share * active),
    }
    model = load_model({**config, **design})
    round_ = along(_example(), model=_without_shared(model) if alone else model, batch=BATCHES)
    best = int(round_.speedup.argmax())
    return Peak(round_, float(round_.speedup[best]), float(BATCHES[best]))


def _without_shared(model: ModelArchitecture) -> ModelArchitecture:
    """The same model with routed experts only, which configs of this family cannot say."""
    layers = tuple(
        attrs.evolve(
            layer,
            feed_forward=tuple(
                attrs.evolve(block, shared=()) if isinstance(block, MoE) else block for block in layer.feed_forward
            ),
        )
        for layer in model.layers
    )
    return model.replace(layers=layers)


class Points(NamedTuple):
    """Published peaks of one model over their tokens per round."""

    activity: NDArray[np.float64]
    kept: NDArray[np.float64]
    said: list[str]


def _points(check: Group) -> dict[str, Points]:
    """Published peaks at the same draft length, by model."""
    rows = read_table("moesd_peak_speedup").rows
    said = rows_of(check)
    found = {}
    for model in dict.fromkeys(row["model"] for row in rows):
        mine = [i for i, row in enumerate(rows) if row["model"] == model and int(row["gamma"]) == GAMMA]
        block = next(kind for kind, _ in load_model(model).moe_kinds)
        kept = [check.rows[i].measured / (float(rows[i]["sigma"]) * (GAMMA + 1)) for i in mine]
        activity = np.full(len(mine), block.top_k / block.num_experts)
        found[model] = Points(activity, np.array(kept), [said[i] for i in mine])
    return found
