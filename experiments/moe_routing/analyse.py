"""Distinct experts that B sequences of n tokens touch: measured in a routing trace, and predicted from less."""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from latency_model.evidence.routing_trace import LayerRouting, fit_routing
from latency_model.formulas import distinct_experts, persistence_from_overlap, stickiness_from_overlap

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.integer]

SEQUENCES = np.array([1, 2, 4, 8, 16, 32, 64])
TOKENS = np.array([1, 2, 3, 4, 6, 8, 12, 16, 32])
LONGEST_FITTED = 16  # no fit sees longer unions: 32 is extrapolation
LAGS = np.array([1, 2, 3, 4, 8, 16, 32])


def measured_unions(
    expert_ids: IntArray, num_experts: int, *, sequences: IntArray = SEQUENCES, tokens: IntArray = TOKENS
) -> FloatArray:
    r"""Mean distinct experts over all sets of B different sequences, each with a random window of n tokens.

    .. math:: U(B, n) = \sum_e \Bigl[1 - \binom{S}{B}^{-1} \sum_{|b| = B} \prod_{i \in b} m_{ie}(n)\Bigr]

    with m the share of the windows of sequence i that miss expert e.  The mean product is built up sequence by
    sequence: of the sets of j among the first i, the share j/i contains the i-th.  Exact: what the mean of random
    draws would tend to.

    Parameters
    ----------
    expert_ids : ndarray of int
        Experts of one layer, shape [sequence, token, top-k].
    num_experts : int
        Experts of the layer E.
    sequences, tokens : ndarray of int
        B, at most the sequences there are, and n.

    Returns
    -------
    ndarray
        Distinct experts, shape [B, n].
    """
    size = np.arange(1, sequences.max() + 1)[:, None, None]
    product = np.zeros((size.size + 1, tokens.size, num_experts))
    product[0] = 1.0
    for i, miss in enumerate(_miss_shares(expert_ids, num_experts, tokens), start=1):
        product[1:] += np.minimum(size / i, 1.0) * (miss * product[:-1] - product[1:])
    return (1.0 - product[sequences]).sum(axis=-1)


def _miss_shares(expert_ids: IntArray, num_experts: int, tokens: IntArray) -> FloatArray:
    """Share of each sequence's windows of n consecutive tokens that miss an expert, shape [sequence, n, expert]."""
    before = np.pad(_used(expert_ids, num_experts).cumsum(axis=1), ((0, 0), (1, 0), (0, 0)))
    return np.stack([(before[:, n:] == before[:, :-n]).mean(axis=1) for n in tokens], axis=1)


def _used(expert_ids: IntArray, num_experts: int) -> NDArray[np.int32]:
    """1 where a token uses an expert, shape [sequence, token, expert]."""
    used = np.zeros((*expert_ids.shape[:2], num_experts), dtype=np.int32)
    np.put_along_axis(used, expert_ids.astype(np.intp), 1, axis=-1)
    return used


def measured_overlaps(expert_ids: IntArray, num_experts: int, lags: IntArray = LAGS) -> FloatArray:
    """Share of a token's experts that the token a lag later uses too, shape [lags]."""
    used = _used(expert_ids, num_experts)
    both = [np.logical_and(used[:, lag:], used[:, :-lag]).sum(axis=-1).mean() for lag in lags]
    return np.array(both) / expert_ids.shape[-1]


def predicted_overlaps(layer: LayerRouting) -> FloatArray:
    r"""Overlaps by lag, :math:`\sum_e p_e [p_e + (1 - p_e)(\rho + (1 - \rho) s^j)] / k`, shape [LAGS]."""
    by_chance = np.sum(layer.popularity**2) / layer.top_k
    alike = layer.persistence + (1.0 - layer.persistence) * layer.stickiness**LAGS
    return by_chance + (1.0 - by_chance) * alike


def fit_overlaps(layer: LayerRouting, expert_ids: IntArray) -> LayerRouting:
    """The same layer with ρ and s from overlaps: of neighbours, and of tokens half a sequence or more apart."""
    half = expert_ids.shape[1] // 2
    lags = np.arange(half, 2 * half)
    overlaps = measured_overlaps(expert_ids, layer.popularity.size, np.array([1, *lags]))
    by_chance = np.sum(layer.popularity**2) / layer.top_k
    # In a finite trace tokens that have nothing to do with each other may agree less than chance has it.
    distant = max(np.average(overlaps[1:], weights=expert_ids.shape[1] - lags), by_chance)
    adjacent = max(overlaps[0], distant)
    return attrs.evolve(
        layer,
        persistence=float(persistence_from_overlap(by_chance, distant)),
        stickiness=float(stickiness_from_overlap(adjacent_overlap=adjacent, distant_overlap=distant)),
    )


