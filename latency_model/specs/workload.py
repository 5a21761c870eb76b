"""Checks of what is asked of a step: how many sequences, tokens and cached tokens."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latency_model.errors import InputError, shorten

__all__ = ["checked_flag", "checked_number", "checked_numbers", "checked_shape", "is_integer", "is_number"]

FloatArray = NDArray[np.floating[Any]]


class Rule(NamedTuple):
    """What an argument must be, in words and in numbers."""

    words: str
    lowest: float
    highest: float
    whole: bool = False


RULES = {
    "batch": Rule("must be at least 1 sequence", 1.0, 1e9),
    "context": Rule("must be at least 0 cached tokens", 0.0, 1e12),
    "tokens_per_sequence": Rule("must be at least 1 token", 1.0, 1e9),
    "draft_length": Rule("must be an integer from 0 to 1024", 0.0, 1024.0, whole=True),
    "max_draft_length": Rule("must be an integer from 0 to 256", 0.0, 256.0, whole=True),
    "speculation_tax": Rule("must be a fraction from 0 to 1", 0.0, 1.0),
    "kv_reread": Rule("must be from 0 (KV read once) to 1 (re-read for every token)", 0.0, 1.0),
    "rate": Rule("must be from 1e-12 to 1e9 requests a second", 1e-12, 1e9),
    "prompt_tokens": Rule("must be at least 1 token", 1.0, 1e7),
    "output_tokens": Rule("must be at least 2 tokens", 2.0, 1e7),
    "max_batch": Rule("must be an integer from 1 to 65536", 1.0, 65536.0, whole=True),
    "price": Rule("must be a number of $/h from 0", 0.0, 1e9),
}


def is_number(value: object) -> TypeGuard[float]:
    """Whether ``value`` is one real number, Python's or numpy's; a truth value is not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_integer(value: object) -> bool:
    """Whether ``value`` is one whole number, Python's or numpy's; a truth value is not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def checked_numbers(name: str, values: ArrayLike) -> FloatArray:
    """Copy ``values`` into a float array, or raise one sentence that names the rule it breaks.

    Examples
    --------
    >>> checked_numbers("batch", [1, 8]).tolist()
    [1.0, 8.0]
    >>> checked_numbers("batch", 0)
    Traceback (most recent call last):
    latency_model.errors.InputError: batch must be at least 1 sequence, got 0
    """
    rule = RULES[name]
    try:
        given = np.asarray(values)
        if given.dtype.kind not in "iufO" or (given.dtype.kind == "O" and not all(map(is_number, given.flat))):
            raise TypeError
        array = np.array(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} {rule.words}, got {shorten(values)}") from None
    if not array.size:
        raise InputError(f"{name} {rule.words}, got an empty list")
    if np.ma.is_masked(values):
        raise InputError(f"{name} {rule.words}, got masked values; drop them first")
    inside = (array >= rule.lowest) & (array <= rule.highest)
    if rule.whole:
        inside &= array == np.floor(array)
    if not inside.all():
        wrong = float(array[~inside].flat[0])
        above = wrong > rule.highest and "at least" in rule.words
        words = f"must be at most {rule.highest:g}" if above else rule.words
        raise InputError(f"{name} {words}, got {wrong:g}")
    return array


def checked_number(name: str, value: object) -> float:
    """One number within the rule of ``name``.

    Examples
    --------
    >>> checked_number("kv_reread", 2)
    Traceback (most recent call last):
    latency_model.errors.InputError: kv_reread must be from 0 (KV read once) to 1 (re-read for every token), got 2
    """
    if not is_number(value):
        raise InputError(f"{name} {RULES[name].words}, got {shorten(value)}")
    return float(checked_numbers(name, value))


def checked_flag(name: str, value: object) -> bool:
    """A truth value; words and numbers are refused, since ``"no"`` would count as true."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name} must be True or False, got {shorten(value)}")
    return bool(value)


def checked_shape(**arrays: FloatArray) -> tuple[int, ...]:
    """The shape the arguments broadcast to, or one sentence that names those that do not.

    Examples
    --------
    >>> checked_shape(batch=np.ones(3), context=np.ones(4))
    Traceback (most recent call last):
    latency_model.errors.InputError: batch (3,) and context (4,) do not broadcast; give one of them a new axis
    """
    try:
        return np.broadcast_shapes(*(array.shape for array in arrays.values()))
    except ValueError:
        shapes = " and ".join(f"{name} {array.shape}" for name, array in arrays.items() if array.ndim)
        raise InputError(f"{shapes} do not broadcast; give one of them a new axis") from None
