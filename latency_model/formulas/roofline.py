"""How long a kernel takes: arithmetic, memory traffic and how sharply the slower of the two wins."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from latency_model.formulas.domain import Array, quantity

__all__ = ["crossover_tokens", "p_norm", "ridge_point", "roofline_time"]


def p_norm(first: ArrayLike, second: ArrayLike, sharpness: ArrayLike = math.inf) -> Array:
    r"""Combine two times that overlap only partly.

    .. math:: T = (T_1^p + T_2^p)^{1/p}

    Parameters
    ----------
    first : array_like
        One time [s], 0 or more.
    second : array_like
        The other time [s], broadcast against ``first``.
    sharpness : array_like
        Exponent p [1], above 0: inf is perfect overlap (the larger), 1 none (the sum), below 1 a longer sum.

    Returns
    -------
    ndarray or float64
        Combined time [s].

    Notes
    -----
    Valid for any non-negative times. Evaluated as max · (1 + (min/max)^p)^(1/p), so that neither 1e-300 s
    nor 1e300 s leaves the range of a double.

    Source: latency-model equation sheet, section 1 (fit to measured kernels).

    Examples
    --------
    >>> float(p_norm(3.0, 4.0, 2.0))
    5.0
    """
    return _p_norm(quantity("first", first), quantity("second", second), quantity("sharpness", sharpness, strict=True))


def _p_norm(first: Array, second: Array, sharpness: Array) -> Array:
    """Evaluate :func:`p_norm` for arguments already checked."""
    exponent = float(sharpness) if np.ndim(sharpness) == 0 else math.nan
    if exponent == math.inf:
        return np.maximum(first, second)
    if exponent == 1.0:
        return first + second
    larger = np.maximum(first, second)
    ratio = np.minimum(first, second)
    with np.errstate(invalid="ignore"):
        ratio /= larger
    # 0/0 and inf/inf add nothing to the larger, and a NaN is carried by the larger itself.
    ratio = np.fmax(ratio, 0.0)
    if exponent == 2.0:
        return larger * np.sqrt(1.0 + ratio * ratio)
    return larger * (1.0 + ratio**sharpness) ** (1.0 / sharpness)


def roofline_time(
    flops: ArrayLike,
    traffic: ArrayLike,
    *,
    peak_flops: ArrayLike,
    bandwidth: ArrayLike,
    overhead: ArrayLike = 0.0,
    sharpness: ArrayLike = math.inf,
) -> Array:
    r"""Time of one kernel on a machine with a peak rate, a bandwidth and a fixed start cost.

    .. math:: T = t_0 + \left[(F/P)^p + (M/W)^p\right]^{1/p}

    Parameters
    ----------
    flops : array_like
        Arithmetic F [FLOP]; 0 for pure copies.
    traffic : array_like
        Bytes moved M [B]; 0 for work that stays on chip.
    peak_flops : array_like
        Achievable arithmetic rate P [FLOP/s], efficiency included.
    bandwidth : array_like
        Achievable memory bandwidth W [B/s], efficiency included.
    overhead : array_like
        Fixed time t0 [s] of the kernel.
    sharpness : array_like
        Exponent p [1] of the corner; inf is the classic roofline, 1 the sum of both times.

    Returns
    -------
    ndarray or float64
        Time [s], broadcast over all arguments.

    Notes
    -----
    Total for F = 0 or M = 0 because it is a time, not a throughput. Tile and wave quantisation are left out.

    Source: S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009, for p = inf; smooth corner
    as in the latency-model equation sheet, section 1 (fit: p 2-3 on Hopper bf16 GEMMs, 1.5 on A100).

    Examples
    --------
    >>> float(roofline_time(2e12, 1e9, peak_flops=1e15, bandwidth=1e12, overhead=1e-5))
    0.00201
    """
    work = quantity("flops", flops) / quantity("peak_flops", peak_flops, strict=True)
    movement = quantity("traffic", traffic) / quantity("bandwidth", bandwidth, strict=True)
    fixed = quantity("overhead", overhead)
    return _p_norm(work, movement, quantity("sharpness", sharpness, strict=True)) + fixed


def ridge_point(*, peak_flops: ArrayLike, bandwidth: ArrayLike) -> Array:
    r"""Arithmetic intensity at which computing and moving take equally long.

    .. math:: I^* = P/W

    Parameters
    ----------
    peak_flops : array_like
        Arithmetic rate P [FLOP/s].
    bandwidth : array_like
        Memory bandwidth W [B/s].

    Returns
    -------
    ndarray or float64
        Ridge point [FLOP/B].

    Notes
    -----
    Valid for any positive rates; below the ridge a kernel is memory-bound, above it compute-bound.

    Source: Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009.

    Examples
    --------
    >>> float(ridge_point(peak_flops=989e12, bandwidth=3.35e12))
    295.2
    """
    return quantity("peak_flops", peak_flops) / quantity("bandwidth", bandwidth, strict=True)


def crossover_tokens(*, peak_flops: ArrayLike, bandwidth: ArrayLike, bytes_per_weight: ArrayLike) -> Array:
    r"""Tokens per weight matrix at which reading the weights stops being the bottleneck.

    .. math:: n^* = \frac{P\,b_w}{2W}

    Parameters
    ----------
    peak_flops : array_like
        Arithmetic rate P [FLOP/s] of the dtype computed in.
    bandwidth : array_like
        Memory bandwidth W [B/s].
    bytes_per_weight : array_like
        Stored size of a weight b_w [B].

    Returns
    -------
    ndarray or float64
        Tokens [tokens] that multiply each weight.

    Notes
    -----
    Valid while weights dominate traffic: activations are neglected. Independent of the matrix shape, so it
    holds for one expert as well as for a dense layer.

    Source: latency-model equation sheet, section 3 (derived: 2 FLOP per weight and token against b_w bytes).

    Examples
    --------
    >>> float(crossover_tokens(peak_flops=989e12, bandwidth=3.35e12, bytes_per_weight=2))
    295.2
    """
    ridge = ridge_point(peak_flops=peak_flops, bandwidth=bandwidth)
    return ridge * quantity("bytes_per_weight", bytes_per_weight) / 2.0
