"""``latency-model calibrate``: benchmark files in, a profile of the machine that ran them out."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from latency_model.cli.options import Command, Named, drafter, format_option, setting_options
from latency_model.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from latency_model.cli.render import Column, Result
    from latency_model.evidence.calibrate.calibrate import Calibration, CountedAcceptance, TimingFit
    from latency_model.evidence.routing_trace import RoutingFit

MOST_RESIDUALS = 40  # lines of the residual figure
FIGURE_WIDTH = 41
FIGURE_RANGE = 0.4  # relative error at either end of the figure


@click.command(cls=Command)
@click.argument("files", nargs=-1, required=True, type=click.Path())
@partial(setting_options, example=False)
@click.option("--draft", metavar="KIND", help="Drafter that ran: eagle, eagle3, mtp, ngram, parallel, self.")
@click.option("--draft-model", type=Named("model"), help="Draft model that ran: name or config.")
@click.option("-c", "--context", type=float, help="Cached tokens per sequence where a file does not say.")
@click.option("--draft-length", type=int, help="Drafted tokens per round where a file does not say.")
@click.option("--fit", metavar="TERMS", help="Which of compute, memory, overhead, engine, link to fit.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write the calibrated profile here.")
@click.option("--plot", type=click.Path(dir_okay=False), help="Write a page with the residuals here (needs plotly).")
@format_option
def calibrate(
    *,
    files: tuple[str, ...],
    setting: dict[str, Any] | None,
    draft: str | None,
    draft_model: str | None,
    context: float | None,
    draft_length: int | None,
    fit: str | None,
    output: str | None,
    plot: str | None,
    format: str,
) -> None:
    """Fit a profile to benchmark FILES; read acceptance and routing from logs and traces.

    Understands CSV of batch,tokens_per_sequence,context,time_ms; SGLang bench_speculative.py JSONL and server logs;
    vLLM spec-decode logs, Prometheus counters and bench serve JSON; GuideLLM JSON; llama.cpp logs; TensorRT-LLM
    responses; routing traces (npz, parquet, CSV).

    \b
    Examples:
      latency-model calibrate steps.csv -m Qwen3-8B -H h100-sxm -o my-h100.toml
      latency-model calibrate bench.jsonl -m Qwen3-8B -H h100 --engine sglang --draft eagle3 -c 512 -o my.toml
      latency-model calibrate before.prom after.prom
      latency-model calibrate routing.npz --format json
    """  # noqa: D301 - \b keeps click from joining the lines
    from latency_model.cli.render import note, show
    from latency_model.costs.setting import Setting
    from latency_model.evidence.calibrate import calibrate as fitted
    from latency_model.specs.hardware_text import write_hardware

    calibration = fitted(
        files,
        setting=None if setting is None else Setting.of(**setting),
        draft=drafter(draft, draft_model, None),
        context=context,
        draft_length=draft_length,
        terms=None if fit is None else [term.strip() for term in fit.split(",") if term.strip()],
    )
    if (output or plot) and calibration.timing is None:
        raise InputError("nothing to write: no times were fitted; give a file with times, -m and -H")
    if output and calibration.timing and setting:
        write_hardware(calibration.timing.profile, output, extends=_base(setting["hardware"]))
    if plot and calibration.timing:
        from latency_model.views.residuals import write_residuals

        timings = calibration.timing.timings
        write_residuals(
            plot,
            measured=timings.time,
            error=calibration.timing.after,
            before=calibration.timing.before,
            labels=[_point(row) for row in points(calibration.timing)],
        )
    show(result(calibration, setting, output), format)
    for written in filter(None, (output, plot)):
        note(f"wrote {written}")


def _base(hardware: str) -> str:
    """How a file elsewhere names the base profile: a shipped name as it is, a path in full."""
    return os.path.abspath(os.path.expanduser(hardware)) if Path(hardware).expanduser().is_file() else hardware


def result(calibration: Calibration, setting: dict[str, Any] | None, output: str | None) -> Result:
    """A calibration as the command prints it."""
    from latency_model.cli import describe
    from latency_model.cli.render import Result

    timing = calibration.timing
    read = [{"source": reading.source, "format": reading.format} for reading in calibration.readings]
    acceptances = [acceptance_row(found) for found in calibration.acceptances]
    routings = [row for source, fit in calibration.routing for row in routing_rows(source, fit)]
    remarks = [*([] if timing is None else errors_lines(timing)), *acceptance_lines(acceptances)]
    remarks += [*routing_lines(routings), *(f"Note: {note}." for note in calibration.notes)]
    tables = (
        ([] if timing is None else factor_rows(timing), factor_columns()),
        (acceptances, acceptance_columns()),
        (routings, routing_columns()),
    )
    rows, columns = next((table for table in tables if table[0]), ([], []))
    return Result(
        inputs={"files": read, "output": output} | ({} if timing is None else describe.setting_inputs(timing.setting)),
        rows=rows,
        columns=columns,
        heading=[f"{entry['source']}: {entry['format']}" for entry in read],
        remarks=remarks,
        paste=[] if timing is None else list(figure(timing)),
        assumptions=() if timing is None else timing.setting.assumptions,
        extra={
            "acceptance": acceptances,
            "routing": routings,
            "points": [] if timing is None else points(timing),
            "notes": calibration.notes,
        },
    )


def factor_rows(timing: TimingFit) -> list[dict[str, Any]]:
    """One row per term of the step model."""
    fit = timing.fit
    return [
        {
            "term": name,
            "factor": factor,
            "standard_error": error,
            "fitted": fitted,
            "remark": remark,
        }
        for name, factor, error, fitted, remark in zip(
            fit.names,
            fit.factors.tolist(),
            fit.standard_errors.tolist(),
            fit.fitted,
            fit.remarks,
            strict=True,
        )
    ]


def factor_columns() -> list[Column]:
    """What the table shows of a term."""
    from latency_model.cli.render import Column

    return [
        Column("term", lambda row: row["term"], left=True),
        Column("times\nslower", lambda row: f"{row['factor']:.3f}" if row["fitted"] else "1"),
        Column("standard\nerror", lambda row: f"{row['standard_error']:.1%}" if row["fitted"] else "-"),
        Column("remark", lambda row: row["remark"], left=True, fold=True),
    ]


def errors_lines(timing: TimingFit) -> Iterator[str]:
    """How well the base profile, the fit, and fits to other points predict each point."""
    import numpy as np

    def shown(errors: Any) -> str:
        size = np.abs(errors)
        return f"{np.median(size):.1%} median, {np.quantile(size, 0.9):.1%} p90"

    yield f"Error of the base profile {shown(timing.before)}; after the fit {shown(timing.after)}."
    if timing.held_out is None:
        yield f"{len(timing.timings)} points are too few to hold some out."
    else:
        yield f"Error on points held out of the fit (5 folds): {shown(timing.held_out)}."
    yield f"The 80 % intervals of the new profile hold {timing.coverage:.0%} of these points."
    if timing.fit.condition > 1e3:
        yield f"Condition number of the terms {timing.fit.condition:.0e}: these points do not tell all of them apart."


def points(timing: TimingFit) -> list[dict[str, Any]]:
    """One row per measured point."""
    timings = timing.timings
    return [
        {
            "batch": batch,
            "tokens_per_sequence": tokens,
            "context_tokens": context,
            "round": drafting,
            "measured_s": measured,
            "error": error,
            "error_before": before,
        }
        for batch, tokens, context, drafting, measured, error, before in zip(
            timings.batch.tolist(),
            timings.tokens_per_sequence.tolist(),
            timings.context.tolist(),
            timings.drafting.tolist(),
            timings.time.tolist(),
            timing.after.tolist(),
            timing.before.tolist(),
            strict=True,
        )
    ]


def _point(row: Mapping[str, Any]) -> str:
    return f"B={row['batch']:g} n={row['tokens_per_sequence']:g} S={row['context_tokens']:g}"


def figure(timing: TimingFit) -> Iterator[str]:
    """Residuals in text: one line a point, predicted over measured, the worst points where there are many."""
    from latency_model.units import format_quantity

    rows = sorted(points(timing), key=lambda row: -abs(row["error"]))[:MOST_RESIDUALS]
    rows.sort(key=lambda row: row["measured_s"])
    which = "" if len(rows) == len(timing.timings) else f" (the {len(rows)} worst)"
    yield f"Predicted over measured{which}: the middle is exact, the ends are ±{FIGURE_RANGE:.0%}:"
    for row in rows:
        place = round((min(max(row["error"] / FIGURE_RANGE, -1.0), 1.0) + 1.0) / 2.0 * (FIGURE_WIDTH - 1))
        bar = [" "] * FIGURE_WIDTH
        bar[FIGURE_WIDTH // 2] = "|"
        bar[place] = "*"
        seconds = format_quantity(row["measured_s"], "time")
        yield f"{_point(row):<24}{seconds:>9}{row['error']:>+8.1%}  {''.join(bar)}".rstrip()


def acceptance_row(found: CountedAcceptance) -> dict[str, Any]:
    """Acceptance of one source."""
    counts = found.counts
    return {
        "source": found.source,
        "rounds": counts.rounds,
        "drafted_tokens": counts.drafted,
        "accepted_tokens": counts.accepted,
        "tokens_per_round": counts.mean_length,
        "acceptance": list(found.acceptance.conditionals),
        "standard_error": found.acceptance.uncertainty,
        "assumptions": list(found.acceptance.assumptions),
    }


def acceptance_columns() -> list[Column]:
    """What the table shows of an acceptance."""
    from latency_model.cli.render import Column

    return [
        Column("counted in", lambda row: row["source"], left=True, fold=True),
        Column("rounds", lambda row: f"{row['rounds']:.0f}"),
        Column("tokens\n/round", lambda row: f"{row['tokens_per_round']:.3f}"),
        Column("acceptance", lambda row: " ".join(f"{rate:.3f}" for rate in row["acceptance"]), left=True, fold=True),
        Column("standard\nerror", lambda row: f"{row['standard_error']:.3f}"),
    ]


def acceptance_lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Acceptance as an option to paste."""
    for row in rows:
        rates = ",".join(f"{rate:.3f}".removeprefix("0") for rate in row["acceptance"])
        yield (
            f"{row['source']}: {row['tokens_per_round']:.3f} tokens per round in {row['rounds']:.0f} rounds; "
            f"--acceptance {rates} (standard error {row['standard_error']:.3f})"
        )


