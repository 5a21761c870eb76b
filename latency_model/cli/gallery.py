"""``latency-model gallery``: the claims of the toolkit on one page, with published points and errors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from latency_model.cli.options import Command, format_option

if TYPE_CHECKING:
    from collections.abc import Iterable

    from latency_model.cli.render import Result
    from latency_model.views.gallery import Claim


@click.command(cls=Command)
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Directory to write into.")
@click.option("--only", metavar="1,3|NAME", help="These claims, by number or name.")
@click.option("--force", is_flag=True, help="Replace a page that exists.")
@format_option
def gallery(*, output: Path, only: str | None, force: bool, format: str) -> None:
    """Rebuild the claims this toolkit exists for and show them beside what was published.

    Writes DIR/index.html, one page that works offline, and prints how far predictions are from published numbers.

    \b
    Examples:
      latency-model gallery -o gallery
      latency-model gallery -o gallery --only 1,moe-batch --force
      latency-model gallery -o gallery --format json > errors.json
    """  # noqa: D301 - \b keeps click from joining the lines
    from latency_model.cli.render import note, show
    from latency_model.views.gallery import save_gallery

    words = [] if only is None else [word.strip() for word in only.split(",")]
    page, claims = save_gallery(output, words, force=force)
    show(result(claims.values()), format)
    note(f"{page}: {len(claims)} claims")


def result(claims: Iterable[Claim]) -> Result:
    """One line per comparison with published numbers."""
    from latency_model.cli.render import Column, Result, percent

    rows: list[dict[str, Any]] = [
        {
            "claim": claim.name,
            "group": check.name,
            "quantity": check.quantity,
            "n": len(check.rows),
            "median_error": check.median_error,
            "p90_error": check.p90_error,
            "bias": check.bias,
            "worst_error": check.worst.error,
        }
        for claim in claims
        for check in claim.checks
    ]
    columns = [
        Column("claim", lambda row: row["claim"], left=True),
        Column("n", lambda row: str(row["n"])),
        Column("median", lambda row: percent(row["median_error"])),
        Column("p90", lambda row: percent(row["p90_error"])),
        Column("bias", lambda row: f"{100.0 * row['bias']:+.0f} %"),
        Column("quantity", lambda row: row["quantity"], left=True, fold=True),
    ]
    return Result(
        inputs={"only": list(dict.fromkeys(row["claim"] for row in rows))},
        rows=rows,
        columns=columns,
        heading=("Predicted beside published; errors relative to what was published, bias is their median with sign",),
    )
