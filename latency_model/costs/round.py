"""One speculative round: draft γ tokens, verify γ + 1, accept some; against plain decoding of the same engine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

from latency_model.costs.counts import projection_operations
from latency_model.costs.grid import blocks, distinct
from latency_model.costs.setting import Setting
from latency_model.costs.step import (
    NO_SCALES,
    Part,
    Scales,
    Share,
    StepCost,
    evaluate,
    host_row,
    scaled_host_time,
    timed,
)
from latency_model.costs.uncertainty import Estimates, RoundDeviations, round_deviations, round_estimates
from latency_model.errors import InputError, shorten
from latency_model.specs.acceptance import Acceptance
from latency_model.specs.draft import Draft
from latency_model.specs.engine import EngineOverheads, load_engine
from latency_model.specs.hardware import HardwareProfile
from latency_model.specs.model import ModelArchitecture
from latency_model.specs.parallelism import Parallelism
from latency_model.specs.precision import DTypes
from latency_model.specs.routing import Routing
from latency_model.specs.workload import checked_number, checked_numbers, checked_shape, is_number

__all__ = [
    "NOT_MODELLED",
    "Asked",
    "Round",
    "RoundCost",
    "RoundTimes",
    "as_acceptance",
    "round_cost",
    "round_times",
    "speculate",
]

FloatArray = NDArray[np.floating[Any]]

#: What every round leaves out, printed with results.
NOT_MODELLED = (
    "interference of prefills and of sequences at other contexts in the same batch",
    "acceptance that changes with batch, context or temperature",
    "the drafter's pass over the tokens accepted in the last round",
    "overlap of communication with compute, hot experts, network beyond one link domain",
)

#: Points evaluated at once by :func:`speculate`; a few arrays of this size stay near the caches.
BLOCK = 1 << 14
#: Pairs of batch and draft length that are worked out at once; more are worked out block by block.
MOST_PAIRS = 1 << 17
Block = tuple[slice, ...]


class RoundTimes(NamedTuple):
    """Seconds of a plain step and of the parts of a round [s]; arrays of any shapes that broadcast."""

    baseline: FloatArray
    draft: FloatArray
    verify: FloatArray
    overhead: FloatArray

    @property
    def round(self) -> FloatArray:
        """Seconds of a round [s]."""
        return self.draft + self.verify + self.overhead


@frozen(kw_only=True, eq=False, slots=False)
class RoundCost:
    """Seconds of a round and of the plain step it replaces, itemised; acceptance plays no part here.

    Attributes
    ----------
    baseline, verify : StepCost
        A step of one token and of γ + 1 tokens per sequence, from the same model.
    draft_step : StepCost or None
        One pass of the drafter's network.
    passes : ndarray
        Passes a round takes: γ, 1 for block drafters, 0 without a network or at γ = 0 [1].
    once : StepCost or None
        Drafter work done once a round (feature fusion).
    drafting : ndarray
        1 where γ > 0, else 0 [1].
    sequences : ndarray
        Sequences one replica serves [1].
    doublings : float
        How often the target's ranks double from one [1].
    engine : EngineOverheads
        Host times per round, per doubling of the ranks, per drafter pass and per sequence.
    proposal_time : float
        Host seconds per round of proposers without a network [s].
    tax : float
        Relative slow-down of every step for merely enabling speculation, γ = 0 excluded [1].
    """

    baseline: StepCost
    verify: StepCost
    draft_step: StepCost | None
    passes: FloatArray
    once: StepCost | None
    drafting: FloatArray
    sequences: FloatArray
    doublings: float
    engine: EngineOverheads
    proposal_time: float
    tax: float = 0.0

    def draft_time(self, scales: Scales = NO_SCALES) -> FloatArray:
        """Seconds spent drafting in a round, γ = 0 gives 0 [s]."""
        total = self.drafting * self.proposal_time
        if self.draft_step is not None:
            host = scaled_host_time({"per_draft_step": self.engine.per_draft_step.value}, scales)
            network = self.passes * (self.draft_step.scaled_time(scales) + host)
            total = total + network if self.proposal_time else network
        if self.once is not None:
            total = total + self.drafting * self.once.scaled_time(scales)
        factor = scales.get(("draft", "time"), 1.0)
        return np.asarray(total if factor == 1.0 else total * factor)

    def overhead_time(self, scales: Scales = NO_SCALES) -> FloatArray:
        """Seconds of rejection sampling, host work and the tax of enabling speculation [s]."""
        engine = self.engine
        once = scaled_host_time(
            {
                "per_round": engine.per_round.value,
                "per_round_doubling": engine.per_round_doubling.value * self.doublings,
                "per_host_proposal": engine.per_host_proposal.value * (self.draft_step is None),
            },
            scales,
        )
        each = scaled_host_time({"per_sequence": engine.per_sequence.value}, scales)
        host = np.asarray(self.drafting * (once + each * self.sequences))
        return host + self.tax * self.drafting * self.verify.scaled_time(scales) if self.tax else host

    def time(self, scales: Scales = NO_SCALES) -> FloatArray:
        """Seconds of a round [s]; at γ = 0 exactly the plain step."""
        return self.draft_time(scales) + self.verify.scaled_time(scales) + self.overhead_time(scales)

    def times(self) -> RoundTimes:
        """The plain step and the parts of the round, unscaled [s]."""
        return RoundTimes(self.baseline.time, self.draft_time(), self.verify.time, self.overhead_time())

    def terms(self) -> dict[str, FloatArray]:
        """Seconds of a round by what they are spent on; they add up to :meth:`time` [s].

        Drafting is one term: what it is made of is in :attr:`Round.components`.
        """
        terms = dict(self.verify.terms())
        terms["engine overhead"] = terms["engine overhead"] + self.overhead_time()
        terms["drafting"] = self.draft_time()
        return terms


def round_cost(
    setting: Setting,
    draft: Draft,
    *,
    batch: FloatArray,
    context: FloatArray,
    draft_length: FloatArray,
    speculation_tax: float = 0.0,
    share: Share = "all",
) -> RoundCost:
    """Cost of a round for checked float arrays; see :func:`speculate`.

    ``share`` takes only what depends on the context, or only the rest: the times of both add up.
    """
    one = np.ones(())
    drafting = np.where(draft_length > 0, 1.0, 0.0)
    own = _draft_setting(setting, draft)
    draft_step: StepCost | None = None
    passes: FloatArray = np.zeros(())
    once: StepCost | None = None
    if own is not None:
        seen = context if draft.kv_budget is None else np.minimum(context, draft.kv_budget)
        in_one_pass = draft.kind == "parallel"
        fed = np.maximum(draft_length, 1.0) if in_one_pass else one
        passes = drafting if in_one_pass else draft_length
        draft_step = evaluate(own, batch=batch, tokens_per_sequence=fed, context=seen, share=share)
        fusion = draft.feature_fusion(setting.model)
        if fusion is not None and share != "context":
            rows = own.parallelism.sequences_per_replica(batch) * (draft_length + 1.0)
            joined = projection_operations(fusion, rows, parallelism=own.parallelism, dtypes=own.dtypes, kv_heads=None)
            part = Part(components=timed(joined, own))
            once = StepCost(parts=(part,), host_times={}, shape=rows.shape, setting=own)
    return RoundCost(
        baseline=evaluate(setting, batch=batch, tokens_per_sequence=one, context=context, share=share),
        verify=evaluate(
            setting,
            batch=batch,
            tokens_per_sequence=draft.hit_rate * draft_length + 1.0,
            context=context,
            share=share,
        ),
        draft_step=draft_step,
        passes=passes,
        once=once,
        drafting=drafting,
        sequences=setting.parallelism.sequences_per_replica(batch),
        doublings=setting.parallelism.doublings(setting.model.is_moe),
        engine=load_engine("none") if share == "context" else setting.engine,
        proposal_time=0.0 if share == "context" else draft.host_time,
        tax=speculation_tax,
    )


@lru_cache(maxsize=8)
def _draft_setting(setting: Setting, draft: Draft) -> Setting | None:
    """The drafter's setting, asked for again with every block."""
    return setting.for_draft(draft)


