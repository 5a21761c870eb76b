"""Experts touched: exact polynomials, Monte Carlo, limits and laws, and published and measured unions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import integrate, stats
from strategies import batches, expert_layouts, inner_probabilities, probabilities, token_counts

from latency_model.errors import InputError
from latency_model.formulas import (
    distinct_experts,
    expert_miss_probability,
    persistence_from_overlap,
    routing_overlap,
    stickiness_from_overlap,
)
from latency_model.formulas import routing as room


def polynomial(activation, tokens, persistence, stickiness):
    """(1 − π) 2F1(1 − n, a; a + b + 1; 1 − s) term by term in exact fractions."""
    pi, rho, stick = Fraction(activation), Fraction(persistence), Fraction(stickiness)
    a, b = pi * (1 / rho - 1), (1 - pi) * (1 / rho - 1)
    term = total = Fraction(1)
    for j in range(tokens - 1):
        term *= (1 - tokens + j) * (a + j) / ((a + b + 1 + j) * (j + 1)) * (1 - stick)
        total += term
    return float((1 - pi) * total)


@given(st.floats(0.0, 1.0), token_counts, st.floats(1e-6, 1.0), probabilities)
def test_miss_probability_equals_the_hypergeometric_polynomial(activation, tokens, persistence, stickiness):
    found = expert_miss_probability(activation, tokens, persistence=persistence, stickiness=stickiness)
    exact = polynomial(activation, tokens, persistence, stickiness)
    # Experts used all but always (π within 1e-16 of 1) lose relative, not absolute, accuracy.
    assert found == pytest.approx(exact, rel=1e-12, abs=1e-20)


@given(inner_probabilities, token_counts, inner_probabilities)
def test_without_stickiness_it_is_the_beta_binomial(activation, tokens, persistence):
    total = 1.0 / persistence - 1.0
    b = (1.0 - activation) * total
    logarithm = math.lgamma(b + tokens) + math.lgamma(total) - math.lgamma(b) - math.lgamma(total + tokens)
    found = expert_miss_probability(activation, tokens, persistence=persistence)
    assert found == pytest.approx(math.exp(logarithm), rel=1e-9)


@given(probabilities, token_counts, probabilities)
def test_vanishing_persistence_joins_the_closed_form(activation, tokens, stickiness):
    closed = (1.0 - activation) * (1.0 - (1.0 - stickiness) * activation) ** (tokens - 1)
    without = expert_miss_probability(activation, tokens, stickiness=stickiness)
    assert without == pytest.approx(closed, abs=1e-14)
    near = expert_miss_probability(activation, tokens, persistence=1e-12, stickiness=stickiness)
    assert near == pytest.approx(closed, abs=1e-9)


@given(probabilities, token_counts, probabilities)
def test_perfect_memory_makes_every_token_repeat_the_first(activation, tokens, other):
    for memory in ({"persistence": 1.0, "stickiness": other}, {"persistence": other, "stickiness": 1.0}):
        found = expert_miss_probability(activation, tokens, **memory)
        assert found == pytest.approx(1.0 - activation, abs=1e-15)


def simulate(activation, persistence, stickiness, tokens, requests, generator):
    """On/off history [requests, tokens] of one expert, drawn exactly as the model is stated."""
    if persistence > 0:
        total = 1.0 / persistence - 1.0
        preference = generator.beta(activation * total, (1.0 - activation) * total, requests)
    else:
        preference = np.full(requests, activation)
    history = np.empty((requests, tokens), dtype=bool)
    history[:, 0] = generator.random(requests) < preference
    for i in range(1, tokens):
        keep = generator.random(requests) < stickiness
        history[:, i] = np.where(keep, history[:, i - 1], generator.random(requests) < preference)
    return history


@pytest.mark.parametrize("seed", range(4))
def test_monte_carlo_on_random_parameters(seed):
    generator = np.random.default_rng(seed)
    activation = generator.uniform(0.02, 0.4)
    persistence, stickiness = generator.uniform(0.0, 0.5, 2) if seed else (0.0, 0.3)
    routing = {"persistence": persistence, "stickiness": stickiness}
    requests = 400_000
    history = simulate(activation, persistence, stickiness, 12, requests, generator)
    for tokens in (1, 2, 5, 12):
        missed = ~history[:, :tokens].any(axis=1)
        predicted = float(expert_miss_probability(activation, tokens, **routing))
        error = math.sqrt(predicted * (1 - predicted) / requests)
        assert abs(missed.mean() - predicted) < 4 * error < 4e-3
        # Requests of one step are independent: groups of 8 of them are a batch of 8.
        touched = 1.0 - missed.reshape(-1, 8).all(axis=1).mean()
        union = float(distinct_experts(100, 100 * activation, tokens, 8, **routing))
        assert 100 * touched == pytest.approx(union, rel=0.005)
    for lag in (1, 2, 6):
        both = (history[:, 0] & history[:, lag]).mean() / history[:, 0].mean()
        assert both == pytest.approx(float(routing_overlap(activation, lag, **routing)), abs=0.01)


layouts_and_routing = st.tuples(expert_layouts(), probabilities, probabilities)


@given(layouts_and_routing, st.floats(0.0, 0.99))
def test_one_token_of_one_sequence_touches_exactly_k(case, part):
    (experts, k), persistence, stickiness = case
    spread = part * math.sqrt(max(experts / k - 1.0, 0.0))
    routing = {"persistence": persistence, "stickiness": stickiness}
    assert distinct_experts(experts, k, 1, **routing, popularity_cv=spread) == k
    batch = distinct_experts(experts, k, [1, 1], [1, 2], **routing, popularity_cv=spread)
    assert batch[0] == k


@given(layouts_and_routing, token_counts, batches)
def test_unions_lie_between_one_token_and_uniform_routing(case, tokens, sequences):
    (experts, k), persistence, stickiness = case
    routing = {"persistence": persistence, "stickiness": stickiness}
    union = distinct_experts(experts, k, tokens, sequences, **routing)
    uniform = distinct_experts(experts, k, tokens, sequences)
    assert k * (1 - 1e-12) <= union <= uniform * (1 + 1e-12)
    assert uniform <= min(experts, k * tokens * sequences) * (1 + 1e-12)


@given(layouts_and_routing, token_counts, batches)
def test_more_tokens_touch_more_and_memory_touches_fewer(case, tokens, sequences):
    (experts, k), persistence, stickiness = case

    def union(n=tokens, b=sequences, rho=persistence, s=stickiness):
        return float(distinct_experts(experts, k, n, b, persistence=rho, stickiness=s))

    here, slack = union(), 1e-12 * experts
    assert union(n=tokens + 1) >= here - slack
    assert union(b=sequences + 1) >= here - slack
    assert union(rho=persistence + 0.5 * (1 - persistence)) <= here + slack
    assert union(s=stickiness + 0.5 * (1 - stickiness)) <= here + slack


@given(layouts_and_routing)
def test_each_further_token_adds_less(case):
    (experts, k), persistence, stickiness = case
    union = distinct_experts(experts, k, np.arange(65), persistence=persistence, stickiness=stickiness)
    added = np.diff(union)
    assert union[0] == 0.0
    assert np.all(added >= -1e-12 * experts)
    assert np.all(np.diff(added) <= 1e-12 * experts)


@given(probabilities, probabilities, token_counts, batches)
def test_layers_without_choice_touch_everything(persistence, stickiness, tokens, sequences):
    for experts in (1, 8):
        everything = distinct_experts(
            experts, experts, tokens, sequences, persistence=persistence, stickiness=stickiness
        )
        assert everything == experts


@given(st.floats(0.0, 0.9), st.floats(0.0, 0.9))
def test_many_sequences_touch_everything(persistence, stickiness):
    routing = {"persistence": persistence, "stickiness": stickiness}
    assert distinct_experts(256, 8, 4, 10**9, **routing) == 256
    assert distinct_experts(256, 8, 4, 0, **routing) == 0


def test_a_hundred_thousand_tokens():
    # With persistence 0.1 the miss probability falls like n^(−π (1/ρ − 1)): Stirling on the beta-binomial.
    tokens, activation, persistence = 100_000, 8 / 256, 0.1
    total = 1 / persistence - 1
    a, b = activation * total, (1 - activation) * total
    expected = math.exp(math.lgamma(total) - math.lgamma(b)) * tokens**-a
    found = expert_miss_probability(activation, tokens, persistence=persistence)
    assert found == pytest.approx(expected, rel=1e-4)
    assert distinct_experts(256, 8, tokens) == pytest.approx(256)
    with pytest.raises(InputError, match="at most 4194304"):
        distinct_experts(256, 8, 1e12, persistence=0.1)
    assert distinct_experts(256, 8, 1e12) == 256


def test_tiny_activations_keep_their_digits():
    # 1 − (1 − π)^t for π = 1e-12 is π t up to π² t²/2.
    assert distinct_experts(1e12, 1, 4, 2) == pytest.approx(8.0, rel=1e-11)
    found = distinct_experts(1e12, 1, 2, persistence=0.25, stickiness=0.5)
    assert found == pytest.approx(1 + 0.75 * 0.5, rel=1e-11)


@given(inner_probabilities, st.floats(0.0, 64.0), probabilities)
def test_real_token_counts_are_exact_without_persistence(activation, tokens, stickiness):
    assert expert_miss_probability(activation, tokens) == pytest.approx((1 - activation) ** tokens, rel=1e-12)
    assume(tokens >= 1)
    exact = (1 - activation) * (1 - (1 - stickiness) * activation) ** (tokens - 1)
    found = expert_miss_probability(activation, tokens, stickiness=stickiness)
    assert found == pytest.approx(exact, rel=1e-12)


@given(inner_probabilities, st.integers(1, 40), st.floats(0.01, 0.99), st.floats(0.01, 1.0), probabilities)
def test_real_token_counts_lie_just_above_the_integral(activation, whole, part, persistence, stickiness):
    routing = {"persistence": persistence, "stickiness": stickiness}
    found = float(expert_miss_probability(activation, whole + part, **routing))
    below = float(expert_miss_probability(activation, whole, **routing))
    above = float(expert_miss_probability(activation, whole + 1, **routing))
    assert above * (1 - 1e-12) <= found <= below * (1 + 1e-12)
    # log P is convex, so a chord lies above it: at most the gap that whole numbers on both sides leave.
    before = float(expert_miss_probability(activation, whole - 1, **routing)) if whole > 1 else math.inf
    extrapolated = below * (below / before) ** part
    assert found >= extrapolated * (1 - 1e-12)


def beta_average(experts, k, tokens, sequences, routing, cv):
    """Adaptive integral of 1 − P^B over a Beta density of popularity, in log-odds."""
    mean = k / experts
    total = (1 - mean) / (mean * cv * cv) - 1
    density = stats.beta(mean * total, (1 - mean) * total)

    def integrand(t):
        p = 1 / (1 + math.exp(-t))
        miss = float(expert_miss_probability(p, tokens, **routing))
        return density.pdf(p) * p * (1 - p) * -math.expm1(sequences * math.log(miss))

    peak = math.log(mean / (1 - mean))
    value, _ = integrate.quad(integrand, -35, 15, points=[peak - 2, peak, peak + 1], limit=400, epsabs=1e-12)
    return experts * value


@pytest.mark.parametrize("cv", [0.1, 0.3, 0.54, 1.0, 2.0])
@pytest.mark.parametrize(("tokens", "sequences"), [(1, 8), (4, 1), (8, 32), (16, 512)])
def test_popularity_average_equals_adaptive_quadrature(cv, tokens, sequences):
    routing = {"persistence": 0.15, "stickiness": 0.2}
    found = distinct_experts(128, 8, tokens, sequences, **routing, popularity_cv=cv)
    assert found == pytest.approx(beta_average(128, 8, tokens, sequences, routing, cv), rel=2e-6)


@given(token_counts, batches, probabilities, probabilities)
def test_vanishing_skew_joins_equal_popularity(tokens, sequences, persistence, stickiness):
    routing = {"persistence": persistence, "stickiness": stickiness}
    equal = distinct_experts(128, 8, tokens, sequences, **routing)
    for cv in (1e-9, 1.1e-7, 1e-5):
        assert distinct_experts(128, 8, tokens, sequences, **routing, popularity_cv=cv) == pytest.approx(
            float(equal), rel=1e-8
        )


@given(expert_layouts(64), token_counts, batches, st.floats(0.01, 0.9), st.floats(0.01, 0.9))
def test_skew_touches_fewer(layout, tokens, sequences, first, second):
    experts, k = layout
    most = math.sqrt(max(experts / k - 1.0, 0.0))
    assume(most > 0)
    less, more = sorted([first * most, second * most])
    union = distinct_experts(experts, k, tokens, sequences, popularity_cv=[0.0, less, more])
    assert np.all(np.diff(union) <= 1e-5 * experts)
    assert union[-1] >= k * (1 - 1e-9)


def test_skew_beyond_always_or_never_is_a_sentence():
    with pytest.raises(InputError, match="popularity_cv must be below sqrt"):
        distinct_experts(8, 2, 4, popularity_cv=1.8)
    with pytest.raises(InputError, match="top_k must be at most num_experts, got 128 of 8"):
        distinct_experts(8, 128, 4)


@pytest.mark.parametrize("skew", [0.0, 0.4])
def test_arrays_of_every_argument_equal_the_loop(skew):
    generator = np.random.default_rng(5)
    size = 40
    experts = generator.integers(8, 300, size)
    chosen = generator.integers(1, 5, size)
    tokens, sequences = generator.integers(1, 20, size), generator.integers(1, 50, size)
    persistence, stickiness = generator.random(size), generator.random(size)
    cv = skew * generator.random(size)
    together = distinct_experts(
        experts, chosen, tokens, sequences, persistence=persistence, stickiness=stickiness, popularity_cv=cv
    )
    for i in range(size):
        alone = distinct_experts(
            experts[i],
            chosen[i],
            tokens[i],
            sequences[i],
            persistence=persistence[i],
            stickiness=stickiness[i],
            popularity_cv=cv[i],
        )
        assert together[i] == pytest.approx(float(alone), rel=1e-12)


def test_grids_of_tokens_batches_and_routings_broadcast():
    tokens, sequences = np.arange(1, 9), np.array([1, 4, 64])[:, None]
    persistence = np.array([0.0, 0.1, 0.3])[:, None, None]
    for cv in (0.0, 0.5):
        grid = distinct_experts(128, 8, tokens, sequences, persistence=persistence, popularity_cv=cv)
        assert grid.shape == (3, 3, 8)
        alone = distinct_experts(128, 8, 5, 64, persistence=0.3, popularity_cv=cv)
        assert grid[2, 2, 4] == pytest.approx(float(alone), rel=1e-13)


def test_blocks_give_what_one_table_gives(monkeypatch):
    generator = np.random.default_rng(6)
    arguments = {"persistence": generator.random(500), "stickiness": generator.random(500)}
    tokens = generator.integers(1, 30, 500)
    whole = distinct_experts(64, 4, tokens, 3, **arguments)
    monkeypatch.setattr(room, "TABLE_CELLS", 64 * 7)
    np.testing.assert_array_equal(distinct_experts(64, 4, tokens, 3, **arguments), whole)
    monkeypatch.setattr(room, "BLOCK", 1)
    skewed = distinct_experts(64, 4, tokens, 3, persistence=0.1, popularity_cv=0.5)
    monkeypatch.undo()
    np.testing.assert_allclose(
        distinct_experts(64, 4, tokens, 3, persistence=0.1, popularity_cv=0.5), skewed, rtol=1e-13
    )


@given(probabilities, probabilities, probabilities)
def test_overlap_runs_from_everything_to_preference_alone(activation, persistence, stickiness):
    routing = {"persistence": persistence, "stickiness": stickiness}
    assert routing_overlap(activation, 0, **routing) == pytest.approx(1.0)
    far = activation + (1 - activation) * persistence
    if stickiness < 1:
        assert routing_overlap(activation, 1e300, **routing) == pytest.approx(far)
    # Two tokens touch 2k − k·overlap experts.
    union = distinct_experts(1000, 1000 * activation, 2, **routing) if activation > 0 else 0.0
    assert union == pytest.approx(1000 * activation * (2 - float(routing_overlap(activation, 1, **routing))))


@given(st.floats(0.0, 0.9), st.floats(0.0, 0.9), st.floats(0.0, 1.0))
def test_overlaps_give_the_routing_back(activation, persistence, stickiness):
    routing = {"persistence": persistence, "stickiness": stickiness}
    adjacent = routing_overlap(activation, 1, **routing)
    distant = activation + (1 - activation) * persistence
    assert persistence_from_overlap(activation, distant) == pytest.approx(persistence, abs=1e-12)
    assume(adjacent >= distant)
    found = stickiness_from_overlap(adjacent_overlap=adjacent, distant_overlap=distant)
    assert found == pytest.approx(stickiness, abs=1e-12)


def test_overlap_below_chance_is_a_sentence():
    with pytest.raises(InputError, match="distant_overlap must be at least activation"):
        persistence_from_overlap(0.0625, 0.05)


def test_worked_values():
    assert distinct_experts(128, 8, 4) == pytest.approx(29.12, abs=0.005)
    sticky = distinct_experts(128, 8, 4, persistence=0.2523, stickiness=0.1170)
    assert sticky == pytest.approx(20.06, abs=0.005)


def test_cohere_overlaps_predict_its_union():
    # Cohere blog, 21 April 2026, "Mixture-of-experts models get more from speculative decoding" (128 experts,
    # top-8): overlaps .381 .329 .301 .299 at lags 1-4, 20.36 distinct experts over 4 consecutive tokens.
    persistence = persistence_from_overlap(8 / 128, 0.299)
    stickiness = stickiness_from_overlap(adjacent_overlap=0.381, distant_overlap=0.299)
    assert persistence == pytest.approx(0.2523, abs=1e-4)
    assert stickiness == pytest.approx(0.1170, abs=1e-4)
    overlaps = routing_overlap(8 / 128, np.arange(1, 5), persistence=persistence, stickiness=stickiness)
    np.testing.assert_allclose(overlaps, [0.381, 0.329, 0.301, 0.299], atol=0.025)
    predicted = distinct_experts(128, 8, 4, persistence=persistence, stickiness=stickiness)
    assert predicted == pytest.approx(20.06, abs=0.01)
    assert predicted == pytest.approx(20.36, rel=0.02)


@pytest.mark.parametrize(
    ("experts", "k", "tokens", "persistence", "stickiness", "measured"),
    [
        # Cohere blog, 21 April 2026.
        (128, 8, 4, 0.22, 0.16, 20.36),
        # Public speculation memo of 24 September 2026 on a Qwen3.6-35B-A3B code trace of 40k tokens.
        (256, 8, 4, 0.114, 0.230, 22.1),
        (256, 8, 8, 0.114, 0.230, 35.9),
        (256, 8, 16, 0.114, 0.230, 56.3),
        # Public note RESEARCH_V5_SPEC on Laguna S 2.1, block draft verification.
        (256, 10, 5, 0.157, 0.0, 36.1),
        (256, 10, 16, 0.157, 0.0, 67.6),
    ],
)
def test_published_unions(experts, k, tokens, persistence, stickiness, measured):
    predicted = distinct_experts(experts, k, tokens, persistence=persistence, stickiness=stickiness)
    assert predicted == pytest.approx(measured, rel=0.03)


# Measured for this project: a byte-level language model of 4 layers with 32 experts, top-4, trained on Python
# source; last layer, 1500 draws a row of B sequences of n consecutive held-out tokens; popularity cv 0.296.
TOKENS = np.array([1, 2, 3, 4, 6, 8, 12, 16])
MEASURED = {
    1: [4.0000, 6.5387, 8.6087, 10.3320, 13.3407, 15.6093, 18.9113, 21.5960],
    2: [7.4393, 11.6433, 14.8053, 17.0880, 20.7040, 22.9367, 26.0000, 27.6213],
    4: [13.0953, 18.7533, 22.2660, 24.5400, 27.2780, 28.6580, 30.1447, 30.7667],
    8: [20.4827, 25.8340, 28.3973, 29.6153, 30.7100, 31.1627, 31.5993, 31.7380],
    16: [27.3253, 30.4173, 31.2067, 31.5133, 31.7620, 31.8800, 31.9467, 31.9800],
    64: [31.8787, 31.9827, 31.9947, 31.9960, 32.0000, 31.9993, 32.0000, 32.0000],
}


def test_routing_fitted_on_single_sequences_predicts_whole_batches():
    persistence, stickiness = np.meshgrid(np.arange(0, 0.3, 0.01), np.arange(0, 0.4, 0.01), indexing="ij")
    routing = {"persistence": persistence[..., None], "stickiness": stickiness[..., None]}
    single = distinct_experts(32, 4, TOKENS, **routing, popularity_cv=0.296)
    misfit = np.abs(np.log(single / MEASURED[1])).max(axis=-1)
    best = np.unravel_index(misfit.argmin(), misfit.shape)
    assert misfit[best] < 0.02
    sequences, measured = np.array(list(MEASURED))[:, None], np.array(list(MEASURED.values()))
    chosen = {"persistence": persistence[best], "stickiness": stickiness[best], "popularity_cv": 0.296}
    error = np.abs(distinct_experts(32, 4, TOKENS, sequences, **chosen) / measured - 1)
    assert error.max() < 0.03
    assert np.median(error) < 0.007
    # Uniform independent routing misses the same rows by up to a third.
    assert np.abs(distinct_experts(32, 4, TOKENS, sequences) / measured - 1).max() > 0.3
