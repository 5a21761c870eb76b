"""The plan is the best there is, knows how sure it is, and has the shapes the field reports."""

from __future__ import annotations

import itertools

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import latency_model as lm
from latency_model.costs.memory import memory_use
from latency_model.costs.setting import Setting
from latency_model.costs.uncertainty import INTERVAL_80, MODEL_ERRORS
from latency_model.decisions.optimize import SCHEDULE_TOLERANCE, Switch

DENSE, MOE = "Meta-Llama-3.1-8B", "Qwen3-30B-A3B"
H100, ROOMY = "h100-sxm", "b300-sxm"  # 80 GB and 288 GB
VECTOR = lm.Acceptance.conditional([0.70, 0.62, 0.60, 0.58])


@settings(max_examples=20)
@given(
    batch=st.lists(st.integers(1, 64), min_size=1, max_size=2),
    context=st.integers(0, 20_000),
    acceptance=st.lists(st.floats(0, 1), min_size=1, max_size=5),
    longest=st.integers(0, 12),
)
def test_best_equals_brute_force(batch: list[int], context: int, acceptance: list[float], longest: int) -> None:
    accepted = lm.Acceptance.conditional(acceptance)
    plan = lm.optimize(MOE, ROOMY, acceptance=accepted, batch=batch, context=context, max_draft_length=longest)
    for index, size in enumerate(batch):
        tried = [
            float(lm.speculate(MOE, ROOMY, acceptance=accepted, draft_length=g, batch=size, context=context).speedup)
            for g in range(longest + 1)
        ]
        assert plan.speedup[index] == pytest.approx(max(tried))
        assert tried[plan.draft_length[index]] == pytest.approx(max(tried))
        low, high = plan.plateau[index]
        assert low <= plan.draft_length[index] <= high
        assert min(tried[low : high + 1]) >= 0.99 * max(tried) * (1 - 1e-12)
        np.testing.assert_allclose(plan.curve[index], tried)


def test_shape_is_batch_then_context() -> None:
    assert lm.optimize(MOE, H100, acceptance=0.7).draft_length.shape == ()
    assert lm.optimize(MOE, H100, acceptance=0.7, batch=[1, 2]).draft_length.shape == (2,)
    plan = lm.optimize(MOE, H100, acceptance=0.7, batch=[1, 2], context=[100, 200, 300])
    assert plan.draft_length.shape == (2, 3)
    assert plan.plateau.shape == (2, 3, 2)
    assert plan.curve.shape == (2, 3, 17)
    rows = plan.rows()
    assert [(row["batch"], row["context_tokens"]) for row in rows] == [(b, c) for b in (1, 2) for c in (100, 200, 300)]
    assert [row["speedup"] for row in rows] == plan.speedup.ravel().tolist()


@pytest.mark.parametrize("model", [DENSE, MOE])
@pytest.mark.parametrize("draft", [lm.Draft.eagle(), lm.Draft.ngram()], ids=["eagle3", "ngram"])
def test_break_even_acceptance_is_where_speculation_starts_to_pay(model: str, draft: lm.Draft) -> None:
    plan = lm.optimize(model, ROOMY, draft=draft, acceptance=0.7, batch=[1, 8, 256], context=1024)
    for size, alpha in zip([1, 8, 256], plan.break_even_acceptance, strict=True):
        below, above = (
            lm.optimize(model, ROOMY, draft=draft, acceptance=float(alpha) + d, batch=size, context=1024)
            for d in (-1e-6, 1e-6)
        )
        assert below.draft_length == 0
        assert above.draft_length > 0


def test_nothing_pays_when_drafting_costs_more_than_decoding() -> None:
    slow = lm.Draft.ngram(host_time=10.0)
    plan = lm.optimize(DENSE, H100, draft=slow, acceptance=1.0)
    assert plan.draft_length == 0
    assert plan.speedup == 1.0
    assert np.isnan(plan.break_even_acceptance)


def test_intervals_contain_the_best_and_widen_with_ignorance() -> None:
    sure, unsure = (
        lm.optimize(MOE, H100, acceptance=attrs.evolve(VECTOR, uncertainty=u), batch=[1, 16, 256]) for u in (0.0, 0.1)
    )
    for plan in (sure, unsure):
        assert (plan.speedup_low <= plan.speedup).all()
        assert (plan.speedup <= plan.speedup_high).all()
        assert (plan.tpot_low <= plan.best.tpot).all()
        assert (plan.best.tpot <= plan.tpot_high).all()
    assert (unsure.speedup_high / unsure.speedup_low > sure.speedup_high / sure.speedup_low).all()


