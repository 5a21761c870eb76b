"""Latency against request rate, with and without speculation: what load makes of a speedup, and where it turns.

Requests arrive at random and join a running batch.  Prompts are prefilled within the rounds of those that decode, or
alone and ahead of them; the time of a round depends on how many are in it.  How many that is follows from Little's
law: see :func:`latency_model.formulas.batch_probabilities`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import ArrayLike, NDArray

from latency_model.costs.grid import blocks
from latency_model.costs.memory import memory_use
from latency_model.costs.round import NOT_MODELLED, Round, as_acceptance, round_times
from latency_model.costs.setting import Setting
from latency_model.costs.step import evaluate
from latency_model.costs.uncertainty import INTERVAL_80
from latency_model.decisions.optimize import largest_term
from latency_model.decisions.rows import plain_rows
from latency_model.errors import InputError, shorten
from latency_model.formulas.load import (
    batch_probabilities,
    expected_rounds,
    first_token_latency,
    queueing_delay,
    request_latency,
    speculation_break_even_load,
)
from latency_model.specs.acceptance import Acceptance
from latency_model.specs.draft import Draft
from latency_model.specs.engine import EngineOverheads
from latency_model.specs.hardware import HardwareProfile
from latency_model.specs.model import ModelArchitecture
from latency_model.specs.parallelism import Parallelism
from latency_model.specs.precision import DTypes
from latency_model.specs.routing import Routing
from latency_model.specs.workload import checked_flag, checked_number, checked_numbers, is_number

__all__ = ["MAX_BATCH", "Linear", "Pays", "Server", "ServingCurve", "Steady", "serve"]

FloatArray = NDArray[np.floating[Any]]

#: Sequences an engine decodes together at most where memory does not stop it earlier: vLLM's on a large device.
MAX_BATCH = 1024
#: Rates and draft lengths asked at most.
MOST_RATES, MOST_LENGTHS = 10_000, 17
#: Shares of the highest saturation rate that are looked at where no rate is given.
SHARES = np.linspace(0.1, 0.9, 9)
#: Rates at which the gain of speculation is looked at, and halvings that then find where it changes sign.
SCANNED, HALVINGS = 64, 40
#: Entries of rates × batches evaluated at once.
BLOCK = 1 << 20

SERVING_ASSUMPTIONS = ("requests arrive independently (Poisson), with prompts of one length; latencies are means",)
MIXED = "a prompt is prefilled whole in the round that begins after it has come"
ALONE = "prefills run alone, in the order of arrival, ahead of decoding"
#: Tokens of a step over which the time that each further prompt adds is averaged: a chunk of prefill.
CHUNK = 2048
SERVING_NOT_MODELLED = (
    "percentiles, bursts and mixed lengths of requests",
    "limits on the tokens of a step, prefix caching, preemption when the cache runs full",
    "sequences at different contexts in one batch: all stand in the middle of their output",
    *NOT_MODELLED[1:],
)


class Steady(NamedTuple):
    """Means over requests: sequences that decode together [1], times to first token, per token after it, to the last.

    At a rate that is not sustained the batch is full, ``tpot`` [s/token] is that of the full batch, and ``ttft`` and
    ``latency`` [s] are inf.
    """

    batch: FloatArray
    ttft: FloatArray
    tpot: FloatArray
    latency: FloatArray


class Linear(NamedTuple):
    """Demands of :func:`latency_model.formulas.request_latency` [s], and the largest relative error of the fit [1]."""

    fixed_demand: float
    load_demand: float
    error: float


class Pays(NamedTuple):
    """A range of request rates [1/s] in which drafting answers sooner than plain decoding; inf: to saturation."""

    start: float
    end: float


@frozen(kw_only=True, eq=False, slots=False)
class Server:
    """What one draft length makes of a machine: its times, which a rate of requests then meets.

    Attributes
    ----------
    prefill_time : float
        Seconds of one prefill with nothing beside it, the drafter's included [s].
    round_time : ndarray
        Seconds of a round with 1, 2, ... sequences in the batch [s].
    rounds : float
        Rounds a request takes after its first token [1].
    output_tokens : float
        Tokens of an answer on average [token].
    streams : int
        Batches in flight at once, each with its share of the requests: one per replica and pipeline stage [1].
    joined_prefill : float or None
        Seconds by which a prompt lengthens the round it is prefilled in; None where prefills run alone [s].
    """

    prefill_time: float
    round_time: FloatArray
    rounds: float
    output_tokens: float
    streams: int = 1
    joined_prefill: float | None = None

    @property
    def max_batch(self) -> int:
        """Largest batch of one stream [1]."""
        return len(self.round_time)

    @cached_property
    def demand(self) -> FloatArray:
        """Machine seconds a request takes when 1, 2, ... decode together [s]."""
        return np.asarray(self.rounds * self.round_time / np.arange(1.0, self.max_batch + 1))

    @property
    def prefill_load(self) -> float:
        """Machine seconds that the prefill of one more request takes [s]."""
        return self.prefill_time if self.joined_prefill is None else self.joined_prefill

    @property
    def saturation_rate(self) -> float:
        """Requests a second from which on the queue grows without end [1/s]."""
        return float(self.streams / (self.prefill_load + self.demand[-1]))

    def steady(self, rate: FloatArray) -> Steady:
        """Means at each rate [1/s]."""
        flat = np.ravel(rate) / self.streams
        parts = [self._steady(flat[block]) for block in blocks((flat.size, self.max_batch), BLOCK)]
        return Steady(*(np.concatenate(column).reshape(np.shape(rate)) for column in zip(*parts, strict=True)))

    def _steady(self, rate: FloatArray) -> Steady:
        """One stream at each of several rates."""
        highest = self.saturation_rate / self.streams
        full, served = rate >= highest, np.minimum(rate, highest)
        prefilling = served * self.prefill_load  # share of the time
        decoding = served / (1.0 - prefilling)  # requests per second of what is left
        shares = batch_probabilities(demand=self.demand, rate=np.where(full, np.inf, decoding))
        load = np.where(full, 0.0, decoding * self.demand[-1])
        place = shares[:, -1] * load / (1.0 - load) / served  # wait for a place in the batch
        round_time = shares[:, 1:] @ self.round_time  # mean over all time, 0 where nobody decodes
        batch = shares @ np.arange(self.max_batch + 1.0)
        decode = batch / served
        if self.joined_prefill is None:
            prefilled = queueing_delay(service_time=self.prefill_time, rate=served) + round_time / 2 + self.prefill_time
            # Decoding starts when those that came meanwhile are through their prefills, too.
            decode = decode + prefilled * prefilling / (1.0 - prefilling)
        else:
            busy = 1.0 - shares[:, 0]
            joined = first_token_latency(round_time=round_time / busy, prefill_time=self.joined_prefill, rate=served)
            joined = np.maximum(
                joined, round_time / busy / 2 + self.prefill_time
            )  # no round is shorter than its prompt
            prefilled = busy * joined + shares[:, 0] * self.prefill_time
        ttft = np.where(full, np.inf, place + prefilled)
        return Steady(batch * self.streams, ttft, decode / (self.output_tokens - 1.0), ttft + decode)

    def largest_rate(self, name: str, limit: float) -> float:
        """Highest rate at which the mean called ``name`` stays within ``limit``; 0 where a lone request exceeds it."""

        def within(rate: float) -> bool:
            return bool(getattr(self.steady(np.array([rate])), name)[0] <= limit)

        lowest = 1e-9 * self.saturation_rate
        return _last(within, lowest, self.saturation_rate) if within(lowest) else 0.0

    @cached_property
    def linear(self) -> Linear:
        """The server with T(1) + t1 (n − 1) for its round time, a relative least-squares fit over all batches."""
        others = np.arange(float(self.max_batch))
        terms = np.stack((np.ones_like(others), others), axis=-1) / self.round_time[:, None]
        (alone, slope), *_ = np.linalg.lstsq(terms, np.ones_like(others), rcond=None)
        return Linear(
            fixed_demand=float(self.prefill_time + self.rounds * alone),
            load_demand=float(self.prefill_load + self.rounds * slope),
            error=float(np.max(np.abs(terms @ np.array([alone, slope]) - 1.0))),
        )


@frozen(kw_only=True, eq=False, slots=False)
class ServingCurve:
    """Latency against request rate, for plain decoding and for each draft length.

    Arrays over rates have one row per draft length, the first of which is 0, and the shape of ``rate`` after that.
    What holds for all rates has one entry per draft length.

    Attributes
    ----------
    rate : ndarray
        Requests that arrive [1/s].
    draft_length : ndarray
        Draft lengths, 0 (plain decoding) first [token].
    steady : Steady
        Mean batch, time to first token, time per output token and latency.
    prompt_tokens, output_tokens : float
        Tokens of every prompt, and of an answer on average [token].
    memory_bound : ndarray
        Whether memory, not ``max_batch``, sets the largest batch.
    not_modelled : tuple of str
        What was left out.
    """

    rate: FloatArray
    draft_length: NDArray[np.int64]
    steady: Steady = field(repr=False)
    prompt_tokens: float
    output_tokens: float
    memory_bound: NDArray[np.bool_]
    servers: tuple[Server, ...] = field(repr=False)
    setting: Setting = field(repr=False)
    draft: Draft = field(repr=False)
    acceptance: Acceptance = field(repr=False)
    speculation_tax: float = 0.0
    not_modelled: tuple[str, ...] = field(default=SERVING_NOT_MODELLED, repr=False)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What was taken for granted: of the setting, the load, the drafter and the acceptance."""
        return (
            *self.setting.assumptions,
            *SERVING_ASSUMPTIONS,
            MIXED if self.mixed_prefill else ALONE,
            *self.draft.assumptions_for(self.setting.model),
            *self.acceptance.assumptions,
            *self.acceptance.extrapolation_note(int(self.draft_length.max())),
        )

    @property
    def mixed_prefill(self) -> bool:
        """Whether prompts are prefilled within the rounds of those that decode."""
        return self.servers[0].joined_prefill is not None

    @property
    def context(self) -> float:
        """Cached tokens of a sequence in the middle of its answer [token]."""
        return self.prompt_tokens + self.output_tokens / 2.0

    @property
    def batch(self) -> FloatArray:
        """Mean number of sequences that decode together, over all replicas [1]."""
        return self.steady.batch

    @property
    def ttft(self) -> FloatArray:
        """Mean time from arrival to the first token [s]."""
        return self.steady.ttft

    @property
    def tpot(self) -> FloatArray:
        """Mean time per output token after the first [s/token]."""
        return self.steady.tpot

    @property
    def latency(self) -> FloatArray:
        """Mean time from arrival to the last token, inf where the rate is not sustained [s]."""
        return self.steady.latency

    @property
    def saturated(self) -> NDArray[np.bool_]:
        """Where the rate is not sustained: the queue grows without end."""
        return np.isinf(self.latency)

    @property
    def speedup(self) -> FloatArray:
        """Latency of plain decoding over latency; NaN where both are saturated [1]."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.latency[0] / self.latency)

    @property
    def prefill_share(self) -> FloatArray:
        """Share of the machine's time that goes to prefills [1]."""
        served = np.minimum(self.rate, self._column(self.saturation_rate))
        return np.asarray(served * self._column([server.prefill_load / server.streams for server in self.servers]))

    @property
    def max_batch(self) -> NDArray[np.int64]:
        """Most sequences that decode together, over all replicas [1]."""
        return np.array([server.max_batch * server.streams for server in self.servers])

    @property
    def saturation_rate(self) -> FloatArray:
        """Rate from which on the queue grows without end [1/s]."""
        return np.array([server.saturation_rate for server in self.servers])

    @cached_property
    def pays(self) -> tuple[tuple[Pays, ...], ...]:
        """For each draft length, the ranges of rate in which it answers sooner than plain decoding."""
        return tuple(_ranges(self.servers[0], server) for server in self.servers)

    @property
    def break_even_rate(self) -> FloatArray:
        """Rate above which drafting hurts; inf where it pays up to saturation, NaN where it never pays [1/s]."""
        return np.array([ranges[-1].end if ranges else np.nan for ranges in self.pays])

    @property
    def linear_break_even_rate(self) -> FloatArray:
        """:attr:`break_even_rate` in closed form, of rounds affine in a batch without limit [1/s].

        See :func:`latency_model.formulas.speculation_break_even_load`, and :attr:`linear_error` for the fit.
        """
        fixed, load = (
            np.array([getattr(server.linear, name) for server in self.servers]) for name in Linear._fields[:2]
        )
        crossing = speculation_break_even_load(fixed_ratio=fixed / fixed[0], load_ratio=load / load[0])
        crosses = (crossing > 0.0) & (crossing < 1.0)
        hurts_above = np.where(crosses, crossing * self.servers[0].streams / load[0], np.inf)
        return np.where(fixed < fixed[0], hurts_above, np.where(crosses, np.inf, np.nan))

    @property
    def linear_error(self) -> FloatArray:
        """Largest relative error of the round time taken as affine in the batch [1]."""
        return np.array([server.linear.error for server in self.servers])

    @property
    def linear_latency(self) -> FloatArray:
        """Mean latency in closed form, of rounds affine in a batch without limit [s]."""
        return np.stack(
            [
                request_latency(
                    fixed_demand=server.linear.fixed_demand,
                    load_demand=server.linear.load_demand,
                    rate=self.rate / server.streams,
                )
                for server in self.servers
            ]
        )

    def at(self, rate: ArrayLike) -> ServingCurve:
        """The same service at other rates [1/s]."""
        rates = _checked_rates(rate)
        return evolve(self, rate=rates, steady=_steady(self.servers, rates))

    def goodput(
        self, *, latency: float | None = None, tpot: float | None = None, ttft: float | None = None
    ) -> FloatArray:
        """Highest rate at which every mean given stays within its limit, for each draft length.

        Parameters
        ----------
        latency, ttft : float, optional
            Limits on the time from arrival to the last and to the first token [s].
        tpot : float, optional
            Limit on the time per output token after the first [s/token].

        Returns
        -------
        ndarray
            Rates [1/s]: 0 where a lone request exceeds a limit, the saturation rate where nothing else stops it.
        """
        limits = {"latency": latency, "tpot": tpot, "ttft": ttft}
        given = {name: checked_limit(name, seconds) for name, seconds in limits.items() if seconds is not None}
        return np.array(
            [
                min([server.saturation_rate, *(server.largest_rate(name, most) for name, most in given.items())])
                for server in self.servers
            ]
        )

    @cached_property
    def round(self) -> Round:
        """The round at the mean batch."""
        layout = self.setting.parallelism
        lengths = self._column(self.draft_length)
        batch, context, drafted = np.maximum(self.batch / layout.pp, layout.dp), np.asarray(self.context), lengths * 1.0
        return Round(
            batch=batch,
            context=context,
            draft_length=drafted,
            tokens_per_round=self.acceptance.tokens_per_round(lengths),
            times=round_times(
                self.setting,
                self.draft,
                batch=batch,
                context=context,
                draft_length=drafted,
                speculation_tax=self.speculation_tax,
            ),
            setting=self.setting,
            draft=self.draft,
            acceptance=self.acceptance,
            speculation_tax=self.speculation_tax,
        )

    @cached_property
    def held_back(self) -> tuple[NDArray[np.str_], FloatArray]:
        """The term that takes most of a round at the mean batch, and its share [1]."""
        return largest_term(self.round.cost)

    @cached_property
    def interval(self) -> tuple[Steady, Steady]:
        """Low and high ends of an 80 % interval of every mean.

        All times are taken as shorter or longer by one factor, that of the time per token at the mean batch.  With
        times f times as long, each mean is f times as long at 1/f of the rate.
        """
        deviation = INTERVAL_80 * self.round.estimates.tpot.deviation
        return self._stretched(np.exp(-deviation)), self._stretched(np.exp(deviation))

    def _stretched(self, factor: FloatArray) -> Steady:
        """Means if every time were so many times as long, one factor for each draft length and rate."""
        rows = (server.steady(self.rate * own) for server, own in zip(self.servers, factor, strict=True))
        batch, *times = map(np.stack, zip(*rows, strict=True))
        return Steady(batch, *(factor * each for each in times))

    def summary(self) -> list[dict[str, Any]]:
        """One plain dictionary per draft length with what holds at every rate; None where there is no number."""
        columns: dict[str, Any] = {
            "draft_length": self.draft_length,
            "rounds_per_request": np.array([server.rounds for server in self.servers]),
            "prefill_time_s": np.array([server.prefill_time for server in self.servers]),
            "prefill_load_s": np.array([server.prefill_load for server in self.servers]),
            "max_batch": self.max_batch,
            "bound_by_memory": self.memory_bound,
            "saturation_rate_per_s": self.saturation_rate,
            "break_even_rate_per_s": self.break_even_rate,
            "linear_break_even_rate_per_s": self.linear_break_even_rate,
            "linear_error": self.linear_error,
        }
        rows = _finite_rows(columns, self.draft_length.shape)
        for row, ranges in zip(rows, self.pays, strict=True):
            row["pays_per_s"] = [[_finite(start), _finite(end)] for start, end in ranges]
        return rows

    def rows(self) -> list[dict[str, Any]]:
        """One plain dictionary per rate and draft length, SI units, unit in the key; None where there is no number."""
        held_back_by, held_back_share = self.held_back
        low, high = self.interval
        columns: dict[str, Any] = {
            "rate_per_s": self.rate,
            "draft_length": self._column(self.draft_length),
            "batch": self.batch,
            "prefill_share": self.prefill_share,
            "ttft_s": self.ttft,
            "tpot_s": self.tpot,
            "tpot_low_s": low.tpot,
            "tpot_high_s": high.tpot,
            "latency_s": self.latency,
            "latency_low_s": low.latency,
            "latency_high_s": high.latency,
            "speedup": self.speedup,
            "saturated": self.saturated,
            "held_back_by": held_back_by,
            "held_back_share": held_back_share,
        }
        shape = self.latency.shape
        by_rate = {name: np.moveaxis(np.broadcast_to(each, shape), 0, -1) for name, each in columns.items()}
        return _finite_rows(by_rate, (*shape[1:], shape[0]))

    def _column(self, values: ArrayLike) -> NDArray[Any]:
        """One value per draft length, shaped to meet every rate."""
        return np.reshape(values, (-1, *(1,) * self.rate.ndim))


