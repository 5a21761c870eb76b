"""Latency under load: laws of the served curve, and a simulation of its own, request by request, round by round."""

from __future__ import annotations

import math
from typing import NamedTuple

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

import latency_model as lm
from latency_model.decisions.serving import Server
from latency_model.formulas import expected_rounds, request_latency

VECTOR = lm.Acceptance.conditional([0.70, 0.62, 0.60, 0.58])
DENSE, MIXTURE, MACHINE = "Meta-Llama-3.1-8B", "Qwen3-30B-A3B", "h100-sxm"


@pytest.fixture(scope="module")
def dense() -> lm.ServingCurve:
    return lm.serve(
        DENSE,
        MACHINE,
        acceptance=VECTOR,
        draft_length=[1, 3, 5],
        rate=[1, 10, 25],
        prompt_tokens=128,
        output_tokens=512,
    )


@pytest.fixture(scope="module")
def mixture() -> lm.ServingCurve:
    return lm.serve(MIXTURE, MACHINE, acceptance=VECTOR, draft_length=[1, 3], rate=np.linspace(0.2, 15, 30))


class Simulated(NamedTuple):
    """Means over the simulated requests [s]."""

    ttft: float
    decode: float


def simulated(
    server: Server, rate: float, *, requests: int, conditionals: tuple[float, ...] = (), spread: bool = False
) -> Simulated:
    """Serve requests one event at a time: rounds with the prompts that came, or prefills alone and ahead of rounds.

    Accepted drafts are drawn for every sequence and round; answers have one length or, if ``spread``, a geometric one.
    """
    generator = np.random.default_rng(5)
    arrivals = np.sort(generator.uniform(0.0, requests / rate, requests))  # Poisson, given how many came
    wanted = np.full(requests, int(server.output_tokens) - 1)
    if spread:  # every quantile once, in any order
        quantiles = generator.permutation((np.arange(requests) + 0.5) / requests)
        wanted = np.ceil(np.log1p(-quantiles) / np.log1p(-1.0 / wanted)).astype(int)
    survival = np.cumprod(conditionals)
    first, last = np.zeros(requests), np.zeros(requests)
    running, left = np.zeros(0, dtype=int), np.zeros(0, dtype=int)
    clock, come = 0.0, 0
    while come < requests or running.size:
        waiting = np.searchsorted(arrivals, clock, side="right") - come
        taken = min(waiting, server.max_batch - running.size)
        if taken == 0 and running.size == 0:
            clock = arrivals[come]
            continue
        decodes = server.joined_prefill is not None or taken == 0
        if not decodes:  # a prefill alone and ahead
            taken = 1
            clock += server.prefill_time
        elif running.size:  # a round, with the prompts that have come
            clock += server.round_time[running.size - 1] + taken * (server.joined_prefill or 0.0)
        else:
            clock += server.prefill_time + (taken - 1) * server.joined_prefill
        if decodes:
            drawn = generator.random(running.size)
            left = left - 1 - (drawn[:, None] < survival).sum(axis=1)
            last[running[left <= 0]] = clock
            running, left = running[left > 0], left[left > 0]
        new = np.arange(come, come + taken)
        first[new] = clock
        running, left, come = np.append(running, new), np.append(left, wanted[new]), come + taken
    settled = slice(requests // 10, requests * 9 // 10)
    return Simulated((first - arrivals)[settled].mean(), (last - first)[settled].mean())


def server_of(round_time: np.ndarray, joined: float | None = None) -> Server:
    """Prompts of 10 ms, answers of 64 tokens without drafts."""
    return Server(prefill_time=0.01, round_time=round_time, rounds=63.0, output_tokens=64.0, joined_prefill=joined)


BATCH = np.arange(1.0, 257.0)
ROUNDS = {
    "affine": 0.006 + 2e-5 * BATCH,
    "bent": np.maximum(0.006, 4e-5 * BATCH),
    "experts": 0.004 + 0.02 * (1.0 - (1.0 - 8 / 128) ** BATCH) + 1e-5 * BATCH,
}


def requests_at(share: float) -> int:
    """Requests enough for a steady mean: the fuller the machine, the longer one remembers another."""
    return 400 + int(5000 * share)


@pytest.mark.parametrize("kind", ROUNDS)
@pytest.mark.parametrize(("share", "tolerance"), [(0.1, 0.03), (0.5, 0.03), (0.7, 0.05), (0.9, 0.1)])
@pytest.mark.parametrize("joined", [None, 0.006])
def test_means_are_those_of_a_simulation(kind, joined, share, tolerance):
    server = server_of(ROUNDS[kind], joined)
    rate = share * server.saturation_rate
    steady, counted = server.steady(np.array([rate])), simulated(server, rate, spread=True, requests=requests_at(share))
    assert steady.ttft[0] == pytest.approx(counted.ttft, rel=0.03 if share < 0.9 else 0.3)
    assert steady.latency[0] == pytest.approx(sum(counted), rel=tolerance)


@pytest.mark.parametrize(("share", "tolerance"), [(0.1, 0.01), (0.5, 0.02), (0.7, 0.05), (0.9, 0.1)])
def test_answers_of_one_length_change_little(share, tolerance):
    server = server_of(ROUNDS["affine"])
    rate = share * server.saturation_rate
    counted = simulated(server, rate, requests=requests_at(share))
    assert server.steady(np.array([rate])).latency[0] == pytest.approx(sum(counted), rel=tolerance)


@pytest.mark.parametrize(("share", "tolerance"), [(0.02, 0.01), (0.4, 0.02), (0.7, 0.05)])
def test_a_real_drafter_on_a_real_model_is_served_as_simulated(dense, share, tolerance):
    rounds = float(expected_rounds(VECTOR.survivals(3), 128.0))
    server = attrs.evolve(dense.servers[2], output_tokens=129.0, rounds=rounds)
    rate = share * server.saturation_rate
    counted = simulated(server, rate, conditionals=VECTOR.conditionals[:3], requests=requests_at(share))
    assert server.steady(np.array([rate])).latency[0] == pytest.approx(sum(counted), rel=tolerance)


def test_prompts_that_join_rounds_cost_less_than_prompts_alone(dense):
    asked = {"acceptance": VECTOR, "draft_length": [1, 3, 5], "rate": dense.rate, "output_tokens": 512}
    for prompt, least in ((128, 1.4), (8192, 0.95)):
        mixed, alone = (
            lm.serve(DENSE, MACHINE, prompt_tokens=prompt, mixed_prefill=way, **asked).servers[0]
            for way in (True, False)
        )
        assert mixed.prefill_time == alone.prefill_time == alone.prefill_load
        assert alone.prefill_load > least * mixed.prefill_load
        assert (
            mixed.prefill_load
            > 0.7 * prompt / 8192 * lm.serve(DENSE, MACHINE, prompt_tokens=8192).servers[0].prefill_load
        )
    flops = float(lm.step_cost(DENSE, MACHINE, context=0, tokens_per_sequence=128, prefill=True).flops)
    peak = lm.load_hardware(MACHINE).peak_flops("bf16").value
    assert dense.servers[0].prefill_load > 0.9 * flops / peak


def test_a_full_batch_makes_requests_wait():
    server = server_of(ROUNDS["affine"][:16])
    rate = 0.9 * server.saturation_rate
    counted = simulated(server, rate, requests=8000, spread=True)
    steady = server.steady(np.array([rate]))
    assert steady.ttft[0] > 5 * server_of(ROUNDS["affine"]).steady(np.array([rate])).ttft[0]
    assert steady.ttft[0] == pytest.approx(counted.ttft, rel=0.3)
    assert steady.latency[0] == pytest.approx(sum(counted), rel=0.05)


def test_a_lone_request_takes_what_batch_one_takes(dense):
    alone = dense.at(1e-6)
    context = 128 + 512 / 2
    for length, latency, ttft in zip(alone.draft_length, alone.latency, alone.ttft, strict=True):
        round_ = lm.speculate(DENSE, MACHINE, acceptance=VECTOR, draft_length=length, batch=1, context=context)
        rounds = expected_rounds(VECTOR.survivals(length), 511.0)
        assert latency == pytest.approx(ttft + float(rounds * round_.time), rel=1e-4)
        assert rounds == pytest.approx(511.0 / float(round_.tokens_per_round), rel=0.006)
    prefill = lm.step_cost(DENSE, MACHINE, context=0, tokens_per_sequence=128, prefill=True)
    assert alone.ttft[0] == pytest.approx(float(prefill.time), rel=1e-4)
    assert (alone.ttft[1:] > alone.ttft[0]).all()  # the drafter reads the prompt, too


@pytest.mark.parametrize("which", ["dense", "mixture"])
def test_everything_grows_with_the_rate(which, request):
    curve = request.getfixturevalue(which)
    curve = curve.at(np.linspace(0.01, 1.1, 60) * curve.saturation_rate.max())
    for name in ("batch", "ttft", "tpot", "latency", "prefill_share"):
        values = getattr(curve, name)
        assert (values[:, 1:] >= values[:, :-1] * (1 - 1e-12)).all(), name
    assert (curve.saturated == (curve.rate >= curve.saturation_rate[:, None])).all()
    sustained = np.where(curve.saturated, 0.0, curve.latency)
    assert np.isfinite(sustained).all()


@given(st.floats(0.001, 0.1), st.floats(1e-6, 1e-3), st.floats(0.0, 0.05), st.floats(0.01, 0.9))
def test_affine_rounds_have_the_closed_form(base, slope, prefill, share):
    rounds = 50.0
    load_demand = prefill + rounds * slope
    rate = share / load_demand
    decoding = rate / (1 - rate * prefill)
    closed = float(request_latency(fixed_demand=rounds * (base + slope), load_demand=load_demand, rate=rate))
    most = 30 + int(3 * rate * closed + 40 * math.sqrt(rate * closed + 1) * (1 + 1 / (1 - share)))
    batch = np.arange(1.0, min(most, 60_000) + 1)
    server = Server(prefill_time=prefill, round_time=base + slope * batch, rounds=rounds, output_tokens=51.0)
    if batch[-1] < most or server.saturation_rate < 1.01 * rate:
        return  # so many that the chain would be cut
    mean = float(server.steady(np.array([rate])).batch[0])
    assert mean == pytest.approx(rate * closed, rel=1e-6)
    fixed_point = brentq(lambda b: decoding * rounds * (base + slope * (1 + b)) - b, 0.0, 10 * mean + 10)
    assert mean == pytest.approx(fixed_point, rel=1e-6)


def test_the_fixed_point_of_littles_law_is_near_for_real_rounds(dense, mixture):
    for curve, tolerance in ((dense, 0.05), (mixture, 0.08)):
        for server in curve.servers:
            batch = np.arange(1.0, server.max_batch + 1)
            for share in (0.05, 0.3, 0.6):
                rate = share * server.saturation_rate
                decoding = rate / (1 - rate * server.prefill_load)

                def excess(mean, server=server, batch=batch, decoding=decoding):
                    return decoding * server.rounds * np.interp(1.0 + mean, batch, server.round_time) - mean

                fixed_point = brentq(excess, 0.0, server.max_batch - 1.0)
                assert float(server.steady(np.array([rate])).batch[0]) == pytest.approx(fixed_point, rel=tolerance)


def test_a_dense_model_gains_alone_and_loses_when_full(dense):
    three = 2
    assert dense.speedup[three, 0] > 1.5
    assert 0.7 < dense.break_even_rate[three] / dense.saturation_rate[0] < 1.0
    around = dense.at(dense.break_even_rate[three] * np.array([0.99, 1.0, 1.01]))
    assert around.speedup[three, 0] > 1 > around.speedup[three, 2]
    assert around.speedup[three, 1] == pytest.approx(1.0, abs=1e-6)
    assert dense.saturation_rate[three] < dense.saturation_rate[0]
    longer, shorter = dense.break_even_rate[3], dense.break_even_rate[2]
    assert longer < shorter  # the longer the draft, the sooner it hurts


def test_the_closed_form_is_near_where_rounds_are_nearly_linear(dense):
    assert dense.linear_error[2] < 0.3
    assert dense.linear_break_even_rate[2] == pytest.approx(dense.break_even_rate[2], rel=0.03)
    assert dense.linear_break_even_rate[3] == pytest.approx(dense.break_even_rate[3], rel=0.1)
    assert math.isnan(dense.linear_break_even_rate[0])


def test_a_mixture_gains_more_under_load_and_where_memory_fills(mixture):
    assert mixture.memory_bound.all()
    assert (mixture.saturation_rate[1:] > mixture.saturation_rate[0]).all()
    three = mixture.speedup[2][~mixture.saturated[0]]
    assert three[-1] > three[0] > 1
    assert np.isinf(mixture.break_even_rate[1:]).all()


def test_ranges_in_which_drafting_pays_are_those_of_the_curve():
    slow = lm.Draft.model(lm.load_model("Qwen3-0.6B"))
    curve = lm.serve(MIXTURE, MACHINE, draft=slow, acceptance=0.6, draft_length=[1, 2, 4], prompt_tokens=256)
    curve = curve.at(np.geomspace(1e-3, 0.999, 400) * curve.saturation_rate.max())
    for row, ranges in enumerate(curve.pays):
        inside = np.zeros(curve.rate.shape, dtype=bool)
        for start, end in ranges:
            inside |= (curve.rate > start) & (curve.rate < end)
        sustained = ~curve.saturated[row]
        np.testing.assert_array_equal(inside[sustained], (curve.latency[row] < curve.latency[0])[sustained])
    assert any(ranges and ranges[0].start > 0 for ranges in curve.pays)  # pays only once experts are shared


def test_what_never_pays_has_no_range():
    curve = lm.serve(DENSE, MACHINE, acceptance=0.0, draft_length=2, rate=1.0)
    assert curve.pays == ((), ())
    assert np.isnan(curve.break_even_rate).all()
    assert np.isnan(curve.linear_break_even_rate).all()


@pytest.mark.parametrize("limit", [{"tpot": 0.012}, {"ttft": 0.05}, {"latency": 6.0}, {"tpot": 0.02, "latency": 5.0}])
def test_goodput_is_the_highest_rate_within_the_limits(dense, limit):
    rates = dense.goodput(**limit)
    for row, rate in enumerate(rates):
        assert 0 < rate <= dense.saturation_rate[row]
        below, above = dense.at(rate * 0.999), dense.at(rate * 1.001)
        assert all(getattr(below, name)[row] <= most for name, most in limit.items())
        assert any(getattr(above, name)[row] > most for name, most in limit.items()) or above.saturated[row]


def test_goodput_of_promises_nobody_keeps_or_breaks(dense):
    np.testing.assert_array_equal(dense.goodput(latency=1e-3), 0.0)
    np.testing.assert_allclose(dense.goodput(tpot=1e3), dense.saturation_rate)
    np.testing.assert_array_equal(dense.goodput(), dense.saturation_rate)
    assert (dense.goodput(tpot=0.01) <= dense.goodput(tpot=0.02)).all()


def test_replicas_and_stages_share_the_requests():
    def at(rate, **layout):
        ranks = lm.Parallelism(**layout)
        return lm.serve(DENSE, MACHINE, rate=rate, acceptance=0.7, draft_length=2, engine="none", parallelism=ranks)

    one, two = at([2, 10]), at([4, 20], dp=2)
    np.testing.assert_allclose(two.latency, one.latency, rtol=1e-6)
    np.testing.assert_allclose(two.batch, 2 * one.batch, rtol=1e-6)
    np.testing.assert_allclose(two.saturation_rate, 2 * one.saturation_rate, rtol=1e-6)
    stages = at([2, 10], pp=2)
    assert (stages.saturation_rate > 1.5 * one.saturation_rate).all()
    assert (stages.latency[:, 0] > 0.9 * one.latency[:, 0]).all()


def test_a_smaller_batch_is_full_sooner_and_memory_is_the_last_limit():
    few, many = (lm.serve(DENSE, MACHINE, rate=1.0, acceptance=0.7, max_batch=most) for most in (16, 65536))
    assert (few.saturation_rate < many.saturation_rate).all()
    assert (few.max_batch == 16).all()
    assert not few.memory_bound.any()
    assert many.memory_bound.all()
    fits = lm.optimize(DENSE, MACHINE, acceptance=0.7, batch=1, context=1024 + 128, max_draft_length=3).memory
    assert many.max_batch[1] == fits.largest_batch


@pytest.mark.parametrize("draft", ["self", "ngram", "parallel", "mtp"])
def test_one_sequence_at_a_time_is_a_queue_with_one_server(draft):
    curve = lm.serve(DENSE, MACHINE, draft=draft, rate=[1e-12, 0.1, 1e9], max_batch=1, output_tokens=32)
    for row, server in enumerate(curve.servers):
        assert server.linear.fixed_demand == pytest.approx(server.prefill_time + server.rounds * server.round_time[0])
        assert server.linear.error == pytest.approx(0.0, abs=1e-12)
        assert curve.latency[row, 0] == pytest.approx(server.linear.fixed_demand)
        assert curve.saturated[row].tolist() == [False, False, True]


def test_intervals_are_those_of_a_machine_slower_or_faster_throughout(dense):
    deviation = 1.2815515655446004 * dense.round.estimates.tpot.deviation
    for sign, ends in zip((-1.0, 1.0), dense.interval, strict=True):
        for row, server in enumerate(dense.servers):
            for index, rate in enumerate(dense.rate):
                factor = float(np.exp(sign * deviation[row, index]))
                other = attrs.evolve(
                    server,
                    prefill_time=factor * server.prefill_time,
                    joined_prefill=factor * server.joined_prefill,
                    round_time=factor * server.round_time,
                ).steady(np.array([rate]))
                assert ends.latency[row, index] == pytest.approx(float(other.latency[0]))
                assert ends.tpot[row, index] == pytest.approx(float(other.tpot[0]))
    low, high = dense.interval
    assert (low.latency <= dense.latency).all()
    assert (dense.latency <= high.latency).all()


def test_the_round_at_the_mean_batch_is_that_of_speculate(mixture):
    context = mixture.prompt_tokens + mixture.output_tokens / 2
    one = lm.speculate(
        MIXTURE, MACHINE, acceptance=VECTOR, draft_length=3, batch=max(mixture.batch[2, 3], 1), context=context
    )
    assert mixture.round.time[2, 3] == pytest.approx(float(one.time))
    assert mixture.round.speedup[2, 3] == pytest.approx(float(one.speedup))


def test_shapes_and_rows():
    curve = lm.serve(DENSE, MACHINE, acceptance=0.7, draft_length=[3, 1, 3], rate=[[1.0, 2.0], [3.0, 900.0]])
    assert curve.draft_length.tolist() == [0, 1, 3]
    assert curve.latency.shape == curve.speedup.shape == curve.prefill_share.shape == (3, 2, 2)
    rows = curve.rows()
    assert [(row["rate_per_s"], row["draft_length"]) for row in rows[:4]] == [(1, 0), (1, 1), (1, 3), (2, 0)]
    assert rows[-1]["latency_s"] is None
    assert rows[-1]["saturated"] is True
    assert rows[4]["latency_s"] == curve.latency[1, 0, 1]
    assert lm.serve(DENSE, MACHINE, rate=1.0).latency.shape == (2,)
    assert len(lm.serve(DENSE, MACHINE).rate) == 9


def test_many_rates_and_batches_stay_within_memory_and_agree_with_few():
    curve = lm.serve(
        DENSE, MACHINE, acceptance=0.7, rate=np.linspace(0.1, 30, 2000), prompt_tokens=64, output_tokens=64
    )
    for index in (0, 1000, 1999):
        np.testing.assert_allclose(curve.at(curve.rate[index]).latency, curve.latency[:, index])


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"rate": 0}, "rate must be from 1e-12 to 1e9 requests a second, got 0"),
        ({"rate": [1, math.nan]}, "rate must be from 1e-12"),
        ({"rate": math.inf}, "rate must be from 1e-12"),
        ({"rate": "fast"}, "rate must be from 1e-12 .*, got 'fast'"),
        ({"rate": []}, "got an empty list"),
        ({"rate": np.ones(10_001)}, "rate: at most 10,000 values, got 10,001"),
        ({"draft_length": range(20)}, "draft_length: at most 17 values"),
        ({"draft_length": 2.5}, "draft_length must be an integer"),
        ({"prompt_tokens": 0}, "prompt_tokens must be at least 1 token, got 0"),
        ({"output_tokens": 1}, "output_tokens must be at least 2 tokens, got 1"),
        ({"max_batch": 2.5}, "max_batch must be an integer from 1 to 65536, got 2.5"),
        ({"prompt_tokens": 10**6}, "not even one sequence of 1,000,128 tokens fits beside the weights; try shorter"),
        ({"draft": lm.Draft.model(lm.load_model("Meta-Llama-3.1-70B"))}, "without this drafter it fits"),
    ],
)
def test_a_mistake_is_one_sentence(asked, said):
    with pytest.raises(lm.InputError, match=said):
        lm.serve(DENSE, MACHINE, **asked)


@pytest.mark.parametrize("limit", [0, -1.0, math.nan, math.inf, "20ms", True])
def test_a_promise_is_a_number_of_seconds(dense, limit):
    with pytest.raises(lm.InputError, match="the limit on tpot must be a number of seconds above 0"):
        dense.goodput(tpot=limit)