def test_interval_agrees_with_sampling() -> None:
    machine = lm.load_hardware(H100)
    known = {key: attrs.evolve(block, kind="measured") for key, block in machine.efficiencies.items()}
    machine = attrs.evolve(machine, efficiencies=known)
    plan = lm.optimize(DENSE, machine, acceptance=attrs.evolve(VECTOR, uncertainty=0.0), batch=16, engine="none")
    length = int(plan.draft_length)
    rng = np.random.default_rng(5)
    speeds = []
    used = ("gemm", "attention_decode", "elementwise")
    for _ in range(400):
        draws = {kind: np.exp(rng.normal(size=3)) for kind in used}

        def moved(key: tuple[str, str], block, draws=draws):
            if key[0] not in draws:
                return block
            c, m, o = draws[key[0]]
            return attrs.evolve(
                block,
                compute=block.compute * c**block.compute_uncertainty,
                memory=block.memory * m**block.memory_uncertainty,
                overhead=block.overhead * o**block.overhead_uncertainty,
            )

        drawn = attrs.evolve(machine, efficiencies={k: moved(k, v) for k, v in machine.efficiencies.items()})
        speeds.append(
            float(lm.speculate(DENSE, drawn, acceptance=VECTOR, draft_length=length, batch=16, engine="none").speedup)
        )
    low, high = np.quantile(speeds, [0.1, 0.9])
    # What the step model leaves out is not among the constants drawn: its share is known by hand.
    verifying, drafting = plan.best.verify_time / plan.best.time, plan.best.draft_time / plan.best.time
    of_the_model = MODEL_ERRORS.own * np.sqrt(1.0 + verifying**2 + drafting**2)
    of_constants = np.log(high / low) / (2.0 * INTERVAL_80)
    assert plan.estimates.speedup.deviation == pytest.approx(np.hypot(of_constants, of_the_model), rel=0.05)
    assert np.sqrt(plan.estimates.speedup.deviation**2 - of_the_model**2) == pytest.approx(of_constants, rel=0.2)


def test_moe_speedup_dips_peaks_and_declines_with_batch() -> None:
    # Cohere's MoE study and MoESD arXiv 2505.19645: fixed costs ride free at batch 1, then experts are still being
    # added, then all are loaded anyway, then arithmetic limits.
    batch = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024])
    for context in (512, 1024, 4096):
        curve = lm.speculate(MOE, H100, acceptance=VECTOR, draft_length=3, batch=batch, context=context).speedup
        assert curve[0] > curve[1] > curve[2]
        assert batch[np.argmin(curve[:5])] in (2, 4, 8)
        peak = int(np.argmax(curve))
        assert 32 <= batch[peak] <= 256
        assert (np.diff(curve[peak:]) < 0).all()


def test_dense_speedup_only_falls_with_batch() -> None:
    batch = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024])
    curve = lm.speculate(DENSE, H100, acceptance=VECTOR, draft_length=3, batch=batch, context=512).speedup
    assert (np.diff(curve) < 0).all()


def test_long_context_keeps_speculating_at_batches_where_short_context_does_not() -> None:
    # MagicDec arXiv 2408.11049: with a long context the cache, read once, dominates even at large batch.
    plan = lm.optimize(
        "Meta-Llama-3.1-70B",
        "h200-sxm",
        acceptance=VECTOR,
        batch=[1, 64, 256, 512],
        context=[1024, 32768],
        parallelism=lm.Parallelism(tp=8),
    )
    short, long = plan.draft_length[:, 0], plan.draft_length[:, 1]
    assert (long >= short).all()
    assert long[-1] > short[-1]
    assert plan.speedup[-1, 1] > plan.speedup[-1, 0]


