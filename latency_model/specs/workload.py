"""Checks of what is asked of a step: how many sequences, tokens and cached tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latency_model.errors import InputError, shorten

__all__ = ["checked_numbers", "checked_price"]

FloatArray = NDArray[np.floating[Any]]

#: (rule in words, lowest value, highest value, integer)
RULES: dict[str, tuple[str, float, float, bool]] = {
    "batch": ("must be at least 1 sequence", 1.0, 1e9, False),
    "context": ("must be at least 0 cached tokens", 0.0, 1e12, False),
    "tokens_per_sequence": ("must be at least 1 token", 1.0, 1e9, False),
    "draft_length": ("must be an integer from 0 to 1024", 0.0, 1024.0, True),
    "max_draft_length": ("must be an integer from 0 to 256", 0.0, 256.0, True),
    "speculation_tax": ("must be a fraction from 0 to 1", 0.0, 1.0, False),
    "kv_reread": ("must be from 0 (KV read once) to 1 (re-read for every token)", 0.0, 1.0, False),
}


def checked_numbers(name: str, values: ArrayLike) -> FloatArray:
    """Turn ``values`` into a float array, or raise one sentence that names the rule it breaks.

    Examples
    --------
    >>> checked_numbers("batch", [1, 8]).tolist()
    [1.0, 8.0]
    >>> checked_numbers("batch", 0)
    Traceback (most recent call last):
    latency_model.errors.InputError: batch must be at least 1 sequence, got 0
    """
    rule, lowest, highest, whole = RULES[name]
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} {rule}, got {shorten(values)}") from None
    ok = (array >= lowest) & (array <= highest)
    if whole:
        ok &= array == np.floor(array)
    if not array.size:
        raise InputError(f"{name} {rule}, got an empty list")
    if not ok.all():
        wrong = float(array[~ok].flat[0])
        raise InputError(f"{name} {rule}, got {wrong:g}")
    return array


def checked_price(value: float | None) -> float | None:
    """Price of one device in $/h, or None; must be a finite number ≥ 0."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < float("inf"):
        raise InputError(f"price must be a number of $/h from 0, got {shorten(value)}")
    return float(value)
