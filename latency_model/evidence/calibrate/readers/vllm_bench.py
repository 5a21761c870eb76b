"""Result JSON of ``vllm bench serve`` (and of SGLang's ``bench_serving``, which names its fields alike)."""

from __future__ import annotations

from typing import Any

from latency_model.errors import InputError, shorten
from latency_model.evidence.calibrate.observations import AcceptanceCounts, Reading, Timings
from latency_model.evidence.calibrate.readers.fields import (
    RANDOM_TOKENS,
    documents,
    first_object,
    number,
    uses_random_tokens,
)

NAME = "vllm bench serve JSON"


def recognises(text: str) -> bool:
    """Whether a mean time per output token is there."""
    return "mean_tpot_ms" in first_object(text) or ('"mean_tpot_ms"' in text and text.lstrip()[:1] in "{[")


def read(text: str, source: str) -> Reading:
    """One timing a run: TPOT, or TPOT times tokens per round where drafts were counted.

    Sequences decoding at once follow from Little's law, B = output throughput · TPOT, at most the concurrency
    allowed; the context is the prompt and half of the reply.
    """
    points: dict[str, list[float]] = {
        name: [] for name in ("batch", "tokens_per_sequence", "context", "time", "drafting")
    }
    total, random = None, False
    for index, run in enumerate(documents(text), start=1):
        where = f"run {index}: " if index > 1 else ""
        tpot = 1e-3 * number(run, "mean_tpot_ms", where=where, above=0.0)
        completed = number(run, "completed", where=where, above=0.0)
        prompt = number(run, "total_input_tokens", where=where) / completed
        reply = number(run, "total_output_tokens", where=where, above=0.0) / completed
        batch = max(tpot * number(run, "output_throughput", where=where, above=0.0), 1.0)
        if isinstance(run.get("max_concurrency"), int | float):
            batch = min(batch, number(run, "max_concurrency", where=where, above=0.0))
        counts = _counts(run, where)
        per_round = 1.0 if counts is None else counts.mean_length
        points["batch"].append(batch)
        points["tokens_per_sequence"].append(1.0 if counts is None else 1.0 + (counts.drafted or 0.0) / counts.rounds)
        points["context"].append(prompt + reply / 2)
        points["time"].append(tpot * per_round)
        points["drafting"].append(float(counts is not None))
        random |= uses_random_tokens(run)
        if counts is not None:
            total = counts if total is None else total + counts
    notes = ["TPOT of a load test also holds the prefills that ran between decode steps"]
    return Reading(
        source=source,
        format=NAME,
        timings=Timings(**points),
        counts=total,
        notes=(*notes, *([RANDOM_TOKENS] if random else [])),
    )


def _counts(run: dict[str, Any], where: str) -> AcceptanceCounts | None:
    """Counts of speculative decoding where the run has them; rates by position are survivals."""
    if run.get("spec_decode_num_drafts") is None:
        return None
    rounds = number(run, "spec_decode_num_drafts", where=where, above=0.0)
    rates = run.get("spec_decode_per_position_acceptance_rates") or []
    if not isinstance(rates, list):
        raise InputError(f"{where}spec_decode_per_position_acceptance_rates must be a list, got {shorten(rates)}")
    named = {f"[{i}]": rate for i, rate in enumerate(rates)}
    place = f"{where}spec_decode_per_position_acceptance_rates"
    return AcceptanceCounts(
        rounds=rounds,
        drafted=number(run, "spec_decode_draft_tokens", where=where, above=0.0),
        accepted=number(run, "spec_decode_accepted_tokens", where=where),
        per_position=tuple(rounds * number(named, key, where=place) for key in named),
    )