@pytest.mark.parametrize("model", [DENSE, MOE])
def test_switches_cover_every_batch_with_its_best(model: str) -> None:
    plan = lm.optimize(model, ROOMY, acceptance=VECTOR, batch=[1, 300], context=[1024, 8192])
    batches = np.arange(1, 301)
    best = lm.optimize(model, ROOMY, acceptance=VECTOR, batch=batches, context=[1024, 8192])
    for column, (exact, short) in enumerate(zip(plan.batch_switches, plan.schedules, strict=True)):
        assert np.array_equal(_expanded(exact), best.draft_length[:, column])
        chosen = best.curve[np.arange(300), column, _expanded(short)]
        assert (chosen >= (1 - SCHEDULE_TOLERANCE) * best.speedup[:, column]).all()
        assert len(short) <= len(exact)
    for row, ranges in zip((0, 1), plan.context_switches, strict=True):
        assert ranges[0].start == 0
        at_1024 = next(switch.draft_length for switch in ranges if switch.start <= 1024 <= switch.end)
        assert abs(at_1024 - plan.draft_length[row, 0]) <= 1  # contexts are scanned in steps of 4 %


def _expanded(ranges: tuple[Switch, ...]) -> np.ndarray:
    assert all(a.end + 1 == b.start for a, b in itertools.pairwise(ranges))
    return np.concatenate([np.full(end - start + 1, length) for start, end, length in ranges])


def test_lever_and_bound_name_the_same_physics() -> None:
    plan = lm.optimize(MOE, H100, acceptance=VECTOR, batch=[8, 64], context=1024)
    assert (plan.held_back_by == "expert bytes").all()
    assert (plan.lever == "expert bytes").all()
    # Halving a term that takes share s of the round at the same draft length saves about s/2 or more.
    assert (plan.lever_gain >= 0.9 * plan.held_back_share / 2).all()


def test_memory_by_hand() -> None:
    setting = Setting.of(DENSE, H100)
    use = memory_use(setting, None, batch=np.array(10.0), context=np.array(4095.0), draft_length=np.array(0.0))
    model = lm.load_model(DENSE)
    assert use.weights == pytest.approx(model.weight_bytes)
    assert use.cache == 10 * 4096 * model.kv_bytes_per_token()
    assert use.capacity == 0.9 * 80e9
    most = use.largest_batch
    assert (
        use.weights + most * use.cache_per_sequence <= use.capacity < use.weights + (most + 1) * use.cache_per_sequence
    )


@pytest.mark.parametrize(
    "ranks", [lm.Parallelism(tp=2), lm.Parallelism(tp=8), lm.Parallelism(dp=4, ep=4), lm.Parallelism(pp=2)]
)
def test_ranks_share_the_weights(ranks: lm.Parallelism) -> None:
    def weights(parallelism: lm.Parallelism) -> float:
        setting = Setting.of(MOE, H100, parallelism=parallelism)
        return memory_use(setting, None, batch=np.array(1.0), context=np.array(0.0), draft_length=np.array(0.0)).weights

    whole, share = weights(lm.Parallelism()), weights(ranks)
    assert whole / ranks.devices <= share * (1 + 1e-9)
    assert share < whole


def test_rows_that_do_not_fit_are_marked_and_none_fitting_is_an_error() -> None:
    plan = lm.optimize(DENSE, H100, acceptance=0.7, batch=[1, 1000], context=32768)
    assert [row["fits"] for row in plan.rows()] == [True, False]
    with pytest.raises(lm.InputError, match="does not fit beside the weights; the largest batch that fits is"):
        lm.optimize(DENSE, H100, acceptance=0.7, batch=1000, context=32768)
    with pytest.raises(lm.InputError, match=r"weights need .* try --tp"):
        lm.optimize("Meta-Llama-3.1-70B", H100, acceptance=0.7)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"max_draft_length": -1}, "max_draft_length must be an integer"),
        ({"max_draft_length": 2.5}, "max_draft_length must be an integer"),
        ({"batch": [1, 0]}, "batch must be at least 1"),
        ({"hardware": "h100-smx"}, "h100-sxm"),
        ({"model": "Qwen3-30B-A3C"}, "Qwen3-30B-A3B"),
    ],
)
def test_wrong_input_is_one_sentence(options: dict[str, object], sentence: str) -> None:
    arguments = {"model": DENSE, "hardware": H100, "acceptance": 0.7} | options
    with pytest.raises(lm.InputError, match=sentence):
        lm.optimize(arguments.pop("model"), arguments.pop("hardware"), **arguments)
