"""Responses of TensorRT-LLM's server with ``avg_decoded_tokens_per_iter`` in each choice (bonus token included)."""

from __future__ import annotations

from latency_model.errors import InputError
from latency_model.evidence.calibrate.observations import AcceptanceCounts, Reading
from latency_model.evidence.calibrate.readers.fields import documents, number

NAME = "TensorRT-LLM responses"
KEY = "avg_decoded_tokens_per_iter"


def recognises(text: str) -> bool:
    """Whether a choice says how many tokens an iteration decoded."""
    return f'"{KEY}"' in text


def read(text: str, source: str) -> Reading:
    """Weigh requests by their iterations, tokens over tokens per iteration; drafts per round are not in the file."""
    rounds = tokens = 0.0
    for index, response in enumerate(documents(text), start=1):
        where = f"response {index}: "
        choices = response.get("choices")
        if not isinstance(choices, list) or not choices:
            raise InputError(f"{where}choices must be a list with at least one entry")
        produced = number(response, "usage", "completion_tokens", where=where, above=0.0) / len(choices)
        for place, choice in enumerate(choices):
            rate = number(choice, KEY, where=f"{where}choices[{place}].", above=0.0)
            tokens += produced
            rounds += produced / rate
    return Reading(source=source, format=NAME, counts=AcceptanceCounts(rounds=rounds, accepted=tokens - rounds))
