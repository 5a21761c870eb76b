"""Published measurements: predicted beside measured, printed after the tests, and what must agree."""

from __future__ import annotations

import itertools

import pytest

from latency_model.evidence.published import REPLAYS
from latency_model.evidence.published.record import Group


def lines(group: Group) -> list[str]:
    """The report of one group: every row, then the errors."""
    head = f"\n{group.name}: {group.quantity}, predicted beside measured"
    rows = [f"  {row.case:<66}{row.predicted:7.2f}{row.measured:7.2f}{row.error:+7.0%}" for row in group.rows]
    signs = f"; right side of 1 in {group.signs_right:.0%}" if group.gain else ""
    foot = f"  median error {group.median_error:.1%}, p90 {group.p90_error:.1%}, bias {group.bias:+.1%}{signs}"
    return [head, *rows, foot]


def pairs_in_order(group: Group) -> float:
    """Share of pairs of rows, measured at least 5 % apart, that the prediction puts in the measured order."""
    pairs = [(a, b) for a, b in itertools.permutations(group.rows, 2) if a.measured > 1.05 * b.measured]
    return sum(a.predicted > b.predicted for a, b in pairs) / len(pairs)


@pytest.mark.parametrize(
    ("name", "rows", "in_order"),
    [("moesd", 30, 0.8), ("eagle3-sglang", 18, 0.8), ("magicdec", 24, 0.8)],
)
def test_speedups_of_papers(name, rows, in_order, report):
    # MoESD arXiv 2505.19645 Tables 1-2, EAGLE-3 arXiv 2503.01840 Table 3, MagicDec arXiv 2408.11049 Table 3.
    # No constant is fitted to them, so the errors are reported, not bounded; the order of the rows must be right.
    group = REPLAYS[name]()
    report += lines(group)
    assert len(group.rows) == rows
    assert pairs_in_order(group) >= in_order
