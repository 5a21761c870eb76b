"""Routing drawn from the sticky-persistent model comes back; a real router's unions are predicted."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

import latency_model.evidence
from latency_model.errors import InputError
from latency_model.evidence.routing_trace import fit_routing, measured_unions, popularity_cv
from latency_model.formulas.routing import distinct_experts

DATA = Path(latency_model.evidence.__file__).parent / "published" / "data"


def drawn_trace(persistence: float, stickiness: float, *, sequences: int = 400, tokens: int = 48) -> np.ndarray:
    """Top-2 of 16 experts, scores with a share that stays for a request and one that stays from token to token."""
    rng = np.random.default_rng(3)
    shape = (1, sequences, tokens, 16)
    fresh = rng.standard_normal(shape)
    kept = rng.standard_normal((1, sequences, 1, 16))
    for token in range(1, tokens):
        stays = rng.random((1, sequences, 1)) < stickiness
        fresh[:, :, token] = np.where(stays, fresh[:, :, token - 1], fresh[:, :, token])
    return (np.sqrt(persistence) * kept + np.sqrt(1 - persistence) * fresh).argsort(axis=-1)[..., -2:]


@pytest.mark.parametrize(("persistence", "stickiness"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.4), (0.3, 0.4)])
def test_what_requests_and_neighbours_share_ends_up_in_its_own_parameter(persistence: float, stickiness: float) -> None:
    fit = fit_routing(drawn_trace(persistence, stickiness), 16).pooled
    assert (fit.persistence > 0.03) == (persistence > 0)
    assert fit.stickiness == pytest.approx(stickiness, abs=0.06)
    assert fit.error < 0.02
    assert fit.popularity_cv < 0.05


def test_fitted_unions_of_many_sequences_match_drawn_ones() -> None:
    trace = drawn_trace(0.2, 0.3)
    fit = fit_routing(trace, 16).pooled
    for sequences, tokens in ((1, 4), (4, 4), (2, 16), (16, 2)):
        seen, error = measured_unions(trace[0], 16, tokens_per_sequence=tokens, sequences=sequences, draws=500)
        assert float(fit.distinct_experts(tokens, sequences)) == pytest.approx(seen, abs=4 * error + 0.02 * seen)


def test_popularity_is_told_from_the_noise_of_a_short_trace() -> None:
    rng = np.random.default_rng(0)
    even = rng.random((30, 8, 32)).argsort(axis=-1)[..., :4]
    counts = np.bincount(even.ravel(), minlength=32)
    assert popularity_cv(even, 32) < 0.5 * counts.std() / counts.mean()
    skewed = (rng.random((300, 8, 32)) ** np.linspace(0.3, 3.0, 32)).argsort(axis=-1)[..., -4:]
    counts = np.bincount(skewed.ravel(), minlength=32)
    assert popularity_cv(skewed, 32) == pytest.approx(counts.std() / counts.mean(), rel=0.02)


def test_unions_of_a_real_router_are_predicted_from_its_single_sequences() -> None:
    # small_moe_unions.csv: 224 measured U(B, n), B to 64 and n to 16, over four layers, positions 32 to 191.
    with np.load(DATA / "small_moe_routing_trace.npz") as archive:
        experts = int(archive["num_experts"])
        fit = fit_routing(archive["expert_ids"][:, :, 32:], experts)
    lines = (DATA / "small_moe_unions.csv").read_text().splitlines()
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    by_vector, by_cv, uniform = [], [], []
    for row in rows:
        layer = fit.layers[int(row["layer"])]
        tokens, sequences, seen = (float(row[key]) for key in ("tokens_per_sequence", "sequences", "distinct_experts"))
        by_vector.append(layer.distinct_experts(tokens, sequences) / seen)
        routing = layer.routing
        by_cv.append(
            distinct_experts(
                experts,
                layer.top_k,
                tokens,
                sequences,
                persistence=routing.persistence,
                stickiness=routing.stickiness,
                popularity_cv=routing.popularity_cv,
            )
            / seen
        )
        uniform.append(distinct_experts(experts, layer.top_k, tokens, sequences) / seen)
    errors = np.abs(np.array([by_vector, by_cv, uniform]) - 1.0)
    assert np.median(errors[0]) <= 0.002
    assert errors[0].max() <= 0.02
    assert np.median(errors[1]) <= 0.003
    assert errors[1].max() <= 0.03
    assert errors[2].max() >= 0.15  # what both parameters are for


def test_short_sequences_are_refused() -> None:
    with pytest.raises(InputError, match="4 tokens"):
        fit_routing(np.zeros((1, 2, 3, 1), dtype=int), 4)
