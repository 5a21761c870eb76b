"""From benchmark files to a profile of the machine that ran them, and to acceptance and routing."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from latency_model.costs.round import RoundCost, round_cost
from latency_model.costs.setting import Setting
from latency_model.costs.step import COMMUNICATION, Scales, StepCost, evaluate
from latency_model.costs.uncertainty import INTERVAL_80, log_deviation, uncertain_constants
from latency_model.errors import InputError, nearest
from latency_model.evidence.calibrate.fitting import FactorFit, fit_factors, hold_out_residuals
from latency_model.evidence.calibrate.observations import AcceptanceCounts, Reading, Timings
from latency_model.evidence.calibrate.readers import read_file
from latency_model.evidence.routing_trace import RoutingFit, fit_routing
from latency_model.specs.acceptance import Acceptance
from latency_model.specs.draft import Draft
from latency_model.specs.engine import load_engine
from latency_model.specs.hardware import HardwareProfile
from latency_model.specs.profile import ANY_DTYPE, EXPERTS, HOST_TIMES, STEP_TIMES, Efficiency
from latency_model.specs.quantity import Quantity
from latency_model.specs.workload import checked_numbers

__all__ = ["TERMS", "Calibration", "CountedAcceptance", "TimingFit", "calibrate"]

FloatArray = NDArray[np.floating[Any]]

#: What can be fitted: a factor each on the times of these terms.
TERMS = ("compute", "memory", "overhead", "engine", "link")
LARGEST_FRACTION = 2.0  # of a stated peak or bandwidth; a profile may not hold more
SHORTEST_TIME, LONGEST_TIME = 1e-7, 1e5  # [s]
LARGEST_WIDENING = 5.0
LARGEST_RATIO = 30.0  # of predicted to measured times: beyond it they are not of this model and machine
CHECK = "check the unit of the times, the model, the number formats and the number of devices"
KERNELS = ("gemm", *EXPERTS, "attention_decode", "attention_prefill", "elementwise")
#: Terms of communication: its latency is the compute term (see costs.step.Component).
LINK = tuple((kind, part) for kind in COMMUNICATION for part in ("compute", "memory"))


@frozen(kw_only=True)
class CountedAcceptance:
    """Acceptance of one source, and how it was counted."""

    source: str
    format: str
    counts: AcceptanceCounts
    acceptance: Acceptance


@frozen(kw_only=True, eq=False)
class TimingFit:
    """A fit of the step model to measured times.

    Parameters
    ----------
    setting : Setting
        Model, base profile and layout.
    timings : Timings
        Points fitted.
    fit : FactorFit
        Factors on the terms of the base profile.
    before, after : ndarray
        Relative error of each point with the base profile and with the fit, shape [points] [1].
    held_out : ndarray or None
        Relative error of each point predicted from the others; None where there were too few points.
    coverage : float
        Share of these (or else of the points fitted) inside the 80 % interval the new profile gives [1].
    profile : HardwareProfile
        The base profile with the factors applied.
    """

    setting: Setting
    timings: Timings
    fit: FactorFit
    before: FloatArray
    after: FloatArray
    held_out: FloatArray | None
    coverage: float
    profile: HardwareProfile


@frozen(kw_only=True, eq=False)
class Calibration:
    """All that the files say: times, acceptance and routing, each where there was something to read."""

    readings: tuple[Reading, ...]
    timing: TimingFit | None = None
    acceptances: tuple[CountedAcceptance, ...] = ()
    routing: tuple[tuple[str, RoutingFit], ...] = ()
    notes: tuple[str, ...] = field(default=())


def calibrate(
    files: Iterable[str | Path],
    *,
    setting: Setting | None = None,
    draft: Draft | None = None,
    context: float | None = None,
    draft_length: int | None = None,
    terms: Sequence[str] | None = None,
) -> Calibration:
    """Read benchmark files and fit what they can tell.

    Parameters
    ----------
    files : iterable of path
        Benchmark results, logs, counters, routing traces; see :mod:`latency_model.evidence.calibrate.readers`.
    setting : Setting, optional
        Model, base profile, layout and engine that ran; needed to fit times.
    draft : Draft, optional
        The drafter; needed where a file times whole rounds.
    context : float, optional
        Cached tokens per sequence where a file does not say [token].
    draft_length : int, optional
        Drafted tokens per round where a file does not say [token].
    terms : sequence of str, optional
        Which of ``TERMS`` to fit; all that play a part when not given.

    Returns
    -------
    Calibration
        Fits, with notes about what the files do and do not say.

    Raises
    ------
    InputError
        When a file cannot be used, or the points cannot fix the terms asked for.
    """
    readings = tuple(read_file(file) for file in files)
    if not readings:
        raise InputError("no file was given")
    notes = [f"{reading.source}: {note}" for reading in readings for note in reading.notes]
    counted, counting_notes = _counted(readings, draft_length)
    timed = [reading for reading in readings if reading.timings is not None]
    timing = None
    if timed and setting is None:
        notes.append("times were read and not fitted: name the model and the base profile")
    elif timed and setting is not None:
        timing = _fit_timings(timed, setting, draft, context, terms)
    elif setting is not None and terms is not None:
        raise InputError("none of the files holds times to fit")
    return Calibration(
        readings=readings,
        timing=timing,
        acceptances=counted,
        routing=tuple(
            (reading.source, fit_routing(reading.routing.expert_ids, reading.routing.num_experts))
            for reading in readings
            if reading.routing is not None
        ),
        notes=(*notes, *counting_notes),
    )


def _counted(
    readings: Sequence[Reading], draft_length: int | None
) -> tuple[tuple[CountedAcceptance, ...], tuple[str, ...]]:
    """Acceptance of every file that counts its own, and of all snapshots of running counters together."""
    counts = [(r.source, r.format, r.counts) for r in readings if r.counts is not None and not r.cumulative]
    running = [r for r in readings if r.counts is not None and r.cumulative]
    notes = []
    if running:
        running.sort(key=lambda reading: reading.counts.rounds if reading.counts else 0.0)
        first, last = running[0], running[-1]
        total = last.counts
        if len(running) > 1 and total is not None and first.counts is not None:
            total = total - first.counts
            notes.append(f"counters of {first.source} are subtracted from those of {last.source}")
        else:
            notes.append(f"{last.source}: one snapshot counts since the engine started; give two to count in between")
        if total is not None:
            counts.append((last.source, last.format, total))
    found = []
    for source, format, own in counts:
        try:
            acceptance = own.acceptance(draft_length)
        except InputError as error:
            raise InputError(f"{source}: {error}") from None
        found.append(CountedAcceptance(source=source, format=format, counts=own, acceptance=acceptance))
    return tuple(found), tuple(notes)


def _fit_timings(
    readings: Sequence[Reading],
    setting: Setting,
    draft: Draft | None,
    context: float | None,
    terms: Sequence[str] | None,
) -> TimingFit:
    timings = _joined(readings, context)
    if timings.drafting.any() and draft is None:
        raise InputError(
            f"{readings[0].source} times whole rounds with drafting; "
            "say which drafter ran with --draft or --draft-model"
        )
    names = _terms(setting, terms)
    measured = np.log(timings.time)
    if np.ptp(measured) == 0.0 and len(timings) > 1:
        raise InputError(f"all {len(timings)} times are {timings.time[0]:.4g} s: nothing can be fitted to them")
    distinct = len(np.unique(np.stack([timings.batch, timings.tokens_per_sequence, timings.context]), axis=1).T)
    if distinct <= len(names):
        raise InputError(
            f"{distinct} different point{'s' if distinct > 1 else ''} (batch, tokens, context) cannot fix {len(names)} "
            f"terms ({', '.join(names)}); measure at least {len(names) + 1}, or name fewer with --fit"
        )
    costs = _costs(timings, setting, draft)

    def predict(logs: FloatArray) -> FloatArray:
        return np.log(_times(costs, timings, _scales(names, np.exp(logs))))

    ratio = float(np.exp(np.median(predict(np.zeros(len(names))) - measured)))
    if not 1.0 / LARGEST_RATIO < ratio < LARGEST_RATIO:
        raise InputError(f"the base profile predicts {ratio:.2g} times the times measured; {CHECK}")
    fit = fit_factors(names, predict, measured)
    after = predict(np.log(fit.factors)) - measured
    residuals = hold_out_residuals(names, predict, measured)
    unseen = after if residuals is None else residuals
    held_out = None if residuals is None else np.expm1(residuals)
    sources = [reading.source for reading in readings]

    def profile_of(widening: float) -> HardwareProfile:
        return _profile(setting, fit, costs, sources, held_out, timings, widening)

    # Constants vary independently in a prediction; widened together, they cover what was seen.
    reach = np.abs(unseen) / (INTERVAL_80 * _deviations(profile_of(1.0), timings, setting, draft))
    share = min(0.8 * (1.0 + 1.0 / len(reach)), 1.0)  # so that the next point is inside with 80 %
    widening = np.quantile(reach, share, method="higher")
    profile = profile_of(float(np.clip(widening, 1.0 / LARGEST_WIDENING, LARGEST_WIDENING)))
    covered = np.abs(unseen) <= INTERVAL_80 * _deviations(profile, timings, setting, draft)
    return TimingFit(
        setting=setting,
        timings=timings,
        fit=fit,
        before=np.expm1(predict(np.zeros(len(names))) - measured),
        after=np.expm1(after),
        held_out=held_out,
        coverage=float(np.mean(covered)),
        profile=profile,
    )


def _deviations(profile: HardwareProfile, timings: Timings, setting: Setting, draft: Draft | None) -> FloatArray:
    """Standard deviation of ln(time) of each point as predictions from ``profile`` state it, shape [points] [1]."""
    own = attrs.evolve(setting, hardware=profile, engine=load_engine(setting.engine.name, profile))
    deviations = np.empty(len(timings))
    for chosen, drafter in ((~timings.drafting, Draft.ngram(hit_rate=1.0)), (timings.drafting, draft)):
        if not chosen.any() or drafter is None:
            continue
        cost = round_cost(
            own,
            drafter,
            batch=timings.batch[chosen],
            context=timings.context[chosen],
            draft_length=timings.tokens_per_sequence[chosen] - 1.0,
        )
        whole = cost.time if drafter is draft else cost.verify.scaled_time
        deviations[chosen] = log_deviation(whole, uncertain_constants((cost.verify, cost.draft_step, cost.once), own))
    return deviations


def _joined(readings: Sequence[Reading], context: float | None) -> Timings:
    """All points together, the context filled in where files do not say."""
    total = None
    for reading in readings:
        own = reading.timings
        if own is None:
            continue
        if np.isnan(own.context).any():
            if context is None:
                raise InputError(f"{reading.source} does not say the context; give its mean with --context")
            own = attrs.evolve(own, context=np.where(np.isnan(own.context), context, own.context))
        _check(reading.source, own)
        total = own if total is None else total + own
    if total is None:
        raise InputError("none of the files holds times to fit")
    return total


def _check(source: str, timings: Timings) -> None:
    """One sentence where a point cannot be one of a step."""
    try:
        for name in ("batch", "tokens_per_sequence", "context"):
            checked_numbers(name, getattr(timings, name))
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    wrong = (timings.time < SHORTEST_TIME) | (timings.time > LONGEST_TIME)
    if wrong.any():
        raise InputError(
            f"{source}: a step takes {SHORTEST_TIME:g} to {LONGEST_TIME:g} s, got {timings.time[wrong][0]:g}; "
            "check the unit of the times"
        )


def _terms(setting: Setting, asked: Sequence[str] | None) -> tuple[str, ...]:
    """The terms to fit: those asked for, or all that the setting has."""
    host = sum(getattr(setting.engine, part).value for part in STEP_TIMES)
    absent = set() if host > 0.0 else {"engine"}
    absent |= set() if setting.parallelism.devices > 1 else {"link"}
    if asked is None:
        return tuple(term for term in TERMS if term not in absent)
    for term in asked:
        if term not in TERMS:
            raise InputError(f"--fit: {term!r} is not a term; {nearest(term, TERMS)}")
        if term in absent:
            why = "engine 'none' has no host time" if term == "engine" else "one device has no link"
            raise InputError(f"--fit: {term!r} cannot be fitted: {why}")
    if not asked:
        raise InputError("--fit names no term")
    return tuple(dict.fromkeys(asked))


def _costs(timings: Timings, setting: Setting, draft: Draft | None) -> tuple[StepCost | None, RoundCost | None]:
    """Itemised costs of the plain points and of the rounds; counts are made once, factors vary."""
    step = rounds = None
    plain, drafting = ~timings.drafting, timings.drafting
    if plain.any():
        step = evaluate(
            setting,
            batch=timings.batch[plain],
            tokens_per_sequence=timings.tokens_per_sequence[plain],
            context=timings.context[plain],
        )
    if drafting.any() and draft is not None:
        rounds = round_cost(
            setting,
            draft,
            batch=timings.batch[drafting],
            context=timings.context[drafting],
            draft_length=timings.tokens_per_sequence[drafting] - 1.0,
        )
    return step, rounds


def _times(costs: tuple[StepCost | None, RoundCost | None], timings: Timings, scales: Scales) -> FloatArray:
    step, rounds = costs
    times = np.empty(len(timings))
    if step is not None:
        times[~timings.drafting] = step.scaled_time(scales)
    if rounds is not None:
        times[timings.drafting] = rounds.time(scales)
    return times


def _scales(names: Sequence[str], factors: FloatArray) -> Scales:
    """Factors on terms as the step model takes them."""
    scales: dict[tuple[str, str], float] = {}
    for name, factor in zip(names, factors.tolist(), strict=True):
        if name == "engine":
            scales |= {("engine", part): factor for part in HOST_TIMES}
        elif name == "link":
            scales |= dict.fromkeys(LINK, factor)
        else:
            scales |= {(kind, name): factor for kind in KERNELS}
    return scales


def _profile(
    setting: Setting,
    fit: FactorFit,
    costs: tuple[StepCost | None, RoundCost | None],
    sources: Sequence[str],
    held_out: FloatArray | None,
    timings: Timings,
    widening: float,
) -> HardwareProfile:
    """The base profile with every constant that was fitted, and its new uncertainty and source."""
    base = setting.hardware
    # A constant is no surer than the model it serves: its error takes in the scatter the fit leaves.
    known = {
        name: (factor, _rounded(min(widening * math.hypot(error, fit.scatter), 2.0)))
        for name, factor, error, found in zip(
            fit.names, fit.factors.tolist(), fit.standard_errors.tolist(), fit.fitted, strict=True
        )
        if found
    }
    held = "" if held_out is None else f", held-out median error {np.median(np.abs(held_out)):.1%}"
    source = (
        f"calibrated on {len(timings)} times of {setting.model.name} in {', '.join(dict.fromkeys(sources))}, "
        f"{datetime.date.today().isoformat()}{held}"
    )
    blocks, fitted = dict(base.efficiencies), set()
    for kind, dtype in _kernels_used(costs, setting):
        block = _scaled_block(kind, base.efficiency(kind, dtype), known, source)
        if block is not None:
            shared = (kind, dtype) not in blocks and (kind, ANY_DTYPE) in blocks
            blocks[kind, ANY_DTYPE if shared else dtype] = block
            fitted |= {(kind, dtype), (kind, ANY_DTYPE)}
    times = dict(base.host_times)
    if "engine" in known:
        factor, error = known["engine"]
        parts = HOST_TIMES if costs[1] is not None else STEP_TIMES
        for part in parts:
            own: Quantity = getattr(setting.engine, part)
            if own.value > 0.0:
                times[setting.engine.name, part] = Quantity(
                    value=_rounded(own.value * factor), source=source, kind="measured", uncertainty=min(error, 1.0)
                )
    return attrs.evolve(
        base,
        name=f"{base.name}-calibrated",
        title=f"{base.title}, calibrated",
        aliases=(),
        efficiencies=blocks,
        engine_efficiencies={key: own for key, own in base.engine_efficiencies.items() if key[1:] not in fitted},
        host_times=times,
    )


def _kernels_used(costs: tuple[StepCost | None, RoundCost | None], setting: Setting) -> Iterable[tuple[str, str]]:
    """Operation and number format of every efficiency block the times rest on, once each."""
    step, rounds = costs
    steps = [step] if rounds is None else [step, rounds.verify, rounds.draft_step]
    used: dict[tuple[str, str], None] = {}
    for cost in filter(None, steps):
        for _, component in cost.operations():
            operation = component.operation
            if operation.kind in COMMUNICATION:
                used[operation.kind, operation.dtype] = None
                continue
            peak = setting.hardware.peak_flops(operation.dtype, allow_fallback=setting.dtypes.allow_fallback)
            used[operation.kind, peak.dtype] = None
    return used


def _scaled_block(
    kind: str, block: Efficiency, known: Mapping[str, tuple[float, float]], source: str
) -> Efficiency | None:
    """A block with fitted factors applied: times f slower reach 1/f of the rate; None where nothing was fitted."""
    terms = {part: part for part in ("compute", "memory", "overhead")}
    if kind in COMMUNICATION:
        terms = {"memory": "link", "overhead": "link"}
    elif kind == "elementwise":  # has no arithmetic worth counting
        del terms["compute"]
    fitted = {part: known[term] for part, term in terms.items() if term in known}
    if not fitted:
        return None
    changes: dict[str, Any] = {}
    for part, (factor, error) in fitted.items():
        value = getattr(block, part) * (factor if part == "overhead" else 1.0 / factor)
        if part != "overhead" and value > LARGEST_FRACTION:
            raise InputError(f"the times ask for {value:.1f} times the stated {part} rate of the base profile; {CHECK}")
        changes[part] = _rounded(value)
        changes[f"{part}_uncertainty"] = error
    kept = [part for part in terms if part not in fitted]
    note = f"{' and '.join(kept)} as in the base profile" if kept else ""
    return attrs.evolve(
        block, **changes, kind="measured", source=source, note=note, fit=None
    )  # those rows are not these


def _rounded(value: float) -> float:
    """Four significant digits: more would be noise."""
    return float(f"{value:.4g}")
