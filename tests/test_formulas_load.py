"""Latency against load: laws of the closed forms, chains solved by brute force, and published values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import draft_lengths, inner_probabilities

from latency_model.evidence.published.record import read_table
from latency_model.formulas import (
    batch_probabilities,
    expected_rounds,
    first_token_latency,
    inflection_context,
    queueing_delay,
    request_latency,
    speculation_break_even_load,
)

demands = st.floats(1e-3, 1e3)
loads = st.floats(0.0, 0.99)
ratios = st.floats(0.05, 5.0)


@given(demands, demands, loads)
def test_latency_solves_littles_law(fixed, load_demand, load):
    rate = load / load_demand
    latency = float(request_latency(fixed_demand=fixed, load_demand=load_demand, rate=rate))
    others = rate * latency  # Little
    assert latency == pytest.approx(fixed + load_demand * others, rel=1e-9)
    assert latency >= fixed * (1 - 1e-12)


def test_limits_of_latency():
    assert request_latency(fixed_demand=2.0, load_demand=0.5, rate=0.0) == 2.0
    assert request_latency(fixed_demand=2.0, load_demand=0.0, rate=7.0) == 2.0
    assert request_latency(fixed_demand=2.0, load_demand=0.5, rate=2.0) == math.inf
    assert request_latency(fixed_demand=0.0, load_demand=0.5, rate=2.0) == math.inf
    assert math.isnan(request_latency(fixed_demand=math.nan, load_demand=0.5, rate=2.0))


@given(demands, demands, ratios, ratios)
def test_latencies_meet_at_the_break_even_load_and_nowhere_else(fixed, load_demand, fixed_ratio, load_ratio):
    assume(abs(load_ratio - fixed_ratio) > 1e-3)
    crossing = float(speculation_break_even_load(fixed_ratio=fixed_ratio, load_ratio=load_ratio))

    def speedup(load: float) -> float:
        rate = load / load_demand
        plain = request_latency(fixed_demand=fixed, load_demand=load_demand, rate=rate)
        drafting = request_latency(fixed_demand=fixed_ratio * fixed, load_demand=load_ratio * load_demand, rate=rate)
        assert plain / drafting == pytest.approx(
            max((1 + (1 - load_ratio) * load / (1 - load)) / fixed_ratio, 0.0), abs=1e-9, rel=1e-6
        )
        return float(plain / drafting)

    carried = 0.999 * min(1.0, 1.0 / load_ratio)  # what both sustain
    pays_alone = fixed_ratio < 1.0
    if 0.0 < crossing < carried:
        assert speedup(crossing) == pytest.approx(1.0, rel=1e-6)
        assert (speedup(0.5 * crossing) > 1.0) == pays_alone
        assert (speedup((crossing + carried) / 2) < 1.0) == pays_alone
    elif crossing >= 1.0 or crossing == 0.0:
        for load in np.linspace(0.01, carried, 7):
            assert (speedup(load) > 1.0) == pays_alone or speedup(load) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("fixed_ratio", "load_ratio", "load"),
    [(0.5, 1.5, 0.5), (0.5, 0.4, math.inf), (0.5, 0.5, math.inf), (1.0, 1.0, 0.0), (1.2, 1.5, 0.0), (2.0, 0.5, 2 / 3)],
)
def test_break_even_loads(fixed_ratio, load_ratio, load):
    assert speculation_break_even_load(fixed_ratio=fixed_ratio, load_ratio=load_ratio) == pytest.approx(load)


@given(st.lists(st.floats(0.05, 2.0), min_size=1, max_size=6), st.floats(0.0, 0.6))
def test_probabilities_are_those_of_the_chain_solved_by_brute_force(demand, load):
    demand = np.array(demand)
    rate = load / demand[-1]
    assume(rate > 0.01)
    size = len(demand)
    states = size + 40  # the rest holds less than 0.6^40
    leaves = np.concatenate(([0.0], 1.0 / demand, np.full(states - size - 1, 1.0 / demand[-1])))
    generator = np.diag(np.full(states - 1, rate), 1) + np.diag(leaves[1:], -1)
    generator -= np.diag(generator.sum(axis=1))
    balance = np.vstack((generator.T[:-1], np.ones(states)))
    solved = np.linalg.solve(balance, np.eye(states)[-1])
    expected = np.append(solved[:size], solved[size:].sum())
    np.testing.assert_allclose(batch_probabilities(demand=demand, rate=rate), expected, atol=1e-6)


@given(st.floats(0.001, 10.0), st.floats(0.01, 1.0), st.floats(0.01, 0.9))
def test_rounds_affine_in_the_batch_have_the_closed_form_as_mean(base, slope, load):
    batch = np.arange(1.0, 4000.0)
    rate = load / slope
    shares = batch_probabilities(demand=(base + slope * batch) / batch, rate=rate)
    assume(shares[-1] < 1e-12)  # what the chain cuts off
    mean = shares @ np.arange(4000.0)
    assert mean == pytest.approx(
        rate * float(request_latency(fixed_demand=base + slope, load_demand=slope, rate=rate)), rel=1e-6
    )


def test_a_round_that_does_not_grow_is_a_queue_with_as_many_servers():
    # Erlang C, 5 servers offered 4 erlang: an arrival waits with probability 0.5541 (Gross et al., Fundamentals of
    # Queueing Theory, 4th ed., section 2.3; any Erlang C table).
    shares = batch_probabilities(demand=1.0 / np.arange(1, 6), rate=4.0)
    assert shares[-1] == pytest.approx(0.5541, abs=5e-5)


def test_a_rate_that_is_not_sustained_fills_the_batch():
    for rate in (2.0, 3.0, math.inf):
        assert batch_probabilities(demand=[1.0, 0.5], rate=rate).tolist() == [0.0, 0.0, 1.0]
    assert batch_probabilities(demand=[1.0, 0.5], rate=0.0).tolist() == [1.0, 0.0, 0.0]
    several = batch_probabilities(demand=[1.0, 0.5], rate=[[0.0, 1.0], [2.0, 1.5]])
    assert several.shape == (2, 2, 3)
    np.testing.assert_allclose(several.sum(axis=-1), 1.0)


@given(inner_probabilities, draft_lengths.filter(lambda length: length < 12), st.integers(0, 60))
def test_rounds_are_those_counted_one_by_one(acceptance, length, more):
    survival = acceptance ** np.arange(1, length + 1)
    tokens = 10 * (length + 1) + more
    chances = -np.diff(np.concatenate(([1.0], survival, [0.0])))  # that a round yields 1, 2, ... tokens
    counted = np.zeros(tokens + 1)
    for wanted in range(1, tokens + 1):
        left = np.maximum(wanted - np.arange(1, length + 2), 0)
        counted[wanted] = 1.0 + chances @ counted[left]
    rounds = float(expected_rounds(survival, float(tokens)))
    assert rounds == pytest.approx(counted[tokens], abs=0.5)
    if acceptance < 0.7:
        assert rounds == pytest.approx(counted[tokens], rel=1e-4)
    if length == 0:
        assert expected_rounds(survival, float(tokens)) == tokens


def test_certain_drafts_waste_half_a_round_on_average():
    assert expected_rounds([1.0, 1.0, 1.0], 1000.0) == pytest.approx(250.0 + 1.5 / 4.0)


def test_waiting_times_of_textbook_queues():
    service, rate = 0.5, 1.6
    exponential = rate * service**2 / (1 - rate * service)  # M/M/1
    assert queueing_delay(service_time=service, rate=rate, service_cv=1.0) == pytest.approx(exponential)
    assert queueing_delay(service_time=service, rate=rate) == pytest.approx(exponential / 2)  # M/D/1
    assert queueing_delay(service_time=service, rate=0.0) == 0.0
    assert queueing_delay(service_time=service, rate=2.0) == math.inf


def test_waiting_one_by_one():
    generator = np.random.default_rng(7)
    service, rate, wait, total = 0.5, 1.2, 0.0, 0.0
    gaps = generator.exponential(1.0 / rate, 200_000)
    for gap in gaps:  # Lindley
        total += wait
        wait = max(wait + service - gap, 0.0)
    assert total / gaps.size == pytest.approx(queueing_delay(service_time=service, rate=rate), rel=0.03)


@pytest.mark.parametrize(("step", "added", "rate"), [(0.01, 0.004, 60.0), (0.01, 0.02, 25.0), (0.03, 0.001, 200.0)])
def test_first_tokens_one_by_one(step, added, rate):
    generator = np.random.default_rng(3)
    last, total, count = step, 0.0, 0
    for _ in range(60_000):  # rounds: each prefills what came during the last
        came = generator.poisson(rate * last)
        waited = last * (1.0 - generator.random(came))
        last = step + came * added
        total, count = total + waited.sum() + came * last, count + came
    expected = float(first_token_latency(round_time=step, prefill_time=added, rate=rate))
    assert total / count == pytest.approx(expected, rel=0.01)


def test_limits_of_the_first_token():
    assert first_token_latency(round_time=0.01, prefill_time=0.0, rate=3.0) == pytest.approx(0.015)  # 3/2 rounds
    assert first_token_latency(round_time=0.01, prefill_time=0.02, rate=0.0) == pytest.approx(0.035)
    assert first_token_latency(round_time=0.01, prefill_time=0.02, rate=50.0) == math.inf


@given(st.floats(1.0, 1e4), st.floats(1e-6, 1e-3), st.floats(1e-9, 1e-6), st.integers(1, 12), st.floats(1e-4, 1.0))
def test_batches_help_self_speculation_beyond_the_inflection_context(budget, token, cached, length, weights):
    inflection = float(inflection_context(kv_budget=budget, time_per_token=token, time_per_cached_token=cached))

    def speedup(batch: float, context: float) -> float:
        draft = weights + batch * (token + cached * budget)
        verify = weights + batch * (token * (length + 1) + cached * context)
        return (weights + batch * (token + cached * context)) / (length * draft + verify)

    assert speedup(64.0, 1.01 * inflection) > speedup(1.0, 1.01 * inflection)
    assert speedup(64.0, 0.99 * inflection) < speedup(1.0, 0.99 * inflection)
    assert speedup(64.0, inflection) == pytest.approx(speedup(1.0, inflection), rel=1e-9)


def test_a_cache_that_costs_nothing_never_turns():
    assert inflection_context(kv_budget=512.0, time_per_token=1e-5, time_per_cached_token=0.0) == math.inf


def test_where_magicdec_turns_lies_between_its_rows_that_fall_and_rise():
    # MagicDec, arXiv 2408.11049, Table 3: Llama-3.1-8B drafts for itself with 512 cached tokens on 8 A100.
    fits = {row["quantity"]: row for row in read_table("magicdec_affine_fits").rows if row["target"] == "LLaMA-3.1-8B"}
    plain, drafting, verify = (
        {name: float(row[name] or 0.0) for name in ("t0_ms", "t_seq_ms_per_sequence", "t_kv_ms_per_kv_token")}
        for row in (fits["T_T"], fits["T_D"], fits["T_V(gamma=2)"])
    )
    base = drafting["t0_ms"] + verify["t0_ms"]
    each = drafting["t_seq_ms_per_sequence"] + verify["t_seq_ms_per_sequence"]
    # a/b = t0/r0 of eq. 8.1, both sides affine in the context
    turn = (plain["t0_ms"] * each - base * plain["t_seq_ms_per_sequence"]) / (
        base * plain["t_kv_ms_per_kv_token"] - plain["t0_ms"] * verify["t_kv_ms_per_kv_token"]
    )
    assert turn == pytest.approx(10_900, abs=50)
    measured = {
        (int(row["S"]), int(row["B"])): float(row["speedup_x"])
        for row in read_table("magicdec_a100").rows
        if row["target"] == "LLaMA-3.1-8B"
    }
    assert measured[4000, 128] < measured[4000, 32] - 0.1
    assert measured[8000, 128] == pytest.approx(measured[8000, 32], abs=0.03)
    assert measured[16000, 128] > measured[16000, 32] + 0.1
    assert 8000 < turn < 16000
