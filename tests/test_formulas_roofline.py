"""Laws of the roofline: bounds, scaling, monotonicity, and ranges where a naive p-norm fails."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from strategies import rates, sharpnesses, times, work

from latency_model.formulas import crossover_tokens, p_norm, ridge_point, roofline_time


@given(work, work, rates, rates, times, sharpnesses)
def test_time_lies_between_perfect_overlap_and_none(flops, traffic, peak, bandwidth, overhead, p):
    machine = {"peak_flops": peak, "bandwidth": bandwidth, "overhead": overhead}
    least = roofline_time(flops, traffic, **machine)
    most = roofline_time(flops, traffic, **machine, sharpness=1.0)
    assert least * (1 - 1e-12) <= roofline_time(flops, traffic, **machine, sharpness=p) <= most * (1 + 1e-12)
    assert most - overhead <= 2 * (least - overhead) * (1 + 1e-9) + 1e-12 * most


@given(work, work, rates, rates, sharpnesses)
def test_doubling_the_machine_halves_the_time(flops, traffic, peak, bandwidth, p):
    once = roofline_time(flops, traffic, peak_flops=peak, bandwidth=bandwidth, sharpness=p)
    twice = roofline_time(flops, traffic, peak_flops=2 * peak, bandwidth=2 * bandwidth, sharpness=p)
    assert twice == pytest.approx(once / 2, rel=1e-12)


@given(work, work, rates, rates, sharpnesses)
def test_more_work_never_takes_less_time_and_sharper_corners_never_more(flops, traffic, peak, bandwidth, p):
    machine = {"peak_flops": peak, "bandwidth": bandwidth}
    base = roofline_time(flops, traffic, **machine, sharpness=p)
    assert roofline_time(1.5 * flops, traffic, **machine, sharpness=p) >= base * (1 - 1e-12)
    assert roofline_time(flops, 1.5 * traffic, **machine, sharpness=p) >= base * (1 - 1e-12)
    assert roofline_time(flops, traffic, **machine, sharpness=1.5 * p) <= base * (1 + 1e-12)


@pytest.mark.parametrize("p", [0.5, 1.0, 1.4, 2.0, 2.7, 64.0, math.inf])
def test_pure_copies_and_pure_arithmetic_take_their_own_time(p):
    machine = {"peak_flops": 1e15, "bandwidth": 2e12, "overhead": 1e-6, "sharpness": p}
    assert roofline_time(0.0, 2e12, **machine) == pytest.approx(1.0 + 1e-6)
    assert roofline_time(1e15, 0.0, **machine) == pytest.approx(1.0 + 1e-6)
    assert roofline_time(0.0, 0.0, **machine) == 1e-6


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1.0, 1e150, 1e300])
@pytest.mark.parametrize("p", [0.5, 1.0, 1.5, 2.0, 2.7, 50.0, math.inf])
def test_the_norm_scales_over_the_whole_range_of_doubles(scale, p):
    assert p_norm(3.0 * scale, 4.0 * scale, p) == pytest.approx(float(p_norm(3.0, 4.0, p)) * scale, rel=1e-12)


def test_special_exponents_agree_with_the_general_form_beside_them():
    for p in (1.0, 2.0):
        # An exponent given as an array takes the general branch.
        assert p_norm(0.3, 0.7, p) == pytest.approx(float(p_norm(0.3, 0.7, [p])[0]), rel=1e-15)
    assert p_norm(0.3, 0.7, [math.inf])[0] == 0.7
    assert p_norm(0.3, 0.7, 1e6) == pytest.approx(0.7, rel=1e-6)
    assert p_norm(1.0, 1.0, 1e-2) == pytest.approx(2.0**100)
    assert p_norm(math.inf, math.inf, 2.0) == math.inf


@given(times, times, sharpnesses)
def test_the_norm_is_symmetric_and_homogeneous(first, second, p):
    assert p_norm(first, second, p) == p_norm(second, first, p)
    assert p_norm(2 * first, 2 * second, p) == pytest.approx(2 * float(p_norm(first, second, p)), rel=1e-12)


@given(rates, rates)
def test_both_times_are_equal_at_the_ridge(peak, bandwidth):
    ridge = float(ridge_point(peak_flops=peak, bandwidth=bandwidth))
    assert ridge / peak == pytest.approx(1.0 / bandwidth)
    # Weights of b bytes: n tokens do 2 n FLOP on b bytes, which is the ridge at the crossover.
    for size in (0.5, 1, 2, 4):
        tokens = crossover_tokens(peak_flops=peak, bandwidth=bandwidth, bytes_per_weight=size)
        assert 2.0 * tokens / size == pytest.approx(ridge)


def test_h100_crossover():
    # NVIDIA H100 SXM datasheet: 989 TFLOP/s dense bf16, 3.35 TB/s; 295 tokens.
    tokens = crossover_tokens(peak_flops=989e12, bandwidth=3.35e12, bytes_per_weight=2)
    assert tokens == pytest.approx(295, abs=0.5)


def test_arguments_broadcast_against_each_other():
    flops = np.array([[1e12], [1e13]])
    traffic = np.array([1e9, 1e10, 1e11])
    p = np.array([1.0, 2.7, math.inf])
    grid = roofline_time(flops, traffic, peak_flops=1e15, bandwidth=3e12, sharpness=p)
    assert grid.shape == (2, 3)
    for i, f in enumerate(flops[:, 0]):
        for j, m in enumerate(traffic):
            alone = roofline_time(f, m, peak_flops=1e15, bandwidth=3e12, sharpness=p[j])
            assert grid[i, j] == pytest.approx(float(alone), rel=1e-14)