def serve(
    model: ModelArchitecture | str | Mapping[str, object],
    hardware: HardwareProfile | str,
    *,
    draft: Draft | ModelArchitecture | str | None = None,
    acceptance: Acceptance | float | None = None,
    draft_length: ArrayLike = 3,
    rate: ArrayLike | None = None,
    prompt_tokens: float = 1024,
    output_tokens: float = 256,
    max_batch: int = MAX_BATCH,
    mixed_prefill: bool = True,
    parallelism: Parallelism | None = None,
    routing: Routing | None = None,
    dtypes: DTypes | Mapping[str, object] | str | None = None,
    engine: EngineOverheads | str = "vllm",
    kv_reread: float = 0.0,
    speculation_tax: float = 0.0,
) -> ServingCurve:
    r"""Latency of requests that arrive at a rate, for plain decoding and for each draft length.

    .. math:: T_\text{req} = T_\text{first} + \frac{B}{\lambda}, \qquad
        B = \lambda\,\frac{R\,\overline{T(n)}}{1 - \lambda T_\text{pre}}

    Parameters
    ----------
    model, hardware, draft, acceptance, parallelism, routing, dtypes, engine, kv_reread, speculation_tax
        As in :func:`latency_model.speculate`.
    draft_length : array_like of int
        Draft lengths to compare with plain decoding [token].
    rate : array_like, optional
        Requests that arrive λ [1/s]; shares of the highest saturation rate when not given.
    prompt_tokens, output_tokens : float
        Tokens of every prompt, and of an answer on average [token].
    max_batch : int
        Most sequences one replica decodes together; memory may allow fewer [1].
    mixed_prefill : bool
        Whether a prompt is prefilled within a round of those that decode (vLLM, TensorRT-LLM), or alone and ahead of
        them (SGLang unless told to mix).

    Returns
    -------
    ServingCurve
        Arrays with a row per draft length, plain decoding first, and the shape of ``rate`` after that.

    Raises
    ------
    InputError
        When an argument breaks its rule, or not even one sequence fits the memory.

    Notes
    -----
    A prefill takes T_pre seconds of the machine; what prefills leave of the time goes to rounds of T(n) seconds, of
    which a request takes R.  T is averaged over the batches that occur, not taken at their mean; where it is affine in
    the batch both agree with the closed form.  Source: equations.md section 9; Kong et al., arXiv 2605.15051,
    for Little's law.

    Examples
    --------
    >>> curve = serve("Meta-Llama-3.1-8B", "h100-sxm", acceptance=0.7, rate=[0.01, 1.0])
    >>> curve.latency.shape, bool((curve.latency[:, 1] > curve.latency[:, 0]).all())
    ((2, 2), True)
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
    lengths = np.union1d(0, checked_numbers("draft_length", draft_length).astype(np.int64))
    prompt = checked_number("prompt_tokens", prompt_tokens)
    output = checked_number("output_tokens", output_tokens)
    most = int(checked_number("max_batch", max_batch))
    tax = checked_number("speculation_tax", speculation_tax)
    mixed = checked_flag("mixed_prefill", mixed_prefill)
    if lengths.size > MOST_LENGTHS:
        raise InputError(f"draft_length: at most {MOST_LENGTHS} values, 0 among them, got {lengths.size}")
    given = None if rate is None else _checked_rates(rate)

    servers, held = [], []
    for length in lengths:
        drafting = drafter if length else None
        alone, joined = _prefill_times(setting, drafting, prompt)
        room = _room(setting, drafting, context=prompt + output / 2.0, draft_length=float(length))
        servers.append(
            Server(
                prefill_time=alone,
                joined_prefill=joined if mixed else None,
                round_time=_round_time(
                    setting, drafter, int(min(room, most)), context=prompt + output / 2.0, length=float(length), tax=tax
                ),
                rounds=float(expected_rounds(accepted.survivals(length), output - 1.0)),
                output_tokens=output,
                streams=setting.parallelism.dp * setting.parallelism.pp,
            )
        )
        held.append(room < most)
    if given is None:
        top = max(server.saturation_rate for server in servers)
        given = np.array([float(f"{share * top:.2g}") for share in SHARES])
    return ServingCurve(
        rate=given,
        draft_length=lengths,
        steady=_steady(servers, given),
        prompt_tokens=prompt,
        output_tokens=output,
        memory_bound=np.array(held),
        servers=tuple(servers),
        setting=setting,
        draft=drafter,
        acceptance=accepted,
        speculation_tax=tax,
    )


def checked_limit(name: str, seconds: object) -> float:
    """A promise on a mean: a number of seconds above 0 [s]."""
    if not is_number(seconds) or not 0.0 < seconds < np.inf:
        raise InputError(f"the limit on {name} must be a number of seconds above 0, got {shorten(seconds)}")
    return float(seconds)


def _checked_rates(rate: ArrayLike) -> FloatArray:
    rates = checked_numbers("rate", rate)
    if rates.size > MOST_RATES:
        raise InputError(f"rate: at most {MOST_RATES:,} values, got {rates.size:,}")
    return rates


def _steady(servers: Iterable[Server], rate: FloatArray) -> Steady:
    """Means of several servers, stacked."""
    return Steady(*map(np.stack, zip(*(server.steady(rate) for server in servers), strict=True)))


def _room(setting: Setting, draft: Draft | None, *, context: float, draft_length: float) -> float:
    """Sequences one replica has memory for, or a sentence where there is none [1]."""
    layout = setting.parallelism
    memory = memory_use(
        setting,
        draft,
        batch=np.asarray(float(layout.dp)),
        context=np.asarray(context),
        draft_length=np.asarray(draft_length),
    )
    room = float(memory.largest_batch) / layout.dp
    if room < 1.0:
        raise InputError(
            f"{setting.model.name} on {layout.describe()} of {setting.hardware.title}: not even one sequence of "
            f"{context:,.0f} tokens fits beside the weights; try shorter prompts, --kv-dtype fp8 or --tp"
        )
    return room


def _prefill_times(setting: Setting, draft: Draft | None, prompt: float) -> tuple[float, float]:
    """Seconds of one prompt alone, and by which each further one lengthens a step, drafter included [s]."""
    own = None if draft is None or draft.kind == "self_speculation" else setting.for_draft(draft)
    more = np.ceil(CHUNK / prompt)
    prompts = setting.parallelism.dp * np.array([1.0, 1.0 + more])
    passes = (
        evaluate(each, batch=prompts, tokens_per_sequence=np.asarray(prompt), context=np.zeros(()), prefill=True).time
        for each in (setting, own)
        if each is not None
    )
    one, several = np.sum([*passes], axis=0)
    return float(one), float((several - one) / more)


def _round_time(
    setting: Setting, draft: Draft, max_batch: int, *, context: float, length: float, tax: float
) -> FloatArray:
    """Seconds of a round with 1, 2, ... ``max_batch`` sequences on each replica [s]."""
    return round_times(
        setting,
        draft,
        batch=setting.parallelism.dp * np.arange(1.0, max_batch + 1),
        context=np.asarray(context),
        draft_length=np.asarray(length),
        speculation_tax=tax,
    ).round


def _ranges(plain: Server, server: Server) -> tuple[Pays, ...]:
    """Where ``server`` answers sooner than ``plain``, up to its own saturation."""

    def sooner(rate: FloatArray) -> NDArray[np.bool_]:
        return np.asarray(server.steady(rate).latency < plain.steady(rate).latency)

    shares = np.union1d(np.geomspace(1e-4, 1.0, SCANNED), np.linspace(1e-4, 1.0, SCANNED))
    rates = shares * server.saturation_rate * (1.0 - 1e-6)
    better = sooner(rates)
    edges = [0.0] if better[0] else []
    for index in np.flatnonzero(better[1:] != better[:-1]):

        def as_before(rate: float, here: bool = bool(better[index])) -> bool:
            return bool(sooner(np.array([rate]))[0] == here)

        edges.append(_last(as_before, rates[index], rates[index + 1]))
    if better[-1]:
        edges.append(np.inf)
    return tuple(Pays(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True))


def _last(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The number between ``low``, where ``holds`` is true, and ``high`` from which on it no longer is."""
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if holds(middle) else (low, middle)
    return float(low)


def _finite_rows(columns: Mapping[str, NDArray[Any]], shape: tuple[int, ...]) -> list[dict[str, Any]]:
    """Plain rows with None where there is no number."""
    return [{name: _finite(value) for name, value in row.items()} for row in plain_rows(columns, shape)]


def _finite(value: Any) -> Any:
    """A number that JSON can hold, or None."""
    return None if isinstance(value, float) and not np.isfinite(value) else value
