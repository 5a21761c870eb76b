"""Prometheus text of vLLM or llama.cpp: cumulative counters of drafts, drafted and accepted tokens."""

from __future__ import annotations

import re
from collections import defaultdict

from latency_model.errors import InputError, shorten
from latency_model.evidence.calibrate.observations import AcceptanceCounts, Reading
from latency_model.evidence.calibrate.readers.fields import decimal

NAME = "Prometheus counters (vLLM, llama.cpp)"
SAMPLE = re.compile(
    r"^(?:vllm|llamacpp):spec_decode_(?P<name>num_\w+?)(?:_total)?(?:\{(?P<labels>[^}]*)\})?\s+(?P<value>\S+)",
    re.MULTILINE,
)
POSITION = re.compile(r'\bpos(?:ition)?="(\d+)"')
POSITIONS = "num_accepted_tokens_per_pos"
NEEDED = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")


def recognises(text: str) -> bool:
    """Whether a counter of speculative decoding is there."""
    return SAMPLE.search(text) is not None


def read(text: str, source: str) -> Reading:
    """Counters summed over engines; two snapshots in one file are told apart by a repeated sample."""
    snapshots: list[dict[tuple[str, str], float]] = [{}]
    for match in SAMPLE.finditer(text):
        key = (match["name"], match["labels"] or "")
        if key in snapshots[-1]:
            snapshots.append({})
        snapshots[-1][key] = decimal(match["value"], match["name"])
    counts = [_counts(snapshot) for snapshot in snapshots]
    if len(counts) == 1:
        return Reading(source=source, format=NAME, counts=counts[0], cumulative=True)
    return Reading(
        source=source,
        format=NAME,
        counts=counts[-1] - counts[0],
        notes=(f"{len(counts)} snapshots in one file: the first is subtracted from the last",),
    )


def _counts(snapshot: dict[tuple[str, str], float]) -> AcceptanceCounts:
    totals: dict[str, float] = defaultdict(float)
    positions: dict[int, float] = defaultdict(float)
    for (name, labels), value in snapshot.items():
        if name == POSITIONS:
            position = POSITION.search(labels)
            if position is None:
                raise InputError(f"{POSITIONS} must have a label position, got {shorten(labels)}")
            positions[int(position[1])] += value
        else:
            totals[name] += value
    for name in NEEDED:
        if name not in totals:
            raise InputError(f"spec_decode_{name} is missing; is the file cut off?")
    return AcceptanceCounts(
        rounds=totals["num_drafts"],
        drafted=totals["num_draft_tokens"],
        accepted=totals["num_accepted_tokens"],
        per_position=tuple(positions[i] for i in sorted(positions)),
    )
