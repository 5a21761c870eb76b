"""How sure predictions are: intervals, the probability of a gain, and what makes them wider."""

from __future__ import annotations

import math
from statistics import NormalDist

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import latency_model as lm
from latency_model.costs.setting import Setting
from latency_model.costs.uncertainty import INTERVAL_80, MODEL_ERRORS, Estimate, uncertain_constants
from latency_model.formulas import exceedance_probability
from latency_model.specs.quantity import KIND_ERRORS, KINDS, Quantity

DENSE, MOE, MACHINE = "Qwen3-8B", "Qwen3-30B-A3B", "h100-sxm"
VECTOR = lm.Acceptance.conditional([0.70, 0.62, 0.60, 0.58])
NAMES = ("baseline_time", "time", "tpot", "speedup")

positive = st.floats(0.01, 100.0)
deviations = st.floats(1e-6, 3.0)


@given(positive, deviations, positive)
def test_probability_is_that_of_the_normal_of_the_logarithm(best: float, deviation: float, threshold: float) -> None:
    expected = NormalDist(math.log(best), deviation).cdf(math.log(threshold))
    assert exceedance_probability(best, deviation, threshold=threshold) == pytest.approx(1.0 - expected, abs=1e-9)


@given(st.lists(positive, min_size=2, max_size=9), deviations)
def test_probability_lies_between_0_and_1_and_rises_with_the_best(values: list[float], deviation: float) -> None:
    found = exceedance_probability(np.sort(values), deviation)
    assert (found >= 0.0).all()
    assert (found <= 1.0).all()
    assert (np.diff(found) >= 0.0).all()


@pytest.mark.parametrize(("best", "limit"), [(1.01, 1.0), (0.99, 0.0)])
def test_probability_becomes_certain_as_the_width_goes_to_0(best: float, limit: float) -> None:
    widths = np.array([0.1, 0.01, 1e-3, 1e-6, 0.0])
    found = exceedance_probability(best, widths)
    assert (np.abs(np.diff(np.abs(found - limit))) >= 0.0).all()
    assert found[0] != limit
    assert found[-2:].tolist() == [limit, limit]


def test_what_is_exactly_at_the_threshold_is_not_above_it() -> None:
    assert exceedance_probability(1.0, 0.0) == 0.0
    assert exceedance_probability(1.0, 1e-9) == 0.5


@given(positive, deviations)
def test_an_interval_holds_the_best_and_four_fifths(best: float, deviation: float) -> None:
    guess = Estimate(best=np.array(best), deviation=np.array(deviation))
    assert guess.low < best < guess.high
    inside = guess.probability_above(guess.low) - guess.probability_above(guess.high)
    assert inside == pytest.approx(0.8, abs=1e-9)


