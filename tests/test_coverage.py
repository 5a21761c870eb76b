"""Intervals hold what they say they hold, and what they need for that is found in the runs."""

from __future__ import annotations

import math

import attrs
import numpy as np
import pytest

import latency_model as lm
from latency_model.costs.uncertainty import INTERVAL_80, MODEL_ERRORS, Estimate, ModelErrors
from latency_model.evidence.coverage import (
    RECORD,
    constant_deviations,
    covered_text,
    hits,
    kernel_coverage,
    recorded_coverage,
    scatter,
    served_kind_errors,
    step_kind_errors,
)
from latency_model.evidence.published.record import Group, Row
from latency_model.evidence.served import Host, Kernels, Run, kernel_times
from latency_model.evidence.validate import validate
from latency_model.specs.parallelism import Parallelism
from latency_model.specs.quantity import KIND_ERRORS

HOST = Host(per_step=1e-3, per_step_doubling=0.0, per_layer=0.0, per_moe_layer=0.0, spread=0.8, launch_share=1.0)


def run(model: str = "Qwen3-32B", device: str = "h200-sxm", batch: int = 8, tp: int = 2) -> Run:
    return Run(
        engine="vllm",
        version="0",
        model=model,
        device=device,
        weights="bf16",
        layout=Parallelism(tp=tp),
        prompt=1024,
        output=512,
        batch=batch,
        ttft=0.1,
        tpot=0.02,
    )


def scattered(errors: ModelErrors, models: int = 12, layouts: int = 12, runs: int = 20, seed: int = 3) -> Kernels:
    """Runs measured at 20 ms each; how far predictions are off is in ``decode``."""
    rng = np.random.default_rng(seed)
    listed, off = [], []
    for model in range(models):
        for layout in range(layouts):
            shared = errors.common * rng.standard_normal()
            listed += [run(model=f"model {model}", tp=layout + 1) for _ in range(runs)]
            off += (shared + errors.own * rng.standard_normal(runs)).tolist()
    nothing = np.zeros(len(listed))
    return Kernels(
        runs=listed,
        decode=0.02 * np.exp(off),
        decode_launch=nothing,
        prompt=nothing,
        prompt_launch=nothing,
        prompts=nothing,
        layers=nothing,
        moe_layers=nothing,
        doublings=nothing,
    )


@pytest.mark.parametrize("planted", [ModelErrors(0.2, 0.1), ModelErrors(0.05, 0.15)])
@pytest.mark.parametrize("constants", [0.0, 0.08])
def test_errors_of_the_model_are_found_in_the_scatter_of_runs(planted: ModelErrors, constants: float) -> None:
    kernels = scattered(planted)
    found = scatter(kernels, kernels.decode, np.full(len(kernels.runs), constants))
    assert found.own == pytest.approx(planted.own, rel=0.1)
    total = math.hypot(constants, *found)
    assert total == pytest.approx(max(math.hypot(*planted), math.hypot(constants, found.own)), rel=0.12)


def test_what_never_saw_a_model_holds_four_fifths_of_its_runs() -> None:
    kernels = scattered(ModelErrors(0.2, 0.1))
    found = hits(kernels, kernels.decode, np.zeros(len(kernels.runs)))
    assert set(found) == {0.0, 1.0}
    assert found.mean() == pytest.approx(0.8, abs=0.05)


def test_a_run_without_a_prediction_neither_hits_nor_misses() -> None:
    kernels = scattered(ModelErrors(0.2, 0.1), models=3)
    predicted = np.where(np.arange(len(kernels.runs)) % 7 == 0, np.nan, kernels.decode)
    found = hits(kernels, predicted, np.zeros(len(predicted)))
    assert (np.isnan(found) == np.isnan(predicted)).all()


def test_constants_of_a_run_are_those_of_its_step() -> None:
    kernels = kernel_times([run(batch=batch) for batch in (1, 16)])
    alone = attrs.evolve(kernels, prompts=np.zeros(2))  # no prompts of others between the tokens
    found = constant_deviations(alone, {"vllm": HOST})
    step = lm.step_cost(
        "Qwen3-32B",
        "h200-sxm",
        batch=[1, 16],
        context=1024 + 256,
        parallelism=Parallelism(tp=2),
        dtypes={"weights": "bf16", "allow_fallback": True},
    )
    np.testing.assert_allclose(np.sqrt(found**2 + sum(e**2 for e in MODEL_ERRORS)), step.estimate.deviation)


def test_constants_taken_over_err_less_than_judged_ones() -> None:
    kernels = kernel_times(
        [run(device=device, batch=batch) for device in ("h200-sxm", "b200-sxm") for batch in (1, 64)]
    )
    found = served_kind_errors(kernels, {"vllm": HOST})
    assert 0.0 < found["transferred"] < found["assumed"] < 0.5


def test_kinds_are_as_uncertain_as_replacing_constants_shows() -> None:
    found = step_kind_errors()
    assert found["transferred"] == pytest.approx(KIND_ERRORS["transferred"], abs=0.02)
    assert found["transferred"] < found["assumed"] <= KIND_ERRORS["assumed"] + 0.02


def test_a_row_is_inside_its_interval_or_not() -> None:
    guess = Estimate(best=np.array(2.0), deviation=np.array(0.1))
    edge = 2.0 * math.exp(INTERVAL_80 * 0.1)
    rows = tuple(Row.of(guess, case=str(value), measured=value) for value in (2.0, edge - 1e-9, edge + 1e-9, 1.0))
    assert [row.inside for row in rows] == [True, True, False, False]
    silent = Row(case="without", predicted=1.0, measured=5.0)
    assert Group(name="g", quantity="q", rows=(*rows, silent), sources=("s",)).coverage == 0.5
    assert math.isnan(Group(name="g", quantity="q", rows=(silent,), sources=("s",)).coverage)
    assert Row.of(guess, case="ms", measured=2e3, unit=1e-3).predicted == pytest.approx(2e3)


def test_rows_kept_aside_are_held_as_often_as_intervals_say() -> None:
    covered = kernel_coverage()
    assert {each.name for each in covered} >= {"gemm", "moe", "attention decode"}
    for each in covered:
        assert 0.7 <= each.share <= 0.9, each
    gemm = next(each for each in covered if each.name == "gemm")
    fits = [
        block.fit
        for profile in map(lm.load_hardware, lm.hardware_names())
        for blocks in (profile.efficiencies, profile.engine_efficiencies)
        for key, block in blocks.items()
        if "gemm" in key and block.fit
    ]
    assert gemm.rows == sum(fit.held_out for fit in fits)


def test_served_runs_of_models_left_out_are_held_as_often_as_intervals_say() -> None:
    covered = {each.name: each for each in recorded_coverage()}
    assert covered["every run"].rows > 2000
    for name in ("every run", "dense models", "mixtures of experts"):
        assert 0.7 <= covered[name].share <= 0.9, name
    for name in ("engine vLLM", "engine SGLang", "engine TensorRT-LLM"):
        assert 0.65 <= covered[name].share <= 0.95, name
    assert covered_text(covered.values()) == RECORD.read_text(encoding="utf-8")


def test_published_speedups_are_held_as_often_as_intervals_say() -> None:
    groups = validate(["moesd", "eagle3-sglang", "eagle-depths", "magicdec", "engine-cases"]).groups
    rows = [row for group in groups for row in group.rows]
    assert all(row.deviation > 0.0 for row in rows)
    assert 0.7 <= np.mean([row.inside for row in rows]) <= 0.95
