"""llama.cpp: timing and draft lines of its server and of its speculative example, and ``timings`` of responses.

Draft lines as printed since 2026, with mean length and rates by position (``draft acceptance = 0.64479 (  167 accepted
/   259 generated), mean acceptance length = 2.92, acceptance rate per position = (0.805, 0.632, 0.483)``), in 2025
without these, and in 2023 as ``n_drafted = 132``.
"""

from __future__ import annotations

import re
from typing import Any

from latency_model.errors import InputError
from latency_model.evidence.calibrate.observations import AcceptanceCounts, Reading, Timings
from latency_model.evidence.calibrate.readers.fields import decimal, documents, first_object, number

NAME = "llama.cpp timing lines"
PROMPT = re.compile(r"prompt eval time\s*=\s*[\d.]+ ms\s*/\s*(?P<tokens>\d+) tokens")
EVAL = re.compile(r"(?<!prompt )eval time\s*=\s*(?P<ms>[\d.]+) ms\s*/\s*(?P<tokens>\d+) (?:runs|tokens)")
DRAFT = re.compile(
    r"draft acceptance(?: rate)?\s*=\s*[\d.]+\s*\(\s*(?P<accepted>\d+) accepted\s*/\s*(?P<drafted>\d+) generated\)"
    r"(?:, mean acceptance length\s*=\s*(?P<length>[\d.]+))?"
    r"(?:, acceptance rate per position\s*=\s*\((?P<rates>[^)]*)\))?"
)
STATISTICS = re.compile(
    r"#gen drafts\s*=\s*(?P<rounds>\d+).*?#gen tokens\s*=\s*(?P<drafted>\d+), #acc tokens\s*=\s*(?P<accepted>\d+)"
    r"(?:.*?#acc rate/pos\s*=\s*\((?P<rates>[^)]*)\))?"
)
EXAMPLE = re.compile(r"^n_(?P<name>predict|drafted|accept)\s*=\s*(?P<value>\d+)", re.MULTILINE)


def recognises(text: str) -> bool:
    """Whether any of its lines, or a response with timings, is there."""
    patterns = (EVAL, DRAFT, STATISTICS)
    return (
        "timings" in first_object(text)
        or any(pattern.search(text) for pattern in patterns)
        or len(EXAMPLE.findall(text)) >= 3
    )


def read(text: str, source: str) -> Reading:
    """One timing per request, at batch 1; counts of all requests together."""
    requests = _from_responses(text) if "timings" in first_object(text) else _from_log(text)
    timed = [request for request in requests if request["tokens"] > 1 and request["ms"] > 0]
    counted = [request["counts"] for request in requests if request["counts"] is not None]
    if not timed and not counted:
        raise InputError("holds neither a complete 'eval time' line nor counts of drafts")
    timings = [_timing(request) for request in timed]
    total = None
    for counts in counted:
        total = counts if total is None else total + counts
    return Reading(
        source=source,
        format=NAME,
        timings=Timings(**{name: [point[name] for point in timings] for name in timings[0]}) if timings else None,
        counts=total,
    )


def _timing(request: dict[str, Any]) -> dict[str, float]:
    counts = request["counts"]
    rounds = request["tokens"] if counts is None else counts.rounds
    return {
        "batch": 1.0,
        "tokens_per_sequence": 1.0 if counts is None else 1.0 + (counts.drafted or 0.0) / counts.rounds,
        "context": request["prompt"] + request["tokens"] / 2,
        "time": 1e-3 * request["ms"] / rounds,
        "drafting": float(counts is not None),
    }


def _from_responses(text: str) -> list[dict[str, Any]]:
    requests = []
    for index, response in enumerate(documents(text), start=1):
        where = f"response {index}: "
        tokens = number(response, "timings", "predicted_n", where=where)
        counts = None
        if "draft_n" in response["timings"]:
            drafted = number(response, "timings", "draft_n", where=where)
            accepted = number(response, "timings", "draft_n_accepted", where=where)
            if drafted > 0:
                counts = AcceptanceCounts(rounds=_rounds(tokens, accepted), drafted=drafted, accepted=accepted)
        requests.append(
            {
                "prompt": number(response, "timings", "prompt_n", where=where),
                "tokens": tokens,
                "ms": number(response, "timings", "predicted_ms", where=where),
                "counts": counts,
            }
        )
    return requests


def _from_log(text: str) -> list[dict[str, Any]]:
    """Requests in order: each 'eval time' line with the prompt line before it and the draft line after it."""
    requests: list[dict[str, Any]] = []
    prompt = 0.0
    for line in text.splitlines():
        if match := PROMPT.search(line):
            prompt = decimal(match["tokens"], "tokens")
        elif match := EVAL.search(line):
            tokens, ms = decimal(match["tokens"], "tokens"), decimal(match["ms"], "ms")
            requests.append({"prompt": prompt, "tokens": tokens, "ms": ms, "counts": None})
        elif match := DRAFT.search(line):
            if not requests or requests[-1]["counts"] is not None:
                requests.append({"prompt": 0.0, "tokens": 0.0, "ms": 0.0, "counts": None})
            requests[-1]["counts"] = _line_counts(match, requests[-1]["tokens"])
    if any(request["counts"] is not None for request in requests):
        return requests
    # Statistics run since the server started: only the last line counts.
    statistics = list(STATISTICS.finditer(text))
    if statistics:
        last = statistics[-1]
        rounds = decimal(last["rounds"], "rounds")
        counts = AcceptanceCounts(
            rounds=rounds,
            drafted=decimal(last["drafted"], "drafted"),
            accepted=decimal(last["accepted"], "accepted"),
            per_position=_positions(last["rates"], rounds),
        )
        return [*requests, {"prompt": 0.0, "tokens": 0.0, "ms": 0.0, "counts": counts}]
    found = {match["name"]: decimal(match["value"], "value") for match in EXAMPLE.finditer(text)}
    if len(found) == 3:
        # The example prints timings of draft and target apart; neither is the time of a round.
        counts = AcceptanceCounts(
            rounds=_rounds(found["predict"], found["accept"]), drafted=found["drafted"], accepted=found["accept"]
        )
        return [{"prompt": 0.0, "tokens": 0.0, "ms": 0.0, "counts": counts}]
    return requests


def _line_counts(match: re.Match[str], tokens: float) -> AcceptanceCounts:
    accepted, drafted = decimal(match["accepted"], "accepted"), decimal(match["drafted"], "drafted")
    length = decimal(match["length"] or "1", "mean acceptance length")
    if length > 1.0 and accepted > 0:
        rounds = max(float(round(accepted / (length - 1.0))), 1.0)
    elif tokens > 0:
        rounds = _rounds(tokens, accepted)
    else:
        raise InputError("a draft line without mean length needs the 'eval time' line of its request before it")
    return AcceptanceCounts(
        rounds=rounds, drafted=drafted, accepted=accepted, per_position=_positions(match["rates"], rounds)
    )


def _positions(rates: str | None, rounds: float) -> tuple[float, ...]:
    return tuple(decimal(rate, "acceptance rate") * rounds for rate in rates.split(",")) if rates else ()


def _rounds(tokens: float, accepted: float) -> float:
    """Rounds that gave so many tokens: each its accepted drafts and one more; the prefill gave the first."""
    return max(tokens - 1.0 - accepted, 1.0)
