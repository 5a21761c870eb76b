"""Host times of an engine are found from runs that were made with them, and tell nothing about kernels."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from latency_model.evidence.served import (
    Host,
    Kernels,
    Run,
    coverage,
    fit_hosts,
    kernel_times,
    leave_one_model_out,
    predict_tpot,
    prediction_errors,
    usable,
)
from latency_model.specs.parallelism import Parallelism
from latency_model.specs.profile import STEP_TIMES

TRUE = Host(
    per_step=1.5e-3, per_step_doubling=0.3e-3, per_layer=20e-6, per_moe_layer=15e-6, spread=0.8, launch_share=0.4
)


def run(model: str, batch: int, prompt: int = 1024, output: int = 512, **changes: object) -> Run:
    return attrs.evolve(
        Run(
            engine="vllm",
            version="0",
            model=model,
            device="h100-sxm",
            weights="bf16",
            layout=Parallelism(tp=2),
            prompt=prompt,
            output=output,
            batch=batch,
            ttft=0.1,
            tpot=0.02,
        ),
        **changes,
    )


def made(host: Host = TRUE, noise: float = 0.0, seed: int = 1) -> Kernels:
    runs = [
        run(model, batch, prompt, output, layout=Parallelism(tp=ranks))
        for ranks in (1, 4)
        for model in ("Meta-Llama-3.1-8B", "Qwen3-32B", "Qwen3-30B-A3B", "OLMoE-1B-7B-0924")
        for batch in (1, 4, 16, 64)
        for prompt, output in ((1024, 1024), (4096, 256))
    ]
    kernels = kernel_times(runs)
    scatter = np.exp(noise * np.random.default_rng(seed).standard_normal(len(runs)))
    times = host.tpot(kernels) * scatter
    return attrs.evolve(
        kernels, runs=[attrs.evolve(r, tpot=float(t)) for r, t in zip(kernels.runs, times, strict=True)]
    )


def test_host_times_that_made_the_runs_are_found():
    host = fit_hosts(made())["vllm"]
    assert host.launch_share == TRUE.launch_share
    exact = fit_hosts(made(), launch_share=TRUE.launch_share)["vllm"]
    for part in (*STEP_TIMES, "spread"):
        assert getattr(exact, part) == pytest.approx(getattr(TRUE, part), rel=0.02)


def test_the_uncertainty_is_the_scatter_of_the_runs():
    sigmas = [
        fit_hosts(made(noise=0.1, seed=seed), launch_share=TRUE.launch_share)["vllm"].uncertainty for seed in range(8)
    ]
    assert np.mean(sigmas) == pytest.approx(0.1, rel=0.15)


def test_models_alike_in_kernels_a_layer_say_nothing_about_launches_and_keep_them_whole():
    kernels = made().where(made().column("model") == "Qwen3-32B")
    assert fit_hosts(kernels)["vllm"].launch_share == 1.0
    assert np.isnan(leave_one_model_out(kernels, {"vllm": TRUE})).all()


def test_what_models_tell_apart_is_certain_and_what_they_dispute_is_not():
    clean, mixed = made(), made()
    slow = np.where(mixed.column("model") == "Qwen3-32B", 1.3, 1.0)
    mixed = attrs.evolve(
        mixed, runs=[attrs.evolve(r, tpot=float(r.tpot * s)) for r, s in zip(mixed.runs, slow, strict=True)]
    )
    assert fit_hosts(clean)["vllm"].host_error < 0.02 < 0.1 < fit_hosts(mixed)["vllm"].host_error


def test_coverage_is_the_share_of_runs_inside_their_interval():
    measured = np.array([1.0, 1.0, 1.0, 1.0])
    predicted = np.array([1.0, 1.2, 2.0, np.nan])
    assert coverage(predicted, measured, 0.2) == pytest.approx(2 / 3)  # ln 1.2 = .18 < .26 < ln 2


def test_a_model_left_out_is_predicted_from_the_others():
    kernels = made()
    predicted = leave_one_model_out(kernels, {"vllm": TRUE})
    assert prediction_errors(predicted, kernels.measured).p90 < 0.01


def test_one_sequence_waits_for_no_other_prompt():
    kernels = kernel_times([run("Meta-Llama-3.1-8B", 1)])
    longer = kernel_times([run("Meta-Llama-3.1-8B", 1, output=512, prompt=1024)])
    assert kernels.prompts[0] == 0.0
    assert TRUE.tpot(kernels) == TRUE.tpot(attrs.evolve(longer, prompt=10 * longer.prompt))


def test_each_part_only_adds_time():
    kernels = made()
    base = TRUE.tpot(kernels)
    for name in (*STEP_TIMES, "spread", "launch_share"):
        assert (attrs.evolve(TRUE, **{name: 1.2 * getattr(TRUE, name)}).tpot(kernels) >= base).all()
    assert (TRUE.ttft(kernels) > 0).all()


def test_runs_that_contradict_each_other_or_the_machine_are_not_used():
    fine = run("Meta-Llama-3.1-8B", 4)
    twin = attrs.evolve(fine, tpot=2 * fine.tpot, ttft=0.2)
    cached = run("Meta-Llama-3.1-8B", 512, prompt=8192, output=10, ttft=0.01, tpot=0.001)
    alone = run("Qwen3-32B", 4)
    kernels = kernel_times([fine, twin, cached, alone])
    mask, reasons = usable(kernels)
    assert [r for r, kept in zip(kernels.runs, mask, strict=True) if kept] == [alone]
    assert list(reasons.values()) == [2, 1]


def test_predictions_of_unknown_engines_stay_unknown():
    kernels = kernel_times([run("Meta-Llama-3.1-8B", 4, engine="sglang")])
    assert np.isnan(predict_tpot(kernels, {"vllm": TRUE})).all()
