"""How likely a value lies above another when its logarithm is known to a standard deviation."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from latency_model.formulas.domain import Array, quantity

__all__ = ["exceedance_probability"]

# NumPy has no error function, and importing scipy for one takes longer than most answers.
_erfc = np.frompyfunc(math.erfc, 1, 1)


def exceedance_probability(best: ArrayLike, deviation: ArrayLike, *, threshold: ArrayLike = 1.0) -> Array:
    r"""Probability that a log-normal value lies above a threshold.

    .. math:: P(Y > y) = \Phi\!\left(\frac{\ln(\hat Y / y)}{\sigma}\right)

    Parameters
    ----------
    best : array_like
        Median Ŷ of the value [1], or in the unit of the threshold.
    deviation : array_like
        Standard deviation σ of its logarithm [1]; 0 where it is exact.
    threshold : array_like
        What it is to exceed, y > 0 [1].

    Returns
    -------
    ndarray or float64
        Probability [1], broadcast over all arguments.

    Notes
    -----
    An exact value that equals the threshold does not exceed it: probability 0.

    Source: the distribution function of the log-normal, equations.md section 16.

    Examples
    --------
    >>> round(float(exceedance_probability(1.1, 0.1)), 4)  # Φ(.953)
    0.8297
    >>> float(exceedance_probability(1.0, 0.0)), float(exceedance_probability(1.0, 0.1))
    (0.0, 0.5)
    """
    value, spread = quantity("best", best), quantity("deviation", deviation)
    least = quantity("threshold", threshold, strict=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        margin = np.log(value / least)
        certain = np.where(margin > 0.0, np.inf, np.where(np.isnan(margin), np.nan, -np.inf))
        distance = np.where(spread == 0.0, certain, margin / spread)
    return np.asarray(0.5 * _erfc(-distance / math.sqrt(2.0)), dtype=np.float64)[()]