def fit_equal_popularity(unions: FloatArray, num_experts: int, top_k: int) -> tuple[float, float]:
    """ρ and s of experts taken as equally popular, from unions of single sequences, shape [TOKENS]."""
    fitted = (TOKENS > 1) & (TOKENS <= LONGEST_FITTED)

    def residuals(numbers: FloatArray) -> FloatArray:
        persistence, stickiness = numbers
        predicted = distinct_experts(num_experts, top_k, TOKENS[fitted], persistence=persistence, stickiness=stickiness)
        return np.log(predicted / unions[fitted])

    persistence, stickiness = least_squares(residuals, x0=(0.1, 0.1), bounds=((0.0, 0.0), (0.999, 1.0))).x
    return float(persistence), float(stickiness)


def predicted_unions(
    layer: LayerRouting, from_overlaps: LayerRouting, equal: tuple[float, float]
) -> dict[str, FloatArray]:
    """Distinct experts by how much is known of the routing, each of shape [SEQUENCES, TOKENS]."""
    batch = SEQUENCES[:, None]

    def by_formula(persistence: float, stickiness: float, popularity_cv: float) -> FloatArray:
        return distinct_experts(
            layer.popularity.size,
            layer.top_k,
            TOKENS,
            batch,
            persistence=persistence,
            stickiness=stickiness,
            popularity_cv=popularity_cv,
        )

    return {
        "uniform": by_formula(0.0, 0.0, 0.0),
        "popularity": attrs.evolve(layer, persistence=0.0, stickiness=0.0).distinct_experts(TOKENS, batch),
        "equal": by_formula(*equal, 0.0),
        "spread": by_formula(layer.persistence, layer.stickiness, layer.popularity_cv),
        "overlaps": from_overlaps.distinct_experts(TOKENS, batch),
        "unions": layer.distinct_experts(TOKENS, batch),
    }


def analyse(expert_ids: IntArray, num_experts: int) -> dict[str, list[dict[str, float]]]:
    """Rows of three tables: fitted numbers, distinct experts and overlaps, for each layer.

    ``expert_ids`` are of shape [layer, sequence, token, top-k].  Of the columns of distinct experts, ``first`` and
    ``second`` are measured in either half of the sequences; ``from_first`` and ``from_second`` are what a fit to
    that half predicts.
    """
    tables: dict[str, list[dict[str, float]]] = {"fits": [], "unions": [], "overlaps": []}
    halves = np.split(expert_ids, [expert_ids.shape[1] // 2], axis=1)
    fits, first_fits, second_fits = (fit_routing(ids, num_experts).layers for ids in (expert_ids, *halves))
    for i, (ids, first, second) in enumerate(zip(expert_ids, *halves, strict=True)):
        measured = measured_unions(ids, num_experts)
        layer, from_overlaps = fits[i], fit_overlaps(fits[i], ids)
        equal = fit_equal_popularity(measured[0], num_experts, ids.shape[-1])
        numbers = {
            "persistence": layer.persistence,
            "stickiness": layer.stickiness,
            "popularity_cv": layer.popularity_cv,
            "overlap_persistence": from_overlaps.persistence,
            "overlap_stickiness": from_overlaps.stickiness,
            "equal_persistence": equal[0],
            "equal_stickiness": equal[1],
        }
        unions = {
            "measured": measured,
            **predicted_unions(layer, from_overlaps, equal),
            "first": measured_unions(first, num_experts),
            "second": measured_unions(second, num_experts),
            "from_first": first_fits[i].distinct_experts(TOKENS, SEQUENCES[:, None]),
            "from_second": second_fits[i].distinct_experts(TOKENS, SEQUENCES[:, None]),
        }
        overlaps = {
            "measured": measured_overlaps(ids, num_experts),
            "from_unions": predicted_overlaps(layer),
            "from_overlaps": predicted_overlaps(from_overlaps),
        }
        tables["fits"].append({"layer": i, **numbers})
        tables["unions"] += [
            {"layer": i, "sequences": SEQUENCES[at[0]], "tokens": TOKENS[at[1]]}
            | {name: values[at] for name, values in unions.items()}
            for at in np.ndindex(SEQUENCES.size, TOKENS.size)
        ]
        tables["overlaps"] += [
            {"layer": i, "lag": lag, **{name: values[at] for name, values in overlaps.items()}}
            for at, lag in enumerate(LAGS)
        ]
    return tables