def routing_rows(source: str, fit: RoutingFit) -> Iterator[dict[str, Any]]:
    """Routing of each layer of a trace, then of all layers together."""
    named = [(str(layer), own) for layer, own in enumerate(fit.layers)]
    for name, own in [*named, ("all", fit.pooled)]:
        yield {
            "source": source,
            "layer": name,
            "persistence": own.persistence,
            "persistence_error": own.standard_errors[0],
            "stickiness": own.stickiness,
            "stickiness_error": own.standard_errors[1],
            "popularity_cv": own.popularity_cv,
            "largest_error": own.error,
        }


def routing_columns() -> list[Column]:
    """What the table shows of the routing of a layer."""
    from latency_model.cli.render import Column

    def uncertain(name: str) -> Callable[[Mapping[str, Any]], str]:
        return lambda row: f"{row[name]:.3f} ± {row[f'{name}_error']:.3f}"

    return [
        Column("layer", lambda row: row["layer"]),
        Column("persistence", uncertain("persistence")),
        Column("stickiness", uncertain("stickiness")),
        Column("popularity\ncv", lambda row: f"{row['popularity_cv']:.3f}"),
        Column("largest\nerror", lambda row: f"{row['largest_error']:.1%}"),
    ]


def routing_lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Routing of all layers together as options to paste."""
    for row in rows:
        if row["layer"] == "all":
            yield (
                f"{row['source']}: --persistence {row['persistence']:.3f} --stickiness {row['stickiness']:.3f} "
                f"--popularity-cv {row['popularity_cv']:.3f}"
            )
