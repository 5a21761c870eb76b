"""The one gate every formula's arguments pass: float64 inside the domain, or a sentence.

NaN passes, so that a hole in measured data comes out as a hole in the result; a number outside the domain
(an acceptance of 1.2, a negative size) raises, because the closed form would answer with nonsense.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latency_model.errors import InputError, shorten

__all__ = ["Array", "quantity"]

Array = NDArray[np.float64]
"""What formulas return: float64 of the broadcast shape; scalars in give one ``np.float64`` out."""


def quantity(name: str, value: ArrayLike, low: float = 0.0, high: float = math.inf, *, strict: bool = False) -> Array:
    """Return ``value`` as float64 if it lies in [low, high], or above ``low`` where ``strict``.

    >>> quantity("acceptance", 1.2, high=1.0)
    Traceback (most recent call last):
    latency_model.errors.InputError: acceptance must be between 0 and 1, got 1.2
    """
    try:
        numbers: Array = np.asarray(float("x") if value is None else value, dtype=np.float64)[()]
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} must be a number or an array of numbers, got {shorten(value)}") from None
    outside = numbers <= low if strict else numbers < low
    if high < math.inf:
        outside = outside | (numbers > high)
    if outside.any() if outside.ndim else outside:  # .any() alone is the slowest part for a scalar
        rule = f"between {low:g} and {high:g}" if high < math.inf else f"{low:g} or more"
        found = np.atleast_1d(numbers)[np.atleast_1d(outside)][0]
        raise InputError(f"{name} must be {f'above {low:g}' if strict else rule}, got {found:g}")
    return numbers
