"""``latency-model serve``: latency against request rate, with and without speculation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from latency_model.cli.options import Command, Decimals, Numbers, draft_options, format_option, setting_options
from latency_model.errors import InputError

if TYPE_CHECKING:
    from latency_model.cli.render import Column, Result
    from latency_model.decisions.serving import ServingCurve


#: Rates along a line of the figure, between the lowest and the highest asked.
FINE = 200


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic only in newer releases of click
    """A time with its unit, such as ``20ms``."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the text as seconds."""
        from latency_model.units import parse

        where = "time" if param is None else param.opts[-1]
        if not isinstance(value, str):
            return value
        try:
            return parse(value, "time")
        except InputError as error:
            raise InputError(f"{where}: {error}") from None


@click.command(cls=Command)
@setting_options
@draft_options
@click.option(
    "-k", "--draft-length", type=Numbers(), default="3", show_default=True, help="Compared with plain decoding."
)
@click.option("--rate", type=Decimals(), help="Requests a second: 5, .5,1,2 or .5:20:.5.  [default: up to saturation]")
@click.option("--isl", type=int, default=1024, show_default=True, help="Tokens of every prompt.")
@click.option("--osl", type=int, default=256, show_default=True, help="Tokens of an answer on average.")
@click.option("--max-batch", type=int, default=1024, show_default=True, help="Most sequences that decode together.")
@click.option(
    "--prefill",
    type=click.Choice(["mixed", "alone"]),
    default="mixed",
    show_default=True,
    help="Within rounds, or ahead.",
)
@click.option("--slo-tpot", type=Duration(), metavar="TIME", help="Promised mean time per output token, e.g. 20ms.")
@click.option("--slo-ttft", type=Duration(), metavar="TIME", help="Promised mean time to first token, e.g. 500ms.")
@click.option("--slo-latency", type=Duration(), metavar="TIME", help="Promised mean latency of a request, e.g. 5s.")
@click.option("--html", type=click.Path(path_type=Path), help="Write a page with the interactive figure.")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@format_option
def serve(
    *,
    setting: dict[str, Any],
    isl: int,
    osl: int,
    prefill: str,
    html: Path | None,
    force: bool,
    format: str,
    **asked: Any,
) -> None:
    """Show how latency grows with the rate of requests, where speculation stops paying, and where the machine is full.

    Rows are rates and draft lengths; draft length 0 is plain decoding.  Without -m and -H it runs a bundled example.

    \b
    Examples:
      latency-model serve
      latency-model serve -m Meta-Llama-3.1-8B -H h100-sxm -k 1,3,5 --rate 5:80:5 --isl 128 --osl 128
      latency-model serve -m Qwen3-30B-A3B -H h200 --draft eagle3 --rate .5:20:.5 --slo-tpot 20ms
      latency-model serve -m Qwen3-8B -H h100 --rate 1:30:.5 --slo-latency 4s --html load.html
    """  # noqa: D301 - \b keeps click from joining the lines
    import latency_model as lm
    from latency_model.cli.render import note, show

    limits = {name: asked.pop(f"slo_{name}") for name in ("latency", "tpot", "ttft")}
    promised = {name: limit for name, limit in limits.items() if limit is not None}
    curve = lm.serve(**setting, **asked, prompt_tokens=isl, output_tokens=osl, mixed_prefill=prefill == "mixed")
    if html is not None:
        if html.suffix != ".html":
            raise InputError(f"{html}: the name must end in .html, which says what to write")
        save_page(curve, promised, html, force=force)
        note(f"{html}: written")
        return
    show(result(curve, promised), format)


def save_page(curve: ServingCurve, promised: Mapping[str, float], path: Path, *, force: bool) -> None:
    """Write the figures of a curve: latency, and whatever else is promised."""
    import numpy as np

    from latency_model.views import report
    from latency_model.views.figures import latency_against_load
    from latency_model.views.save import whole_file

    shown = dict.fromkeys(["latency", *promised])
    drawn = curve.at(np.linspace(curve.rate.min(), curve.rate.max(), FINE)) if curve.rate.size > 1 else curve
    figures = [latency_against_load(drawn, quantity=name, limit=promised.get(name)) for name in shown]
    title = f"{curve.setting.model.name} on {curve.setting.hardware.title} under load"
    page = report.page(title, figures, summary=" ".join(remarks(curve, promised)))
    with whole_file(path, force=force) as beside:
        beside.write_text(page, encoding="utf-8")


