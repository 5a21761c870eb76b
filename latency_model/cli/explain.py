"""``latency-model explain``: one engine step or one round, operation by operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from latency_model.cli.options import (
    Command,
    draft_options,
    format_option,
    load_options,
    price_option,
    setting_options,
)

if TYPE_CHECKING:
    from latency_model.cli.render import Result
    from latency_model.costs.round import Round
    from latency_model.costs.step import StepCost
    from latency_model.costs.uncertainty import Estimate


@click.command(cls=Command, short_help="One step or one round, operation by operation.")
@setting_options
@draft_options
@load_options(batch="1", most=1)
@click.option("--draft-length", type=int, help="Explain a round that drafts so many tokens, not a plain step.")
@click.option("--prefill", type=int, metavar="N", help="Explain the prefill of N tokens a sequence (after -c cached).")
@price_option
@format_option
def explain(
    *,
    setting: dict[str, Any],
    assumed: tuple[str, ...],
    batch: tuple[int],
    context: tuple[int],
    draft_length: int | None,
    prefill: int | None,
    format: str,
    **drafting: Any,
) -> None:
    """Itemise one engine step or one speculative round: where the time goes, and what bounds it.

    \b
    Examples:
      latency-model explain -m Qwen3-8B -H h100-sxm -b 16 -c 8192
      latency-model explain -m Qwen3-30B-A3B -H h100-sxm -b 4 --draft eagle3 --draft-length 3
      latency-model explain -m Qwen3-8B -H h100-sxm --prefill 2048
    """  # noqa: D301 - \b keeps click from joining the lines
    from latency_model import speculate, step_cost
    from latency_model.cli.render import show

    load: dict[str, Any] = {"batch": batch[0], "context": context[0]}
    if prefill is not None and draft_length is not None:
        raise click.UsageError("Give --prefill or --draft-length, not both.")
    parameters = click.get_current_context().params
    if draft_length is None and (parameters["draft"] or parameters["draft_model"]):
        raise click.UsageError("Give --draft-length too: how many tokens the drafter proposes.")
    if draft_length is not None:
        round_ = speculate(**setting, **load, **drafting, draft_length=draft_length)
        show(round_result(round_, assumed), format)
    else:
        tokens = 1 if prefill is None else prefill
        step = step_cost(**setting, **load, tokens_per_sequence=tokens, prefill=prefill is not None)
        show(step_result(step, setting, load | {"prefill_tokens": prefill}, assumed), format)


def step_result(step: StepCost, setting: dict[str, Any], load: dict[str, Any], assumed: tuple[str, ...]) -> Result:
    """A step as the command prints it."""
    from latency_model.cli import describe
    from latency_model.costs.setting import Setting

    resolved = Setting.of(**setting)
    rows = [{"phase": "prefill" if load["prefill_tokens"] else "step"} | row for row in step.table]
    totals = _totals(rows) | {"time_low_s": step.estimate.low, "time_high_s": step.estimate.high}
    return _result(
        rows,
        totals,
        inputs=describe.setting_inputs(resolved)
        | {"batch": load["batch"], "context_tokens": load["context"], "prefill_tokens": load["prefill_tokens"]},
        heading=(describe.model_line(resolved), describe.machine_line(resolved, step)),
        remarks=(f"80 % interval of the time: {_milliseconds(step.estimate)}.",),
        assumptions=(*assumed, *step.assumptions),
        not_modelled=(),
        sources=resolved.hardware.sources,
    )


def round_result(round_: Round, assumed: tuple[str, ...]) -> Result:
    """A round as the command prints it."""
    from latency_model.cli import describe
    from latency_model.cli.render import chance, fixed, number

    setting, estimates = round_.setting, round_.estimates
    speedup = estimates.speedup
    rows = round_.components
    totals = _totals(rows) | {
        "time_low_s": estimates.time.low,
        "time_high_s": estimates.time.high,
        "baseline_time_s": round_.baseline_time,
        "baseline_time_low_s": estimates.baseline_time.low,
        "baseline_time_high_s": estimates.baseline_time.high,
        "tokens_per_round": round_.tokens_per_round,
        "tpot_s": round_.tpot,
        "tpot_low_s": estimates.tpot.low,
        "tpot_high_s": estimates.tpot.high,
        "speedup": round_.speedup,
        "speedup_low": speedup.low,
        "speedup_high": speedup.high,
        "speedup_probability": round_.speedup_probability,
        "target_efficiency": round_.target_efficiency,
    }
    tpot, plain = number(1e3 * float(round_.tpot)), number(1e3 * float(round_.baseline_time))
    return _result(
        rows,
        totals,
        inputs=describe.setting_inputs(setting)
        | describe.drafter_inputs(round_.draft, round_.acceptance)
        | {
            "batch": int(round_.batch),
            "context_tokens": int(round_.context),
            "draft_length": int(round_.draft_length),
            "price_dollars_per_hour": round_.price,
        },
        heading=(
            describe.model_line(setting),
            describe.machine_line(setting, round_.cost.verify),
            describe.drafter_line(setting, round_.draft, round_.acceptance),
        ),
        remarks=(
            f"{fixed(float(round_.tokens_per_round))} tokens a round: {tpot} ms per token against {plain} ms for a "
            f"plain step, speedup {fixed(float(round_.speedup))}.",
            f"80 % intervals: round {_milliseconds(estimates.time)}, per token {_milliseconds(estimates.tpot)}, plain "
            f"step {_milliseconds(estimates.baseline_time)}, speedup {fixed(float(speedup.low))}-"
            f"{fixed(float(speedup.high))}; above 1 with probability {chance(float(round_.speedup_probability))} %.",
        ),
        assumptions=(*assumed, *round_.assumptions),
        not_modelled=round_.not_modelled,
        sources=setting.hardware.sources,
    )


def _milliseconds(estimate: Estimate) -> str:
    """An interval of a time as people read it."""
    from latency_model.cli.render import number

    return f"{number(1e3 * float(estimate.low))}-{number(1e3 * float(estimate.high))} ms"


def _totals(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Sums over the operations; bytes through memory only, those over links are listed in their rows."""
    totals = {name: sum(row[name] for row in rows) for name in ("kernels", "flops", "time_s")}
    in_memory = (row["traffic_bytes"] for row in rows if row["group"] != "communication")
    return totals | {"traffic_bytes": sum(in_memory)}


def _result(rows: list[dict[str, Any]], totals: dict[str, Any], **parts: Any) -> Result:
    """Rows with their totals, and the columns of the table."""
    from latency_model.cli.render import Column, Result, percent
    from latency_model.units import format_quantity

    def quantity(key: str, dimension: str) -> Any:
        return lambda row: format_quantity(float(row[key]), dimension) if row[key] > 0 else "-"

    total = totals | {"phase": "total", "name": "", "dtype": "", "executions": "", "bound": "", "share": 1.0}
    columns = [
        Column("phase", lambda row: row["phase"], left=True),
        Column("operation", lambda row: row["name"], left=True, fold=True),
        Column("format", lambda row: row["dtype"], left=True, optional=3),
        Column("times", lambda row: f"{row['executions']:.0f}" if row["executions"] != "" else "", optional=1),
        Column("kernels", lambda row: f"{row['kernels']:.0f}", optional=2),
        Column("work", quantity("flops", "flops")),
        Column("bytes", quantity("traffic_bytes", "size")),
        Column("time", quantity("time_s", "time")),
        Column("bound by", lambda row: str(row["bound"]), left=True),
        Column("share", lambda row: percent(row["share"])),
    ]
    return Result(rows=rows, columns=columns, total=total, extra={"totals": totals}, **parts)
