"""What splitting a model over devices costs: uneven expert load and the time of collectives."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from latency_model.errors import InputError
from latency_model.formulas.domain import Array, quantity
from latency_model.formulas.roofline import p_norm

__all__ = ["all_reduce_time", "all_to_all_time", "busiest_rank_experts", "hot_expert_imbalance", "rank_imbalance"]


def hot_expert_imbalance(share: ArrayLike, num_experts: ArrayLike, ranks: ArrayLike) -> Array:
    r"""Load of the rank that holds one hot expert over the mean load of all ranks.

    .. math:: IR = G\left(\sigma + (1 - \sigma)\frac{E/G - 1}{E - 1}\right)

    Parameters
    ----------
    share : array_like
        Share σ [1] of all routed tokens that the hot expert receives, at least 1/E.
    num_experts : array_like
        Routed experts E [experts], spread evenly.
    ranks : array_like
        Expert-parallel ranks G [ranks], at most E.

    Returns
    -------
    ndarray or float64
        Imbalance, largest over mean load [1]: 1 at σ = 1/E, G at σ = 1.

    Notes
    -----
    Valid when the other experts share the rest evenly. The compute idle share of the other ranks is 1 − 1/IR.

    Source: latency-model equation sheet, section 10 (derived).

    Examples
    --------
    >>> float(hot_expert_imbalance(0.5, 128, 8))
    4.472
    """
    hot = quantity("share", share, high=1.0)
    experts = quantity("num_experts", num_experts, low=1.0)
    group = quantity("ranks", ranks, low=1.0)
    _fits(group, experts)
    if np.any(hot * experts < 1.0 - 1e-9):
        raise InputError(f"share must be at least 1/num_experts for an expert to be hot, got {np.min(hot):g}")
    neighbours = (experts / group - 1.0) / np.maximum(experts - 1.0, 1.0)
    return group * (hot + (1.0 - hot) * neighbours)


def rank_imbalance(expert_cv: ArrayLike, num_experts: ArrayLike, ranks: ArrayLike, tokens_per_rank: ArrayLike) -> Array:
    r"""Load of the busiest of G ranks over the mean, from how unevenly experts are used.

    .. math:: IR \approx 1 + c_{rank}\sqrt{2\ln G}, \qquad c_{rank}^2 = c_e^2\,G/E + 1/\bar L

    Parameters
    ----------
    expert_cv : array_like
        Coefficient of variation c_e of the load per expert [1].
    num_experts : array_like
        Routed experts E [experts], placed without regard to load.
    ranks : array_like
        Expert-parallel ranks G [ranks], at most E.
    tokens_per_rank : array_like
        Mean routed tokens per rank L̄ [tokens]; few tokens add their counting noise.

    Returns
    -------
    ndarray or float64
        Expected imbalance, largest over mean load [1]; 1 on one rank.

    Notes
    -----
    Gaussian approximation of the largest of G sums of E/G experts. Where one expert alone makes its rank the
    busiest, :func:`hot_expert_imbalance` is the larger and right one.

    Source: latency-model equation sheet, section 10 (derived; 14 of 15 measured DeepSeek-R1 layouts are
    within 12 %).

    Examples
    --------
    >>> float(rank_imbalance(0.5, 256, 32, 1024))
    1.47
    """
    experts = quantity("num_experts", num_experts, low=1.0)
    group = quantity("ranks", ranks, low=1.0)
    _fits(group, experts)
    spread = quantity("expert_cv", expert_cv) ** 2 * group / experts
    noise = 1.0 / quantity("tokens_per_rank", tokens_per_rank, strict=True)
    return 1.0 + np.sqrt((spread + noise) * 2.0 * np.log(group))


def busiest_rank_experts(distinct: ArrayLike, num_experts: ArrayLike, ranks: ArrayLike) -> Array:
    r"""Distinct experts on the rank that holds most of those a step touches.

    .. math:: U_{max} = \sum_{m=1}^{N}\left[1 - P(X < m)^G\right], \qquad X \sim \text{Binomial}(N = E/G,\; U/E)

    Parameters
    ----------
    distinct : array_like
        Distinct experts U [experts] that the step touches over all ranks, at most E.
    num_experts : array_like
        Routed experts in the layer E [experts].
    ranks : array_like
        Expert-parallel ranks G [ranks], each with its equal share of the experts (rounded up).

    Returns
    -------
    ndarray or float64
        Expected experts [experts] on the fullest rank: U itself on one rank, E/G once all are touched.

    Notes
    -----
    Experts are placed at random and touched independently. A step waits for this rank, so at small batches it loads
    two or three times the mean U/G even where no expert is hot.

    Source: latency-model equation sheet, section 10 (derived: the mean of the largest of G binomial counts).

    Examples
    --------
    >>> float(busiest_rank_experts(8.0, 256, 8))  # 1 on average
    2.54
    """
    experts = quantity("num_experts", num_experts, low=1.0)
    group = quantity("ranks", ranks, low=1.0)
    _fits(group, experts)
    touched = quantity("distinct", distinct)
    if np.any(touched > experts * (1.0 + 1e-12)):
        raise InputError(f"distinct must be at most num_experts, got {np.max(touched):g} of {np.min(experts):g}")
    held = np.ceil(experts / group)
    share = np.minimum(touched / experts, 1.0)
    with np.errstate(divide="ignore"):
        log_used, log_idle = np.log(share), np.log1p(-share)
    tail: Array = np.zeros(np.broadcast_shapes(np.shape(share), np.shape(held)))
    fullest: Array = np.zeros_like(tail)
    # P(X ≥ m) from the top: of small numbers nothing is lost.
    for m in range(int(np.fmax.reduce(held, axis=None, initial=0.0)), 0, -1):
        with np.errstate(invalid="ignore"):  # NaN arguments, and 0 · log 0 where none of the experts is idle
            ways = np.vectorize(_log_choose)(held, m)
            idle = np.where(m < held, (held - m) * log_idle, 0.0)
            chance = np.where(m <= held, np.exp(ways + m * log_used + idle), 0.0)
        tail = np.minimum(tail + chance, 1.0)
        with np.errstate(divide="ignore"):
            fullest = fullest - np.expm1(group * np.log1p(-tail))
    fullest = np.where(group == 1.0, touched, fullest)
    return np.where(np.isnan(touched + held), np.nan, fullest)[()]


def _log_choose(held: float, used: int) -> float:
    """Logarithm of the number of ways to pick ``used`` of ``held`` experts; 0 where there are not so many."""
    if not used <= held:  # NaN included
        return 0.0
    return math.lgamma(held + 1.0) - math.lgamma(used + 1.0) - math.lgamma(held - used + 1.0)


def all_reduce_time(
    message_bytes: ArrayLike,
    ranks: ArrayLike,
    *,
    link_bandwidth: ArrayLike,
    latency: ArrayLike,
    sharpness: ArrayLike = 1.0,
) -> Array:
    r"""Time to sum a message over all ranks.

    .. math:: T = \left[\alpha^p + (V'/\beta)^p\right]^{1/p}, \qquad V' = 2\,\frac{G - 1}{G}\,V

    Parameters
    ----------
    message_bytes : array_like
        Size of the summed message V [B].
    ranks : array_like
        Ranks that take part G [ranks].
    link_bandwidth : array_like
        Bandwidth of each rank in one direction β [B/s].
    latency : array_like
        Time of an empty all-reduce α [s].
    sharpness : array_like
        Exponent p [1]: 1 is the alpha-beta model, below 1 the slow transition that is measured.

    Returns
    -------
    ndarray or float64
        Time [s]; 0 on one rank.

    Notes
    -----
    Valid for ring and reduce-scatter + all-gather algorithms, which move V' per rank. p = 0.5-0.65 fits
    measured tables to 2-14 %, p = 1 to 2-29 %.

    Source: bytes as in P. Patarasuk, X. Yuan, J. Parallel Distrib. Comput. 69(2), 2009; p-norm in the
    latency-model equation sheet, section 10 (fit).

    Examples
    --------
    >>> float(all_reduce_time(1e6, 4, link_bandwidth=450e9, latency=5e-6) * 1e6)
    8.33
    """
    group = quantity("ranks", ranks, low=1.0)
    moved = 2.0 * (group - 1.0) / group * quantity("message_bytes", message_bytes)
    transfer = moved / quantity("link_bandwidth", link_bandwidth, strict=True)
    together = p_norm(quantity("latency", latency), transfer, sharpness)
    return np.where(group == 1.0, 0.0 * together, together)[()]


def all_to_all_time(
    bytes_per_rank: ArrayLike,
    ranks: ArrayLike,
    *,
    link_bandwidth: ArrayLike,
    latency: ArrayLike,
    local: ArrayLike = 1,
) -> Array:
    r"""Time for every rank to send its tokens to the ranks that hold their experts.

    .. math:: T = \alpha_0 + \left(1 - \frac{g}{G}\right)\frac{V}{\beta}

    Parameters
    ----------
    bytes_per_rank : array_like
        Bytes V one rank would send if every destination were remote [B].
    ranks : array_like
        Expert-parallel ranks G [ranks].
    link_bandwidth : array_like
        Bandwidth of each rank in one direction β [B/s].
    latency : array_like
        Time of an empty exchange α0 [s].
    local : array_like
        Ranks g reached without this link [ranks]: the rank itself, or its node where that has a faster link.

    Returns
    -------
    ndarray or float64
        Time [s]; 0 on one rank, α0 where every rank is local.

    Notes
    -----
    Valid for evenly spread destinations; multiply V by :func:`rank_imbalance` where they are not.

    Source: latency-model equation sheet, section 10 (fit to DeepEP's published low-latency dispatch, within
    4 % from 16 to 256 ranks).

    Examples
    --------
    >>> float(all_to_all_time(7.57e6, 64, link_bandwidth=50e9, latency=44e-6, local=8) * 1e6)
    176.5
    """
    group = quantity("ranks", ranks, low=1.0)
    remote = np.maximum(0.0, 1.0 - quantity("local", local) / group)
    moved = remote * quantity("bytes_per_rank", bytes_per_rank)
    time = quantity("latency", latency) + moved / quantity("link_bandwidth", link_bandwidth, strict=True)
    return np.where(group == 1.0, 0.0 * time, time)[()]


def _fits(ranks: Array, num_experts: Array) -> None:
    if np.any(ranks > num_experts):
        raise InputError(
            f"ranks must be at most num_experts, got {np.max(ranks):g} for {np.min(num_experts):g} experts"
        )
