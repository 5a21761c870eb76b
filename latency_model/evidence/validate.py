"""Predicted beside measured, group by group: how far off the model is, and in which direction."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from attrs import frozen

from latency_model.errors import InputError, nearest
from latency_model.evidence.coverage import Coverage, kernel_coverage, recorded_coverage
from latency_model.evidence.published import REPLAYS
from latency_model.evidence.published.record import Group, Row

__all__ = ["Report", "validate"]

#: Groups with more rows than this show only their worst ones on the page.
LONGEST_TABLE = 40


@frozen(kw_only=True)
class Report:
    """Groups of measurements with what the model predicts for them."""

    groups: tuple[Group, ...]

    @property
    def covered(self) -> dict[str, list[Coverage]]:
        """How often intervals hold: groups together, and what nothing was fitted to, kernels and served runs."""
        return {
            "Published measurements": [*_covered("speedups", self.groups, gain=True), *_covered("others", self.groups)],
            "Kernels kept aside": kernel_coverage(),
            "Served runs of models left out": recorded_coverage(),
        }

    def covered_rows(self) -> list[dict[str, Any]]:
        """The same as one plain dictionary per group."""
        return [
            {"set": title, "group": each.name, "n": each.rows, "coverage": each.share}
            for title, groups in self.covered.items()
            for each in groups
        ]

    def rows(self) -> list[dict[str, Any]]:
        """One plain dictionary per group; errors are relative to the measurement [1]."""
        return [
            {
                "group": group.name,
                "quantity": group.quantity,
                "n": len(group.rows),
                "median_error": group.median_error,
                "p90_error": group.p90_error,
                "bias": group.bias,
                "worst_error": group.worst.error,
                "worst_case": group.worst.case,
                "signs_right": group.signs_right,
                "depths_right": group.depths_right,
                "coverage": group.coverage,
                "skipped": len(group.skipped),
            }
            for group in self.groups
        ]

    def cases(self) -> list[dict[str, Any]]:
        """One plain dictionary per measurement."""
        return [
            {
                "group": group.name,
                "case": row.case,
                "predicted": row.predicted,
                "measured": row.measured,
                "error": row.error,
                "deviation": row.deviation,
            }
            for group in self.groups
            for row in group.rows
        ]

    def page(self) -> str:
        """The report as a page of the documentation, in Markdown."""
        return "\n".join([*_head(self), *(line for group in self.groups for line in _section(group))]) + "\n"


def validate(names: Iterable[str] = ()) -> Report:
    """Replay measurements and compare.

    Parameters
    ----------
    names : iterable of str
        Groups to replay; all when empty.

    Returns
    -------
    Report
        The groups in the order asked, or in that of :data:`REPLAYS`.

    Raises
    ------
    InputError
        When no group has a name.

    Examples
    --------
    >>> report = validate(["unions-overlaps"])
    >>> row = report.groups[0].rows[0]
    >>> row.case, round(row.predicted, 2), row.measured
    ('distinct experts of 4 tokens', 20.06, 20.36)
    """
    wanted = tuple(names) or tuple(REPLAYS)
    for name in wanted:
        if name not in REPLAYS:
            raise InputError(f"no group of measurements is named {name!r}; {nearest(name, REPLAYS)}")
    return Report(groups=tuple(REPLAYS[name]() for name in wanted))


def _covered(name: str, groups: Iterable[Group], *, gain: bool = False) -> Iterator[Coverage]:
    """Rows that state an interval, of groups of speedups or of all others, and the share that lie in it."""
    inside = [
        row.inside for group in groups if group.gain == gain for row in group.rows if not math.isnan(row.deviation)
    ]
    if inside:
        yield Coverage(name, len(inside), sum(inside) / len(inside))


def _head(report: Report) -> list[str]:
    lines = [
        "# Predicted beside measured",
        "",
        "<!-- Written by `latency-model validate --page > docs/validation.md`; do not edit. -->",
        "",
        "Every table below replays a published measurement with the package's models and profiles. No constant is",
        "fitted to these rows except where a group says so. The error is predicted / measured - 1; bias is its median",
        "with sign, so a positive bias promises too much of the quantity. `right side of 1` counts speedups that are",
        "rightly called a gain or a loss, `depth within one` series whose best draft length is met within one token.",
        "`in 80 %` is the share of the measurements inside the 80 % interval of their prediction",
        "([How sure are we](explanation/how-sure-are-we.md)), where uncertain constants go into it.",
        "",
        "| group | n | median | p90 | bias | worst | in 80 % | right side of 1 | depth within one |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for group in report.groups:
        cells = (
            f"[{group.name}](#{group.name})",
            str(len(group.rows)),
            _percent(group.median_error),
            _percent(group.p90_error),
            _signed(group.bias),
            _signed(group.worst.error),
            _percent(group.coverage, digits=0),
            _percent(group.signs_right, digits=0),
            _percent(group.depths_right, digits=0),
        )
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "All groups together, and what nothing was fitted to: kernels kept aside, and served runs of models left out",
        "of the fit of host times ([Measured silicon](silicon.md)). Rows of one group share a device and an engine,",
        "and what the model errs there, so a group alone tends to lie all inside or half outside. Times lie inside",
        "more often than speedups: host times of two of these engines were fitted to half of their rows.",
        "",
        "| set | group | n | in 80 % |",
        "|---|---|---:|---:|",
    ]
    lines += [
        f"| {row['set']} | {row['group']} | {row['n']:,} | {_percent(row['coverage'], digits=0)} |"
        for row in report.covered_rows()
    ]
    return [*lines, ""]


def _section(group: Group) -> list[str]:
    rows = sorted(group.rows, key=lambda row: -abs(row.error))[:LONGEST_TABLE]
    whole = len(rows) == len(group.rows)
    lines = [f"## {group.name}", "", f"{_sentence(group.quantity)} {len(group.rows)} measurements.", ""]
    lines += [f"- Source: {text}" for text in group.sources]
    lines += [f"- Assumed: {text}" for text in group.assumptions]
    lines += [f"- Left out: {case}: {reason}" for case, reason in group.skipped]
    lines += ["", *([] if whole else [f"The {LONGEST_TABLE} largest errors:", ""])]
    lines += ["| case | predicted | measured | error |", "|---|---:|---:|---:|"]
    lines += [_line(row) for row in (group.rows if whole else rows)]
    return [*lines, ""]


def _line(row: Row) -> str:
    return f"| {row.case} | {_number(row.predicted)} | {_number(row.measured)} | {_signed(row.error)} |"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def _number(value: float) -> str:
    """Three significant digits, no exponent."""
    decimals = 2 - math.floor(math.log10(abs(value))) if value else 0
    return f"{value:.{max(decimals, 0)}f}"


def _percent(share: float, digits: int = 1) -> str:
    return "" if math.isnan(share) else f"{100 * share:.{digits}f} %"


def _signed(error: float) -> str:
    return f"{100 * error:+.1f} %"
