"""``latency-model optimize``: the best draft length for every batch and context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from latency_model.cli.options import (
    ENGINES,
    Command,
    draft_options,
    format_option,
    load_options,
    price_option,
    setting_options,
)

if TYPE_CHECKING:
    from latency_model.cli.render import Column, Result
    from latency_model.decisions.optimize import Plan
    from latency_model.views.emit import EngineSettings

LEGEND = (
    "low-high: 80 % interval.  P>1: probability of a speedup above 1.  within 1 %: lengths about as good.  "
    "pays above: break-even acceptance."
)


@click.command(cls=Command, short_help="The best draft length at each batch and context.")
@setting_options
@draft_options
@load_options(batch="1,4,16,64,256")
@click.option("--max-draft-length", type=int, default=16, show_default=True, help="Longest draft to try.")
@price_option
@click.option("--emit", type=click.Choice(list(ENGINES)), help="Print only the setting to paste into this engine.")
@format_option
def optimize(*, setting: dict[str, Any], assumed: tuple[str, ...], emit: str | None, format: str, **asked: Any) -> None:
    """Find how many tokens to draft at each batch and context, what it buys, and why.

    Without -m and -H it runs a bundled example.

    \b
    Examples:
      latency-model optimize
      latency-model optimize -m Qwen3-8B -H h100-sxm -b 1:32 -c 1024,32768
      latency-model optimize -m ./config.json -H b200 --tp 4 --weights fp8 --draft mtp
      latency-model optimize -m Qwen3-235B-A22B -H h200 --tp 8 --draft-model Qwen3-0.6B
      latency-model optimize -m Qwen3-30B-A3B -H h100 --acceptance len:2.73@3 --emit vllm
    """  # noqa: D301 - \b keeps click from joining the lines
    from latency_model import optimize as best_lengths
    from latency_model.cli.render import note, show
    from latency_model.views.emit import engine_settings, has_settings

    plan = best_lengths(**setting, **asked)
    engine = emit or (setting["engine"] if setting["engine"] in ENGINES else "vllm")
    settings = engine_settings(plan, engine) if emit or has_settings(plan, engine) else None
    if settings is None or emit is None or format != "table":
        show(result(plan, engine, settings, assumed), format)
        return
    if settings.text:
        click.echo(settings.text)
    for sentence in (*settings.notes, *(f"Assumed: {sentence}" for sentence in (*assumed, *plan.assumptions))):
        note(sentence)


def result(plan: Plan, engine: str, settings: EngineSettings | None, assumed: tuple[str, ...]) -> Result:
    """A plan as the command prints it."""
    from latency_model.cli import describe, render
    from latency_model.decisions.reasons import reasons

    best, explained = plan.best, reasons(plan)
    inputs = describe.setting_inputs(best.setting) | describe.drafter_inputs(best.draft, best.acceptance)
    inputs |= {
        "batch": plan.batch.astype(int),
        "context_tokens": plan.context.astype(int),
        "max_draft_length": int(plan.lengths[-1]),
        "price_dollars_per_hour": best.price,
    }
    return render.Result(
        inputs=inputs,
        rows=plan.rows(),
        columns=columns(several_contexts=plan.context.size > 1),
        heading=(
            describe.model_line(best.setting),
            describe.machine_line(best.setting, best.cost.verify),
            describe.drafter_line(best.setting, best.draft, best.acceptance),
        ),
        legend=LEGEND,
        remarks=explained,
        paste=(f"Paste into {ENGINES[engine]}:", settings.text) if settings and settings.text else (),
        assumptions=(*assumed, *plan.assumptions),
        not_modelled=plan.not_modelled,
        sources=plan.sources,
        extra={"reasons": explained, "settings": settings},
    )


def columns(*, several_contexts: bool) -> list[Column]:
    """What the table shows of a row."""
    from latency_model.cli.render import Column, fixed, number, percent

    shown = [
        Column("batch", lambda row: f"{row['batch']}{'' if row['fits'] else '!'}"),
        Column("draft\nlength", lambda row: str(row["draft_length"])),
        Column("speed\nup", lambda row: fixed(row["speedup"])),
        Column("low-high", lambda row: f"{fixed(row['speedup_low'])}-{fixed(row['speedup_high'])}"),
        Column("P>1\n%", gain_probability),
        Column("tokens\n/round", lambda row: fixed(row["tokens_per_round"])),
        Column("TPOT\nms", lambda row: number(1e3 * row["tpot_s"])),
        Column(
            "low-high",
            lambda row: f"{number(1e3 * row['tpot_low_s'])}-{number(1e3 * row['tpot_high_s'])}",
            optional=3,
        ),
        Column("held back by", lambda row: f"{row['held_back_by']} {percent(row['held_back_share'])}", left=True),
        Column("within\n1 %", plateau, optional=1),
        Column("pays\nabove", lambda row: fixed(row["break_even_acceptance"]), optional=2),
    ]
    if several_contexts:
        shown.insert(1, Column("context", lambda row: str(row["context_tokens"])))
    return shown


def gain_probability(row: Mapping[str, Any]) -> str:
    """How likely drafting gains, a dash where nothing is drafted."""
    from latency_model.cli.render import chance

    return chance(row["speedup_probability"]) if row["draft_length"] else "-"


def plateau(row: Mapping[str, Any]) -> str:
    """The draft lengths within 1 % of the best."""
    low, high = row["plateau_low"], row["plateau_high"]
    return str(low) if low == high else f"{low}-{high}"
