"""The section on served runs of the page about measured silicon; generated, never typed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from latency_model.evidence.fit import Errors
from latency_model.evidence.served import (
    BoolArray,
    Host,
    Kernels,
    fit_hosts,
    leave_one_model_out,
    predict_tpot,
    prediction_errors,
)

__all__ = ["served_groups", "served_lines"]

FEW_SEQUENCES = 8
NAMES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}


def served_lines(kernels: Kernels, hosts: dict[str, Host], dropped: dict[str, int]) -> Iterator[str]:
    """Lay out the constants of each engine and the errors by engine, device and model.

    Parameters
    ----------
    kernels : Kernels
        Usable runs with their kernels predicted.
    hosts : dict
        What was fitted, by engine.
    dropped : dict
        Reason: runs left out for it.
    """
    predicted, apart = predict_tpot(kernels, hosts), leave_one_model_out(kernels, hosts)
    alone = predict_tpot(kernels, fit_hosts(kernels, launch_share=1.0))
    yield from ("", "## Served runs", "")
    yield (
        f"{len(kernels.runs):,} benchmark runs of whole models (`silicon_sample.csv` of the same package), time per "
        "output token predicted from the model's config, the device's profile and the engine: one decode step at the "
        "mean context, the prompts of the other sequences that fall between, and host time: per step, for each "
        "doubling of the ranks, per layer, and per layer with experts (choosing, sorting and gathering, which the "
        "tables of expert kernels leave out). *Spread* is the share of those prompts that falls between one's tokens "
        "(1/2 when all start together, 1 when evenly). *Launch share* is what is left, inside a CUDA graph, of the "
        "fixed time a kernel takes when timed alone; of a grid, the one with which models are predicted best from the "
        "others, the same for all engines. Errors of constants are jackknife errors over models. Nothing is fitted per "
        "model. Time to first token is not predicted: in these runs it is mostly queueing and front end."
    )
    yield ""
    yield _row(
        "engine",
        "runs",
        "host ms per step",
        "per doubling",
        "host µs per layer",
        "per layer with experts",
        "error of host times",
        "launch share",
        "spread",
        "one sigma",
    )
    yield _row(*["---"] * 10)
    for engine, host in hosts.items():
        yield _row(
            NAMES[engine],
            str(host.runs),
            f"{host.per_step * 1e3:.2f}",
            f"{host.per_step_doubling * 1e3:.2f}",
            f"{host.per_layer * 1e6:.1f}",
            f"{host.per_moe_layer * 1e6:.1f}",
            f"{host.host_error:.0%}",
            f"{host.launch_share:.2f} ± {host.launch_share * host.launch_share_error:.2f}",
            f"{host.spread:.2f}",
            f"{host.uncertainty:.0%}",
        )
    yield ""
    yield (
        "Median / p90 error in %. *Model left out*: everything but the launch share fitted on the other models of the "
        "engine. *Whole launches*: launch share 1 for every engine, host times fitted again."
    )
    yield ""
    yield _row("runs of", "count", "median / p90", "model left out", "whole launches")
    yield _row(*["---"] * 5)
    for name, chosen in served_groups(kernels):
        if chosen.any():
            measured = kernels.measured[chosen]
            cells = [prediction_errors(values[chosen], measured) for values in (predicted, apart, alone)]
            yield _row(name, str(int(chosen.sum())), *map(_errors, cells))
    yield from ("", "Runs left out:", "")
    yield from (f"- {reason}: {count:,}" for reason, count in dropped.items() if count)


def served_groups(kernels: Kernels) -> Iterator[tuple[str, BoolArray]]:
    """Which runs belong to which group of the tables."""
    few = kernels.column("batch") <= FEW_SEQUENCES
    yield f"dense models, at most {FEW_SEQUENCES} sequences", ~kernels.moe & few
    yield "dense models", ~kernels.moe
    yield "mixtures of experts", kernels.moe
    for key, kind in (("engine", "engine"), ("device", "device"), ("model", "model")):
        values = kernels.column(key)
        for value in np.unique(values):
            yield f"{kind} {NAMES.get(str(value), str(value))}", values == value


def _errors(errors: Errors) -> str:
    return f"{100 * errors.median:.1f} / {100 * errors.p90:.0f}" if errors.rows else ""


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
