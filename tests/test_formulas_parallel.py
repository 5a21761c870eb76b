"""Laws of imbalance and collectives, and the published measurements they were fitted to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latency_model.errors import InputError
from latency_model.formulas import (
    all_reduce_time,
    all_to_all_time,
    busiest_rank_experts,
    hot_expert_imbalance,
    rank_imbalance,
)

splits = st.integers(0, 5).flatmap(
    lambda power: st.tuples(st.just(2**power), st.integers(1, 16).map(lambda each: each * 2**power))
)


@given(splits, st.floats(0.0, 1.0))
def test_hot_expert_imbalance_equals_counting_loads(split, extra):
    ranks, experts = split
    share = 1.0 / experts + extra * (1.0 - 1.0 / experts)
    loads = np.full(experts, (1.0 - share) / max(experts - 1, 1))
    loads[0] = share
    per_rank = loads.reshape(ranks, -1).sum(axis=1)
    assert hot_expert_imbalance(share, experts, ranks) == pytest.approx(per_rank.max() / per_rank.mean())


@given(splits)
def test_an_even_expert_is_no_hot_spot_and_a_greedy_one_idles_all_other_ranks(split):
    ranks, experts = split
    assert hot_expert_imbalance(1.0 / experts, experts, ranks) == pytest.approx(1.0)
    assert hot_expert_imbalance(1.0, experts, ranks) == pytest.approx(ranks)


def test_one_expert_on_one_rank_is_balanced():
    assert hot_expert_imbalance(1.0, 1, 1) == 1.0
    assert rank_imbalance(3.0, 1, 1, 100) == 1.0


def test_more_ranks_than_experts_is_a_sentence():
    sentence = "ranks must be at most num_experts, got 16 for 8 experts"
    with pytest.raises(InputError, match=sentence):
        hot_expert_imbalance(0.5, 8, 16)
    with pytest.raises(InputError, match=sentence):
        rank_imbalance(1.0, 8, 16, 9)


def test_rank_imbalance_is_the_largest_of_random_ranks():
    # Simulation: gamma loads per expert with the given cv, Poisson counts, 16 experts a rank.
    generator = np.random.default_rng(3)
    experts, ranks, cv, tokens = 256, 16, 0.4, 2000.0
    loads = generator.gamma(1 / cv**2, cv**2, size=(4000, ranks, experts // ranks)).mean(axis=2)
    counts = generator.poisson(tokens * loads)
    simulated = (counts.max(axis=1) / counts.mean(axis=1)).mean()
    # sqrt(2 ln G) bounds the expected maximum of G Gaussians from above, by a fifth of the excess at this G.
    predicted = float(rank_imbalance(cv, experts, ranks, tokens))
    assert simulated - 1.0 < predicted - 1.0 < 1.4 * (simulated - 1.0)


def test_measured_imbalance_of_balanced_layouts():
    # TensorRT-LLM tech blog 4, Table 1: DeepSeek-R1 decode, 1024 tokens a rank; (std, max / mean).
    # The spread of ranks is given there, so one expert a rank with that spread isolates the maximum.
    for ranks, spread, measured in ((32, 52.0, 1.109), (36, 53.9, 1.115)):
        predicted = rank_imbalance(spread / 1024, ranks, ranks, np.inf)
        assert predicted == pytest.approx(measured, rel=0.03)


def test_measured_rank_spread_follows_from_the_spread_of_experts():
    # Same table, without load balancing: 256 experts with std 164.1 around 128 tokens, 32 ranks, rank std 491.6.
    excess = float(rank_imbalance(164.1 / 128, 256, 32, 1024)) - 1.0
    assert excess / np.sqrt(2 * np.log(32)) == pytest.approx(491.6 / 1024, rel=0.06)


sizes, bandwidths, delays = st.floats(0.0, 1e12), st.floats(1e9, 1e12), st.floats(1e-7, 1e-3)


@given(sizes, st.integers(2, 64), bandwidths, delays, st.floats(0.3, 1.0))
def test_all_reduce_is_bounded_by_its_parts_and_slower_than_their_sum_below_one(size, ranks, beta, alpha, p):
    link = {"link_bandwidth": beta, "latency": alpha}
    time = all_reduce_time(size, ranks, **link, sharpness=p)
    linear = all_reduce_time(size, ranks, **link)
    assert linear == pytest.approx(alpha + 2 * (ranks - 1) / ranks * size / beta)
    assert time >= linear * (1 - 1e-12)
    assert time <= linear * 2 ** (1 / p - 1) * (1 + 1e-12)


@given(sizes, bandwidths, delays, st.floats(0.3, 4.0))
def test_one_rank_talks_to_nobody(size, beta, alpha, p):
    assert all_reduce_time(size, 1, link_bandwidth=beta, latency=alpha, sharpness=p) == 0.0
    assert all_to_all_time(size, 1, link_bandwidth=beta, latency=alpha) == 0.0


@given(sizes, st.integers(2, 512), bandwidths, delays)
def test_all_to_all_runs_from_latency_alone_to_everything_remote(size, ranks, beta, alpha):
    link = {"link_bandwidth": beta, "latency": alpha}
    assert all_to_all_time(size, ranks, **link, local=ranks) == alpha
    assert all_to_all_time(size, ranks, **link, local=2 * ranks) == alpha
    assert all_to_all_time(size, ranks, **link, local=0) == pytest.approx(alpha + size / beta)
    assert all_to_all_time(size, ranks, **link) <= all_to_all_time(size, 2 * ranks, **link) * (1 + 1e-12)


def test_deepep_low_latency_dispatch():
    # DeepEP docs/legacy.md (commit dd758ca): H800, 128 tokens a rank, hidden 7168 in FP8, top-8; microseconds.
    ranks = np.array([16, 32, 64, 128, 256])
    measured = np.array([118, 155, 173, 192, 194])
    predicted = all_to_all_time(7.57e6, ranks, link_bandwidth=50e9, latency=44e-6, local=8) * 1e6
    np.testing.assert_allclose(predicted, measured, rtol=0.04)


@given(splits, st.floats(0.0, 1.0))
def test_busiest_rank_lies_between_the_mean_and_everything(split, fraction):
    ranks, experts = split
    touched = fraction * experts
    fullest = busiest_rank_experts(touched, experts, ranks)
    assert touched / ranks * (1 - 1e-12) <= fullest <= min(touched, experts / ranks) * (1 + 1e-12)
    assert busiest_rank_experts(touched, experts, 1) == pytest.approx(touched)
    assert busiest_rank_experts(experts, experts, ranks) == pytest.approx(experts / ranks)


@pytest.mark.parametrize("ranks", [2, 4, 8, 32])
@pytest.mark.parametrize("tokens", [1, 4, 16, 64])
def test_busiest_rank_against_simulated_routing(ranks, tokens):
    rng = np.random.default_rng(ranks * 100 + tokens)
    experts, chosen, draws = 256, 8, 1500
    touched = np.zeros((draws, experts), dtype=bool)
    for _ in range(tokens):
        picks = np.argpartition(rng.random((draws, experts)), chosen, axis=1)[:, :chosen]
        np.put_along_axis(touched, picks, True, axis=1)
    simulated = touched.reshape(draws, ranks, -1).sum(axis=2).max(axis=1).mean()
    predicted = busiest_rank_experts(touched.sum(axis=1).mean(), experts, ranks)
    assert predicted == pytest.approx(simulated, rel=0.05)
