"""GuideLLM's benchmarks.json: one timing per load.  Its inter-token latency is what others call TPOT; its
``time_per_output_token_ms`` holds the first token and is not used.
"""

from __future__ import annotations

from latency_model.errors import InputError
from latency_model.evidence.calibrate.observations import Reading, Timings
from latency_model.evidence.calibrate.readers.fields import (
    RANDOM_TOKENS,
    documents,
    first_object,
    number,
    uses_random_tokens,
)

NAME = "GuideLLM JSON"


def recognises(text: str) -> bool:
    """Whether a list of benchmarks with inter-token latencies is there."""
    return "benchmarks" in first_object(text) or ('"inter_token_latency_ms"' in text and text.lstrip()[:1] == "{")


def read(text: str, source: str) -> Reading:
    """Means over successful requests: inter-token latency, concurrency, prompt and half of the reply."""
    document = documents(text)[0]
    benchmarks = document.get("benchmarks")
    if not isinstance(benchmarks, list) or not benchmarks:
        raise InputError("benchmarks must be a list with at least one entry")
    batch, context, time = [], [], []
    for index, benchmark in enumerate(benchmarks):
        where = f"benchmarks[{index}]."

        def mean(name: str, above: float = 0.0) -> float:
            return number(benchmark, "metrics", name, "successful", "mean", where=where, above=above)  # noqa: B023

        time.append(1e-3 * mean("inter_token_latency_ms"))
        batch.append(max(mean("request_concurrency"), 1.0))
        context.append(mean("prompt_token_count", -1.0) + mean("output_token_count") / 2)
    notes = ["inter-token latency of a load test also holds the prefills that ran between decode steps"]
    if uses_random_tokens(document) or any(uses_random_tokens(entry) for entry in benchmarks):
        notes.append(RANDOM_TOKENS)
    return Reading(
        source=source,
        format=NAME,
        timings=Timings(
            batch=batch,
            tokens_per_sequence=[1.0] * len(time),
            context=context,
            time=time,
            drafting=[False] * len(time),
        ),
        notes=tuple(notes),
    )
