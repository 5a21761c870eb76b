"""Published acceptance: how well positions measured at short drafts predict longer ones."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from latency_model.costs.uncertainty import Estimate
from latency_model.evidence.published.record import Group, Row, read_table
from latency_model.specs.acceptance import Acceptance

__all__ = ["PRINTED", "Curve", "curves", "eagle_trees", "length_curves", "mtp", "trace_acceptance", "traces"]

KNOWN = 4  # positions a curve or trace is assumed to be known for
PRINTED = 8  # positions of a trace that SpecDecode-Bench prints


def _tokens(acceptance: Acceptance, drafts: int) -> Estimate:
    """Tokens per round, as uncertain as the acceptance makes them [token]."""
    low, best, high = (acceptance.shifted(side).tokens_per_round(drafts) for side in (-1.0, 0.0, 1.0))
    return Estimate(best=best, deviation=np.log(high / low) / 2.0)


class Curve(NamedTuple):
    """Mean acceptance lengths of one drafter on one kind of traffic, and the acceptance its first drafts show."""

    drafter: str
    title: str
    lengths: tuple[float, ...]  # at 0, 1, 2, ... drafts
    known: Acceptance


def length_curves() -> tuple[Curve, ...]:
    """The published curves of mean acceptance length.

    >>> length_curves()[0].lengths[:3]
    (1.0, 1.84, 2.51)
    """
    found = []
    for (file, model, mode), rows in itertools.groupby(
        read_table("acceptance_length_curves").rows, lambda row: (row["file"], row["model"], row["mode"])
    ):
        lengths = (1.0, *(float(row["mean_acceptance_length"]) for row in rows))
        gains = np.diff(lengths[: KNOWN + 1])
        known = Acceptance.survival(np.minimum.accumulate(gains).tolist())  # noise may make a gain rise
        variant = " block" if "block_rejection" in file else " gqa" if file.endswith("_gqa.yaml") else ""
        drafter = next(name for name in ("dspark", "eagle3", "mtp") if name in file)
        found.append(Curve(drafter, f"{model}{variant} {mode.replace('_', ' ')}", lengths, known))
    return tuple(found)


def curves() -> Group:
    """Mean acceptance length at 5 to 8 drafts, predicted from the lengths measured at 1 to 4."""
    rows = [
        Row.of(
            _tokens(curve.known, drafts),
            case=f"{curve.title}, {drafts} drafts",
            measured=curve.lengths[drafts],
        )
        for curve in length_curves()
        for drafts in range(KNOWN + 1, len(curve.lengths))
    ]
    return Group(
        name="acceptance-curves",
        quantity="tokens per round at 5-8 drafts [token]",
        rows=tuple(rows),
        sources=read_table("acceptance_length_curves").sources,
        assumptions=("survivals are the differences of the lengths at 1-4 drafts; the last conditional continues",),
    )


def trace_acceptance(row: Mapping[str, str], positions: int = PRINTED) -> Acceptance:
    """Acceptance at the first positions of a trace, a row of ``specdecodebench_acceptance_by_position``."""
    return Acceptance.survival([float(row[f"s{position}"]) for position in range(1, positions + 1)])


def traces() -> Group:
    """Mean length of whole traces, predicted from acceptance at the first four positions."""
    table = read_table("specdecodebench_acceptance_by_position")
    rows = []
    for row in table.rows:
        known = trace_acceptance(row, KNOWN)
        drafts = 20 if row["proposer"] == "ngram" else PRINTED
        rows.append(
            Row.of(
                _tokens(known, drafts),
                case=f"{row['dataset']} {row['proposer']}, {drafts} drafts",
                measured=row["mean_len"],
            )
        )
    return Group(
        name="acceptance-traces",
        quantity="tokens per round of whole traces [token]",
        rows=tuple(rows),
        sources=table.sources,
        assumptions=("four positions known, the last conditional continues to 8 drafts (n-gram: 20)",),
    )


def mtp() -> Group:
    """Acceptance of an MTP layer at the third position, predicted from the first two."""
    table = read_table("mtp_acceptance")
    rows = [
        Row(
            case=f"{row['model']} {row['variant']}, position 3",
            predicted=Acceptance.survival([float(row["pos0"]), float(row["pos1"])]).survivals(3)[-1],
            measured=float(row["pos2"]),
        )
        for row in table.rows
    ]
    return Group(
        name="mtp-acceptance",
        quantity="P(third draft accepted)",
        rows=tuple(rows),
        sources=table.sources,
        assumptions=("the conditional acceptance of the second position continues",),
    )


def eagle_trees() -> Group:
    """Tokens per round of a chain with the printed acceptances, beside what EAGLE's tree measured."""
    table = read_table("eagle_per_position_acceptance")
    rows = []
    for row in table.rows:
        positions = [float(row[f"alpha{n}"]) for n in range(5)]
        rows.append(
            Row(
                case=f"{row['model']} T={row['temperature']}",
                predicted=Acceptance.conditional(positions).tokens_per_round(5),
                measured=float(row["tau"]),
            )
        )
    return Group(
        name="eagle-chain",
        quantity="tokens per round: chain of 5 predicted, tree measured [token]",
        rows=tuple(rows),
        sources=table.sources,
        assumptions=("a chain is a lower bound of the tree that holds it; trees are not modelled here",),
    )
