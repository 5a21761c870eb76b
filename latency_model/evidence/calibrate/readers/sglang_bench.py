"""JSON lines of SGLang's ``bench_speculative.py``: one record per batch size and draft setting.

Fields as written by the 2026 line: batch_size, steps, topk, num_draft_tokens, acc_length, step_time (seconds of one
decode step, drafting included), speed, completion_tokens.
"""

from __future__ import annotations

import math

from latency_model.errors import InputError
from latency_model.evidence.calibrate.observations import AcceptanceCounts, Reading, Timings
from latency_model.evidence.calibrate.readers.fields import documents, first_object, number

NAME = "SGLang bench_speculative.py JSONL"


def recognises(text: str) -> bool:
    """Whether the first record has an accept length and a step time."""
    return {"acc_length", "step_time"} <= first_object(text).keys() or (
        '"acc_length"' in text and '"step_time"' in text
    )


def read(text: str, source: str) -> Reading:
    """Timings of all chains, and counts of the deepest; trees are left out, with a note."""
    points: dict[str, list[float]] = {"batch": [], "tokens_per_sequence": [], "time": [], "drafting": []}
    counts: dict[int, AcceptanceCounts] = {}
    trees = 0
    for index, record in enumerate(documents(text), start=1):
        where = f"record {index}: "
        steps, topk = number(record, "steps", where=where), number(record, "topk", where=where)
        if topk > 1:
            trees += 1
            continue
        time = number(record, "step_time", where=where, above=0.0)
        points["batch"].append(number(record, "batch_size", where=where, above=0.0))
        points["tokens_per_sequence"].append(steps + 1.0)
        points["time"].append(time)
        points["drafting"].append(float(steps > 0))
        if steps > 0:
            length = number(record, "acc_length", where=where, above=0.0)
            # completion_tokens is a mean per request.
            rounds = number(record, "completion_tokens", where=where, above=0.0) / length
            own = AcceptanceCounts(rounds=rounds, accepted=(length - 1.0) * rounds, drafted=steps * rounds)
            counts[int(steps)] = counts[int(steps)] + own if int(steps) in counts else own
    if not points["time"]:
        raise InputError("holds only trees (topk > 1); chains, topk 0 or 1, are needed")
    notes = ["context is not recorded by this benchmark"]
    if trees:
        notes.append(f"{trees} records of trees (topk > 1) are left out")
    if len(counts) > 1:
        notes.append(f"acceptance is that of the longest chain, {max(counts)} steps")
    return Reading(
        source=source,
        format=NAME,
        timings=Timings(context=[math.nan] * len(points["time"]), **points),
        counts=counts[max(counts)] if counts else None,
        notes=tuple(notes),
    )
