"""``latency-model measure``: time this machine and write a profile of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from latency_model.cli.options import Command, format_option

if TYPE_CHECKING:
    from latency_model.cli.render import Column, Result
    from latency_model.evidence.measure import Measurement


@click.command(cls=Command)
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda.")
@click.option("--seconds", type=float, default=60.0, show_default=True, help="Time for the measurements.")
@click.option("--dtype", default="bf16", show_default=True, help="Number format: bf16, fp16 or fp32.")
@click.option("--threads", type=int, help="Threads on a CPU; torch's choice if not given.")
@click.option("--check", is_flag=True, help="Also time small models and predict them; give it more seconds.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write the profile here.")
@format_option
def measure(
    *,
    device: str,
    seconds: float,
    dtype: str,
    threads: int | None,
    check: bool,
    output: str | None,
    format: str,
) -> None:
    """Time matrix products, memory, attention, experts and launches on this machine; fit a profile (needs torch).

    \b
    Examples:
      latency-model measure -o my-cpu.toml
      latency-model measure --device cuda --seconds 120 -o my-gpu.toml
      latency-model measure --threads 1 --check --seconds 180
    """  # noqa: D301 - \b keeps click from joining the lines
    from latency_model.cli.render import note, show
    from latency_model.evidence.measure import measure as measured
    from latency_model.specs.hardware_text import write_hardware

    with progress_bar("Measuring") as progress:
        measurement = measured(device, seconds=seconds, dtype=dtype, threads=threads, check=check, progress=progress)
    if output:
        write_hardware(measurement.profile, output)
    show(result(measurement), format)
    if output:
        note(f"wrote {output}")


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[float], None]]:
    """Show a bar on standard error; yield what to call with the share done."""
    with click.progressbar(length=1000, label=label, file=sys.stderr) as bar:

        def progress(share: float) -> None:
            bar.update(max(int(1000 * share) - bar.pos, 0))

        yield progress
        progress(1.0)


def result(measurement: Measurement) -> Result:
    """A measurement as the command prints it."""
    import attrs
    import numpy as np

    from latency_model.cli.render import Result
    from latency_model.units import format_quantity

    profile, steps, rounds = measurement.profile, measurement.steps, measurement.rounds
    ((dtype, peak),) = profile.peaks.items()
    remarks = [f"The smallest launch takes {format_quantity(measurement.launch, 'time')}."]
    for name in dict.fromkeys(point.model for point in steps):
        errors = np.abs([point.error for point in steps if point.model == name])
        remarks.append(
            f"Steps of a small {name} model, {errors.size} of them: predicted from this profile within "
            f"{np.median(errors):.0%} median, {np.quantile(errors, 0.9):.0%} p90."
        )
    remarks += [
        f"Speculation with {point.draft_length} drafts, {point.tokens_per_round:.2f} tokens per round: "
        f"{point.measured:.2f} x measured, {point.predicted:.2f} x predicted."
        for point in rounds
    ]
    return Result(
        inputs={
            "device": measurement.machine.device,
            "dtype": dtype,
            "title": profile.title,
            "software": measurement.machine.software,
            "passes": measurement.passes,
            "peak_flops_per_s": peak.value,
            "bandwidth_bytes_per_s": profile.memory_bandwidth.value,
            "launch_s": measurement.launch,
        },
        rows=rows(measurement),
        columns=columns(),
        heading=(
            f"{profile.title}, {measurement.machine.software}; medians of {measurement.passes} passes",
            f"{dtype} peak {format_quantity(peak.value, 'compute')}, "
            f"memory {format_quantity(profile.memory_bandwidth.value, 'bandwidth')}",
        ),
        remarks=remarks,
        not_modelled=("several devices: collectives are not measured",),
        sources=profile.sources,
        extra={
            "steps": [attrs.asdict(point) | {"error": point.error} for point in steps],
            "rounds": [attrs.asdict(point) for point in rounds],
        },
    )


def rows(measurement: Measurement) -> list[dict[str, Any]]:
    """One row per operation fitted."""
    import numpy as np

    found = []
    for fit in measurement.fits:
        block, errors = fit.efficiency, np.abs(fit.errors)
        found.append(
            {
                "operation": fit.operation,
                "cases": len(fit.cases),
                "compute": block.compute,
                "memory": block.memory,
                "overhead_s": block.overhead,
                "sharpness": block.sharpness,
                "compute_uncertainty": block.compute_uncertainty,
                "memory_uncertainty": block.memory_uncertainty,
                "overhead_uncertainty": block.overhead_uncertainty,
                "median_error": float(np.median(errors)),
                "p90_error": float(np.quantile(errors, 0.9)),
                "spread": fit.spread,
            }
        )
    return found


def columns() -> list[Column]:
    """What the table shows of an operation."""
    from latency_model.cli.render import Column, percent
    from latency_model.units import format_quantity

    return [
        Column("operation", lambda row: row["operation"].replace("_", " "), left=True),
        Column("cases", lambda row: str(row["cases"])),
        Column("of\npeak", lambda row: percent(row["compute"])),
        Column("of band-\nwidth", lambda row: percent(row["memory"])),
        Column("overhead", lambda row: format_quantity(row["overhead_s"], "time")),
        Column("sharp-\nness", lambda row: f"{row['sharpness']:.2g}"),
        Column("median\nerror", lambda row: percent(row["median_error"])),
        Column("p90\nerror", lambda row: percent(row["p90_error"])),
        Column("spread of\nrepeats", lambda row: percent(row["spread"]), optional=1),
    ]