def round_times(
    setting: Setting,
    draft: Draft,
    *,
    batch: FloatArray,
    context: FloatArray,
    draft_length: FloatArray,
    speculation_tax: float = 0.0,
) -> RoundTimes:
    """Times of any number of rounds, evaluated in blocks that keep memory flat; full broadcast shape."""
    shape = np.broadcast_shapes(batch.shape, context.shape, draft_length.shape)
    times = RoundTimes(*(np.empty(shape) for _ in RoundTimes._fields))
    for block, piece in round_times_in_blocks(
        setting, draft, batch=batch, context=context, draft_length=draft_length, speculation_tax=speculation_tax
    ):
        for whole, values in zip(times, piece, strict=True):
            whole[block] = values
    return times


def round_times_in_blocks(
    setting: Setting,
    draft: Draft,
    *,
    batch: FloatArray,
    context: FloatArray,
    draft_length: FloatArray,
    speculation_tax: float = 0.0,
    size: int = BLOCK,
) -> Iterator[tuple[Block, RoundTimes]]:
    """Times of at most about ``size`` rounds after the other, each with the block of points they belong to.

    What does not depend on the context is computed once, for every pair of batch and draft length there is.
    """
    shape = np.broadcast_shapes(batch.shape, context.shape, draft_length.shape)

    def times(share: Share, *point: FloatArray) -> RoundTimes:
        sequences, cached, lengths = point
        return round_cost(
            setting,
            draft,
            batch=sequences,
            context=cached,
            draft_length=lengths,
            speculation_tax=speculation_tax,
            share=share,
        ).times()

    (sequences, lengths), index = distinct(batch, draft_length)
    pairs = math.prod(np.broadcast_shapes(sequences.shape, lengths.shape))
    rest = times("rest", sequences, np.zeros(()), lengths) if pairs <= MOST_PAIRS else None
    for block in blocks(shape, max(size, MOST_PAIRS) if rest is None else size):
        point = [_cut(array, block, shape) for array in (batch, context, draft_length)]
        reading = times("context", *point)
        if rest is None:
            others = list(times("rest", *point))
        elif index is None:
            others = [_cut(values, block, shape) for values in rest]
        else:
            others = [values[_cut(index, block, shape)] for values in rest]
        yield block, RoundTimes(*map(np.add, others, reading))


