"""How many tokens to draft when acceptance is constant and verifying costs an affine amount."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from latency_model.formulas.acceptance import SMALLEST, _expected_tokens
from latency_model.formulas.domain import Array, quantity

__all__ = ["best_draft_length", "break_even_acceptance", "optimal_draft_length"]

TIE = 1.0 + 1e-14
"""Gains smaller than rounding are ties, which the shorter draft wins."""

NEWTON_STEPS = 4
"""Enough for Lambert's function to the last digits from its upper bound, whatever the argument."""


def optimal_draft_length(
    acceptance: ArrayLike,
    cost_ratio: ArrayLike,
    *,
    verify_base: ArrayLike = 1.0,
    verify_slope: ArrayLike = 0.0,
) -> Array:
    r"""Real-valued draft length that maximises the speedup.

    .. math::
        \gamma^* = \frac{-1 - W_{-1}\left(-\frac{1}{e}\alpha^{(1-\tilde c)/\tilde c}\right)}{\ln(1/\alpha)}
        - \frac{1}{\tilde c}, \qquad \tilde c = \frac{c + v_1}{v_0}

    Parameters
    ----------
    acceptance : array_like
        Constant conditional acceptance α [1].
    cost_ratio : array_like
        Time of one draft step over one plain target step c [1].
    verify_base : array_like
        Fixed part v0 [1] of the verify time, in plain steps.
    verify_slope : array_like
        Growth v1 [1] of the verify time per drafted token, in plain steps.

    Returns
    -------
    ndarray or float64
        γ* [tokens]: 0 where α ≤ c̃, as no whole draft pays then; inf where drafts are free or always right.

    Notes
    -----
    Valid for constant α and T_verify = T_plain (v0 + v1 γ). γ* is where the round is most efficient; whether
    that beats plain decoding when v0 > 1 is decided by :func:`best_draft_length`.

    Source: latency-model equation sheet, section 6 (derived); stationary point of Leviathan et al.,
    arXiv 2211.17192, theorem 3.8 for v0 = 1, v1 = 0.

    Examples
    --------
    >>> float(optimal_draft_length(0.8, 0.05))
    7.86
    """
    alpha = quantity("acceptance", acceptance, high=1.0)
    marginal = _marginal_cost(cost_ratio, verify_base, verify_slope)
    with np.errstate(all="ignore"):  # the ends are replaced below
        decay = -np.log(alpha)
        # With depth = (1 − c̃)/c̃ · ln(1/α) and t = −1 − W₋₁(−exp(−1 − depth)), t − depth = log(1 + t) turns
        # t/ln(1/α) − 1/c̃ into a form that does not subtract large numbers.
        inside = np.log1p(_lambert_excess(decay * (1.0 - marginal) / marginal)) / decay - 1.0
    limit = np.where((marginal == 0.0) | (alpha == 1.0), np.inf, np.maximum(inside, 0.0))
    unknown = np.isnan(alpha) | np.isnan(marginal)
    return np.where(unknown, np.nan, np.where(alpha > marginal, limit, 0.0))[()]


