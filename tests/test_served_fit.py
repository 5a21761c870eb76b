"""Host times of an engine are found from runs that were made with them, and tell nothing about kernels."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from latency_model.evidence.served import (
    Host,
    Kernels,
    Run,
    fit_hosts,
    kernel_times,
    leave_one_model_out,
    predict_tpot,
    prediction_errors,
    usable,
)
from latency_model.specs.parallelism import Parallelism

TRUE = Host(per_layer=20e-6, per_step=1.5e-3, spread=0.8, launch_share=0.4)


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
        run(model, batch, prompt, output)
        for model in ("Meta-Llama-3.1-8B", "Qwen3-32B", "Qwen3-30B-A3B")
        for batch in (1, 2, 4, 8, 16, 32, 64, 128)
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
    assert host.launch_share == pytest.approx(TRUE.launch_share, abs=0.051)  # the grid
    exact = fit_hosts(made(), launch_share=TRUE.launch_share)["vllm"]
    assert exact.per_layer == pytest.approx(TRUE.per_layer, rel=0.02)
    assert exact.per_step == pytest.approx(TRUE.per_step, rel=0.02)
    assert exact.spread == pytest.approx(TRUE.spread, rel=0.02)


def test_the_uncertainty_is_the_scatter_of_the_runs():
    sigmas = [
        fit_hosts(made(noise=0.1, seed=seed), launch_share=TRUE.launch_share)["vllm"].uncertainty for seed in range(8)
    ]
    assert np.mean(sigmas) == pytest.approx(0.1, rel=0.15)


def test_a_model_left_out_is_predicted_from_the_others():
    kernels = made()
    predicted = leave_one_model_out(kernels, TRUE.launch_share)
    assert prediction_errors(predicted, kernels.measured).p90 < 0.01


def test_one_sequence_waits_for_no_other_prompt():
    kernels = kernel_times([run("Meta-Llama-3.1-8B", 1)])
    longer = kernel_times([run("Meta-Llama-3.1-8B", 1, output=512, prompt=1024)])
    assert kernels.prompts[0] == 0.0
    assert TRUE.tpot(kernels) == TRUE.tpot(attrs.evolve(longer, prompt=10 * longer.prompt))


def test_each_part_only_adds_time():
    kernels = made()
    base = TRUE.tpot(kernels)
    for name, more in (("per_layer", 30e-6), ("per_step", 2e-3), ("spread", 1.0), ("launch_share", 1.0)):
        assert (attrs.evolve(TRUE, **{name: more}).tpot(kernels) >= base).all()
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
