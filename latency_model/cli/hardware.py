"""``latency-model hardware``: the devices that ship, one of them, two side by side, and a check of profiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from latency_model.cli.options import Named, format_option

if TYPE_CHECKING:
    from latency_model.specs.hardware import HardwareProfile

DEVICE = Named("hardware")


@click.group()
def hardware() -> None:
    """List, show, compare and check hardware profiles."""


@hardware.command("list")
@format_option
def list_profiles(*, format: str) -> None:
    """List the devices that ship: dense bf16 and fp8 peaks, memory, link and price.

    \b
    Example:
      latency-model hardware list --format csv
    """  # noqa: D301 - \b keeps click from joining the lines
    from latency_model import hardware_names, load_hardware
    from latency_model.cli.render import Column, Result, show
    from latency_model.units import format_quantity

    def quantity(key: str, dimension: str) -> Any:
        return lambda row: "-" if row[key] is None else format_quantity(row[key], dimension)

    columns = [
        Column("name", lambda row: row["name"], left=True),
        Column("bf16", quantity("bf16_flop_per_s", "compute")),
        Column("fp8", quantity("fp8_flop_per_s", "compute"), optional=1),
        Column("bandwidth", quantity("memory_bandwidth_bytes_per_s", "bandwidth")),
        Column("memory", quantity("memory_bytes", "size")),
        Column("link", quantity("link_bytes_per_s", "bandwidth"), optional=2),
        Column("price", quantity("price_dollars_per_hour", "price")),
    ]
    rows = [_summary(load_hardware(name)) for name in hardware_names()]
    show(Result(inputs={}, rows=rows, columns=columns), format)


@hardware.command("show")
@click.argument("device", type=DEVICE)
@format_option
def show_profile(*, device: str, format: str) -> None:
    """Show every number of a device with its kind, and all sources.

    \b
    Examples:
      latency-model hardware show h100-sxm
      latency-model hardware show ./my-device.toml --format json
    """  # noqa: D301 - \b keeps click from joining the lines
    from latency_model import load_hardware
    from latency_model.cli.render import Column, Result, show
    from latency_model.specs.hardware_text import profile_rows

    profile = load_hardware(device)
    numbers = dict(_numbers(profile))
    rows = [{"field": field, "text": text} | numbers.get(field, {}) for field, text in profile_rows(profile).items()]
    show(
        Result(
            inputs={"hardware": profile.name},
            rows=rows,
            columns=[
                Column("field", lambda row: row["field"], left=True),
                Column(profile.name, lambda row: row["text"], left=True, fold=True),
            ],
            remarks=(
                *([profile.note] if profile.note else []),
                "Efficiencies: share of the peak / share of the bandwidth / time per kernel / sharpness.",
                *(f"Source: {source}" for source in profile.sources),
            ),
            sources=profile.sources,
        ),
        format,
    )


@hardware.command("diff")
@click.argument("first", type=DEVICE)
@click.argument("second", type=DEVICE)
@format_option
def diff(*, first: str, second: str, format: str) -> None:
    """Show what differs between two devices.

    \b
    Example:
      latency-model hardware diff h100-sxm h200-sxm
    """  # noqa: D301 - \b keeps click from joining the lines
    from latency_model import load_hardware
    from latency_model.cli.render import Column, Result, show
    from latency_model.specs.hardware_text import diff_profiles

    one, other = load_hardware(first), load_hardware(second)
    rows = [{"field": field, "first": left, "second": right} for field, left, right in diff_profiles(one, other)]
    columns = [
        Column("field", lambda row: row["field"], left=True),
        Column(one.name, lambda row: row["first"], left=True, fold=True),
        Column(other.name, lambda row: row["second"], left=True, fold=True),
    ]
    show(Result(inputs={"first": one.name, "second": other.name}, rows=rows, columns=columns), format)


@hardware.command("check", short_help="Check profiles against the rules for shipping one.")
@click.argument("paths", type=click.Path(), nargs=-1)
@format_option
@click.pass_context
def check(ctx: click.Context, *, paths: tuple[str, ...], format: str) -> None:
    """Check profile files against the rules for shipping one; without PATHS, those that ship.

    Exit code 1 when a rule is broken.

    \b
    Example:
      latency-model hardware check hardware_profiles/my-device.toml
    """  # noqa: D301 - \b keeps click from joining the lines
    from latency_model import hardware_names
    from latency_model.cli.render import Column, Result, show
    from latency_model.specs.hardware import profiles_directory
    from latency_model.specs.lint import check_profile

    files = paths or tuple(str(profiles_directory() / f"{name}.toml") for name in hardware_names())
    rows = [{"file": file, "problem": sentence} for file in files for sentence in check_profile(file)]
    show(
        Result(
            inputs={"files": files},
            rows=rows,
            columns=[Column("problem", lambda row: row["problem"], left=True, fold=True)],
            remarks=(f"{_count(len(files), 'profile')} checked, {_count(len(rows), 'problem')}.",),
        ),
        format,
    )
    ctx.exit(1 if rows else 0)


def _summary(profile: HardwareProfile) -> dict[str, Any]:
    """The row of a device in the list, SI units."""

    def value(quantity: Any) -> float | None:
        return None if quantity is None else quantity.value

    return {
        "name": profile.name,
        "title": profile.title,
        "vendor": profile.vendor,
        "device_kind": profile.device_kind,
        "bf16_flop_per_s": value(profile.peaks.get("bf16")),
        "fp8_flop_per_s": value(profile.peaks.get("fp8")),
        "memory_bandwidth_bytes_per_s": profile.memory_bandwidth.value,
        "memory_bytes": profile.memory_capacity.value,
        "link_bytes_per_s": value(profile.link_bandwidth),
        "price_dollars_per_hour": profile.price_per_hour,
    }


def _numbers(profile: HardwareProfile) -> Iterator[tuple[str, dict[str, Any]]]:
    """The numbers behind the text of each field, SI units, with their provenance."""
    quantities = {f"compute.{dtype}": (peak, "FLOP/s") for dtype, peak in profile.peaks.items()} | {
        "memory.bandwidth": (profile.memory_bandwidth, "B/s"),
        "memory.capacity": (profile.memory_capacity, "B"),
        "memory.on_chip": (profile.on_chip, "B"),
        "link.bandwidth": (profile.link_bandwidth, "B/s"),
        "board.pcie": (profile.pcie, "B/s"),
        "board.tdp": (profile.tdp, "W"),
    }
    for field, (quantity, unit) in quantities.items():
        if quantity is not None:
            yield (
                field,
                {
                    "value": quantity.value,
                    "unit": unit,
                    "kind": quantity.kind,
                    "uncertainty": quantity.uncertainty,
                    "source": quantity.source,
                },
            )
    for (operation, dtype), block in profile.efficiencies.items():
        yield (
            f"efficiency.{operation}.{dtype}",
            {
                "compute": block.compute,
                "memory": block.memory,
                "overhead_s": block.overhead,
                "sharpness": block.sharpness,
                "kind": block.kind,
                "source": block.source,
            },
        )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
