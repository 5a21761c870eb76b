"""The best draft length at every (batch, context): how much it gains, how sure that is, and what holds it back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

from latency_model.costs.memory import MemoryUse, memory_use
from latency_model.costs.round import (
    NOT_MODELLED,
    Round,
    RoundCost,
    RoundTimes,
    as_acceptance,
    round_times,
)
from latency_model.costs.setting import Setting
from latency_model.costs.step import Scales
from latency_model.costs.uncertainty import Estimates
from latency_model.decisions.rows import plain_rows
from latency_model.errors import InputError
from latency_model.formulas.acceptance import acceptance_from_mean_length
from latency_model.specs.acceptance import Acceptance
from latency_model.specs.draft import Draft
from latency_model.specs.engine import EngineOverheads
from latency_model.specs.hardware import HardwareProfile
from latency_model.specs.model import ModelArchitecture
from latency_model.specs.parallelism import Parallelism
from latency_model.specs.precision import DTypes
from latency_model.specs.profile import EXPERTS, HOST_TIMES
from latency_model.specs.routing import Routing
from latency_model.specs.workload import checked_number, checked_numbers

__all__ = ["Plan", "Switch", "largest_term", "optimize"]

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.int64]

#: Draft lengths whose speedup is within this of the best form the plateau.
PLATEAU = 0.01
#: A schedule may stay this far below the best, so that the tables engines read stay short.
SCHEDULE_TOLERANCE = 0.005
#: Batches a schedule looks at one by one.
LARGEST_SCHEDULED_BATCH = 4096
CONTEXT_STEPS_PER_OCTAVE = 16

#: Terms of a round's time, each with the part of the model that halving it touches.
LEVERS: dict[str, Scales] = {
    "weight bytes": {("weights", "memory"): 0.5},
    "expert bytes": {("experts", "memory"): 0.5},
    "KV bytes": {("KV", "memory"): 0.5},
    "state bytes": {("state", "memory"): 0.5},
    "activation bytes": {("activations", "memory"): 0.5},
    "matrix compute": {("weights", "compute"): 0.5},
    "expert compute": {("experts", "compute"): 0.5},
    "attention compute": {("KV", "compute"): 0.5},
    "kernel launches": {
        (kind, "overhead"): 0.5 for kind in ("gemm", *EXPERTS, "elementwise", "attention_decode", "attention_prefill")
    },
    "engine overhead": {("engine", part): 0.5 for part in HOST_TIMES},
    "communication": {("communication", "memory"): 0.5, ("communication", "compute"): 0.5},
    "drafting": {("draft", "time"): 0.5},
}


class Switch(NamedTuple):
    """A range of batch sizes or contexts, both ends included, and its best draft length."""

    start: int
    end: int
    draft_length: int


@frozen(kw_only=True, eq=False, slots=False)
class Plan:
    """The best draft length for every batch and context asked.

    Arrays have the shape of ``batch`` followed by that of ``context``; the curve has one more axis, the draft
    length.

    Attributes
    ----------
    best : Round
        The round at the best draft length: tokens per round, TPOT, tokens per second, price.
    lengths : ndarray
        Draft lengths tried, 0 first [token].
    curve : ndarray
        Speedup of each of them [1].
    plateau : ndarray
        Shortest and longest draft length within 1 % of the best, last axis of length 2 [token].
    break_even_acceptance : ndarray
        Constant acceptance above which some draft length pays; NaN where none does [1].
    held_back_by, held_back_share : ndarray
        The term that takes most of the round, and its share [1].
    lever, lever_gain : ndarray
        The term that, if halved, lowers TPOT most at that draft length, and by how much [1].
    memory : MemoryUse
        What fits.
    """

    best: Round
    lengths: IntArray
    curve: FloatArray
    plateau: IntArray
    break_even_acceptance: FloatArray
    held_back_by: NDArray[np.str_]
    held_back_share: FloatArray
    lever: NDArray[np.str_]
    lever_gain: FloatArray
    memory: MemoryUse
    batch: FloatArray
    context: FloatArray
    not_modelled: tuple[str, ...] = field(default=NOT_MODELLED, repr=False)
    sources: tuple[str, ...] = field(default=(), repr=False)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What was taken for granted."""
        return self.best.assumptions

    @property
    def draft_length(self) -> IntArray:
        """Best draft length, 0 where plain decoding wins [token]."""
        return self.best.draft_length.astype(np.int64)

    @property
    def speedup(self) -> FloatArray:
        """Speedup at the best draft length [1]."""
        return self.best.speedup

    @property
    def estimates(self) -> Estimates:
        """Times and speedup at the best draft length, each as ``.low``, ``.best``, ``.high``: 80 % intervals."""
        return self.best.estimates

    @property
    def speedup_low(self) -> FloatArray:
        """Lower end of the 80 % interval of the speedup [1]."""
        return self.estimates.speedup.low

    @property
    def speedup_high(self) -> FloatArray:
        """Upper end of the 80 % interval of the speedup [1]."""
        return self.estimates.speedup.high

    @property
    def speedup_probability(self) -> FloatArray:
        """Probability that the speedup is above 1; 0 where plain decoding is best, which speeds nothing up [1]."""
        return self.best.speedup_probability

    @property
    def tpot_low(self) -> FloatArray:
        """Lower end of the 80 % interval of the time per output token [s/token]."""
        return self.estimates.tpot.low

    @property
    def tpot_high(self) -> FloatArray:
        """Upper end of the 80 % interval of the time per output token [s/token]."""
        return self.estimates.tpot.high

    @cached_property
    def _batch_curve(self) -> tuple[FloatArray, FloatArray]:
        """Batches from 1 to the largest asked, and the speedups there, [batch, context, draft length]."""
        batches = np.arange(1.0, min(int(self.batch.max()), LARGEST_SCHEDULED_BATCH) + 1)
        return batches, self._curve_over(batches[:, None], self.context.reshape(1, -1))

    @cached_property
    def batch_switches(self) -> tuple[tuple[Switch, ...], ...]:
        """For each context, the best draft length by ranges of batch from 1 to the largest asked (4096 at most)."""
        batches, curve = self._batch_curve
        return tuple(_switches(batches, curve[:, column]) for column in range(curve.shape[1]))

    @cached_property
    def schedules(self) -> tuple[tuple[Switch, ...], ...]:
        """Like :attr:`batch_switches` in as few ranges as staying within 0.5 % of the best allows."""
        batches, curve = self._batch_curve
        return tuple(_switches(batches, curve[:, column], SCHEDULE_TOLERANCE) for column in range(curve.shape[1]))

    @cached_property
    def context_switches(self) -> tuple[tuple[Switch, ...], ...]:
        """For each batch, the best draft length by ranges of context up to the model's longest (to about 4 %)."""
        longest = self.best.setting.model.max_context or 131072
        longest = max(longest, int(self.context.max()), 1)
        octaves = max(np.log2(longest / 64.0), 1.0)
        steps = np.geomspace(min(64, longest), longest, int(octaves * CONTEXT_STEPS_PER_OCTAVE) + 1)
        contexts = np.unique(np.concatenate(([0.0], np.round(steps))))
        curve = self._curve_over(self.batch.reshape(1, -1), contexts[:, None])
        return tuple(_switches(contexts, curve[:, column]) for column in range(curve.shape[1]))

    def _curve_over(self, batch: FloatArray, context: FloatArray) -> FloatArray:
        times = round_times(
            self.best.setting,
            self.best.draft,
            batch=batch[..., None],
            context=context[..., None],
            draft_length=self.lengths.astype(float),
            speculation_tax=self.best.speculation_tax,
        )
        return _speedups(times, self.best.acceptance.tokens_per_round(self.lengths))

    def rows(self) -> list[dict[str, Any]]:
        """One plain dictionary per (batch, context), SI units, unit in the key."""
        shape = self.curve.shape[:-1]
        round_ = self.best
        batch, context = _outer(self.batch, self.context)
        price = round_.dollars_per_million_tokens
        columns: dict[str, Any] = {
            "batch": batch,
            "context_tokens": context,
            "draft_length": self.draft_length,
            "speedup": self.speedup,
            "speedup_low": self.speedup_low,
            "speedup_high": self.speedup_high,
            "speedup_probability": self.speedup_probability,
            "tokens_per_round": round_.tokens_per_round,
            "time_per_round_s": round_.time,
            "time_per_round_low_s": self.estimates.time.low,
            "time_per_round_high_s": self.estimates.time.high,
            "tpot_s": round_.tpot,
            "tpot_low_s": self.tpot_low,
            "tpot_high_s": self.tpot_high,
            "baseline_tpot_s": round_.baseline_time,
            "baseline_tpot_low_s": self.estimates.baseline_time.low,
            "baseline_tpot_high_s": self.estimates.baseline_time.high,
            "tokens_per_second_per_sequence": round_.tokens_per_second_per_sequence,
            "tokens_per_second_per_device": round_.tokens_per_second_per_device,
            "target_efficiency": round_.target_efficiency,
            "held_back_by": self.held_back_by,
            "held_back_share": self.held_back_share,
            "lever": self.lever,
            "lever_gain": self.lever_gain,
            "plateau_low": self.plateau[..., 0],
            "plateau_high": self.plateau[..., 1],
            "break_even_acceptance": self.break_even_acceptance,
            "memory_bytes": self.memory.total,
            "fits": self.memory.fits,
            "largest_batch": self.memory.largest_batch,
        }
        if price is not None:
            columns["dollars_per_million_tokens"] = price
        curves = self.curve.reshape(-1, len(self.lengths)).tolist()
        rows = plain_rows(columns, shape)
        for row, curve in zip(rows, curves, strict=True):
            for name in ("batch", "context_tokens"):
                row[name] = int(row[name]) if row[name].is_integer() else row[name]
            if math.isnan(row["break_even_acceptance"]):
                row["break_even_acceptance"] = None
            row["curve"] = curve
        return rows


