"""Latency against load: what a request waits for others, and where speculation stops paying as they get more."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from latency_model.formulas.domain import Array, quantity

__all__ = [
    "batch_probabilities",
    "expected_rounds",
    "first_token_latency",
    "inflection_context",
    "queueing_delay",
    "request_latency",
    "speculation_break_even_load",
]


def request_latency(*, fixed_demand: ArrayLike, load_demand: ArrayLike, rate: ArrayLike) -> Array:
    r"""Mean latency of a request when each of those it shares the machine with delays it equally.

    .. math:: T_\text{req} = \frac{C_1}{1 - \lambda C_2}

    Parameters
    ----------
    fixed_demand : array_like
        Seconds C1 [s] a request takes alone: prefill, and every round at batch 1.
    load_demand : array_like
        Seconds C2 [s] that one more request adds: its prefill, and what it lengthens every round by.
    rate : array_like
        Requests that arrive λ [1/s].

    Returns
    -------
    ndarray or float64
        Mean latency [s]; inf where λ C2 ≥ 1, as the queue then grows without end.

    Notes
    -----
    Little's law with a round of t0 + t1 n seconds, in which a request meets as many others as there are on average.
    Exact for Poisson arrivals that share a machine whose round is affine in the batch, whatever the distribution
    of their lengths; :func:`batch_probabilities` serves any other round.

    Source: Kong et al., arXiv 2605.15051 (Little's law with demand linear in the batch); latency-model equation
    sheet, section 9 (derived), for what a lone request takes.

    Examples
    --------
    >>> request_latency(fixed_demand=2.0, load_demand=0.1, rate=[0.0, 5.0, 10.0]).tolist()
    [2.0, 4.0, inf]
    """
    alone = quantity("fixed_demand", fixed_demand)
    busy = quantity("load_demand", load_demand) * quantity("rate", rate)
    with np.errstate(divide="ignore", invalid="ignore"):
        latency = alone / (1.0 - busy)
    return np.where(busy >= 1.0, np.where(np.isnan(alone), np.nan, np.inf), latency)[()]


def speculation_break_even_load(*, fixed_ratio: ArrayLike, load_ratio: ArrayLike) -> Array:
    r"""Load at which latency with speculation equals that without.

    .. math:: u^* = \frac{1 - C_{1R}}{C_{2R} - C_{1R}}

    Parameters
    ----------
    fixed_ratio : array_like
        Seconds of a lone request with speculation over those without C1R [1].
    load_ratio : array_like
        Seconds one more request adds, with speculation over without C2R [1].

    Returns
    -------
    ndarray or float64
        Break-even load u* [1], in units of the rate that saturates plain decoding. Below it the smaller of the two
        ratios wins, above it the other. From 1 on there is no crossing; 0 where speculation never pays, inf
        where it always does.

    Notes
    -----
    Two curves of :func:`request_latency` set equal. The speedup at load u is [1 + (1 − C2R) u/(1 − u)]/C1R.
    With C1R < 1 and C2R > 1, the usual case, speculation pays below u* and loses above.

    Source: latency-model equation sheet, section 9 (derived).

    Examples
    --------
    >>> speculation_break_even_load(fixed_ratio=0.5, load_ratio=[1.5, 0.9, 0.4]).tolist()
    [0.5, 1.25, inf]
    """
    fixed = quantity("fixed_ratio", fixed_ratio)
    load = quantity("load_ratio", load_ratio)
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = (1.0 - fixed) / (load - fixed)
    always = (fixed < 1.0) & (load <= fixed)
    never = (fixed >= 1.0) & (load >= fixed)
    known = np.where(always, np.inf, np.where(never, 0.0, crossing))
    return np.where(np.isnan(fixed + load), np.nan, known)[()]


def queueing_delay(*, service_time: ArrayLike, rate: ArrayLike, service_cv: ArrayLike = 0.0) -> Array:
    r"""Mean wait of jobs that one server takes one by one, as they come.

    .. math:: T_\text{wait} = \frac{\lambda T_\text{pre}^2 (1 + c_s^2)}{2 (1 - \lambda T_\text{pre})}

    Parameters
    ----------
    service_time : array_like
        Mean seconds of one job T_pre [s].
    rate : array_like
        Jobs that arrive λ [1/s].
    service_cv : array_like
        Coefficient of variation of the service time c_s [1]; 0 for prompts of one length.

    Returns
    -------
    ndarray or float64
        Mean wait before service [s]; inf where λ T_pre ≥ 1.

    Notes
    -----
    Valid for Poisson arrivals. Here the jobs are prefills.

    Source: Pollaczek-Khinchine formula; Kleinrock, Queueing Systems I, 1975, section 5.6.

    Examples
    --------
    >>> float(queueing_delay(service_time=0.1, rate=5.0))
    0.05
    """
    service = quantity("service_time", service_time)
    busy = service * quantity("rate", rate)
    spread = 1.0 + quantity("service_cv", service_cv) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        wait = busy * service * spread / (2.0 * (1.0 - busy))
    return np.where(busy >= 1.0, np.where(np.isnan(spread), np.nan, np.inf), wait)[()]


def expected_rounds(survival: ArrayLike, tokens: ArrayLike) -> Array:
    r"""Mean number of rounds until so many tokens are out, the surplus of the last one thrown away.

    .. math:: R = \frac{1}{\Omega}\left(m + \frac{\sum_i i\,s_i}{\Omega}\right), \qquad \Omega = 1 + \sum_i s_i

    Parameters
    ----------
    survival : array_like
        P(draft i and all before it accepted) s_i [1], last axis = position; empty for plain decoding.
    tokens : array_like
        Tokens wanted m [tokens], at least 1; broadcasts against the other axes of ``survival``.

    Returns
    -------
    ndarray or float64
        Rounds R [1].

    Notes
    -----
    The limit of many tokens, reached fast unless nearly every draft is accepted, and then within half a round: the
    last round yields Σ i s_i/Ω tokens too many on average.

    Source: renewal theory, Feller, An Introduction to Probability Theory II, 1971, section XI.3; latency-model
    equation sheet, section 9 (derived).

    Examples
    --------
    >>> float(expected_rounds([0.7, 0.49], 219.0))
    100.4
    """
    survivals = np.atleast_1d(quantity("survival", survival, high=1.0))
    wanted = quantity("tokens", tokens, low=1.0)
    each = 1.0 + survivals.sum(axis=-1)
    surplus = survivals @ np.arange(1.0, survivals.shape[-1] + 1) / each
    rounds: Array = (wanted + surplus) / each
    return rounds[()]


def first_token_latency(*, round_time: ArrayLike, prefill_time: ArrayLike, rate: ArrayLike) -> Array:
    r"""Mean time to the first token where a prompt is prefilled in the round that begins after it has come.

    .. math:: T_\text{first} = \left(\tfrac12 + \rho\right)\left(\frac{T}{1 - \rho}
        + \frac{\lambda T_\text{pre}^2}{1 - \rho^2}\right) + T + T_\text{pre}, \qquad \rho = \lambda T_\text{pre}

    Parameters
    ----------
    round_time : array_like
        Seconds of a round T [s] without prefills.
    prefill_time : array_like
        Seconds T_pre [s] by which each prompt lengthens the round it is prefilled in.
    rate : array_like
        Requests that arrive λ [1/s].

    Returns
    -------
    ndarray or float64
        Mean time from arrival to the end of that round [s]; inf where λ T_pre ≥ 1.

    Notes
    -----
    Valid for Poisson arrivals at a machine that always decodes. Rounds with the prompts that came during the last
    one have mean T/(1 − ρ) and variance λ T_pre² times that over 1 − ρ²; an arrival falls into a long one more
    often, waits half of it, and is prefilled with all that came during it.

    Source: latency-model equation sheet, section 9 (derived).

    Examples
    --------
    >>> first_token_latency(round_time=0.01, prefill_time=0.02, rate=[0.0, 10.0, 50.0]).tolist()
    [0.035, 0.0417, inf]
    """
    step, added = quantity("round_time", round_time), quantity("prefill_time", prefill_time)
    arriving = quantity("rate", rate)
    busy = added * arriving
    with np.errstate(divide="ignore", invalid="ignore"):
        met = step / (1.0 - busy) + arriving * added**2 / (1.0 - busy**2)  # mean length of the round an arrival meets
        latency = (0.5 + busy) * met + step + added
    return np.where(busy >= 1.0, np.where(np.isnan(step), np.nan, np.inf), latency)[()]


def batch_probabilities(*, demand: ArrayLike, rate: ArrayLike) -> Array:
    r"""Share of time in which 0, 1, 2, ... requests are in the batch.

    .. math:: q_n \propto \prod_{m=1}^{n} \lambda \tau_m, \qquad \tau_m = \frac{R\,T(m)}{m}

    Parameters
    ----------
    demand : array_like
        Machine seconds a request takes τ_m [s] when m = 1, 2, ... are in the batch; the last axis is m, and its
        length the largest batch.
    rate : array_like
        Requests that arrive λ [1/s]; broadcasts against the other axes of ``demand``.

    Returns
    -------
    ndarray
        Probabilities q_n [1] of n = 0, 1, ..., last axis one longer than that of ``demand``; the last entry is that
        of a full batch, 1 where λ τ_m ≥ 1 there, as the queue then grows without end.

    Notes
    -----
    A birth-death chain: arrivals at rate λ, departures at n/(R T(n)) with R rounds a request. Exact for Poisson
    arrivals that share the machine (processor sharing), whatever the distribution of lengths; requests that wait
    for a full batch are taken in as they came, as if what remains of those inside were exponential. For
    T = t0 + t1 n without limit the mean is λ times :func:`request_latency`.

    Source: Kelly, Reversibility and Stochastic Networks, 1979, sections 1.3 and 3.3 (symmetric queues);
    latency-model equation sheet, section 9.

    Examples
    --------
    >>> batch_probabilities(demand=[0.5, 0.25], rate=2.0).tolist()
    [0.333, 0.333, 0.333]
    """
    each = np.atleast_1d(quantity("demand", demand, strict=True))
    load = each * np.asarray(quantity("rate", rate))[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = np.cumsum(np.log(load), axis=-1)
        weights[..., -1] -= np.log1p(-load[..., -1])  # K and all that wait outside: a geometric series
    weights = np.concatenate((np.zeros_like(weights[..., :1]), weights), axis=-1)
    full = load[..., -1:] >= 1.0
    weights = np.where(full, -np.inf, weights)
    weights[..., -1:] = np.where(full, 0.0, weights[..., -1:])
    shares = np.exp(weights - weights.max(axis=-1, keepdims=True))
    probabilities: Array = shares / shares.sum(axis=-1, keepdims=True)
    return probabilities


def inflection_context(*, kv_budget: ArrayLike, time_per_token: ArrayLike, time_per_cached_token: ArrayLike) -> Array:
    r"""Context beyond which self-speculation gains more the larger the batch.

    .. math:: S^* = K + \frac{c_{tok}}{c_{kv}}

    Parameters
    ----------
    kv_budget : array_like
        Cached tokens the draft reads K [tokens].
    time_per_token : array_like
        Seconds that one more token in a step takes, its sequence's cache left out [s].
    time_per_cached_token : array_like
        Seconds that reading one cached token of one sequence takes [s].

    Returns
    -------
    ndarray or float64
        Context S* [tokens]; inf where reading the cache costs nothing. It does not depend on the draft length or
        on acceptance.

    Notes
    -----
    Valid for drafts by the target's own weights, and steps affine in batch and in batch times context. Below S*
    the speedup falls with the batch, above it rises.

    Source: MagicDec, arXiv 2408.11049, section 3, for the effect; latency-model equation sheet, section 8
    (derived).

    Examples
    --------
    >>> float(inflection_context(kv_budget=512, time_per_token=20e-6, time_per_cached_token=40e-9))
    1012.0
    """
    budget = quantity("kv_budget", kv_budget)
    token = quantity("time_per_token", time_per_token)
    cached = quantity("time_per_cached_token", time_per_cached_token)
    with np.errstate(divide="ignore", invalid="ignore"):
        reach = np.where((cached == 0.0) & ~np.isnan(token), np.inf, token / cached)
    return (budget + reach)[()]