@frozen(kw_only=True, eq=False, slots=False)
class Round:
    """What speculation buys at every point asked; times and what follows from them have the broadcast shape.

    Attributes
    ----------
    batch, context, draft_length : ndarray
        What was asked [1], [token], [token], each in the shape it was given in.
    tokens_per_round : ndarray
        Ω, bonus token included, in the shape of ``draft_length`` [token].
    times : RoundTimes
        Seconds of a plain step and of the parts of a round [s].
    price : float or None
        Price of one device [$/h].
    not_modelled : tuple of str
        What was left out.
    """

    batch: FloatArray
    context: FloatArray
    draft_length: FloatArray
    tokens_per_round: FloatArray
    times: RoundTimes
    setting: Setting = field(repr=False)
    draft: Draft = field(repr=False)
    acceptance: Acceptance = field(repr=False)
    speculation_tax: float = 0.0
    price: float | None = None
    not_modelled: tuple[str, ...] = field(default=NOT_MODELLED, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Broadcast shape of what was asked."""
        return np.broadcast_shapes(self.batch.shape, self.context.shape, self.draft_length.shape)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What was taken for granted: of the setting, the drafter and the acceptance."""
        return (
            *self.setting.assumptions,
            *self.draft.assumptions_for(self.setting.model),
            *self.acceptance.assumptions,
            *self.acceptance.extrapolation_note(int(self.draft_length.max())),
        )

    @property
    def baseline_time(self) -> FloatArray:
        """Seconds of a plain step [s]."""
        return self.times.baseline

    @property
    def draft_time(self) -> FloatArray:
        """Seconds spent drafting [s]."""
        return self.times.draft

    @property
    def verify_time(self) -> FloatArray:
        """Seconds of the target's step over γ + 1 tokens [s]."""
        return self.times.verify

    @property
    def overhead_time(self) -> FloatArray:
        """Seconds of rejection sampling, host work and tax [s]."""
        return self.times.overhead

    @property
    def time(self) -> FloatArray:
        """Seconds of a round [s]."""
        return self.times.round

    @property
    def speedup(self) -> FloatArray:
        """Ω·T_T(B, 1) / T_round [1]: MagicDec arXiv 2408.11049 eq. 1, MoESD arXiv 2505.19645 eq. 4."""
        return self.tokens_per_round * self.baseline_time / self.time

    @cached_property
    def deviations(self) -> RoundDeviations:
        """How far times and their ratio may be off, acceptance not counted: standard deviations of logarithms [1]."""
        return round_deviations(self.cost, self.setting)

    @cached_property
    def estimates(self) -> Estimates:
        """Plain step, round, :attr:`tpot` and :attr:`speedup`, each as ``.low``, ``.best``, ``.high``.

        80 % intervals from the uncertainty of constants, host times, acceptance and of the step model itself; computed
        when asked for.
        """
        return round_estimates(self, self.deviations)

    @property
    def speedup_probability(self) -> FloatArray:
        """Probability that the speedup is above 1; 0 at γ = 0, which speeds nothing up [1]."""
        return self.estimates.speedup.probability_above(1.0)

    @property
    def tpot(self) -> FloatArray:
        """Mean seconds per output token of one sequence [s/token]."""
        return self.time / self.tokens_per_round

    @property
    def tokens_per_second_per_sequence(self) -> FloatArray:
        """Output tokens a second each sequence sees [token/s]."""
        return self.tokens_per_round / self.time

    @property
    def tokens_per_second_per_device(self) -> FloatArray:
        """Output tokens a second over all sequences, per device [token/s]; pipeline stages all stay busy."""
        layout = self.setting.parallelism
        return self.batch * layout.pp * self.tokens_per_second_per_sequence / layout.devices

    @property
    def target_efficiency(self) -> FloatArray:
        """T_T(B, 1)/T_T(B, γ + 1) [1], MoESD arXiv 2505.19645: how much of free verification the target gives."""
        return self.baseline_time / self.verify_time

    @property
    def dollars_per_million_tokens(self) -> FloatArray | None:
        """Price of a million output tokens [$], where a price per device is known."""
        if self.price is None:
            return None
        return np.asarray(self.price / 3600.0 * 1e6 / self.tokens_per_second_per_device)

    @cached_property
    def cost(self) -> RoundCost:
        """The itemised cost behind the numbers, computed when asked for."""
        return round_cost(
            self.setting,
            self.draft,
            batch=self.batch,
            context=self.context,
            draft_length=self.draft_length,
            speculation_tax=self.speculation_tax,
        )

    @property
    def components(self) -> list[dict[str, Any]]:
        """One row per operation of the round with its phase: draft, verify or overhead; arrays as in :attr:`time`."""
        rows = []
        cost, total = self.cost, self.time
        if cost.draft_step is not None:
            rows += [{"phase": "draft"} | _repeated(row, cost.passes, total) for row in cost.draft_step.table]
        if cost.once is not None:
            rows += [{"phase": "draft"} | _repeated(row, cost.drafting, total) for row in cost.once.table]
        host = cost.passes * cost.engine.per_draft_step.value + cost.drafting * cost.proposal_time
        rows.append({"phase": "draft"} | host_row("draft host time", host, total))
        rows += [{"phase": "verify"} | row | {"share": row["time_s"] / total} for row in cost.verify.table]
        rows.append({"phase": "overhead"} | host_row("rejection and host", self.overhead_time, total))
        return [_broadcast(row, total.shape) for row in rows if np.any(row["time_s"] > 0)]


def _broadcast(row: dict[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
    return {name: np.broadcast_to(v, shape) if isinstance(v, np.ndarray) else v for name, v in row.items()}


def _repeated(row: dict[str, Any], passes: FloatArray, total: FloatArray) -> dict[str, Any]:
    """A row of one drafter pass, for all passes of the round."""
    counts = ("executions", "kernels", "flops", "traffic_bytes", "time_s")
    scaled = row | {name: row[name] * passes for name in counts}
    return scaled | {"share": scaled["time_s"] / total}


def speculate(
    model: ModelArchitecture | str | Mapping[str, object],
    hardware: HardwareProfile | str,
    *,
    draft: Draft | ModelArchitecture | str | None = None,
    acceptance: Acceptance | float | None = None,
    draft_length: ArrayLike,
    batch: ArrayLike = 1,
    context: ArrayLike = 4096,
    parallelism: Parallelism | None = None,
    routing: Routing | None = None,
    dtypes: DTypes | Mapping[str, object] | str | None = None,
    engine: EngineOverheads | str = "vllm",
    kv_reread: float = 0.0,
    speculation_tax: float = 0.0,
    price: float | None = None,
) -> Round:
    r"""What a speculative round costs and yields, at every (batch, context, draft length) asked.

    .. math:: speedup = \Omega \cdot T_T(B, 1) \,/\, [T_{draft}(\gamma) + T_T(B, \gamma + 1) + T_{overhead}]

    Parameters
    ----------
    model, hardware, batch, context, parallelism, routing, dtypes, engine, kv_reread
        As in :func:`step_cost`; B sequences with S cached tokens each.
    draft : Draft, str or ModelArchitecture, optional
        The drafter, its name (``eagle3``, ``mtp``, ``ngram``...) or a draft model; an EAGLE-3 head when not given.
    acceptance : Acceptance or float, optional
        Acceptance of drafted tokens [1]; a published vector for the kind of drafter when not given.
    draft_length : array_like of int
        Drafted tokens γ per round, 0 is plain decoding [token].
    speculation_tax : float
        Relative slow-down of verification for merely enabling speculation [1].
    price : float, optional
        Price of one device [$/h]; the profile's when not given.

    Returns
    -------
    Round
        Arrays of the broadcast shape of batch, context and draft length.

    Raises
    ------
    InputError
        When an argument breaks its rule.

    Notes
    -----
    Verification feeds γ + 1 tokens; baseline and verification come from the same step model.  An autoregressive
    drafter takes γ passes of one token at context S.  Where a proposer finds nothing in a part of the rounds, the
    mean number of tokens is fed.  Source: equations.md section 5, MagicDec eq. 1, MoESD eq. 4
    (whose Algorithm 1 drops γ on the draft: eq. 4 is followed).

    Examples
    --------
    >>> one = speculate("Qwen3-8B", "h100-sxm", acceptance=Acceptance.constant(0.7), draft_length=3)
    >>> 1.0 < float(one.speedup) < float(one.tokens_per_round) < 4.0
    True
    """
    return Asked.of(
        model,
        hardware,
        draft=draft,
        acceptance=acceptance,
        draft_length=draft_length,
        batch=batch,
        context=context,
        parallelism=parallelism,
        routing=routing,
        dtypes=dtypes,
        engine=engine,
        kv_reread=kv_reread,
        speculation_tax=speculation_tax,
        price=price,
    ).whole()


@frozen(kw_only=True, eq=False)
class Asked:
    """What :func:`speculate` was asked, checked and not evaluated yet; the fields are those of :class:`Round`."""

    batch: FloatArray
    context: FloatArray
    draft_length: FloatArray
    setting: Setting
    draft: Draft
    acceptance: Acceptance
    speculation_tax: float
    price: float | None

    @classmethod
    def of(
        cls,
        model: ModelArchitecture | str | Mapping[str, object],
        hardware: HardwareProfile | str,
        *,
        draft: Draft | ModelArchitecture | str | None,
        acceptance: Acceptance | float | None,
        draft_length: ArrayLike,
        batch: ArrayLike,
        context: ArrayLike,
        speculation_tax: float,
        price: float | None,
        **setting: Any,
    ) -> Asked:
        """Check every argument."""
        runs = Setting.of(model, hardware, **setting)
        drafter = Draft.of(draft)
        asked = cls(
            draft_length=checked_numbers("draft_length", draft_length),
            batch=checked_numbers("batch", batch),
            context=checked_numbers("context", context),
            setting=runs,
            draft=drafter,
            acceptance=as_acceptance(acceptance, drafter),
            speculation_tax=checked_number("speculation_tax", speculation_tax),
            price=runs.hardware.price_per_hour if price is None else checked_number("price", price),
        )
        checked_shape(batch=asked.batch, context=asked.context, draft_length=asked.draft_length)
        return asked

    def whole(self) -> Round:
        """The rounds at all points."""
        return self._round(round_times(self.setting, self.draft, **self._load), ())

    def in_blocks(self, size: int) -> Iterator[tuple[Block, Round]]:
        """The rounds of at most about ``size`` points after the other, each with the block they are."""
        for block, times in round_times_in_blocks(self.setting, self.draft, **self._load, size=size):
            yield block, self._round(times, block)

    @property
    def _load(self) -> dict[str, Any]:
        return {
            "batch": self.batch,
            "context": self.context,
            "draft_length": self.draft_length,
            "speculation_tax": self.speculation_tax,
        }

    def _round(self, times: RoundTimes, block: Block) -> Round:
        shape = np.broadcast_shapes(self.batch.shape, self.context.shape, self.draft_length.shape)
        lengths = _cut(self.draft_length, block, shape)
        return Round(
            batch=_cut(self.batch, block, shape),
            context=_cut(self.context, block, shape),
            draft_length=lengths,
            tokens_per_round=self.acceptance.tokens_per_round(lengths),
            times=times,
            setting=self.setting,
            draft=self.draft,
            acceptance=self.acceptance,
            speculation_tax=self.speculation_tax,
            price=self.price,
        )


def as_acceptance(value: Acceptance | float | None, draft: Draft) -> Acceptance:
    """The acceptance a caller means: given, a constant, or the published one of the drafter's kind."""
    if value is None:
        accepted = draft.default_acceptance
    elif isinstance(value, Acceptance):
        accepted = value
    elif is_number(value):
        accepted = Acceptance.constant(value)
    else:
        raise InputError(f"acceptance must be a number or an Acceptance, got {shorten(value)}")
    first = float(accepted.survivals(1)[0])
    if first > draft.hit_rate:
        raise InputError(
            f"acceptance: {first:g} of the rounds cannot accept a first draft where only hit_rate = {draft.hit_rate:g} "
            "have a proposal; acceptance counts every round"
        )
    return accepted


def _cut(array: NDArray[Any], block: Block, shape: tuple[int, ...]) -> NDArray[Any]:
    """The piece of ``array`` that broadcasts to ``block`` of ``shape``; axes of length 1 stay whole."""
    missing = len(shape) - array.ndim
    pieces = (
        piece if array.shape[axis - missing] > 1 else slice(None) for axis, piece in enumerate(block) if axis >= missing
    )
    return array[tuple(pieces)]