def _outer(batch: FloatArray, context: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Reshape so that every batch meets every context: shapes [..batch, 1..] and [..context]."""
    return batch.reshape(batch.shape + (1,) * context.ndim), context


def _speedups(times: RoundTimes, tokens: FloatArray) -> FloatArray:
    """Speedup of every draft length, last axis [1]."""
    return np.asarray(tokens * times.baseline / times.round)


def _switches(points: FloatArray, curve: FloatArray, tolerance: float = 0.0) -> tuple[Switch, ...]:
    """The fewest ranges of ``points`` in which one draft length stays within ``tolerance`` of the best.

    Each range is as long as some draft length allows; of those that last as long, the one that gains most over the
    range is taken (the shorter on a tie).
    """
    good = curve >= (1.0 - tolerance) * curve.max(axis=-1, keepdims=True)
    ranges: list[Switch] = []
    start = 0
    while start < len(points):
        alive, end = good[start], start + 1
        while end < len(points) and (alive & good[end]).any():
            alive, end = alive & good[end], end + 1
        gain = np.where(alive, curve[start:end].sum(axis=0), -np.inf)
        last = int(points[end]) - 1 if end < len(points) else int(points[-1])
        ranges.append(Switch(int(points[start]), last, int(np.argmax(gain))))
        start = end
    return tuple(ranges)


def _plateau(curve: FloatArray, best: IntArray) -> IntArray:
    """First and last draft length of the unbroken run within :data:`PLATEAU` of the best, last axis of length 2."""
    good = curve >= (1.0 - PLATEAU) * np.take_along_axis(curve, best[..., None], axis=-1)
    index = np.arange(curve.shape[-1])
    bad_below = np.where(~good & (index < best[..., None]), index, -1).max(axis=-1)
    bad_above = np.where(~good & (index > best[..., None]), index, curve.shape[-1]).min(axis=-1)
    return np.stack((bad_below + 1, bad_above - 1), axis=-1)


def _break_even(times: RoundTimes, lengths: IntArray) -> FloatArray:
    """Lowest constant acceptance at which some draft length pays: Ω(α, γ) = T_round/T_T(B, 1) solved for α [1]."""
    needed, drafts = (times.round / times.baseline)[..., 1:], lengths[1:]
    possible = needed <= drafts + 1.0
    solved = acceptance_from_mean_length(np.where(possible, np.maximum(needed, 1.0), 1.0), drafts)
    lowest = np.where(possible, solved, np.inf).min(axis=-1, initial=np.inf)
    return np.where(np.isinf(lowest), np.nan, lowest)


def largest_term(cost: RoundCost) -> tuple[NDArray[np.str_], FloatArray]:
    """Name and share of the largest term of a round."""
    terms = cost.terms()
    stacked = np.stack(np.broadcast_arrays(*terms.values()))
    return np.array(list(terms))[np.argmax(stacked, axis=0)], np.max(stacked, axis=0) / cost.time()


def _best_lever(cost: RoundCost) -> tuple[NDArray[np.str_], FloatArray]:
    """The term whose halving shortens a round most, at the same draft length, and by which part."""
    plain = cost.time()
    gains = np.stack([1.0 - cost.time(scales) / plain for scales in LEVERS.values()])
    return np.array(list(LEVERS))[np.argmax(gains, axis=0)], np.max(gains, axis=0)


def optimize(
    model: ModelArchitecture | str | Mapping[str, object],
    hardware: HardwareProfile | str,
    *,
    draft: Draft | ModelArchitecture | str | None = None,
    acceptance: Acceptance | float | None = None,
    batch: ArrayLike = 1,
    context: ArrayLike = 4096,
    max_draft_length: int = 16,
    parallelism: Parallelism | None = None,
    routing: Routing | None = None,
    dtypes: DTypes | Mapping[str, object] | str | None = None,
    engine: EngineOverheads | str = "vllm",
    kv_reread: float = 0.0,
    speculation_tax: float = 0.0,
    price: float | None = None,
) -> Plan:
    """The best draft length, plain decoding included, for every batch and every context.

    Parameters
    ----------
    model, hardware, draft, acceptance, parallelism, routing, dtypes, engine, kv_reread, speculation_tax, price
        As in :func:`latency_model.speculate`.
    batch, context : array_like
        Every batch is combined with every context [1], [token].
    max_draft_length : int
        Longest draft tried [token].

    Returns
    -------
    Plan
        Arrays of shape ``batch.shape + context.shape``.

    Raises
    ------
    InputError
        When an argument breaks its rule, or nothing that was asked fits the memory.

    Notes
    -----
    An integer scan including 0 (equations.md section 6); the closed form for constant acceptance is
    :func:`latency_model.formulas.optimal_draft_length`.

    Examples
    --------
    >>> plan = optimize("Qwen3-30B-A3B", "h100-sxm", acceptance=0.7, batch=[1, 64])
    >>> plan.draft_length.shape, bool((plan.speedup >= 1).all())
    ((2,), True)
    """
    setting = Setting.of(
        model,
        hardware,
        parallelism=parallelism,
        routing=routing,
        dtypes=dtypes,
        engine=engine,
        kv_reread=kv_reread,
    )
    drafter = Draft.of(draft)
    accepted = as_acceptance(acceptance, drafter)
    longest = int(checked_number("max_draft_length", max_draft_length))
    sequences, cached = checked_numbers("batch", batch), checked_numbers("context", context)
    tax = checked_number("speculation_tax", speculation_tax)

    each_batch, each_context = _outer(sequences, cached)
    lengths = np.arange(longest + 1)
    times = round_times(
        setting,
        drafter,
        batch=each_batch[..., None],
        context=each_context[..., None],
        draft_length=lengths.astype(float),
        speculation_tax=tax,
    )
    tokens = accepted.tokens_per_round(lengths)
    curve = _speedups(times, tokens)
    best = np.argmax(curve, axis=-1)
    point = {"batch": each_batch, "context": each_context, "draft_length": best.astype(float)}

    memory = memory_use(setting, drafter, **point)
    if not memory.fits.any():
        raise InputError(_nothing_fits(setting, memory, point))

    round_ = Round(
        **point,
        tokens_per_round=tokens[best],
        times=RoundTimes(*(np.take_along_axis(part, best[..., None], axis=-1)[..., 0] for part in times)),
        setting=setting,
        draft=drafter,
        acceptance=accepted,
        speculation_tax=tax,
        price=setting.hardware.price_per_hour if price is None else checked_number("price", price),
    )
    held_back_by, held_back_share = largest_term(round_.cost)
    lever, lever_gain = _best_lever(round_.cost)
    return Plan(
        best=round_,
        lengths=lengths,
        curve=curve,
        plateau=_plateau(curve, best),
        break_even_acceptance=_break_even(times, lengths),
        held_back_by=held_back_by,
        held_back_share=held_back_share,
        lever=lever,
        lever_gain=lever_gain,
        memory=memory,
        batch=sequences,
        context=cached,
        sources=setting.hardware.sources,
    )


def _nothing_fits(setting: Setting, memory: MemoryUse, points: Mapping[str, FloatArray]) -> str:
    most = int(memory.largest_batch.max())
    shortest = int(points["context"].min())
    hint = f"the largest batch that fits is {most}" if most else "not even one sequence fits"
    return (
        f"{setting.model.name} on {setting.parallelism.describe()} of {setting.hardware.title}: batch "
        f"{int(points['batch'].min())} at context {shortest} does not fit beside the weights; {hint}; "
        "try a smaller batch or context, --kv-dtype fp8 or --tp"
    )
