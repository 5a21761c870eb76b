"""Whatever a caller passes, the answer is a result or one sentence."""

from __future__ import annotations

import json

import numpy as np
import pytest

import latency_model as lm

MODEL, MACHINE = "Meta-Llama-3.1-8B", "h100-sxm"


class Hostile:
    """An object that cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


HOSTILE = (None, "x", b"8", True, float("nan"), float("inf"), 10**400, -1, [], {}, Hostile(), object(), 1j)
NUMBERS = ("batch", "context", "draft_length", "kv_reread", "speculation_tax", "price")
OBJECTS = ("draft", "acceptance", "parallelism", "routing", "dtypes", "engine")
WRONG = [
    pytest.param(name, value, id=f"{name}-{type(value).__name__}")
    for name in (*NUMBERS, *OBJECTS)
    for value in HOSTILE
    if not (value is None and name in ("price", *OBJECTS[:-1]))  # the default
    and not (value == {} and name == "dtypes")  # changes nothing
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_hostile_argument_is_one_sentence(name: str, value: object) -> None:
    options = {"draft_length": 2, "acceptance": 0.7} | {name: value}
    with pytest.raises(lm.InputError) as caught:
        lm.speculate(MODEL, MACHINE, **options)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert len(sentence) < 500


@pytest.mark.parametrize("values", [np.ma.masked_array([1.0, 1e9], mask=[False, True]), ["8"], [[1], [2, 3]]])
def test_arrays_that_are_not_plain_numbers_are_refused(values: object) -> None:
    with pytest.raises(lm.InputError, match="batch must be at least 1"):
        lm.step_cost(MODEL, MACHINE, batch=values)


def test_shapes_that_do_not_broadcast_are_named() -> None:
    with pytest.raises(lm.InputError, match=r"batch \(3,\) and context \(4,\) do not broadcast"):
        lm.step_cost(MODEL, MACHINE, batch=[1, 2, 3], context=[1, 2, 3, 4])


def test_limits_name_the_side_that_was_crossed() -> None:
    with pytest.raises(lm.InputError, match=r"batch must be at most 1e\+09, got 1e\+10"):
        lm.step_cost(MODEL, MACHINE, batch=1e10)


def test_numpy_scalars_are_numbers() -> None:
    assert lm.Parallelism(tp=np.int64(2)) == lm.Parallelism(tp=2)
    assert lm.Routing(persistence=np.float32(0.5)).persistence == 0.5
    plain = lm.speculate(MODEL, MACHINE, acceptance=0.5, draft_length=2, batch=4)
    numpy = lm.speculate(MODEL, MACHINE, acceptance=np.float64(0.5), draft_length=np.int8(2), batch=np.float32(4))
    assert plain.speedup == numpy.speedup


def test_drafters_may_be_named() -> None:
    named = lm.speculate(MODEL, MACHINE, draft="ngram", acceptance=0.7, draft_length=2)
    assert named.speedup == lm.speculate(MODEL, MACHINE, draft=lm.Draft.ngram(), acceptance=0.7, draft_length=2).speedup
    model = lm.load_model("Llama-3.2-1B")
    assert lm.speculate(MODEL, MACHINE, draft=model, acceptance=0.7, draft_length=2).draft == lm.Draft.model(model)


@pytest.mark.parametrize("word", ["no", 1, None])
def test_switches_are_true_or_false(word: object) -> None:
    with pytest.raises(lm.InputError, match="must be True or False"):
        lm.DTypes(allow_fallback=word)
    with pytest.raises(lm.InputError, match="prefill must be True or False"):
        lm.step_cost(MODEL, MACHINE, prefill=word)


@pytest.mark.parametrize(
    "build",
    [
        lambda: lm.Acceptance.mixture(None),
        lambda: lm.Acceptance.mixture("ab"),
        lambda: lm.Acceptance.mixture([(1, 0.5)]),
        lambda: lm.Acceptance.mixture([("x", lm.Acceptance.constant(0.5))]),
        lambda: lm.Acceptance(conditionals=(0.5,), uncertainty=-1),
        lambda: lm.Acceptance.constant(0.5).tokens_per_round([-1, 3]),
        lambda: lm.Acceptance.constant(0.5).tokens_per_round(2.9),
        lambda: lm.Draft(kind="xyz"),
        lambda: lm.Draft(kind="model"),
        lambda: lm.Draft(kind="ngram", architecture=lm.load_model(MODEL)),
        lambda: lm.Draft.eagle(layers="x"),
        lambda: lm.Draft.eagle(layers=10**9),
        lambda: lm.Draft.ngram(host_time="x"),
        lambda: lm.Draft.model(lm.load_model(MODEL), parallelism="tp4"),
        lambda: lm.Draft.eagle(version=Hostile()),
        lambda: lm.DTypes(weights=3),
        lambda: lm.Routing(popularity_cv="x"),
    ],
)
def test_hostile_constructors_are_one_sentence(build) -> None:
    with pytest.raises(lm.InputError):
        build()


def test_mixtures_may_come_from_a_generator() -> None:
    parts = [(1.0, lm.Acceptance.constant(0.9)), (3.0, lm.Acceptance.constant(0.5))]
    assert lm.Acceptance.mixture(iter(parts)) == lm.Acceptance.mixture(parts)


def test_results_do_not_follow_later_changes_of_the_arguments() -> None:
    batch = np.array([1.0, 8.0])
    round_ = lm.speculate(MODEL, MACHINE, acceptance=0.7, draft_length=2, batch=batch)
    before = round_.tokens_per_second_per_device.copy()
    batch[:] = 100.0
    np.testing.assert_array_equal(round_.tokens_per_second_per_device, before)


def test_rows_are_strict_json() -> None:
    plan = lm.optimize(MODEL, MACHINE, acceptance=0.7, batch=[1, 1.5], max_draft_length=0)
    rows = json.loads(json.dumps(plan.rows(), allow_nan=False))
    assert [row["batch"] for row in rows] == [1, 1.5]
    assert rows[0]["break_even_acceptance"] is None


def test_names_of_methods_mean_formats() -> None:
    assert lm.DTypes(weights="AWQ").weights == lm.DTypes(weights="gptq").weights == "int4"


def test_fallbacks_are_told() -> None:
    cost = lm.step_cost(MODEL, "t4", dtypes={"allow_fallback": True})
    assert any("bf16 runs at the fp16 rate" in note for note in cost.assumptions)


def test_memory_errors_name_the_drafter_that_does_not_fit() -> None:
    heavy = lm.Draft.model(lm.load_model("Meta-Llama-3.1-70B"))
    with pytest.raises(lm.InputError, match="without this drafter it fits"):
        lm.optimize(MODEL, MACHINE, draft=heavy, acceptance=0.7)


def test_mtp_weights_are_shared_like_the_targets() -> None:
    from latency_model.costs.memory import memory_use
    from latency_model.costs.setting import Setting

    point = {"batch": np.array(8.0), "context": np.array(0.0), "draft_length": np.array(1.0)}
    one, eight = (
        memory_use(
            Setting.of("DeepSeek-V3", "mi355x", parallelism=ranks, dtypes={"allow_fallback": True}),
            lm.Draft.mtp(),
            **point,
        ).draft_weights
        for ranks in (lm.Parallelism(tp=8), lm.Parallelism(dp=8, ep=8))
    )
    assert eight < 0.25 * 11.7e9
    assert one < 0.25 * 11.7e9


def test_pipeline_stages_are_not_equal() -> None:
    from latency_model.costs.counts import rank_weight_bytes

    model = lm.load_model("DeepSeek-V3")
    halves = rank_weight_bytes(model, lm.Parallelism(pp=2))
    assert halves > model.weight_bytes / 2 * 1.03  # three dense layers lie in the first stage
    assert halves < model.weight_bytes


def test_sparse_choices_are_gathered_for_every_query() -> None:
    def kv_bytes(tokens: int) -> float:
        rows = lm.step_cost("DeepSeek-V3.2", "b200-sxm", batch=64, context=65536, tokens_per_sequence=tokens).table
        return float(next(row["traffic_bytes"] for row in rows if row["name"] == "latent attention"))

    assert kv_bytes(4) == pytest.approx(4 * kv_bytes(1), rel=0.01)


def test_mtp_layers_see_everything() -> None:
    for name in ("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "gemma-4-26B-A4B", "gpt-oss-20b"):
        network = lm.Draft.mtp().network(lm.load_model(name))
        assert network is not None
        (layer,) = network.layers
        assert layer.mixer is not None
        assert getattr(layer.mixer, "window", None) is None
        assert len(layer.feed_forward) > 1
