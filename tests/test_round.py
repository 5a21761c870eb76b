"""Laws of a speculative round."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import latency_model as lm
from latency_model.costs import round as round_module
from latency_model.costs.counts import rank_draft_bytes
from latency_model.costs.memory import memory_use
from latency_model.costs.setting import Setting
from latency_model.errors import InputError

DENSE, MOE = "Meta-Llama-3.1-8B", "Qwen3-30B-A3B"
H100 = "h100-sxm"
VECTOR = lm.Acceptance.conditional([0.70, 0.62, 0.60, 0.58])
DRAFTS = {
    "eagle": lm.Draft.eagle(),
    "eagle1": lm.Draft.eagle(version=1),
    "mtp": lm.Draft.mtp(),
    "ngram": lm.Draft.ngram(),
    "parallel": lm.Draft.parallel(),
    "self": lm.Draft.self_speculation(kv_budget=512),
    "model": lm.Draft.model(lm.load_model("Qwen3-0.6B")),
}


@pytest.mark.parametrize("draft", DRAFTS.values(), ids=DRAFTS)
@pytest.mark.parametrize("model", [DENSE, MOE])
def test_no_drafts_is_exactly_plain_decoding(model: str, draft: lm.Draft) -> None:
    round_ = lm.speculate(model, H100, draft=draft, acceptance=VECTOR, draft_length=0, batch=[1, 50])
    np.testing.assert_array_equal(round_.speedup, 1.0)
    np.testing.assert_array_equal(round_.time, round_.baseline_time)


@pytest.mark.parametrize("draft", DRAFTS.values(), ids=DRAFTS)
@given(
    batch=st.integers(1, 512),
    context=st.integers(0, 100_000),
    length=st.integers(1, 16),
    acceptance=st.floats(0, 1),
)
def test_speedup_never_exceeds_tokens_per_round(
    draft: lm.Draft, batch: int, context: int, length: int, acceptance: float
) -> None:
    round_ = lm.speculate(
        MOE, H100, draft=draft, acceptance=acceptance, draft_length=length, batch=batch, context=context
    )
    assert 0 < round_.speedup < round_.tokens_per_round <= length + 1
    assert 0 < round_.target_efficiency <= 1
    assert round_.time == round_.draft_time + round_.verify_time + round_.overhead_time
    assert round_.tpot * round_.tokens_per_second_per_sequence == pytest.approx(1)


@pytest.mark.parametrize("draft", DRAFTS.values(), ids=DRAFTS)
def test_components_add_up_to_the_round(draft: lm.Draft) -> None:
    round_ = lm.speculate(
        MOE,
        H100,
        draft=draft,
        acceptance=VECTOR,
        draft_length=[0, 1, 4],
        batch=[[1], [64]],
        speculation_tax=0.1,
    )
    rows = round_.components
    np.testing.assert_allclose(sum(row["time_s"] for row in rows), round_.time, rtol=1e-12)
    np.testing.assert_allclose(sum(row["share"] for row in rows), 1.0, rtol=1e-12)
    np.testing.assert_allclose(sum(round_.cost.terms().values()), round_.time, rtol=1e-12)
    drafting = sum(row["time_s"] for row in rows if row["phase"] == "draft")
    np.testing.assert_allclose(drafting, np.broadcast_to(round_.draft_time, round_.time.shape), rtol=1e-12)


def test_better_acceptance_and_free_drafting_help() -> None:
    lengths = np.arange(1, 9)
    worse, better = (lm.speculate(DENSE, H100, acceptance=a, draft_length=lengths).speedup for a in (0.5, 0.8))
    assert (better > worse).all()
    free = {"draft": lm.Draft.ngram(host_time=0.0, hit_rate=1.0), "engine": "none"}
    unpaid, paid = (
        lm.speculate(DENSE, H100, acceptance=0.5, draft_length=lengths, **more).speedup
        for more in (free, {"engine": "none"})
    )
    assert (unpaid > paid).all()


def test_a_proposer_that_finds_little_has_little_verified() -> None:
    """At hit rate 0 a round verifies one token, at 1 all of them; in between the step of the mean is taken."""
    shares = (0.0, 0.3, 0.7, 1.0)
    times = [
        lm.speculate(MOE, H100, draft=lm.Draft.ngram(hit_rate=share), acceptance=share, draft_length=5).times
        for share in shares
    ]
    assert times[0].verify == times[0].baseline
    assert times[-1].verify == lm.step_cost(MOE, H100, tokens_per_sequence=6).time
    assert all(np.diff([time.verify for time in times]) > 0)
    with pytest.raises(InputError, match="of the rounds cannot accept a first draft"):
        lm.speculate(MOE, H100, draft=lm.Draft.ngram(hit_rate=0.55), acceptance=0.9, draft_length=5)


def test_blocks_and_tables_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    points = {
        "batch": rng.integers(1, 300, 3000),
        "context": rng.integers(0, 70000, 3000),
        "draft_length": rng.integers(0, 9, 3000),
    }
    whole = lm.speculate(MOE, H100, acceptance=VECTOR, **points)
    monkeypatch.setattr(round_module, "BLOCK", 100)
    cut = lm.speculate(MOE, H100, acceptance=VECTOR, **points)
    np.testing.assert_allclose(cut.speedup, whole.speedup, rtol=1e-12)
    one_by_one = [
        float(lm.speculate(MOE, H100, acceptance=VECTOR, batch=b, context=s, draft_length=g).speedup)
        for b, s, g in list(zip(*points.values(), strict=True))[:30]
    ]
    np.testing.assert_allclose(whole.speedup[:30], one_by_one, rtol=1e-12)


@pytest.mark.parametrize(
    "shapes", [((7, 1, 1), (5, 1), (4,)), ((3, 1), (1, 5), ()), ((), (), (6,)), ((4,), (2, 1, 1), (3, 1))]
)
def test_grids_broadcast_like_numpy(monkeypatch: pytest.MonkeyPatch, shapes: tuple[tuple[int, ...], ...]) -> None:
    rng = np.random.default_rng(4)
    batch, context, length = (
        rng.integers(low, high, shape) for (low, high), shape in zip(((1, 99), (0, 9999), (0, 9)), shapes, strict=True)
    )
    monkeypatch.setattr(round_module, "BLOCK", 8)
    grid = lm.speculate(MOE, H100, acceptance=VECTOR, batch=batch, context=context, draft_length=length)
    flat = np.broadcast_arrays(batch, context, length)
    assert grid.speedup.shape == flat[0].shape
    points = lm.speculate(
        MOE,
        H100,
        acceptance=VECTOR,
        **dict(zip(("batch", "context", "draft_length"), map(np.ravel, flat), strict=True)),
    )
    np.testing.assert_allclose(grid.speedup.ravel(), points.speedup, rtol=1e-12)


def test_parallel_drafters_take_one_pass() -> None:
    sequential, parallel = (
        lm.speculate(DENSE, H100, draft=draft, acceptance=0.7, draft_length=[1, 4]).draft_time
        for draft in (lm.Draft.eagle(version=1), lm.Draft.parallel())
    )
    assert sequential[1] == pytest.approx(4 * sequential[0])
    assert parallel[1] < 1.05 * parallel[0]
    assert parallel[0] == pytest.approx(sequential[0])


def test_a_draft_model_keeps_its_own_parallelism() -> None:
    def draft_time(target_tp: int, draft_tp: int | None) -> float:
        ranks = None if draft_tp is None else lm.Parallelism(tp=draft_tp)
        draft = lm.Draft.model(lm.load_model("Qwen3-8B"), parallelism=ranks)
        round_ = lm.speculate(
            "Qwen3-32B",
            H100,
            draft=draft,
            acceptance=0.7,
            draft_length=2,
            parallelism=lm.Parallelism(tp=target_tp),
        )
        return float(round_.draft_time)

    assert draft_time(1, None) == draft_time(8, None)
    assert draft_time(8, 4) < draft_time(8, None)


def test_self_speculation_with_the_whole_cache_drafts_at_the_price_of_decoding() -> None:
    draft = lm.Draft.self_speculation(kv_budget=10**6)
    round_ = lm.speculate(DENSE, H100, draft=draft, acceptance=0.9, draft_length=2, context=8000, engine="none")
    assert float(round_.draft_time) == pytest.approx(2 * float(round_.baseline_time))
    small = lm.Draft.self_speculation(kv_budget=512)
    shorter = lm.speculate(
        DENSE,
        H100,
        draft=small,
        acceptance=0.9,
        draft_length=2,
        batch=64,
        context=[512, 32000],
        engine="none",
    )
    assert shorter.draft_time[0] == shorter.draft_time[1]


def test_price_and_devices() -> None:
    ranks = lm.Parallelism(tp=2)
    one, two = (
        lm.speculate(DENSE, H100, acceptance=0.7, draft_length=3, batch=8, parallelism=p, price=3.6)
        for p in (None, ranks)
    )
    assert one.dollars_per_million_tokens == pytest.approx(1e6 * 3.6 / 3600 / (8 / one.tpot))
    assert two.tokens_per_second_per_device == pytest.approx(8 / two.tpot / 2)


@pytest.mark.parametrize("mixed", [DENSE, MOE])
def test_what_a_head_is_made_of(mixed: str) -> None:
    target = lm.load_model(mixed)
    head = lm.Draft.eagle().network(target)
    assert head is not None
    assert head.vocab_size == 32000
    assert len(head.layers) == 1
    setting = Setting.of(target, H100)
    own = rank_draft_bytes(head, lm.Parallelism(), own_head=True) + lm.Draft.eagle().feature_fusion(target).bytes
    use = memory_use(setting, lm.Draft.eagle(), batch=np.array(1.0), context=np.array(0.0), draft_length=np.array(1.0))
    assert use.draft_weights == own < 0.15 * target.weight_bytes
    if mixed == DENSE:
        # yuhuili/EAGLE3-LLaMA3.1-Instruct-8B: 2h → q (8192×4096), k, v (8192×1024), o, MLP 3·4096·14336,
        # fc 12288×4096, LM head 32000×4096.
        matrices = 8192 * (4096 + 2 * 1024) + 4096**2 + 3 * 4096 * 14336 + 12288 * 4096 + 32000 * 4096
        assert own == pytest.approx(2 * matrices, rel=1e-3)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"draft_length": 1.5}, "integer from 0"),
        ({"draft_length": -1}, "integer from 0"),
        ({"acceptance": 1.2}, "must be from 0 to 1"),
        ({"acceptance": "0.7"}, "must be a number or an Acceptance"),
        ({"price": -1}, "price must be"),
        ({"speculation_tax": 2}, "speculation_tax must be"),
    ],
)
def test_wrong_input_is_one_sentence(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(lm.InputError, match=sentence):
        lm.speculate(DENSE, H100, **{"draft_length": 2, "acceptance": 0.7} | options)


def test_bare_constructors_work_and_say_what_they_assume() -> None:
    assert lm.Draft.eagle().assumptions
    assert lm.Routing().assumptions
    assert lm.Parallelism().assumptions
    round_ = lm.speculate(MOE, H100, draft_length=2)
    assert any("acceptance" in note for note in round_.assumptions)
    assert any("routing" in note for note in round_.assumptions)


def test_a_drafter_launches_its_kernels_as_the_engine_does() -> None:
    vllm = lm.load_engine("vllm")
    hidden = attrs.evolve(vllm, launch_share=attrs.evolve(vllm.launch_share, value=0.2))
    whole, part = (
        lm.speculate("Qwen3-8B", "h100-sxm", engine=engine, draft_length=3, batch=1).cost.draft_step.terms()
        for engine in (vllm, hidden)
    )
    np.testing.assert_allclose(part["kernel launches"], 0.2 / vllm.launch_share.value * whole["kernel launches"])
