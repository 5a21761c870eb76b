"""How many experts a step touches when tokens of one request prefer, and keep, the same experts.

One expert and one request: the request's preference θ for the expert is Beta with mean π = k/E and
correlation ρ (persistence). The first token uses it with probability θ; each later token repeats what the one
before it did with probability s (stickiness) and draws again from θ otherwise. Everything below follows from
the hazard

    h_n = P(token n + 1 uses the expert | the first n did not),

which obeys, with m = n − 1, a recurrence of positive terms that holds from ρ = 0 to ρ = 1 alike:

    h_n = [π (1 − ρ)(1 − s) + ρ s m h_{n−1}/(1 − h_{n−1})] / (1 + m ρ).

It is the contiguous relation of the terminating 2F1 that E[(1 − θ)(1 − (1 − s) θ)^(n−1)] integrates to,
divided by the miss probability itself: no term is subtracted from another, so small activations and small miss
probabilities keep their digits.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from latency_model.errors import InputError
from latency_model.formulas.domain import Array, quantity

__all__ = [
    "distinct_experts",
    "expert_miss_probability",
    "persistence_from_overlap",
    "routing_overlap",
    "stickiness_from_overlap",
]

NEVER = -1e300
"""Logarithm of a zero probability; finite, so that zero sequences of it are still certain."""

POPULARITY_STEP = 0.5
"""Widest step in log-odds when averaging over popularity; the average is then within 1e-7."""

POPULARITY_TAIL = 28.0
"""Depth in e-folds below the peak at which that average ends."""

LONGEST_TABLE = 2**22
"""Most tokens a sequence may feed when the recurrence has to be walked token by token."""

FEW = 256
"""Most parameter sets whose table is remembered between calls."""

BLOCK = 2**14
"""Most (nodes x points) evaluated at once when averaging over popularity: they stay in the cache."""

TABLE_CELLS = 2**22
"""Most (tokens x parameters) cells tabulated at once: 32 MiB; larger calls go through in blocks."""


def distinct_experts(
    num_experts: ArrayLike,
    top_k: ArrayLike,
    tokens_per_sequence: ArrayLike,
    sequences: ArrayLike = 1,
    *,
    persistence: ArrayLike = 0.0,
    stickiness: ArrayLike = 0.0,
    popularity_cv: ArrayLike = 0.0,
) -> Array:
    r"""Routed experts of one layer that a step touches, on average.

    .. math:: U(B, n) = \sum_e\left[1 - P_{miss}(n \mid p_e)^B\right]
        \;\overset{cv = 0}{=}\; E\left[1 - P_{miss}(n \mid k/E)^B\right]

    Parameters
    ----------
    num_experts : array_like
        Routed experts in the layer E [experts].
    top_k : array_like
        Experts each token uses k [experts], above 0 and at most E.
    tokens_per_sequence : array_like
        Consecutive tokens n [tokens] each sequence feeds: 1 for plain decoding, γ + 1 for verification.
    sequences : array_like
        Independent sequences in the step B [sequences].
    persistence : array_like
        Correlation ρ [1] of the tokens of one request through its preferences.
    stickiness : array_like
        Probability s [1] that a token repeats what the token before it did.
    popularity_cv : array_like
        Coefficient of variation [1] of expert popularity over all traffic, below sqrt(E/k − 1).

    Returns
    -------
    ndarray or float64
        Expected distinct experts U [experts], broadcast: exactly k for one token of one sequence, at most E.

    Notes
    -----
    ρ = s = cv = 0 is independent uniform routing, E(1 − (1 − k/E)^(Bn)), an upper bound for real traffic.
    Popularity is a Beta(k/E, cv) over experts, summed by quadrature; an expert of popularity p
    keeps the same ρ and s around its own mean p. Real n interpolates as in :func:`expert_miss_probability`.

    Source: uniform routing is MoESD, arXiv 2505.19645, equation 8; sticky-persistent routing and popularity
    are derived in the latency-model equation sheet, section 3.

    Examples
    --------
    >>> float(distinct_experts(128, 8, 4))
    29.12
    >>> float(distinct_experts(128, 8, 4, persistence=0.2523, stickiness=0.1170))
    20.06
    """
    experts = quantity("num_experts", num_experts, low=1.0)
    chosen = quantity("top_k", top_k, strict=True)
    if np.any(chosen > experts):
        raise InputError(
            f"top_k must be at most num_experts, got {np.max(chosen):g} of {np.min(experts):g}; were they swapped?"
        )
    activation = chosen / experts
    tokens = quantity("tokens_per_sequence", tokens_per_sequence)
    batch = quantity("sequences", sequences)
    routing = _routing(persistence, stickiness)
    spread = quantity("popularity_cv", popularity_cv)
    if np.any(spread):
        touched = _touched_on_average(activation, spread, tokens, batch, *routing)
    else:
        touched = _touched(activation, tokens, batch, *routing)
    single = (tokens == 1.0) & (batch == 1.0)
    if single.any():  # k by definition, which E · (k/E) may miss in its last bit
        return np.where(single & ~np.isnan(touched), chosen, experts * touched)[()]
    return experts * touched


def expert_miss_probability(
    activation: ArrayLike, tokens: ArrayLike, *, persistence: ArrayLike = 0.0, stickiness: ArrayLike = 0.0
) -> Array:
    r"""Probability that n consecutive tokens of one request leave an expert untouched.

    .. math:: P = (1 - \pi)\,{}_2F_1(1 - n, a; a + b + 1; 1 - s), \quad
        a = \pi(1/\rho - 1),\; b = (1 - \pi)(1/\rho - 1)

    Parameters
    ----------
    activation : array_like
        Probability π [1] that a token uses the expert, k/E on average.
    tokens : array_like
        Consecutive tokens n [tokens].
    persistence : array_like
        Correlation ρ [1] of the tokens of one request through its preferences.
    stickiness : array_like
        Probability s [1] that a token repeats what the token before it did.

    Returns
    -------
    ndarray or float64
        Miss probability [1]: 1 for no tokens, 1 − π for one, falling and log-convex from there.

    Notes
    -----
    Exact for whole n. Between whole numbers log P is interpolated linearly, which is exact at ρ = 0 and else
    slightly high in P. At ρ = 0 the closed form (1 − π)(1 − (1 − s)π)^(n−1) serves any n; with ρ > 0 n is at
    most 4 194 304.

    Source: latency-model equation sheet, section 3 (derived); s = 0 is the beta-binomial of a Pólya urn.

    Examples
    --------
    >>> float(expert_miss_probability(0.0625, 4, persistence=0.2523, stickiness=0.1170))
    0.8433
    """
    probability = quantity("activation", activation, high=1.0)
    count = quantity("tokens", tokens)
    return np.exp(_log_miss(probability, count, *_routing(persistence, stickiness)))


def routing_overlap(
    activation: ArrayLike, lag: ArrayLike, *, persistence: ArrayLike = 0.0, stickiness: ArrayLike = 0.0
) -> Array:
    r"""Share of a token's experts that the token j places later uses too.

    .. math:: o_j = \pi + (1 - \pi)\left[\rho + (1 - \rho)s^j\right]

    Parameters
    ----------
    activation : array_like
        Probability π [1] that a token uses an expert, k/E.
    lag : array_like
        Distance j between the two tokens [tokens].
    persistence : array_like
        Correlation ρ [1] of the tokens of one request through its preferences.
    stickiness : array_like
        Probability s [1] that a token repeats what the token before it did.

    Returns
    -------
    ndarray or float64
        Expected overlap [1], from 1 at lag 0 down to π + (1 − π)ρ far away.

    Notes
    -----
    Exact for the routing model of this module with equally popular experts.

    Source: latency-model equation sheet, section 3 (derived).

    Examples
    --------
    >>> float(routing_overlap(0.0625, 1, persistence=0.2523, stickiness=0.1170))
    0.381
    """
    probability = quantity("activation", activation, high=1.0)
    rho, stick = _routing(persistence, stickiness)
    return probability + (1.0 - probability) * (rho + (1.0 - rho) * stick ** quantity("lag", lag))


def persistence_from_overlap(activation: ArrayLike, distant_overlap: ArrayLike) -> Array:
    r"""Infer persistence from how many experts distant tokens of one request share.

    .. math:: \rho = \frac{o_\infty - \pi}{1 - \pi}

    Parameters
    ----------
    activation : array_like
        Probability π [1] that a token uses an expert, k/E, below 1.
    distant_overlap : array_like
        Overlap [1] where it no longer falls with the lag, between π and 1.

    Returns
    -------
    ndarray or float64
        Persistence ρ [1].

    Notes
    -----
    Exact inverse of :func:`routing_overlap` for large lags; popularity skew, if any, counts as persistence.

    Source: latency-model equation sheet, section 3 (derived).

    Examples
    --------
    >>> float(persistence_from_overlap(8 / 128, 0.299))
    0.2523
    """
    probability = quantity("activation", activation, high=1.0)
    overlap = quantity("distant_overlap", distant_overlap, high=1.0)
    if np.any(overlap < probability) or np.any(probability == 1.0):
        raise InputError(
            "distant_overlap must be at least activation, which chance alone gives, and activation below 1, "
            f"got {np.min(overlap):g} and {np.max(probability):g}"
        )
    return (overlap - probability) / (1.0 - probability)


def stickiness_from_overlap(*, adjacent_overlap: ArrayLike, distant_overlap: ArrayLike) -> Array:
    r"""Infer stickiness from how much more neighbouring tokens share than distant ones.

    .. math:: s = \frac{o_1 - o_\infty}{1 - o_\infty}

    Parameters
    ----------
    adjacent_overlap : array_like
        Overlap of consecutive tokens [1], at least ``distant_overlap``.
    distant_overlap : array_like
        Overlap [1] where it no longer falls with the lag, below 1.

    Returns
    -------
    ndarray or float64
        Stickiness s [1].

    Notes
    -----
    Exact inverse of :func:`routing_overlap` at lag 1, whatever π and ρ.

    Source: latency-model equation sheet, section 3 (derived).

    Examples
    --------
    >>> float(stickiness_from_overlap(adjacent_overlap=0.381, distant_overlap=0.299))
    0.117
    """
    adjacent = quantity("adjacent_overlap", adjacent_overlap, high=1.0)
    distant = quantity("distant_overlap", distant_overlap, high=1.0)
    if np.any(adjacent < distant) or np.any(distant == 1.0):
        raise InputError(
            "adjacent_overlap must be at least distant_overlap, and that below 1, "
            f"got {np.min(adjacent):g} and {np.max(distant):g}"
        )
    return (adjacent - distant) / (1.0 - distant)


def _routing(persistence: ArrayLike, stickiness: ArrayLike) -> tuple[Array, Array]:
    return quantity("persistence", persistence, high=1.0), quantity("stickiness", stickiness, high=1.0)


def _touched(activation: Array, tokens: Array, sequences: Array, persistence: Array, stickiness: Array) -> Array:
    """Probability that any of B sequences of n tokens uses an expert: 1 − P^B without cancellation."""
    miss: Array = np.expm1(sequences * _log_miss(activation, tokens, persistence, stickiness))
    return -miss


def _touched_on_average(
    activation: Array,
    spread: Array,
    tokens: Array,
    sequences: Array,
    persistence: Array,
    stickiness: Array,
) -> Array:
    """Average :func:`_touched` over expert popularity, a few nodes at a time to keep memory flat."""
    nodes, weights = _popularity(activation, spread)
    arguments = (nodes[0], tokens, sequences, persistence, stickiness)
    shape = np.broadcast_shapes(*(np.shape(each) for each in arguments))
    aligned = (len(nodes), *(1,) * (len(shape) - nodes.ndim + 1), *nodes.shape[1:])
    nodes, weights = nodes.reshape(aligned), weights.reshape(aligned)
    step = max(1, BLOCK // max(1, math.prod(shape)))
    touched = np.zeros(shape)
    for i in range(0, len(nodes), step):
        at_nodes = _touched(nodes[i : i + step], tokens, sequences, persistence, stickiness)
        touched += (weights[i : i + step] * at_nodes).sum(axis=0)
    return touched


def _log_miss(activation: Array, tokens: Array, persistence: Array, stickiness: Array) -> Array:
    """Logarithm of the probability that n tokens of one sequence miss an expert."""
    if not np.any(persistence):
        with np.errstate(divide="ignore"):
            first = np.maximum(np.log1p(-activation), NEVER)
            later = np.maximum(np.log1p(-(1.0 - stickiness) * activation), NEVER)
        closed: Array = first * np.minimum(tokens, 1.0) + later * np.maximum(tokens - 1.0, 0.0)
        return closed
    longest = float(np.fmax.reduce(tokens, axis=None, initial=0.0))
    if longest > LONGEST_TABLE:
        raise InputError(
            f"tokens_per_sequence must be at most {LONGEST_TABLE} with persistence above 0, got {longest:g}; "
            "persistence 0 has a closed form for any number"
        )
    length = max(64, 1 << int(longest).bit_length())  # powers of 2: neighbouring calls share a table
    parameters = np.broadcast_arrays(activation, persistence, stickiness)
    if parameters[0].size == 1 or parameters[0].size * length <= TABLE_CELLS:
        return _lookup(length, tokens, *parameters)
    flat = [np.ravel(each) for each in np.broadcast_arrays(tokens, *parameters)]
    blocks = range(0, flat[0].size, max(1, TABLE_CELLS // length))
    result = np.concatenate([_lookup(length, *(each[i : i + blocks.step] for each in flat)) for i in blocks])
    return result.reshape(np.broadcast_shapes(np.shape(tokens), parameters[0].shape))


def _lookup(length: int, tokens: Array, activation: Array, persistence: Array, stickiness: Array) -> Array:
    """Read log P at ``tokens`` from a table over whole tokens; linear in between, NaN where tokens is NaN."""
    if activation.size <= FEW:
        table = _cached_table(length, *(each.tobytes() for each in (activation, persistence, stickiness)))
    else:
        table = _log_miss_table(length, activation.ravel(), persistence.ravel(), stickiness.ravel())
    columns = np.arange(activation.size).reshape(activation.shape)
    below = np.fmax(tokens, 0.0).astype(np.intp)
    part = tokens - below
    cell = below * activation.size + columns if activation.size > 1 else below
    log_miss: Array = table.take(cell)
    if np.any(part):
        log_miss = log_miss + part * (table.take(cell + activation.size) - log_miss)
    return log_miss


@lru_cache(maxsize=256)
def _cached_table(length: int, *raw: bytes) -> Array:
    parameters = [np.frombuffer(each) for each in raw]
    if len(parameters[0]) == 1:  # Python floats walk the recurrence ten times faster than arrays of one
        return _log_miss_table(length, *(each.item() for each in parameters))
    return _log_miss_table(length, *parameters)


def _log_miss_table(
    length: int, activation: Array | float, persistence: Array | float, stickiness: Array | float
) -> Array:
    """Tabulate log P for 0 .. length tokens (first axis) by the hazard recurrence of the module docstring."""
    redraw = activation * (1.0 - persistence) * (1.0 - stickiness)
    repeat = persistence * stickiness
    hazard = redraw
    hazards = [0.0 * redraw, activation + 0.0 * redraw, hazard]
    for m in range(1, length - 1):
        # The smallest offset makes 0/0 at certain use (hazard 1, nothing left to miss) a harmless 0 · big.
        hazard = (redraw + repeat * m * (hazard / (1.0 - hazard + 1e-300))) / (1.0 + m * persistence)
        hazards.append(hazard)
    with np.errstate(divide="ignore"):
        steps = np.maximum(np.log1p(-np.minimum(np.array(hazards), 1.0)), NEVER)
    log_miss: Array = np.maximum(np.cumsum(steps, axis=0), NEVER)
    return log_miss


def _popularity(activation: Array, spread: Array) -> tuple[Array, Array]:
    """Popularities and weights of a Beta(activation, spread) over experts; the first axis runs over nodes."""
    mean, cv = np.broadcast_arrays(activation, spread)
    if np.any((mean * (1.0 + cv * cv) >= 1.0) & (cv > 0.0)):
        raise InputError(
            f"popularity_cv must be below sqrt(num_experts/top_k - 1), got {np.max(cv):g}; "
            "there an expert is used by every token or by none"
        )
    pairs, where = np.unique(np.stack([mean.ravel(), cv.ravel()]), axis=1, return_inverse=True)
    rules = [_beta_rule(p.item(), c.item()) for p, c in pairs.T]
    longest = max(rule.shape[1] for rule in rules)
    # Shorter rules are filled up with experts that nobody uses.
    padded = np.array([np.pad(rule, ((0, 0), (0, longest - rule.shape[1]))) for rule in rules])
    nodes, weights = np.moveaxis(padded[where.ravel()].reshape(*mean.shape, 2, longest), (-2, -1), (0, 1))
    return nodes, weights


@lru_cache(maxsize=256)
def _beta_rule(mean: float, cv: float) -> Array:
    """Nodes and weights [2, nodes] that average over a Beta distribution of expert popularity p.

    The trapezoidal rule in log-odds t = log(p/(1 − p)): there the density is smooth however skewed p is, and
    the rule converges exponentially. Weights are scaled to the mean instead of to 1, since an expert with
    p = 0 contributes nothing and its mass need not be resolved.
    """
    if not (cv > 1e-7 and mean > 0.0):  # an effect below cv² = 1e-14 is no effect; NaN stays NaN
        return np.array([[mean + 0.0 * cv], [1.0]])
    total = (1.0 - mean) / (mean * cv * cv) - 1.0
    a, b = mean * total + 1.0, (1.0 - mean) * total  # exponents of p · density · dp/dt = p^a (1 − p)^b
    middle = math.log(a / b)

    def log_density(t: Array | float) -> Array:
        density: Array = -a * np.logaddexp(0.0, -t) - b * np.logaddexp(0.0, t)
        return density

    # Concave, with slopes −b and a far out: step outwards by Newton until the tail is negligible.
    peak, width = float(log_density(middle)), math.sqrt((a + b) / (a * b))
    ends = []
    for side in (-1.0, 1.0):
        t = middle + side * width
        for _ in range(40):
            p = 1.0 / (1.0 + math.exp(-t))
            t -= (float(log_density(t)) - peak + POPULARITY_TAIL) / (a - (a + b) * p)
        ends.append(t)
    count = math.ceil((ends[1] - ends[0]) / min(POPULARITY_STEP, 0.8 * width)) + 1
    odds = np.linspace(ends[0], ends[1], count)
    share = np.exp(log_density(odds) - peak)
    nodes = 1.0 / (1.0 + np.exp(-odds))
    return np.array([nodes, mean * share / (nodes * share.sum())])
