"""How many tokens a round of speculation emits and what that buys; acceptance in every form engines print."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from latency_model.errors import InputError
from latency_model.formulas.domain import Array, quantity

__all__ = [
    "acceptance_from_divergence",
    "acceptance_from_mean_length",
    "break_even_tokens",
    "conditional_from_survival",
    "draft_acceptance_rate",
    "expected_tokens",
    "expected_tokens_from_conditional",
    "operations_increase",
    "oracle_tokens",
    "speedup",
    "survival_from_conditional",
    "target_efficiency",
    "walltime_improvement",
]

SMALLEST = np.finfo(np.float64).tiny
"""Stands in for 0 in a logarithm whose result is multiplied by 0 again."""


def expected_tokens(acceptance: ArrayLike, draft_length: ArrayLike) -> Array:
    r"""Tokens a round emits when every draft is accepted with the same probability.

    .. math:: \Omega = \sum_{i=0}^{\gamma}\alpha^i = \frac{1-\alpha^{\gamma+1}}{1-\alpha}

    Parameters
    ----------
    acceptance : array_like
        Probability α [1] that a draft is accepted given that all before it were.
    draft_length : array_like
        Drafted tokens γ [tokens], 0 or more; real values interpolate.

    Returns
    -------
    ndarray or float64
        Expected tokens per round Ω [tokens], the bonus token included: between 1 and γ + 1.

    Notes
    -----
    Valid for independent, identically likely acceptances. An α fitted at depth 1 overstates depth 8 by 9-112 %
    (median 27 %) on 14 published curves; give a vector to :func:`expected_tokens_from_conditional` where there
    is one.

    Source: Y. Leviathan, M. Kalman, Y. Matias, arXiv 2211.17192 (ICML 2023), equation 1.

    Examples
    --------
    >>> float(expected_tokens(0.8, 4))
    3.3616
    """
    return _expected_tokens(quantity("acceptance", acceptance, high=1.0), quantity("draft_length", draft_length))


def _expected_tokens(acceptance: Array, draft_length: Array) -> Array:
    """Evaluate :func:`expected_tokens` for arguments already checked."""
    # α − 1 is exact near 1 and expm1 keeps what 1 − α^γ would lose; 0/0 at α = 1 is replaced below.
    with np.errstate(divide="ignore", invalid="ignore"):
        powers = np.expm1(draft_length * np.log(np.maximum(acceptance, SMALLEST))) / (acceptance - 1.0)
    return 1.0 + np.where(acceptance == 1.0, draft_length, acceptance * powers)[()]


def expected_tokens_from_conditional(conditional: ArrayLike) -> Array:
    r"""Tokens a round emits when each position has its own acceptance.

    .. math:: \Omega = 1 + \sum_{i=1}^{\gamma}\prod_{j\le i}\alpha_j

    Parameters
    ----------
    conditional : array_like
        α_i [1], position along the last axis: P(draft i accepted given all before it were).

    Returns
    -------
    ndarray or float64
        Expected tokens per round Ω [tokens], bonus included; the last axis is summed away.

    Notes
    -----
    Exact for any chain of drafts; trees need the positional vector of their branches.

    Source: latency-model equation sheet, section 4; reduces to Leviathan et al. equation 1 for constant α.

    Examples
    --------
    >>> float(expected_tokens_from_conditional([0.8, 0.5]))
    2.2
    """
    accepted: Array = survival_from_conditional(conditional).sum(axis=-1)
    return 1.0 + accepted


def survival_from_conditional(conditional: ArrayLike) -> Array:
    r"""Probability that draft i and all before it are accepted.

    .. math:: s_i = \prod_{j\le i}\alpha_j

    Parameters
    ----------
    conditional : array_like
        α_i [1], position along the last axis.

    Returns
    -------
    ndarray
        Survival s_i [1], same shape.

    Notes
    -----
    Exact. Survival is what vLLM counts: accepted over drafted at each position.

    Source: latency-model equation sheet, section 4.

    Examples
    --------
    >>> survival_from_conditional([0.8, 0.5]).tolist()
    [0.8, 0.4]
    """
    return np.multiply.accumulate(np.atleast_1d(quantity("conditional", conditional, high=1.0)), axis=-1)


def conditional_from_survival(survival: ArrayLike) -> Array:
    r"""Turn survival into the acceptance of each position given that all before it were accepted.

    .. math:: \alpha_i = s_i/s_{i-1}, \qquad s_0 = 1

    Parameters
    ----------
    survival : array_like
        s_i [1], position along the last axis, never rising.

    Returns
    -------
    ndarray
        Conditional acceptance α_i [1], same shape; 0 behind a position that never survives.

    Notes
    -----
    Exact inverse of :func:`survival_from_conditional` up to the first zero. Counts over drafts of mixed
    length may rise along positions; restrict them to drafts that reached each position first.

    Source: latency-model equation sheet, section 4.

    Examples
    --------
    >>> conditional_from_survival([0.8, 0.4, 0.1]).tolist()
    [0.8, 0.5, 0.25]
    """
    values = np.atleast_1d(quantity("survival", survival, high=1.0))
    before = np.concatenate([np.ones_like(values[..., :1]), values[..., :-1]], axis=-1)
    if np.any(values > before):
        raise InputError(
            "survival must not rise along positions: a draft survives only if those before it did; "
            "conditional probabilities go in as they are"
        )
    return values / np.where(before == 0.0, 1.0, before)


def acceptance_from_mean_length(mean_length: ArrayLike, draft_length: ArrayLike) -> Array:
    r"""Constant acceptance that would give a measured mean length.

    .. math:: \alpha:\quad \frac{1-\alpha^{\gamma+1}}{1-\alpha} = \bar L

    Parameters
    ----------
    mean_length : array_like
        Mean tokens per round [tokens] with the bonus token, between 1 and γ + 1 (SGLang prints it as
        ``avg_spec_accept_length``; add 1 to a mean number of accepted drafts).
    draft_length : array_like
        Drafted tokens γ [tokens] of the measurement, above 0.

    Returns
    -------
    ndarray or float64
        Acceptance α [1]; exactly 0 and 1 at the two ends.

    Notes
    -----
    Ω rises strictly with α, so bisection between 1 − 1/L (unbounded drafts) and 1 finds the one answer to
    the last bit. The α is an average over positions and holds near the measured γ only.

    Source: inverse of Leviathan et al., arXiv 2211.17192, equation 1.

    Examples
    --------
    >>> float(acceptance_from_mean_length(2.73, 3))
    0.749
    """
    mean = quantity("mean_length", mean_length, low=1.0)
    drafts = quantity("draft_length", draft_length, strict=True)
    if np.any(mean > drafts + 1.0):
        raise InputError(
            "mean_length must be at most draft_length + 1 (all drafts and the bonus token), "
            f"got {np.max(mean - drafts):.4g} more than draft_length; was it measured with longer drafts?"
        )
    low = 1.0 - 1.0 / mean + 0.0 * drafts
    high = np.ones_like(low)
    for _ in range(64):  # the bracket is at most 1 wide: 64 halvings pass below the spacing of doubles
        middle = 0.5 * (low + high)
        above = _expected_tokens(middle, drafts) > mean
        high = np.where(above, middle, high)
        low = np.where(above, low, middle)
    inside = np.where(mean == drafts + 1.0, 1.0, 0.5 * (low + high))
    return np.where(mean == 1.0, 0.0 * inside, inside)[()]


def draft_acceptance_rate(acceptance: ArrayLike, draft_length: ArrayLike) -> Array:
    r"""Divide accepted by drafted tokens, the rate many engines print; it falls with the draft length.

    .. math:: r = (\Omega - 1)/\gamma

    Parameters
    ----------
    acceptance : array_like
        Constant conditional acceptance α [1].
    draft_length : array_like
        Drafted tokens γ [tokens], above 0.

    Returns
    -------
    ndarray or float64
        Draft acceptance rate [1], at most α for γ ≥ 1.

    Notes
    -----
    Valid for constant α. Do not feed the rate back as an α: at γ = 7 and α = 0.8 it is 0.45.

    Source: latency-model equation sheet, section 4.

    Examples
    --------
    >>> float(draft_acceptance_rate(0.8, 7))
    0.45
    """
    drafts = quantity("draft_length", draft_length, strict=True)
    return (expected_tokens(acceptance, drafts) - 1.0) / drafts


def acceptance_from_divergence(kl: ArrayLike) -> Array:
    r"""Lower bound on acceptance from the divergence between target and draft distribution.

    .. math:: \alpha = 1 - \mathrm{TV}(p, q) \ge 1 - \sqrt{\mathrm{KL}(p\Vert q)/2}

    Parameters
    ----------
    kl : array_like
        Kullback-Leibler divergence of one next-token distribution from the other [nat], either direction.

    Returns
    -------
    ndarray or float64
        Smallest possible acceptance [1]; 0 where the bound says nothing (2 nat and more).

    Notes
    -----
    Valid for rejection sampling, per position; averaged over positions it still holds, the root being
    concave.

    Source: Pinsker's inequality with α = 1 − TV of Leviathan et al., arXiv 2211.17192, theorem 3.5.

    Examples
    --------
    >>> float(acceptance_from_divergence(0.08))
    0.8
    """
    return np.maximum(0.0, 1.0 - np.sqrt(quantity("kl", kl) / 2.0))


def oracle_tokens(acceptance: ArrayLike) -> Array:
    r"""Tokens per round if drafting went on until the first rejection at no cost.

    .. math:: \Omega_\infty = \frac{1}{1-\alpha}

    Parameters
    ----------
    acceptance : array_like
        Constant conditional acceptance α [1].

    Returns
    -------
    ndarray or float64
        Upper bound on tokens per round [tokens]; inf at α = 1.

    Notes
    -----
    The limit of :func:`expected_tokens` for γ → inf, and so a bound on any chain with this α.

    Source: Leviathan et al., arXiv 2211.17192, section 3.5.

    Examples
    --------
    >>> float(oracle_tokens(0.8))
    5.0
    """
    with np.errstate(divide="ignore"):
        return 1.0 / (1.0 - quantity("acceptance", acceptance, high=1.0))


def walltime_improvement(acceptance: ArrayLike, draft_length: ArrayLike, cost_ratio: ArrayLike) -> Array:
    r"""Speedup when verifying γ + 1 tokens takes as long as one plain step.

    .. math:: \frac{1-\alpha^{\gamma+1}}{(1-\alpha)(\gamma c + 1)}

    Parameters
    ----------
    acceptance : array_like
        Constant conditional acceptance α [1].
    draft_length : array_like
        Drafted tokens γ [tokens].
    cost_ratio : array_like
        Time of one draft step over one target step c [1].

    Returns
    -------
    ndarray or float64
        Improvement in wall time [1]; 1 at γ = 0.

    Notes
    -----
    Valid while the target is memory-bound and dense: free verification is the assumption that batches and
    experts break.

    Source: Leviathan et al., arXiv 2211.17192, theorem 3.8.

    Examples
    --------
    >>> float(walltime_improvement(0.8, 8, 0.05))
    3.09
    """
    tokens = expected_tokens(acceptance, draft_length)
    return tokens / (quantity("draft_length", draft_length) * quantity("cost_ratio", cost_ratio) + 1.0)


def operations_increase(acceptance: ArrayLike, draft_length: ArrayLike, operations_ratio: ArrayLike) -> Array:
    r"""Arithmetic per emitted token against plain decoding.

    .. math:: \frac{(1-\alpha)(\gamma\hat c + \gamma + 1)}{1-\alpha^{\gamma+1}}

    Parameters
    ----------
    acceptance : array_like
        Constant conditional acceptance α [1].
    draft_length : array_like
        Drafted tokens γ [tokens].
    operations_ratio : array_like
        Operations per token of the draft over those of the target ĉ [1].

    Returns
    -------
    ndarray or float64
        Factor on the total number of operations [1], 1 or more; 1 at γ = 0.

    Notes
    -----
    Valid for constant α; this is the price of speculation once the target is compute-bound.

    Source: Leviathan et al., arXiv 2211.17192, theorem 3.11.

    Examples
    --------
    >>> float(operations_increase(0.8, 5, 0.05))
    1.69
    """
    drafts = quantity("draft_length", draft_length)
    work = drafts * quantity("operations_ratio", operations_ratio) + drafts + 1.0
    return work / expected_tokens(acceptance, drafts)


def speedup(tokens_per_round: ArrayLike, baseline_time: ArrayLike, round_time: ArrayLike) -> Array:
    r"""How much faster tokens appear with speculation than without.

    .. math:: \Omega\,T_T(B, 1)/T_{round}

    Parameters
    ----------
    tokens_per_round : array_like
        Expected tokens per round Ω [tokens], bonus included.
    baseline_time : array_like
        One plain step of the target T_T(B, 1) [s].
    round_time : array_like
        Drafting, verifying γ + 1 tokens and overhead [s].

    Returns
    -------
    ndarray or float64
        Speedup [1].

    Notes
    -----
    Valid when both times come from the same step model at the same batch and context.

    Source: MagicDec, arXiv 2408.11049, equation 1; MoESD, arXiv 2505.19645, equation 4.

    Examples
    --------
    >>> float(speedup(2.73, 1.0, 1.25 + 0.143))
    1.96
    """
    gained = quantity("tokens_per_round", tokens_per_round) * quantity("baseline_time", baseline_time)
    return gained / quantity("round_time", round_time, strict=True)


def break_even_tokens(*, baseline_time: ArrayLike, round_time: ArrayLike) -> Array:
    r"""Tokens per round at which speculation neither gains nor loses.

    .. math:: \Omega^* = T_{round}/T_T(B, 1)

    Parameters
    ----------
    baseline_time : array_like
        One plain step of the target [s].
    round_time : array_like
        One round of speculation [s].

    Returns
    -------
    ndarray or float64
        Required tokens per round [tokens]; :func:`acceptance_from_mean_length` turns it into an acceptance.

    Notes
    -----
    Exact: :func:`speedup` set to 1. Above γ + 1 no acceptance can pay for the round.

    Source: latency-model equation sheet, section 5.

    Examples
    --------
    >>> float(break_even_tokens(baseline_time=1.0, round_time=1.39))
    1.39
    """
    return quantity("round_time", round_time) / quantity("baseline_time", baseline_time, strict=True)


def target_efficiency(*, plain_time: ArrayLike, verify_time: ArrayLike) -> Array:
    r"""Share of the ideal that verification leaves: 1 when γ + 1 tokens are as quick as one.

    .. math:: T_T(B, 1)/T_T(B, \gamma + 1)

    Parameters
    ----------
    plain_time : array_like
        One plain step of the target T_T(B, 1) [s].
    verify_time : array_like
        The same step with γ + 1 tokens a sequence [s].

    Returns
    -------
    ndarray or float64
        Target efficiency [1].

    Notes
    -----
    Valid for times of the same step model; it tells system effects apart from acceptance.

    Source: MoESD, arXiv 2505.19645, definition of target efficiency (section 3).

    Examples
    --------
    >>> float(target_efficiency(plain_time=1.0, verify_time=1.25))
    0.8
    """
    return quantity("plain_time", plain_time) / quantity("verify_time", verify_time, strict=True)
