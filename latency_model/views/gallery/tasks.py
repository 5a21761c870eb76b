"""Tasks differ in acceptance, and so in what speculation brings them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from latency_model.decisions.optimize import optimize
from latency_model.evidence.published.acceptance import PRINTED, trace_acceptance
from latency_model.evidence.published.record import Group, read_table
from latency_model.evidence.published.speculation import moesd_round
from latency_model.specs.acceptance import Acceptance
from latency_model.specs.draft import Draft
from latency_model.views.figures.style import SYMBOLS, AxisStyle, finish
from latency_model.views.figures.waterfall import notes_of
from latency_model.views.gallery.claim import Claim, replay
from latency_model.views.gallery.drawing import along, curve, joint_notes, powers, published, rows_of

if TYPE_CHECKING:
    from latency_model.views.figures.style import Figure

__all__ = ["claim"]

MODEL = "Qwen2-57B-A14B"
DATASETS = ("humaneval", "mtbench")
BATCHES = powers(256, each=2)


def claim(theme: str = "light") -> Claim:
    """What is accepted decides how much speculation gains."""
    check, lengths = replay("moesd"), replay("acceptance-traces")
    rows = read_table("moesd_peak_speedup").rows
    keys = ("hardware", "temperature", "gamma")
    code, talk = (
        {tuple(row[key] for key in keys): row for row in rows if (row["model"], row["dataset"]) == (MODEL, dataset)}
        for dataset in DATASETS
    )
    ratios = [
        [float(code[key][name]) / float(row[name]) for name in ("speedup_x", "sigma")] for key, row in talk.items()
    ]
    gains, tokens = np.array(ratios).T
    return Claim(
        name="tasks",
        title="Differences in acceptance between tasks become differences in speedup",
        text=(
            "Code repeats itself and is easy to guess, conversation is not. On the same model, machine and draft "
            "length the time of a round is the same for both, so the speedup is proportional to the tokens a round "
            "yields: a straight line through zero, on which every task finds its place. No draft length is right for "
            "all of them."
        ),
        figures=(_lines(check, theme), _datasets(theme)),
        checks=(check, lengths),
        findings=(
            f"From MT-Bench to HumanEval tokens per round grow {np.median(tokens):.2f} times and speedups "
            f"{np.median(gains):.2f} times, in the median of {len(ratios)} published pairs.",
        ),
    )


def _lines(check: Group, theme: str) -> Figure:
    """Peak speedup against tokens per round: every machine is a line through zero for each draft length."""
    import plotly.graph_objects as go

    rows, said = read_table("moesd_peak_speedup").rows, rows_of(check)
    figure, pictures, rounds = go.Figure(), [], []
    machines = dict.fromkeys(row["hardware"] for row in rows if row["model"] == MODEL)
    for picture, hardware in enumerate(machines):
        for number, drafts in enumerate((2, 3, 4)):
            tokens = np.linspace(1.0, drafts + 1.0, 9)
            wanted = {"model": MODEL, "hardware": hardware, "gamma": str(drafts)}
            example = next(row for row in rows if wanted.items() <= row.items())
            round_ = along(moesd_round(example), acceptance=Acceptance.constant(1.0))
            rounds.append(round_)
            peak = float(round_.speedup.max()) / (drafts + 1.0)
            traces_ = [curve(tokens, peak * tokens, f"{drafts} drafted tokens", number)]
            for symbol, dataset in enumerate(DATASETS):
                mine = [
                    i
                    for i, row in enumerate(rows)
                    if (row["model"], row["hardware"], row["gamma"], row["dataset"])
                    == (MODEL, hardware, str(drafts), dataset)
                ]
                x = [float(rows[i]["sigma"]) * (drafts + 1.0) for i in mine]
                y = [float(rows[i]["speedup_x"]) for i in mine]
                points = published(x, y, f"{dataset}, {drafts}", number, [said[i] for i in mine])
                traces_.append(points.update(marker={"symbol": ("diamond", "diamond-tall")[symbol]}))
            for trace in traces_:
                figure.add_trace(trace.update(meta={"picture": picture}))
        pictures.append({"hardware": f"{round_.setting.parallelism.devices}x {round_.setting.hardware.name}"})
    return finish(
        figure,
        title="Peak speedup against tokens per round",
        subtitle=f"{MODEL} with a draft of half a billion parameters (MoESD)",
        x=AxisStyle("Tokens per round [tokens]", can_log=False),
        y=AxisStyle("Peak speedup over batch [×]", can_log=False),
        notes=joint_notes(rounds),
        pictures=pictures,
        theme=theme,
    )


def _datasets(theme: str) -> Figure:
    """Speedup at the best draft length, from the acceptance published for each dataset."""
    import plotly.graph_objects as go

    figure = go.Figure()
    rows = [row for row in read_table("specdecodebench_acceptance_by_position").rows if row["proposer"] == "eagle"]
    for number, row in enumerate(rows):
        plan = optimize(
            "Llama-3.1-8B",
            "h100-sxm",
            draft=Draft.eagle(),
            acceptance=trace_acceptance(row),
            batch=BATCHES,
            context=1024,
            max_draft_length=PRINTED,
        )
        said = [
            f"<b>{row['dataset']}</b>, batch {batch:.0f}: speedup {gain:.2f} at {drafts} drafted tokens"
            f"<br>held back by {term}: {share:.0%} of a round"
            for batch, gain, drafts, term, share in zip(
                BATCHES, plan.speedup, plan.draft_length, plan.held_back_by, plan.held_back_share, strict=True
            )
        ]
        trace = curve(BATCHES, plan.speedup, f"{row['dataset']}, published acceptance", number, said=said)
        figure.add_trace(trace.update(mode="lines+markers", marker={"symbol": SYMBOLS[number], "size": 7}))
    return finish(
        figure,
        title="Speedup by dataset at the best draft length of each batch",
        subtitle="Llama-3.1-8B with an EAGLE-3 head on one H100; published acceptance by position (SpecDecode-Bench)",
        x=AxisStyle("Batch [sequences]", log=True, octave=1),
        y=AxisStyle("Speedup over plain decoding [×]"),
        notes=notes_of(plan.best),
        theme=theme,
    )