def best_draft_length(
    acceptance: ArrayLike,
    cost_ratio: ArrayLike,
    *,
    verify_base: ArrayLike = 1.0,
    verify_slope: ArrayLike = 0.0,
    max_draft_length: ArrayLike = 64,
) -> Array:
    r"""Whole number of tokens to draft, 0 (plain decoding) included.

    .. math:: \arg\max_{\gamma \in \{0, \lfloor\gamma^*\rfloor, \lceil\gamma^*\rceil\}}
        \frac{\Omega(\gamma)}{v_0 + (v_1 + c)\gamma}, \qquad \text{plain decoding counts 1}

    Parameters
    ----------
    acceptance : array_like
        Constant conditional acceptance α [1].
    cost_ratio : array_like
        Time of one draft step over one plain target step c [1].
    verify_base : array_like
        Fixed part v0 [1] of the verify time, in plain steps.
    verify_slope : array_like
        Growth v1 [1] of the verify time per drafted token, in plain steps.
    max_draft_length : array_like
        Longest draft allowed [tokens].

    Returns
    -------
    ndarray or float64
        Best draft length [tokens], a whole number; of equally good lengths the shorter.

    Notes
    -----
    Exact for the model of :func:`optimal_draft_length`: the speedup is quasi-concave in γ, so the best whole
    number is a neighbour of γ*, of 1, or of the cap, and equals a scan over every length.

    Source: latency-model equation sheet, section 6.

    Examples
    --------
    >>> float(best_draft_length(0.8, 0.05))
    8.0
    """
    alpha = quantity("acceptance", acceptance, high=1.0)
    cost = quantity("cost_ratio", cost_ratio)
    base = quantity("verify_base", verify_base, strict=True)
    slope = quantity("verify_slope", verify_slope)
    longest = np.floor(quantity("max_draft_length", max_draft_length))

    def improvement(length: Array) -> Array:
        return _expected_tokens(alpha, length) / (base + (slope + cost) * length)

    peak = optimal_draft_length(alpha, cost, verify_base=base, verify_slope=slope)
    shorter = np.minimum(np.maximum(np.floor(peak), 1.0), longest)
    longer = np.minimum(np.maximum(np.ceil(peak), 1.0), longest)
    drafted = np.where(improvement(longer) > TIE * improvement(shorter), longer, shorter)
    best = np.where(improvement(drafted) > TIE, drafted, 0.0)
    return np.where(np.isnan(peak + longest), np.nan, best)[()]


def break_even_acceptance(
    cost_ratio: ArrayLike, *, verify_base: ArrayLike = 1.0, verify_slope: ArrayLike = 0.0
) -> Array:
    r"""Find the acceptance above which drafting one token pays.

    .. math:: \alpha^* = v_0 + v_1 + c - 1

    Parameters
    ----------
    cost_ratio : array_like
        Time of one draft step over one plain target step c [1].
    verify_base : array_like
        Fixed part v0 [1] of the verify time, in plain steps.
    verify_slope : array_like
        Growth v1 [1] of the verify time per drafted token, in plain steps.

    Returns
    -------
    ndarray or float64
        Break-even acceptance [1], not below 0; above 1 no acceptance pays for a single draft.

    Notes
    -----
    Exact for one draft. For v0 ≤ 1 it is the threshold for any length, since longer drafts are less likely
    and cost no less; for v0 > 1 a longer draft can pay first because it shares the fixed part.

    Source: latency-model equation sheet, section 6; Leviathan et al., arXiv 2211.17192, corollary 3.9.

    Examples
    --------
    >>> float(break_even_acceptance(0.1, verify_slope=0.05))
    0.15
    """
    base = quantity("verify_base", verify_base, strict=True)
    added = quantity("verify_slope", verify_slope) + quantity("cost_ratio", cost_ratio)
    return np.maximum(0.0, base - 1.0 + added)


def _marginal_cost(cost_ratio: ArrayLike, verify_base: ArrayLike, verify_slope: ArrayLike) -> Array:
    """Return c̃ = (c + v1)/v0: what one more drafted token adds to the fixed part of a round."""
    added = quantity("cost_ratio", cost_ratio) + quantity("verify_slope", verify_slope)
    return added / quantity("verify_base", verify_base, strict=True)


def _lambert_excess(depth: Array) -> Array:
    """Solve t − log(1 + t) = depth for t ≥ 0, that is t = −1 − W₋₁(−exp(−1 − depth)).

    Working with the logarithm of Lambert's argument reaches depths where the argument itself underflows
    (beyond 700), and needs no branch point: near it the series in q = sqrt(2 depth) takes over.
    """
    q = np.sqrt(2.0 * depth)
    near = np.clip(q, SMALLEST, 0.02)
    series = near * (1.0 + near * (1 / 3 + near * (1 / 36 - near * (1 / 270 - near / 4320))))
    # q + depth bounds t from above (Chatzigeorgiou, IEEE Comm. Lett. 17(8), 2013), and the equation is convex:
    # Newton descends from there without overshooting.
    t = np.maximum(q + depth, near)
    for _ in range(NEWTON_STEPS):
        t = np.maximum(t - (t - np.log1p(t) - depth) * (1.0 + 1.0 / t), near)
    return np.where(q < 0.02, series, np.where(np.isinf(depth), depth, t))
