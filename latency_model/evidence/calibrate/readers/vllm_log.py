"""vLLM log lines ``SpecDecoding metrics: ...``, one per logging interval; rates by position are survivals."""

from __future__ import annotations

import re

from latency_model.errors import InputError
from latency_model.evidence.calibrate.observations import AcceptanceCounts, Reading
from latency_model.evidence.calibrate.readers.fields import decimal

NAME = "vLLM speculative-decoding log"
MARK = "SpecDecoding metrics:"
LINE = re.compile(
    r"SpecDecoding metrics: Mean acceptance length: (?P<length>[\d.]+),.*?"
    r"Accepted: (?P<accepted>\d+) tokens, Drafted: (?P<drafted>\d+) tokens,.*?"
    r"Per-position acceptance rate: (?P<rates>[\d.]+(?:, ?[\d.]+)*)"
)


def recognises(text: str) -> bool:
    """Whether a metrics line is there."""
    return MARK in text


def read(text: str, source: str) -> Reading:
    """Sum the intervals; rounds follow from accepted = rounds · (mean length − 1)."""
    total = None
    unread = 0
    lines = [line for line in text.splitlines() if MARK in line]
    for line in lines:
        match = LINE.search(line)
        if match is None:
            unread += 1
            continue
        rates = [decimal(rate, "acceptance rate") for rate in re.split(r", ?", match["rates"])]
        accepted, drafted = decimal(match["accepted"], "accepted"), decimal(match["drafted"], "drafted")
        per_round = decimal(match["length"], "length") - 1.0
        # Nothing accepted leaves the mean length at 1: then all positions were drafted in every round.
        rounds = accepted / per_round if per_round > 0.0 and accepted > 0.0 else drafted / len(rates)
        own = AcceptanceCounts(
            rounds=rounds,
            accepted=accepted,
            drafted=drafted,
            per_position=tuple(rate * rounds for rate in rates),
        )
        total = own if total is None else total + own
    if total is None:
        raise InputError(f"no complete line of {MARK!r} (mean length, accepted, drafted, rates by position)")
    notes = [f"{unread} of {len(lines)} metrics lines are incomplete and left out"] if unread else []
    difference = abs(sum(total.per_position) - total.accepted) / max(total.accepted, 1.0)
    if difference > 0.05:
        notes.append(f"accepted tokens and rates by position disagree by {difference:.0%}; positions are used")
    return Reading(source=source, format=NAME, counts=total, notes=tuple(notes))
