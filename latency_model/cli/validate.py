"""``latency-model validate``: what the model predicts beside what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from latency_model.cli.options import Command, format_option

if TYPE_CHECKING:
    from latency_model.cli.render import Result
    from latency_model.evidence.validate import Report


@click.command(cls=Command)
@click.option("--group", "groups", multiple=True, metavar="NAME", help="Show every case of this group; repeatable.")
@click.option("--page", is_flag=True, help="Print the documentation's page about it, in Markdown.")
@format_option
def validate(*, groups: tuple[str, ...], page: bool, format: str) -> None:
    """Replay published measurements and show how far off the model is.

    Without --group there is one line per group; errors are relative to the measurement.

    \b
    Examples:
      latency-model validate
      latency-model validate --group moesd --group magicdec
      latency-model validate --format csv > errors.csv
    """  # noqa: D301 - \b keeps click from joining the lines
    from latency_model.cli.render import show
    from latency_model.evidence.validate import validate as replay

    if page and format != "table":
        raise click.UsageError("Give --page or --format, not both: the page is Markdown.")
    report = replay(groups)
    if page:
        click.echo(report.page(), nl=False)
    else:
        show(cases(report) if groups else summary(report), format)


def summary(report: Report) -> Result:
    """One line per group."""
    from latency_model.cli.render import Column, Result

    columns = [
        Column("group", lambda row: row["group"], left=True),
        Column("n", lambda row: str(row["n"])),
        Column("median", lambda row: percent(row["median_error"])),
        Column("p90", lambda row: percent(row["p90_error"])),
        Column("bias", lambda row: percent(row["bias"], sign="+")),
        Column("worst", lambda row: percent(row["worst_error"], sign="+")),
        Column("in\n80 %", lambda row: percent(row["coverage"], digits=0)),
        Column("side\nof 1", lambda row: percent(row["signs_right"])),
        Column("depth\n± 1", lambda row: percent(row["depths_right"])),
        Column("quantity", lambda row: row["quantity"], left=True, fold=True, optional=1),
    ]
    return Result(
        inputs={"groups": [group.name for group in report.groups]},
        rows=report.rows(),
        columns=columns,
        heading=("Predicted beside measured; errors relative to the measurement, bias is their median with sign",),
        legend=(
            "In 80 %: share of the measurements inside the 80 % interval of their prediction, where one is stated.  "
            "Side of 1: gains and losses told apart.  Depth: best draft length met within one token."
        ),
        remarks=tuple(
            f"{title} inside their 80 % interval: "
            + ", ".join(
                f"{each.name} {percent(each.share, digits=0)} of {each.rows:,}"
                for each in groups
                if not each.name.startswith(("device ", "model "))  # those are on the page
            )
            + "."
            for title, groups in report.covered.items()
        ),
        extra={"covered": report.covered_rows()},
    )


def cases(report: Report) -> Result:
    """Every case of the groups."""
    from latency_model.cli.render import Column, Result, number

    columns = [
        Column("case", lambda row: row["case"], left=True, fold=True),
        Column("predicted", lambda row: number(row["predicted"])),
        Column("measured", lambda row: number(row["measured"])),
        Column("error", lambda row: percent(row["error"], sign="+")),
    ]
    if len(report.groups) > 1:
        columns.insert(0, Column("group", lambda row: row["group"], left=True))
    return Result(
        inputs={"groups": [group.name for group in report.groups]},
        rows=report.cases(),
        columns=columns,
        heading=tuple(f"{group.name}: {group.quantity}" for group in report.groups),
        remarks=tuple(
            f"{row['group']}: median error {percent(row['median_error'])}, p90 {percent(row['p90_error'])}, "
            f"bias {percent(row['bias'], sign='+')}"
            for row in report.rows()
        ),
        assumptions=tuple(text for group in report.groups for text in group.assumptions),
        not_modelled=tuple(f"{case}: {why}" for group in report.groups for case, why in group.skipped),
        sources=tuple(text for group in report.groups for text in group.sources),
        extra={"groups": report.rows()},
    )


def percent(share: float, sign: str = "", digits: int = 1) -> str:
    """A share in percent, empty where it is not defined."""
    return "" if share != share else f"{100 * share:{sign}.{digits}f} %"
