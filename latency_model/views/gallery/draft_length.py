"""The best draft length against acceptance and the cost of a draft step."""

from __future__ import annotations

import numpy as np

from latency_model.evidence.published.record import Group, Row, read_table
from latency_model.evidence.published.speculation import T5_DRAFTS, T5_XXL
from latency_model.formulas.acceptance import walltime_improvement
from latency_model.formulas.draft_length import best_draft_length, optimal_draft_length
from latency_model.views.figures.style import AxisStyle, finish
from latency_model.views.gallery.claim import Claim, replay
from latency_model.views.gallery.drawing import curve, formula_notes, published, rows_of

__all__ = ["claim"]

ACCEPTANCES = np.linspace(0.02, 0.9, 353)


def claim(theme: str = "light") -> Claim:
    """Drafts should be longer the more is accepted and the less a draft step costs."""
    from plotly.subplots import make_subplots

    table = read_table("leviathan_t5xxl_speedup").rows
    gains, lengths = replay("leviathan"), _lengths()
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.06)
    for number, (draft, parameters) in enumerate(T5_DRAFTS.items()):
        cost = parameters / T5_XXL
        best = best_draft_length(ACCEPTANCES, cost)
        name = f"c = {cost:.3f} ({draft})"
        figure.add_trace(curve(ACCEPTANCES, best, name, number).update(line={"shape": "hv"}), row=1, col=1)
        real = curve(ACCEPTANCES, optimal_draft_length(ACCEPTANCES, cost), "real-valued optimum", number, dash="dot")
        figure.add_trace(real.update(showlegend=number == 0), row=1, col=1)
        gain = walltime_improvement(ACCEPTANCES, best, cost)
        figure.add_trace(curve(ACCEPTANCES, gain, name, number).update(showlegend=False), row=2, col=1)
        mine = [index for index, row in enumerate(table) if row["draft"] == draft]
        for panel, check in enumerate((lengths, gains), start=1):
            said = rows_of(check)
            points = published(
                [float(table[index]["alpha"]) for index in mine],
                [check.rows[index].measured for index in mine],
                f"{draft}",
                number,
                [said[index] for index in mine],
            )
            figure.add_trace(points.update(showlegend=panel == 1), row=panel, col=1)
    worst = max(
        1.0
        - float(
            walltime_improvement(float(row["alpha"]), int(row["gamma"]), T5_DRAFTS[row["draft"]] / T5_XXL)
            / walltime_improvement(float(row["alpha"]), best.predicted, T5_DRAFTS[row["draft"]] / T5_XXL)
        )
        for row, best in zip(table, lengths.rows, strict=True)
    )
    return Claim(
        name="draft-length",
        title="The best draft length follows from acceptance and the cost of a draft step",
        text=(
            "A longer draft pays as long as its last token is accepted often enough for what it costs. With acceptance "
            "α of every token, and a draft step that takes the share c of a target step, one number follows: the best "
            "draft length. Cheap drafters that are mostly right should draft far ahead; from α = c down, not at all."
        ),
        figures=(
            finish(
                figure,
                title="Best draft length, and the improvement it brings",
                subtitle="lines: formula; diamonds: lengths used and speedups measured with T5-XXL",
                x=AxisStyle("Acceptance α [probability]", can_log=False),
                y=AxisStyle("Draft length γ [tokens]", can_log=False),
                lower=AxisStyle("Improvement [×]", can_log=False),
                notes=formula_notes(*gains.assumptions, "verification costs one plain step, whatever the draft length"),
                theme=theme,
            ),
        ),
        checks=(gains, lengths),
        findings=(
            "The lengths used are shorter than the formula's best, which takes verification as free; by the same "
            f"formula they lose {worst:.1%} at most, as the optimum is flat.",
        ),
    )


def _lengths() -> Group:
    """The formula's best draft length beside the one the authors used."""
    table = read_table("leviathan_t5xxl_speedup")
    return Group(
        name="draft-lengths-used",
        quantity="best draft length by the formula, against the one used [token]",
        rows=tuple(
            Row(
                case=f"{row['task']} {row['draft']} T={row['temperature']} α={row['alpha']}",
                predicted=best_draft_length(float(row["alpha"]), T5_DRAFTS[row["draft"]] / T5_XXL),
                measured=row["gamma"],
            )
            for row in table.rows
        ),
        sources=table.sources,
    )
