"""Times of whole rounds in engines that log them, and host times of engines fitted to published rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import numpy as np
from scipy.optimize import nnls

from latency_model.costs.round import Round, speculate
from latency_model.evidence.published.record import Group, Row, published_model, read_table
from latency_model.evidence.published.speculation import SGLANG_OF_2025, eagle3_round, magicdec_rounds
from latency_model.specs.draft import Draft
from latency_model.specs.engine import EngineOverheads, load_engine
from latency_model.specs.parallelism import Parallelism

__all__ = ["FITS", "fit_gpt_fast", "fit_sglang", "round_times"]

#: Rounds of FastRL's table, the ones the extra host time of tensor parallelism is fitted to.
FITTED = "Qwen2.5-7B"


def _rounds(engine: EngineOverheads) -> list[tuple[dict[str, str], Round]]:
    """Each row of the table with the round predicted for it; a plain step is a round without drafts."""
    rounds = []
    for row in read_table("sglang_round_times").rows:
        layout = Parallelism(tp=int(row["tp"]))
        predicted = speculate(
            published_model(row["model"]),
            "h20",
            draft=attrs.evolve(Draft.eagle(), parallelism=layout),
            draft_length=int(row["steps"]),
            batch=int(row["batch"]),
            context=1024,
            parallelism=layout,
            dtypes={"weights": row["weights"]},
            engine=engine,
        )
        rounds.append((row, predicted))
    return rounds


def round_times() -> Group:
    """Milliseconds of steps and rounds of SGLang under tensor parallelism."""
    rows = []
    for row, predicted in _rounds(load_engine(SGLANG_OF_2025)):
        kind = f"round of {row['steps']} drafts" if row["steps"] != "0" else "plain step"
        case = f"{row['model']} TP {row['tp']} {kind} b={row['batch']} {row['workload']}"
        rows.append(Row.of(predicted.estimates.time, unit=1e-3, case=case, measured=row["time_ms"]))
    table = read_table("sglang_round_times")
    return Group(
        name="round-times",
        quantity="time of a step or round, SGLang of 2025 under tensor parallelism [ms]",
        rows=tuple(rows),
        sources=table.sources,
        assumptions=("context 1024 tokens; an EAGLE-3 head on the ranks of the target",),
    )


def _without(engine: EngineOverheads, *parts: str) -> EngineOverheads:
    """The engine with some of its host times set to zero."""
    return attrs.evolve(engine, **{part: attrs.evolve(getattr(engine, part), value=0.0) for part in parts})


def fit_sglang() -> dict[str, float]:
    """Host times of SGLang of 2025 that rounds ask for; of the EAGLE-3 table every second row is used.

    ``per_round`` and ``per_sequence`` come from speedups on one device, ``per_round_doubling`` from the rounds of one
    model on two: what they take beyond the kernels and beyond ``per_round``.

    Returns
    -------
    dict of str to float
        Seconds by name.

    Examples
    --------
    >>> {name: f"{1e3 * seconds:.1f} ms" for name, seconds in fit_sglang().items()}  # doctest: +SKIP
    {'per_round': '1.7 ms', 'per_sequence': '0.1 ms', 'per_round_doubling': '1.3 ms'}
    """
    bare = _without(load_engine(SGLANG_OF_2025), "per_round", "per_sequence", "per_round_doubling")
    counts, kernels, seconds = [], [], []
    for row in read_table("eagle3_batch_throughput").rows[::2]:
        one = eagle3_round(row, bare)
        counts.append((1.0, float(row["batch_size"])))
        kernels.append(float(one.time))
        seconds.append(float(one.speedup * one.time) / float(row["throughput_ratio"]))
    per_round, per_sequence = _host_times(counts, kernels, seconds)
    table = [(row, one) for row, one in _rounds(bare) if row["model"] == FITTED]
    steps = {row["batch"]: float(row["time_ms"]) for row, _ in table if row["steps"] == "0"}
    beyond = []
    for row, one in table:
        if row["steps"] != "0":
            verify = 1e-3 * steps[row["batch"]] * float(one.verify_time / one.baseline_time)
            beyond.append(1e-3 * float(row["time_ms"]) - verify - float(one.draft_time))
    return {
        "per_round": per_round,
        "per_sequence": per_sequence,
        "per_round_doubling": float(np.mean(beyond)) - per_round,
    }


def fit_gpt_fast() -> dict[str, float]:
    """Host times of MagicDec's PyTorch engine that every second row of its times asks for [s] by name."""
    counts, kernels, seconds = [], [], []
    for row, _, one in magicdec_rounds(_without(load_engine("gpt-fast"), "per_layer", "per_draft_step"))[::2]:
        layers, gamma = len(one.setting.model.layers), float(one.draft_length)
        network = one.draft.network(one.setting.model)
        drafting = gamma * len(network.layers) if network else 0.0
        counts += [(layers, 0.0), (drafting, gamma), (layers, 0.0)]
        kernels += [float(one.baseline_time), float(one.draft_time), float(one.verify_time)]
        seconds += [1e-3 * float(row[name]) for name in ("TAR_ms", "gammaTD_ms", "TV_ms")]
    return dict(zip(("per_layer", "per_draft_step"), _host_times(counts, kernels, seconds), strict=True))


def _host_times(counts: Sequence[Sequence[float]], kernels: Sequence[float], seconds: Sequence[float]) -> list[float]:
    """Times [s] that, each taken so often, explain what is measured beyond the kernels; none negative.

    Relative least squares: rows count alike however long they take.
    """
    measured = np.asarray(seconds)
    times, _ = nnls(np.asarray(counts) / measured[:, None], 1.0 - np.asarray(kernels) / measured)
    return [float(time) for time in times]


#: Engines whose host times rest on published rounds: the fit of each.
FITS: dict[str, Callable[[], dict[str, float]]] = {SGLANG_OF_2025: fit_sglang, "gpt-fast": fit_gpt_fast}
