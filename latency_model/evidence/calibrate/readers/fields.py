"""Numbers out of parsed JSON, and sentences where they are missing or no numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from latency_model.errors import InputError, shorten

__all__ = ["RANDOM_TOKENS", "decimal", "documents", "first_object", "number", "uses_random_tokens"]

LARGEST = 1e15  # nothing counted or timed comes near it

RANDOM_TOKENS = (
    "the benchmark fed random tokens: acceptance and routing measured on them are not those of text "
    "(12 % against 52 % acceptance in one report)"
)


def documents(text: str) -> list[dict[str, Any]]:
    """Objects of a JSON file: one object, a list of them, or one a line."""
    try:
        parsed = json.loads(text)
    except RecursionError:
        raise InputError("the JSON is nested too deeply") from None
    except ValueError as error:
        parsed = _lines(text, error)
    found = parsed if isinstance(parsed, list) else [parsed]
    if not found or not all(isinstance(item, dict) for item in found):
        raise InputError(f"must hold JSON objects, got {shorten(parsed)}")
    return found


def _lines(text: str, whole: ValueError) -> list[Any]:
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    parsed = []
    for number, line in lines:
        try:
            parsed.append(json.loads(line))
        except (ValueError, RecursionError):
            if number == 1:  # not one object a line: what is wrong is the file as a whole
                raise InputError(f"is not valid JSON ({whole}); is the file cut off?") from None
            raise InputError(f"line {number} is not valid JSON; is the file cut off?") from None
    return parsed


def first_object(text: str) -> dict[str, Any]:
    """The first JSON object of a text, as far as it can be read; empty where there is none."""
    begun = text.lstrip()
    if not begun.startswith(("{", "[")):
        return {}
    try:
        parsed, _ = json.JSONDecoder().raw_decode(begun)
    except (ValueError, RecursionError):
        return {}
    first = parsed[0] if isinstance(parsed, list) and parsed else parsed
    return first if isinstance(first, dict) else {}


def number(table: Mapping[str, Any], *path: str, where: str = "", above: float = -math.inf) -> float:
    """The finite number at ``path``; a sentence where it is missing, no number, or not above ``above``."""
    value: Any = table
    name = f"{where}{'.'.join(path)}"
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            raise InputError(f"{name} is missing; is the file cut off, or of another version?")
        value = value[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
        raise InputError(f"{name} must be a finite number, got {shorten(value)}")
    if not value > above:
        raise InputError(f"{name} must be above {above:g}, got {value:g}")
    return float(value)


def decimal(text: str, name: str) -> float:
    """The number a pattern found in a log line; a sentence where it is none, such as 1.2.3."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not abs(value) <= LARGEST:
        raise InputError(f"{name} must be a finite number, got {shorten(text)}")
    return value


def uses_random_tokens(document: Mapping[str, Any]) -> bool:
    """True where a benchmark names a random or synthetic dataset."""
    named = [str(document.get(key, "")) for key in ("dataset_name", "dataset", "data", "dataset_path")]
    arguments = document.get("args")
    if isinstance(arguments, Mapping):
        named += [str(arguments.get(key, "")) for key in ("data", "dataset_name", "dataset")]
    return any(word in name.casefold() for name in named for word in ("random", "synthetic", "prompt_tokens"))
