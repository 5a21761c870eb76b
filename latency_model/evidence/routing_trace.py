"""From a trace of routed experts to (persistence, stickiness, popularity), per layer and pooled.

Single sequences tell how alike the choices of one request are, the whole trace how popular each expert is; together
they predict what many sequences of many tokens load.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

from latency_model.errors import InputError
from latency_model.formulas.routing import expert_miss_probability
from latency_model.specs.routing import Routing

__all__ = ["LayerRouting", "RoutingFit", "fit_routing", "measured_unions", "popularity_cv"]

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]

#: Window lengths whose unions are fitted [token]: the lengths that verification feeds.
WINDOWS = (2, 3, 4, 6, 8, 12, 16)
LARGEST_PERSISTENCE = 0.999  # at 1 a request never changes its experts and stickiness has no meaning


@frozen(kw_only=True, eq=False)
class LayerRouting:
    """Routing of one layer, or of several that share persistence and stickiness.

    Parameters
    ----------
    top_k : int
        Experts per token k [1].
    persistence, stickiness : float
        ρ and s of the sticky-persistent model [1].
    standard_errors : tuple of float
        Of both [1], from the spread of the fit; inf where the trace cannot tell.
    popularity : ndarray
        Probability that a token uses each expert, shape [experts]; sums to k.
    popularity_cv : float
        Its coefficient of variation with the noise of a finite trace taken out [1].
    error : float
        Largest relative error of the fitted single-sequence unions [1].
    """

    top_k: int
    persistence: float
    stickiness: float
    standard_errors: tuple[float, float]
    popularity: FloatArray = field(repr=False)
    popularity_cv: float
    error: float

    @property
    def routing(self) -> Routing:
        """The same as the step model takes it: popularity by its coefficient of variation."""
        return Routing(persistence=self.persistence, stickiness=self.stickiness, popularity_cv=self.popularity_cv)

    def distinct_experts(self, tokens_per_sequence: ArrayLike, sequences: ArrayLike = 1) -> FloatArray:
        """Experts touched, U(B, n) = Σ_e [1 − P_miss(n | p_e)^B] with the popularity of each expert [experts]."""
        return _unions(self.popularity, tokens_per_sequence, sequences, self.persistence, self.stickiness)


@frozen(kw_only=True, eq=False)
class RoutingFit:
    """Fits of each layer, and one persistence and stickiness for all of them."""

    layers: tuple[LayerRouting, ...]
    pooled: LayerRouting


def fit_routing(expert_ids: IntArray, num_experts: int) -> RoutingFit:
    r"""Fit persistence and stickiness to the unions of single sequences, given each expert's popularity.

    .. math:: \min_{\rho, s} \sum_{n} \left[ \ln \frac{\sum_e 1 - P_{miss}(n \mid p_e, \rho, s)}{U(1, n)} \right]^2

    Parameters
    ----------
    expert_ids : ndarray of int
        Experts chosen, shape [layers, sequences, tokens, top-k].
    num_experts : int
        Routed experts of a layer E [1].

    Returns
    -------
    RoutingFit
        Per layer, and pooled over layers.

    Notes
    -----
    Needs sequences of four tokens or more: two unions for two numbers.  Source: latency-model equation sheet,
    section 3 (derived).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> uniform = rng.random((1, 200, 32, 16)).argsort(axis=-1)[..., :2]  # 2 of 16 experts, independently
    >>> fit = fit_routing(uniform, 16)
    >>> fit.pooled.persistence < 0.01 and fit.pooled.stickiness < 0.02
    True
    """
    if expert_ids.shape[2] < 4:
        raise InputError(f"a routing trace needs sequences of 4 tokens or more, got {expert_ids.shape[2]}")
    windows = np.array([n for n in WINDOWS if n <= expert_ids.shape[2]])
    popularities = [_popularity(layer, num_experts) for layer in expert_ids]
    spreads = [popularity_cv(layer, num_experts) for layer in expert_ids]
    unions = [_single_sequence_unions(layer, num_experts, windows) for layer in expert_ids]
    top_k = expert_ids.shape[-1]
    layers = tuple(
        _fit([popularity], [union], windows, top_k, spread)
        for popularity, union, spread in zip(popularities, unions, spreads, strict=True)
    )
    pooled = _fit(popularities, unions, windows, top_k, float(np.sqrt(np.mean(np.square(spreads)))))
    return RoutingFit(layers=layers, pooled=pooled)


def _fit(
    popularities: Sequence[FloatArray], unions: Sequence[FloatArray], windows: IntArray, top_k: int, spread: float
) -> LayerRouting:
    from scipy.optimize import least_squares

    measured = np.concatenate(unions)

    def residuals(parameters: FloatArray) -> FloatArray:
        predicted = [_unions(popularity, windows, 1, *parameters) for popularity in popularities]
        return np.asarray(np.log(np.concatenate(predicted) / measured))

    found = least_squares(residuals, x0=(0.1, 0.1), bounds=((0.0, 0.0), (LARGEST_PERSISTENCE, 1.0)), x_scale=0.1)
    return LayerRouting(
        top_k=top_k,
        persistence=float(found.x[0]),
        stickiness=float(found.x[1]),
        standard_errors=_standard_errors(found.jac, found.fun),
        # Experts have no identity across layers: pooled, the layers' experts stand side by side.
        popularity=np.mean(np.sort(popularities, axis=-1), axis=0),
        popularity_cv=spread,
        error=float(np.max(np.abs(np.expm1(found.fun)))),
    )


def _standard_errors(jacobian: FloatArray, residuals: FloatArray) -> tuple[float, float]:
    freedom = residuals.size - 2
    information = jacobian.T @ jacobian
    if freedom < 1 or np.linalg.cond(information) > 1e12:
        return np.inf, np.inf
    variance = residuals @ residuals / freedom * np.diag(np.linalg.inv(information))
    persistence, stickiness = np.sqrt(variance)
    return float(persistence), float(stickiness)


def _unions(
    popularity: FloatArray, tokens: ArrayLike, sequences: ArrayLike, persistence: float, stickiness: float
) -> FloatArray:
    counts, batch = np.asarray(tokens), np.asarray(sequences)
    miss = expert_miss_probability(popularity, counts[..., None], persistence=persistence, stickiness=stickiness)
    return np.asarray((1.0 - miss ** batch[..., None]).sum(axis=-1))


def _popularity(layer: IntArray, num_experts: int) -> FloatArray:
    """Share of tokens that use each expert, shape [experts]."""
    tokens = layer.shape[0] * layer.shape[1]
    return np.asarray(np.bincount(layer.ravel(), minlength=num_experts) / tokens)


def popularity_cv(layer: IntArray, num_experts: int) -> float:
    """Coefficient of variation of expert popularity, the noise of a finite trace taken out [1].

    Parameters
    ----------
    layer : ndarray of int
        Experts chosen in one layer, shape [sequences, tokens, top-k].
    num_experts : int
        Routed experts E [1].

    Returns
    -------
    float
        sqrt(variance over experts − noise) / mean, 0 where noise explains everything; the noise of each share is
        its variance between sequences over their number, since tokens of one sequence are alike.
    """
    sequences = layer.shape[0]
    shares = np.stack([np.bincount(ids.ravel(), minlength=num_experts) for ids in layer]) / layer.shape[1]
    mean = shares.mean(axis=0)
    noise = shares.var(axis=0, ddof=1).mean() / sequences if sequences > 1 else 0.0
    return float(np.sqrt(max(mean.var() - noise, 0.0)) / mean.mean())


def _single_sequence_unions(layer: IntArray, num_experts: int, windows: IntArray) -> FloatArray:
    """Mean distinct experts of n consecutive tokens, over windows that do not overlap, shape [windows]."""
    _, tokens, top_k = layer.shape
    means = []
    for n in windows:
        whole = layer[:, : tokens - tokens % n].reshape(-1, n * top_k)
        means.append(_distinct(whole, num_experts).mean())
    return np.array(means)


def _distinct(ids: IntArray, num_experts: int) -> IntArray:
    """Distinct ids in each row, shape [rows]."""
    seen = np.zeros((len(ids), num_experts), dtype=bool)
    seen[np.arange(len(ids))[:, None], ids] = True
    return np.asarray(seen.sum(axis=-1))


def measured_unions(
    layer: IntArray, num_experts: int, *, tokens_per_sequence: int, sequences: int, draws: int = 1500, seed: int = 0
) -> tuple[float, float]:
    """Mean distinct experts of B random sequences of n consecutive tokens, and its standard error.

    Parameters
    ----------
    layer : ndarray of int
        Experts chosen in one layer, shape [sequences, tokens, top-k].
    num_experts : int
        Routed experts E [1].
    tokens_per_sequence, sequences : int
        n [token] and B [1].
    draws, seed : int
        Random draws [1] and where they begin.

    Returns
    -------
    tuple of float
        Distinct experts, standard error [experts].
    """
    available, length, _ = layer.shape
    if sequences > available or tokens_per_sequence > length:
        raise InputError(
            f"the trace has {available} sequences of {length} tokens; {sequences} of {tokens_per_sequence} were asked"
        )
    rng = np.random.default_rng(seed)
    counts = np.empty(draws)
    for draw in range(draws):
        rows = rng.choice(available, size=sequences, replace=False)
        starts = rng.integers(0, length - tokens_per_sequence + 1, size=sequences)
        window = starts[:, None] + np.arange(tokens_per_sequence)
        counts[draw] = np.unique(layer[rows[:, None], window]).size
    return float(counts.mean()), float(counts.std(ddof=1) / np.sqrt(draws))
