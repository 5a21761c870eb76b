"""Speedup of mixtures and of dense models against batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from latency_model.costs.round import Round, speculate
from latency_model.evidence.published.record import Group, Row, read_table
from latency_model.evidence.published.speculation import (
    EAGLE_VERSIONS,
    eagle3_round,
    moesd_round,
)
from latency_model.formulas.routing import persistence_from_overlap, stickiness_from_overlap
from latency_model.specs.acceptance import Acceptance
from latency_model.specs.routing import Routing
from latency_model.views.figures.style import AxisStyle, finish
from latency_model.views.figures.waterfall import notes_of
from latency_model.views.gallery.claim import Claim, replay
from latency_model.views.gallery.drawing import along, curve, joint_notes, level, powers, published, rows_of, told

if TYPE_CHECKING:
    from latency_model.views.figures.style import Figure

__all__ = ["claim", "cohere", "cohere_routing", "stand_in"]

BATCHES = powers(512)
STAND_IN = "Qwen3-30B-A3B"


def cohere() -> dict[str, float]:
    """What was published of Cohere's production mixture, by name."""
    return {row["quantity"]: float(row["value"]) for row in read_table("cohere_scalars").rows}


def cohere_routing() -> Routing:
    """Routing whose overlaps at the nearest and the farthest published lag are those of Cohere's model."""
    said = cohere()
    overlap = {int(row["lag"]): float(row["overlap"]) for row in read_table("cohere_expert_overlap_by_lag").rows}
    near, far = overlap[min(overlap)], overlap[max(overlap)]
    return Routing(
        persistence=float(persistence_from_overlap(said["experts per token"] / said["routed experts"], far)),
        stickiness=float(stickiness_from_overlap(adjacent_overlap=near, distant_overlap=far)),
    )


def stand_in(batch: ArrayLike = 1.0) -> Round:
    """A mixture with as many experts as Cohere's, with its acceptance and routing."""
    said = cohere()
    drafts = int(said["draft length"])
    return speculate(
        STAND_IN,
        "h100-sxm",
        acceptance=Acceptance.mean_length(said["tokens per round"], draft_length=drafts),
        draft_length=drafts,
        batch=batch,
        context=1024,
        routing=cohere_routing(),
    )


def claim(theme: str = "light") -> Claim:
    """Mixtures gain at batch 1, less while experts are added, most when all are touched; dense models only lose."""
    dense, peaks, curves = replay("eagle3-sglang"), replay("moesd"), stand_in(BATCHES)
    lone = Group(
        name="cohere-speedups",
        quantity="speedup of a stand-in for Cohere's mixture",
        rows=(
            Row(case="batch 1", predicted=curves.speedup[0], measured=cohere()["speedup batch 1"]),
            Row(case="peak over batches", predicted=curves.speedup.max(), measured=cohere()["peak speedup"]),
        ),
        sources=read_table("cohere_scalars").sources,
        assumptions=(f"its size is not published: {STAND_IN} on one H100 stands in, with Cohere's routing",),
    )
    gain = curves.speedup
    dip = int(gain[BATCHES <= 16].argmin())
    return Claim(
        name="moe-batch",
        title="Mixtures gain at batch 1, dip, peak and fall; dense models only fall",
        text=(
            "A dense model has idle compute at small batches, which verification uses; as the batch grows the idle "
            "compute goes, and so does the gain. A mixture of experts loads more experts to verify more tokens. At "
            "batch 1 much of a step is fixed cost and verification rides along; then the added experts cost bytes; "
            "once a plain step touches all experts anyway, verification adds none and the gain peaks."
        ),
        figures=(_mixtures(peaks, theme), _both(curves, dense, theme)),
        checks=(peaks, dense, lone),
        findings=(
            f"The stand-in mixture gains {gain[0]:.2f} at batch 1, {gain[dip]:.2f} at batch {BATCHES[dip]:.0f}, "
            f"{gain.max():.2f} at batch {BATCHES[gain.argmax()]:.0f} and {gain[-1]:.2f} at batch {BATCHES[-1]:.0f}.",
            "Cohere's own peak lies at batch "
            f"{cohere()['peak batch low']:.0f} to {cohere()['peak batch high']:.0f}: a place the stand-in misses.",
        ),
    )


def _mixtures(peaks: Group, theme: str) -> Figure:
    import plotly.graph_objects as go

    table = read_table("moesd_peak_speedup").rows
    chosen = [i for i, row in enumerate(table) if (row["dataset"], row["gamma"]) == ("humaneval", "4")]
    figure, rounds = go.Figure(), []
    said = rows_of(peaks)
    for number, index in enumerate(chosen):
        row = table[index]
        round_ = along(moesd_round(row), batch=BATCHES)
        rounds.append(round_)
        name = f"{row['model']}, {round_.setting.parallelism.devices}x {round_.setting.hardware.name}"
        figure.add_trace(curve(BATCHES, round_.speedup, name, number, said=told(round_, name)))
        height = float(row["speedup_x"])
        where = f"{said[index]}<br>the batch of the peak is not published"
        figure.add_trace(level((1.0, BATCHES[-1]), height, f"peak, {row['model']}, {row['hardware']}", number, where))
    return finish(
        figure,
        title="Mixtures: speedup against batch",
        subtitle="HumanEval, greedy, 4 drafted tokens (MoESD); dotted: the published peak, whose batch is not printed",
        x=AxisStyle("Batch [sequences]", log=True, octave=1),
        y=AxisStyle("Speedup over plain decoding [×]"),
        notes=joint_notes(rounds),
        theme=theme,
    )


def _both(mixture: Round, check: Group, theme: str) -> Figure:
    import plotly.graph_objects as go

    said = cohere()
    figure = go.Figure(curve(BATCHES, mixture.speedup, f"{STAND_IN} (mixture)", 0, said=told(mixture, STAND_IN)))
    figure.add_trace(
        published(
            [1.0], [said["speedup batch 1"]], "Cohere's mixture", 0, [f"Cohere, batch 1: {said['speedup batch 1']}"]
        )
    )
    ends = (said["peak batch low"], said["peak batch high"])
    figure.add_trace(
        level(
            ends,
            said["peak speedup"],
            "its peak",
            0,
            f"Cohere: about {said['peak speedup']} at batch {ends[0]:.0f} to {ends[1]:.0f}",
        )
    )
    texts = rows_of(check)
    table = read_table("eagle3_batch_throughput").rows
    for number, method in enumerate(EAGLE_VERSIONS, start=1):
        round_ = along(eagle3_round(next(row for row in table if row["method"] == method)), batch=BATCHES)
        name = f"Llama-3.1-8B (dense), {method}"
        figure.add_trace(curve(BATCHES, round_.speedup, name, number, said=told(round_, name)))
        mine = [i for i, row in enumerate(check.rows) if row.case.startswith(f"{method} ")]
        batches = [float(check.rows[i].case.split("batch ")[1]) for i in mine]
        measured = [check.rows[i].measured for i in mine]
        figure.add_trace(published(batches, measured, f"dense, {method}", number, [texts[i] for i in mine]))
    ends = (BATCHES[0], BATCHES[-1])
    figure.add_trace(curve(ends, np.ones(2), "plain decoding", 6, dash="dash"))
    return finish(
        figure,
        title="A mixture and a dense model",
        subtitle=f"3 drafted tokens, one H100; {STAND_IN} stands in for Cohere's mixture, whose size is not published",
        x=AxisStyle("Batch [sequences]", log=True, octave=1),
        y=AxisStyle("Speedup over plain decoding [×]"),
        notes=notes_of(mixture),
        theme=theme,
    )