def result(curve: ServingCurve, promised: Mapping[str, float]) -> Result:
    """A curve as the command prints it."""
    from latency_model.cli import describe
    from latency_model.cli.render import Result

    setting = curve.setting
    rows, lengths = curve.rows(), curve.summary()
    within = curve.goodput(**promised)
    for row, rate in zip(lengths, within.tolist(), strict=True):
        row["goodput_per_s"] = rate
    inputs = describe.setting_inputs(setting) | describe.drafter_inputs(curve.draft, curve.acceptance)
    inputs |= {
        "rate_per_s": curve.rate,
        "draft_length": curve.draft_length,
        "prompt_tokens": curve.prompt_tokens,
        "output_tokens": curve.output_tokens,
        "mixed_prefill": curve.mixed_prefill,
        "limits_s": dict(promised),
    }
    return Result(
        inputs=inputs,
        rows=rows,
        columns=columns(),
        heading=(
            describe.model_line(setting),
            describe.machine_line(setting, curve.round.cost.verify),
            describe.drafter_line(setting, curve.draft, curve.acceptance),
            f"prompts of {curve.prompt_tokens:,.0f} tokens, answers of {curve.output_tokens:,.0f}",
        ),
        legend="batch: mean number that decode together.  prefill: share of the time.  low-high: 80 % interval.",
        remarks=tuple(remarks(curve, promised)),
        assumptions=curve.assumptions,
        not_modelled=curve.not_modelled,
        sources=setting.hardware.sources,
        extra={"draft_lengths": lengths},
    )


def remarks(curve: ServingCurve, promised: Mapping[str, float]) -> Iterator[str]:
    """Sentences: where the machine is full, where drafting pays, and what the promises allow."""
    from latency_model.units import format_quantity

    lengths = curve.summary()
    full = (
        f"{row['saturation_rate_per_s']:.3g} requests/s with {_named(row)} "
        f"({row['max_batch']:,} sequences{', all that memory holds' if row['bound_by_memory'] else ''})"
        for row in lengths
    )
    yield f"Full at {', '.join(full)}."
    for row, ranges in zip(lengths[1:], curve.pays[1:], strict=True):
        yield f"{_named(row)} {_paying(row, ranges)}.".capitalize()
    if promised:
        promises = " and ".join(f"{TITLES[name]} {format_quantity(limit, 'time')}" for name, limit in promised.items())
        rates = curve.goodput(**promised).tolist()
        held = ", ".join(f"{rate:.3g} requests/s with {_named(row)}" for row, rate in zip(lengths, rates, strict=True))
        yield f"Within {promises}: {held}."


TITLES = {"latency": "latency", "tpot": "TPOT", "ttft": "TTFT"}


def _named(row: Mapping[str, Any]) -> str:
    return f"{row['draft_length']} drafted" if row["draft_length"] else "plain decoding"


def _paying(row: Mapping[str, Any], ranges: tuple[tuple[float, float], ...]) -> str:
    """Where a draft length answers sooner than plain decoding."""
    from latency_model.cli.render import percent

    if not ranges:
        return "answers later than plain decoding at every rate"
    parts = [
        ("at every rate it sustains" if start == 0.0 else f"above {start:.3g} requests/s")
        if end == float("inf")
        else (f"below {end:.3g} requests/s" if start == 0.0 else f"from {start:.3g} to {end:.3g} requests/s")
        for start, end in ranges
    ]
    linear = row["linear_break_even_rate_per_s"]
    fit = f"closed form, rounds linear to {percent(row['linear_error'])}"
    closed = "" if linear is None else f" ({fit}: {linear:.3g})"
    return f"answers sooner {' and '.join(parts)}{closed}"


def columns() -> list[Column]:
    """What the table shows of a row."""
    from latency_model.cli.render import Column, fixed, number, percent

    def waiting(row: Mapping[str, Any], name: str, unit: float) -> str:
        return "full" if row[name] is None else number(row[name] / unit)

    return [
        Column("rate\n/s", lambda row: f"{row['rate_per_s']:g}"),
        Column("draft\nlength", lambda row: str(row["draft_length"])),
        Column("batch", lambda row: number(row["batch"])),
        Column("prefill", lambda row: percent(row["prefill_share"]), optional=3),
        Column("TTFT\nms", lambda row: waiting(row, "ttft_s", 1e-3)),
        Column("TPOT\nms", lambda row: waiting(row, "tpot_s", 1e-3)),
        Column("latency\ns", lambda row: waiting(row, "latency_s", 1.0)),
        Column(
            "low-high",
            lambda row: f"{waiting(row, 'latency_low_s', 1.0)}-{waiting(row, 'latency_high_s', 1.0)}",
            optional=1,
        ),
        Column("speed\nup", lambda row: "-" if row["saturated"] else fixed(row["speedup"])),
        Column(
            "held back by",
            lambda row: f"{row['held_back_by']} {percent(row['held_back_share'])}",
            left=True,
            optional=2,
        ),
    ]
