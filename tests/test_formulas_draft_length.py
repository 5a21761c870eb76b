"""The closed-form draft length against scans over every length, Lambert's function and its own limits."""

from __future__ import annotations

import math
from decimal import Decimal, getcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import lambertw
from strategies import cost_ratios, inner_probabilities, probabilities

from latency_model.formulas import (
    best_draft_length,
    break_even_acceptance,
    expected_tokens,
    optimal_draft_length,
    walltime_improvement,
)
from latency_model.formulas.draft_length import _lambert_excess


def scan(alpha, cost, base, slope, longest):
    """Shortest best whole length by trying every one; length 0 is plain decoding."""
    lengths = np.arange(longest + 1)
    improvement = expected_tokens(alpha, lengths) / (base + (slope + cost) * lengths)
    improvement[0] = 1.0
    return int(np.argmax(improvement)), improvement


def test_worked_example():
    # Leviathan et al., arXiv 2211.17192, theorem 3.8, maximised over the integers at α = 0.8, c = 0.05.
    assert best_draft_length(0.8, 0.05) == 8
    assert walltime_improvement(0.8, 8, 0.05) == pytest.approx(3.09, abs=0.005)
    assert 7 < optimal_draft_length(0.8, 0.05) < 9


def test_a_thousand_random_cases_equal_a_scan():
    generator = np.random.default_rng(11)
    alpha, cost = generator.random(1000), generator.random(1000)
    found = best_draft_length(alpha, cost, max_draft_length=400)
    for a, c, length in zip(alpha, cost, found, strict=True):
        assert length == scan(a, c, 1.0, 0.0, 400)[0]


def test_random_affine_verification_equals_a_scan():
    generator = np.random.default_rng(12)
    alpha, cost = generator.random(1000), 0.3 * generator.random(1000)
    base, slope = 0.7 + generator.random(1000), 0.3 * generator.random(1000)
    longest = generator.integers(0, 40, 1000)
    found = best_draft_length(alpha, cost, verify_base=base, verify_slope=slope, max_draft_length=longest)
    for a, c, b, v, most, length in zip(alpha, cost, base, slope, longest, found, strict=True):
        assert length == scan(a, c, b, v, int(most))[0]


@given(inner_probabilities, cost_ratios)
def test_no_nearby_real_length_is_better(alpha, cost):
    peak = float(optimal_draft_length(alpha, cost))
    if peak > 0:
        best = walltime_improvement(alpha, peak, cost)
        around = walltime_improvement(alpha, peak * np.array([0.9, 0.99, 1.01, 1.1]), cost)
        assert np.all(around <= best * (1 + 1e-12))


@given(probabilities, st.floats(0.0, 2.0, allow_subnormal=False))
def test_a_draft_that_costs_more_than_it_is_worth_is_never_made(alpha, cost):
    if alpha <= cost:
        assert optimal_draft_length(alpha, cost) == 0
        assert best_draft_length(alpha, cost) == 0
        assert break_even_acceptance(cost) >= alpha
    elif alpha > cost + 1e-12:
        assert optimal_draft_length(alpha, cost) > 0
        assert best_draft_length(alpha, cost) > 0
        assert break_even_acceptance(cost) < alpha


@given(inner_probabilities, cost_ratios, st.floats(0.5, 1.0), st.floats(0.0, 0.5))
def test_below_the_break_even_acceptance_no_length_pays(alpha, cost, base, slope):
    verify = {"verify_base": base, "verify_slope": slope}
    threshold = float(break_even_acceptance(cost, **verify))
    best = best_draft_length(alpha, cost, **verify)
    if alpha < threshold * (1 - 1e-9):
        assert best == 0
    if alpha > threshold * (1 + 1e-9) + 1e-12:
        assert best > 0


def test_equally_good_lengths_give_the_shorter():
    assert best_draft_length(0.5, 0.5) == 0  # one draft gives 1.5 tokens in 1.5 steps
    assert best_draft_length(1.0, 1.0) == 0
    # α = 1/2, c = 1/5: one draft gives 1.5/1.2, two give 1.75/1.4.
    assert best_draft_length(0.5, 0.2) == 1


def test_limits():
    assert optimal_draft_length(0.8, 0.0) == math.inf
    assert best_draft_length(0.8, 0.0, max_draft_length=7) == 7
    assert optimal_draft_length(1.0, 0.3) == math.inf
    assert best_draft_length(1.0, 0.3) == 64
    assert optimal_draft_length(0.0, 0.0) == 0
    assert optimal_draft_length(0.0, 0.5) == 0
    assert optimal_draft_length(1.0, 1.0) == 0
    assert best_draft_length(0.99, 0.01, max_draft_length=0) == 0


@given(inner_probabilities, cost_ratios)
def test_better_drafts_are_longer_and_dearer_ones_shorter(alpha, cost):
    better = optimal_draft_length(alpha + 0.5 * (1 - alpha), cost)
    dearer = optimal_draft_length(alpha, 1.3 * cost)
    here = float(optimal_draft_length(alpha, cost))
    assert better >= here * (1 - 1e-9)
    assert dearer <= here * (1 + 1e-9)


def test_a_fixed_tax_can_make_every_draft_a_loss():
    # A verification that costs three plain steps needs more than three tokens a round to pay.
    assert best_draft_length(0.6, 0.01, verify_base=3.0) == 0
    assert optimal_draft_length(0.6, 0.01, verify_base=3.0) > 0


@given(st.floats(1e-3, 690.0))
def test_lambert_where_scipy_reaches(depth):
    # Nearer to the branch point the argument that scipy is given has itself lost the digits.
    expected = -1.0 - float(lambertw(-math.exp(-1.0 - depth), -1).real)
    assert _lambert_excess(np.float64(depth)) == pytest.approx(expected, rel=1e-12)


@given(st.floats(-14.0, 300.0))
def test_lambert_solves_its_equation_in_long_decimals(exponent):
    # t − ln(1 + t) = depth, evaluated with 60 digits, from the branch point to far beyond underflow.
    getcontext().prec = 60
    depth = 10.0**exponent
    t = Decimal(float(_lambert_excess(np.float64(depth))))
    residual = t - (1 + t).ln() - Decimal(depth)
    slope = t / (1 + t)
    assert abs(residual / slope) <= Decimal("2e-13") * t


def test_acceptance_next_to_one_keeps_its_digits():
    # For ln(1/α) → 0 the optimum tends to sqrt(2 (1/c − 1)/ln(1/α)): expand Ω to second order in ln α.
    rate = -math.log1p(-1e-12)
    for cost in (0.01, 0.3, 0.9):
        expected = math.sqrt(2 * (1 / cost - 1) / rate)
        assert optimal_draft_length(1 - 1e-12, cost) == pytest.approx(expected, rel=1e-4)


def test_arguments_of_lambert_that_underflow():
    # (1 − c) ln(1/α)/c = 71 000: the argument of W is exp(−71 001).
    alpha, cost = 0.001, 1e-4
    peak = float(optimal_draft_length(alpha, cost))
    assert 0 < peak < 2
    assert best_draft_length(alpha, cost) == scan(alpha, cost, 1.0, 0.0, 64)[0] == 1
