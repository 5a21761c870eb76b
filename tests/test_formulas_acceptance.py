"""Tokens per round: exact sums, limits, inverses, and published acceptance numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from strategies import draft_lengths, probabilities

from latency_model.errors import InputError
from latency_model.formulas import (
    acceptance_from_divergence,
    acceptance_from_mean_length,
    break_even_tokens,
    conditional_from_survival,
    draft_acceptance_rate,
    expected_tokens,
    expected_tokens_from_conditional,
    operations_increase,
    oracle_tokens,
    speedup,
    survival_from_conditional,
    target_efficiency,
    walltime_improvement,
)

chains = hnp.arrays(np.float64, st.integers(0, 16), elements=st.floats(1e-6, 1.0))


@given(probabilities, draft_lengths)
def test_tokens_equal_the_sum_of_powers_to_the_last_digits(alpha, length):
    exact = sum(Fraction(alpha) ** i for i in range(length + 1))
    assert expected_tokens(alpha, length) == pytest.approx(float(exact), rel=1e-14)


def test_acceptance_next_to_one_keeps_its_digits():
    # 1 + 4 drafts at α = 1 − 1e-12 lose 10e-12 tokens; dividing two rounded differences would say 5.
    assert expected_tokens(1.0 - 1e-12, 4) == pytest.approx(5.0 - 10e-12, abs=1e-15 * 5)


@given(probabilities, draft_lengths)
def test_tokens_lie_between_the_bonus_token_and_everything(alpha, length):
    tokens = expected_tokens(alpha, length)
    assert 1.0 <= tokens <= length + 1.0
    assert tokens <= oracle_tokens(alpha) * (1 + 1e-15)
    assert tokens <= expected_tokens(alpha, length + 1) * (1 + 1e-15)


@given(draft_lengths)
def test_ends_of_acceptance(length):
    assert expected_tokens(0.0, length) == 1.0
    assert expected_tokens(1.0, length) == length + 1.0
    assert expected_tokens(0.3, 0) == 1.0


@given(probabilities)
def test_the_oracle_is_the_limit_of_long_drafts(alpha):
    assert expected_tokens(alpha, math.inf) == pytest.approx(float(oracle_tokens(alpha)), rel=1e-14)


@given(probabilities, st.integers(0, 32))
def test_a_constant_vector_is_the_constant(alpha, length):
    vector = expected_tokens_from_conditional(np.full(length, alpha))
    assert vector == pytest.approx(float(expected_tokens(alpha, length)), rel=1e-13)


@given(chains)
def test_survival_and_conditional_are_inverses(conditional):
    survival = survival_from_conditional(conditional)
    np.testing.assert_allclose(conditional_from_survival(survival), conditional, rtol=1e-12)
    assert expected_tokens_from_conditional(conditional) == pytest.approx(1.0 + survival.sum())


def test_positions_run_along_the_last_axis():
    table = [[0.8, 0.5], [1.0, 0.0]]
    np.testing.assert_allclose(survival_from_conditional(table), [[0.8, 0.4], [1.0, 0.0]])
    np.testing.assert_allclose(expected_tokens_from_conditional(table), [2.2, 2.0])
    np.testing.assert_allclose(conditional_from_survival([0.5, 0.0, 0.0]), [0.5, 0.0, 0.0])


def test_rising_survival_is_a_sentence():
    with pytest.raises(InputError, match="survival must not rise"):
        conditional_from_survival([0.5, 0.6])


@given(probabilities, st.floats(0.25, 64.0))
def test_mean_length_gives_its_acceptance_back(alpha, length):
    mean = expected_tokens(alpha, length)
    found = acceptance_from_mean_length(np.minimum(mean, length + 1.0), length)
    # Ω is the well-conditioned side: the α found must reproduce it, even where many α give the same double.
    assert expected_tokens(found, length) == pytest.approx(float(mean), rel=1e-13)
    if alpha > 1e-3 and length >= 1:
        assert found == pytest.approx(alpha, rel=1e-9)


@given(st.floats(0.25, 64.0))
def test_mean_length_is_exact_at_both_ends(length):
    assert acceptance_from_mean_length(1.0, length) == 0.0
    assert acceptance_from_mean_length(length + 1.0, length) == 1.0


def test_a_mean_beyond_all_drafts_is_a_sentence():
    with pytest.raises(InputError, match="at most draft_length"):
        acceptance_from_mean_length([2.0, 4.5], 3)
    with pytest.raises(InputError, match="draft_length must be above 0"):
        acceptance_from_mean_length(1.0, 0)


@given(probabilities, st.integers(1, 64))
def test_the_rate_engines_print_falls_with_length(alpha, length):
    rate = draft_acceptance_rate(alpha, length)
    assert draft_acceptance_rate(alpha, 2 * length) <= rate * (1 + 1e-12) + 1e-15
    assert rate <= alpha * (1 + 1e-12) + 1e-15
    assert draft_acceptance_rate(alpha, 1) == pytest.approx(alpha, abs=1e-15)


distributions = hnp.arrays(np.float64, 6, elements=st.floats(1e-3, 1.0)).map(lambda each: each / each.sum())


@given(distributions, distributions)
def test_divergence_bounds_the_acceptance_of_rejection_sampling(target, draft):
    acceptance = np.minimum(target, draft).sum()
    for first, second in ((target, draft), (draft, target)):
        divergence = max(0.0, float(np.sum(first * np.log(first / second))))
        assert acceptance_from_divergence(divergence) <= acceptance + 1e-9


def test_divergence_ends():
    assert acceptance_from_divergence(0.0) == 1.0
    assert acceptance_from_divergence(2.0) == 0.0
    assert acceptance_from_divergence(50.0) == 0.0


@given(probabilities, draft_lengths, st.floats(0.0, 1.0))
def test_improvement_is_bounded_by_tokens_and_is_one_without_drafts(alpha, length, cost):
    assert walltime_improvement(alpha, length, cost) <= expected_tokens(alpha, length)
    assert walltime_improvement(alpha, 0, cost) == 1.0
    assert walltime_improvement(alpha, length, 0.0) == expected_tokens(alpha, length)
    assert operations_increase(alpha, length, cost) >= 1.0 - 1e-15
    assert operations_increase(alpha, 0, cost) == 1.0


@given(probabilities, draft_lengths, st.floats(0.0, 1.0))
def test_speedup_is_one_at_break_even_and_reduces_to_the_improvement(alpha, length, cost):
    tokens = expected_tokens(alpha, length)
    round_time = 0.01 * (1.0 + cost * length)  # free verification
    gain = speedup(tokens, 0.01, round_time)
    assert gain == pytest.approx(float(walltime_improvement(alpha, length, cost)))
    needed = break_even_tokens(baseline_time=0.01, round_time=round_time)
    assert speedup(needed, 0.01, round_time) == pytest.approx(1.0)


def test_target_efficiency_of_free_verification_is_one():
    assert target_efficiency(plain_time=0.02, verify_time=0.02) == 1.0


@pytest.mark.parametrize(
    ("alpha", "length", "operations", "improvement"),
    [
        # Theorems 3.8 and 3.11 of Leviathan, Kalman, Matias, arXiv 2211.17192, with c = ĉ = 0, worked by hand
        # from Ω = 1 + α + ... + α^γ.
        (0.6, 2, 1.53, 1.96),
        (0.7, 3, 1.58, 2.53),
        (0.8, 2, 1.23, 2.44),
        (0.8, 5, 1.63, 3.69),
        (0.9, 2, 1.11, 2.71),
        (0.9, 10, 1.60, 6.86),
    ],
)
def test_worked_values_of_free_drafts(alpha, length, operations, improvement):
    assert operations_increase(alpha, length, 0.0) == pytest.approx(operations, abs=0.005)
    assert walltime_improvement(alpha, length, 0.0) == pytest.approx(improvement, abs=0.005)


@pytest.mark.parametrize(
    ("length", "alpha", "measured"),
    # Leviathan et al., arXiv 2211.17192, Table 2: T5-XXL 11B with T5-small 77M on a TPU-v4,
    # En-De and CNN/DM at temperatures 0 and 1.
    [(7, 0.75, 3.4), (7, 0.62, 2.6), (5, 0.65, 3.1), (5, 0.53, 2.3)],
)
def test_leviathan_table_2_with_a_nearly_free_draft(length, alpha, measured):
    # The draft has 1/140 of the parameters; c = 0.02 is assumed.
    assert walltime_improvement(alpha, length, 0.02) == pytest.approx(measured, rel=0.25)


@pytest.mark.parametrize(
    ("model", "mode", "depth_1", "depth_8"),
    # SemiAnalysisAI/InferenceX, golden_al_distribution: mean acceptance length by num_speculative_tokens.
    [
        ("deepseek-v4-pro mtp", "thinking on", 1.79, 2.58),
        ("deepseek-v4-pro mtp", "thinking off", 1.92, 3.11),
        ("glm-5.2 mtp", "thinking on", 1.84, 4.06),
        ("kimi-k2.5 eagle3", "thinking on", 1.83, 3.77),
        ("kimi-k2.5 eagle3", "thinking off", 1.80, 3.51),
        ("minimax-m3 eagle3", "thinking on", 1.78, 3.74),
        ("qwen3.5 mtp", "thinking on", 1.93, 5.21),
        ("qwen3.5 mtp", "thinking off", 1.92, 4.71),
    ],
)
def test_an_acceptance_seen_at_depth_1_overstates_depth_8(model, mode, depth_1, depth_8):
    alpha = acceptance_from_mean_length(depth_1, 1)
    overstated = expected_tokens(alpha, 8) / depth_8 - 1.0
    assert 0.08 < overstated < 1.13, f"{model}, {mode}"


def test_a_measured_curve_is_reproduced_by_its_vector():
    # Same source, glm-5.2 MTP, thinking on, depths 1 to 8: steps of the mean length are survivals.
    lengths = np.array([1.84, 2.50, 2.99, 3.33, 3.61, 3.78, 3.91, 4.06])
    survival = np.minimum.accumulate(np.diff(lengths, prepend=1.0))
    conditional = conditional_from_survival(survival)
    for depth in range(1, 9):
        predicted = expected_tokens_from_conditional(conditional[:depth])
        assert predicted == pytest.approx(lengths[depth - 1], rel=0.01)