def moved_times(point: lm.Round, samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Plain steps and rounds with every uncertain constant and the errors of the model drawn at random [s]."""
    many = lm.speculate(
        point.setting.model,
        point.setting.hardware,
        draft=point.draft,
        acceptance=point.acceptance,
        draft_length=point.draft_length,
        batch=np.full(samples, float(point.batch)),
        context=point.context,
        engine=point.setting.engine,
        parallelism=point.setting.parallelism,
    )
    cost, rng = many.cost, np.random.default_rng(seed)
    scales: dict[tuple[str, str], np.ndarray] = {}
    for constant in uncertain_constants((cost.verify, cost.draft_step, cost.once), many.setting):
        factor = (1.0 + constant.deviation) ** rng.standard_normal(samples)
        for term in constant.terms:
            scales[term] = scales.get(term, 1.0) * factor
    common = np.exp(MODEL_ERRORS.common * rng.standard_normal(samples))
    plain, verify, draft = (np.exp(MODEL_ERRORS.own * rng.standard_normal(samples)) for _ in range(3))
    round_time = (
        cost.verify.scaled_time(scales) * verify + cost.draft_time(scales) * draft + cost.overhead_time(scales)
    ) * common
    return cost.baseline.scaled_time(scales) * plain * common, round_time


@pytest.mark.parametrize(
    ("model", "machine", "draft", "length", "batch", "layout"),
    [
        (DENSE, MACHINE, "eagle3", 3, 16, lm.Parallelism()),
        (MOE, MACHINE, "eagle3", 2, 4, lm.Parallelism()),
        (MOE, "mi300x", "ngram", 4, 64, lm.Parallelism(tp=2)),
        (DENSE, "h20", lm.Draft.model(lm.load_model("Qwen3-0.6B")), 5, 1, lm.Parallelism()),
    ],
)
def test_intervals_and_probability_are_those_of_sampling(model, machine, draft, length, batch, layout) -> None:
    acceptance = attrs.evolve(VECTOR, uncertainty=0.0)
    point = lm.speculate(
        model, machine, draft=draft, acceptance=acceptance, draft_length=length, batch=batch, parallelism=layout
    )
    plain, round_time = moved_times(point, samples=2000, seed=batch)
    sampled = {
        "baseline_time": plain,
        "time": round_time,
        "tpot": round_time / point.tokens_per_round,
        "speedup": point.tokens_per_round * plain / round_time,
    }
    for name, values in sampled.items():
        found = getattr(point.estimates, name)
        width = np.log(np.quantile(values, 0.9) / np.quantile(values, 0.1))
        assert np.log(found.high / found.low) == pytest.approx(width, rel=0.12), name
        # Sums of log-normals lean upwards, which the first order does not see: least where little is uncertain.
        for threshold in np.quantile(values, [0.2, 0.5, 0.8]):
            assert found.probability_above(threshold) == pytest.approx(np.mean(values > threshold), abs=0.09), name


def test_acceptance_adds_what_moving_it_does() -> None:
    sure, unsure = (
        lm.speculate(DENSE, MACHINE, acceptance=attrs.evolve(VECTOR, uncertainty=u), draft_length=3) for u in (0.0, 0.1)
    )
    tokens = [unsure.acceptance.shifted(side).tokens_per_round(3) for side in (-1.0, 1.0)]
    added = np.log(tokens[1] / tokens[0]) / 2.0
    for name in ("tpot", "speedup"):
        before, after = (getattr(each.estimates, name).deviation for each in (sure, unsure))
        assert after**2 - before**2 == pytest.approx(added**2), name
    for name in ("baseline_time", "time"):
        before, after = (getattr(each.estimates, name).deviation for each in (sure, unsure))
        assert after == before, name


def with_blocks(machine: str, **changes: object) -> lm.HardwareProfile:
    """A device with every efficiency block changed."""
    profile = lm.load_hardware(machine)
    changed = {
        key: attrs.evolve(block, **{name: new(block) if callable(new) else new for name, new in changes.items()})
        for key, block in profile.efficiencies.items()
    }
    return attrs.evolve(profile, efficiencies=changed)


@pytest.mark.parametrize("part", ["compute", "memory", "overhead"])
def test_a_less_certain_constant_widens_every_interval(part: str) -> None:
    name = f"{part}_uncertainty"
    wider = with_blocks(MACHINE, **{name: lambda block: 2.0 * getattr(block, name)})
    for batch in (1, 512):
        before, after = (
            lm.speculate(DENSE, machine, draft_length=3, batch=batch).estimates for machine in (MACHINE, wider)
        )
        for quantity in NAMES:
            assert getattr(after, quantity).deviation > getattr(before, quantity).deviation, quantity


@pytest.mark.parametrize("model", [DENSE, MOE])
def test_the_same_constants_are_less_certain_the_further_they_come(model: str) -> None:
    widths = []
    for kind in ("measured", "transferred", "assumed"):
        point = lm.speculate(model, with_blocks(MACHINE, kind=kind), draft_length=3, batch=[1, 64])
        widths.append([getattr(point.estimates, name).deviation for name in NAMES])
    assert (np.diff(widths, axis=0) > 0.0).all()


def test_kinds_stand_in_the_order_of_their_errors() -> None:
    errors = [KIND_ERRORS[kind] for kind in KINDS]
    assert errors == sorted(errors)
    numbers = [Quantity(value=1.0, source="s", kind=kind, uncertainty=0.1).deviation for kind in KINDS]
    assert numbers == sorted(numbers)
    assert numbers[0] == 0.1


def test_a_plain_step_is_its_own_baseline() -> None:
    point = lm.speculate(MOE, MACHINE, draft_length=0, batch=[1, 64])
    assert (point.estimates.speedup.deviation == 0.0).all()
    assert (point.estimates.speedup.low == 1.0).all()
    assert (point.estimates.speedup.high == 1.0).all()
    assert (point.speedup_probability == 0.0).all()
    step = lm.step_cost(MOE, MACHINE, batch=[1, 64])
    for end in ("low", "best", "high"):
        expected = getattr(step.estimate, end)
        np.testing.assert_allclose(getattr(point.estimates.baseline_time, end), expected)
        np.testing.assert_allclose(getattr(point.estimates.time, end), expected)
        np.testing.assert_allclose(getattr(point.estimates.tpot, end), expected)


def test_a_speedup_is_surer_than_the_times_it_is_made_of() -> None:
    point = lm.speculate(DENSE, MACHINE, acceptance=VECTOR, draft_length=[1, 3, 5], batch=16).estimates
    assert (point.speedup.deviation < point.baseline_time.deviation).all()
    assert (point.speedup.deviation < point.time.deviation).all()


def test_a_calibrated_engine_has_no_error_of_the_model_left_to_add() -> None:
    machine = lm.load_hardware(MACHINE)
    own = lm.load_engine("vllm").per_step
    calibrated = attrs.evolve(machine, host_times={("vllm", "per_step"): own})
    before, after = (lm.speculate(DENSE, each, draft_length=3).estimates for each in (machine, calibrated))
    errors = before.baseline_time.deviation**2 - after.baseline_time.deviation**2
    assert errors == pytest.approx(MODEL_ERRORS.common**2 + MODEL_ERRORS.own**2)
    other = lm.speculate(DENSE, calibrated, draft_length=3, engine="sglang").estimates
    plain = lm.speculate(DENSE, machine, draft_length=3, engine="sglang").estimates
    assert other.speedup.deviation == plain.speedup.deviation


def test_many_points_at_once_are_as_sure_as_one_by_one() -> None:
    batch, length = np.array([1, 8, 512]), np.array([0, 1, 4])
    every = lm.speculate(MOE, MACHINE, batch=batch[:, None], draft_length=length)
    for i, j in np.ndindex(3, 3):
        one = lm.speculate(MOE, MACHINE, batch=batch[i], draft_length=length[j])
        assert every.speedup_probability[i, j] == pytest.approx(float(one.speedup_probability))
        for name in NAMES:
            whole = np.broadcast_to(getattr(every.estimates, name).high, (3, 3))
            assert whole[i, j] == pytest.approx(float(getattr(one.estimates, name).high)), name


def test_a_plan_a_sweep_and_a_round_agree() -> None:
    plan = lm.optimize(MOE, MACHINE, acceptance=VECTOR, batch=8)
    point = lm.speculate(MOE, MACHINE, acceptance=VECTOR, batch=8, draft_length=plan.draft_length)
    grid = lm.sweep(MOE, MACHINE, acceptance=VECTOR, batch=8, draft_length=int(plan.draft_length), quantity="all")
    row = plan.rows()[0]
    probability = float(point.speedup_probability)
    assert 0.5 < probability < 1.0
    assert float(plan.speedup_probability) == pytest.approx(probability)
    assert float(grid.speedup_probability) == pytest.approx(probability)
    assert row["speedup_probability"] == pytest.approx(probability)
    columns = {"baseline_time": "baseline_tpot", "time": "time_per_round", "tpot": "tpot"}
    for name, column in columns.items():
        estimate = getattr(point.estimates, name)
        for end in ("low", "high"):
            value = float(getattr(estimate, end))
            assert row[f"{column}_{end}_s"] == pytest.approx(value)
            assert float(grid[f"{'round_time' if name == 'time' else name}_{end}"]) == pytest.approx(value)


def test_a_speedup_cannot_exceed_the_tokens_of_a_round() -> None:
    point = lm.speculate(DENSE, MACHINE, acceptance=lm.Acceptance.constant(1.0), draft_length=[1, 2, 4])
    assert (point.estimates.speedup.high <= np.array([2.0, 3.0, 5.0])).all()
    assert (point.estimates.speedup.high >= point.speedup).all()


def test_an_80_percent_interval_is_what_its_name_says() -> None:
    assert NormalDist().cdf(INTERVAL_80) - NormalDist().cdf(-INTERVAL_80) == pytest.approx(0.8)


def test_every_uncertain_number_of_the_engine_counts() -> None:
    setting = Setting.of(DENSE, MACHINE)
    terms = {constant.terms for constant in uncertain_constants((), setting)}
    uncertain = {
        name
        for name, value in attrs.asdict(setting.engine, recurse=False).items()
        if isinstance(value, Quantity) and value.deviation > 0.0
    }
    assert {(("engine", name),) for name in uncertain} <= terms
    assert {"per_step", "per_round"} <= uncertain
