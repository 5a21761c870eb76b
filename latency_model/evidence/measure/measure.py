"""Measure a machine and fit a profile to it."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from latency_model.errors import InputError
from latency_model.evidence.fit import Bounds, Constants, Work, fit_constants
from latency_model.evidence.measure.chain import ChainPoint, RoundCases, RoundPoint, StepCases
from latency_model.evidence.measure.kernels import Sizes, cases
from latency_model.evidence.measure.machine import Case, Machine, Samples, time_cases
from latency_model.specs.profile import Efficiency, HardwareProfile
from latency_model.specs.quantity import Quantity

__all__ = ["Measurement", "OperationFit", "measure"]

FloatArray = NDArray[np.floating[Any]]

FITTED = ("gemm", "attention_decode", "attention_prefill", "moe", "elementwise")
BOUNDS = Bounds(compute=(0.005, 1.0), memory=(0.01, 1.5), overhead=(1e-7, 1e-1), sharpness=(0.7, 8.0))
NOTES = {
    "gemm": "one kernel after the other, weights from memory",
    "attention_decode": "scaled_dot_product_attention, cache written and read",
    "attention_prefill": "scaled_dot_product_attention, causal, one prompt",
    "moe": "router and a loop over the distinct experts in torch, no fused kernel",
    "elementwise": "norm, rotary embedding and gated activation in torch, several launches each",
}
LARGEST_UNCERTAINTY = 2.0


@frozen(kw_only=True, eq=False)
class OperationFit:
    """Constants of one operation and how well they describe what was timed."""

    operation: str
    cases: tuple[Case, ...]
    measured: FloatArray  # median seconds, shape [cases] [s]
    predicted: FloatArray  # [s]
    spread: float  # median half-width of the quartiles [1]
    efficiency: Efficiency

    @property
    def errors(self) -> FloatArray:
        """Relative error of each case, shape [cases] [1]."""
        return self.predicted / self.measured - 1.0


@frozen(kw_only=True, eq=False)
class Measurement:
    """A machine measured: its profile and the fits behind it."""

    profile: HardwareProfile
    machine: Machine = field(repr=False)
    fits: tuple[OperationFit, ...]
    launch: float  # of the smallest kernel [s]
    passes: int
    steps: tuple[ChainPoint, ...] = ()  # of small models, where checked
    rounds: tuple[RoundPoint, ...] = ()


def measure(
    device: str = "cpu",
    *,
    seconds: float = 60.0,
    dtype: str = "bf16",
    threads: int | None = None,
    check: bool = False,
    progress: Callable[[float], None] = lambda share: None,
) -> Measurement:
    """Time small pieces of a transformer and fit a profile to them.

    Parameters
    ----------
    device : str
        ``cpu`` or ``cuda``.
    seconds : float
        Time for all measurements, preparation not included [s].
    dtype : str
        Number format of weights and activations.
    threads : int, optional
        Threads torch uses on a CPU.
    check : bool
        Also time steps and speculative rounds of small models, in the same passes so that a slow spell meets pieces
        and wholes alike, and predict them from the profile.  Their times do not enter it.
    progress : callable
        Told the share of the time that has passed [1].

    Returns
    -------
    Measurement
        A profile whose numbers are all of kind ``measured``, with peak and bandwidth the best that was seen.

    Raises
    ------
    InputError
        When torch or the device is missing, or the time too short.
    """
    if not 0.0 < seconds < 86400.0:
        raise InputError(f"seconds must be above 0 and at most a day, got {seconds:g}")
    machine = Machine.on(device, dtype, threads)
    pieces = tuple(cases(machine, Sizes.of(machine)))
    if not check:
        return fitted(machine, pieces, time_cases(machine, pieces, seconds=seconds, progress=progress))
    steps, rounds = StepCases.of(machine), RoundCases.of(machine)
    samples = time_cases(machine, (*pieces, *steps.cases, *rounds.cases), seconds=seconds, progress=progress)
    ends = np.cumsum([len(pieces), len(steps.cases)])
    kernels, whole, speculative = (Samples(seconds=own) for own in np.split(samples.seconds, ends, axis=1))
    found = fitted(machine, pieces, kernels)
    return attrs.evolve(
        found,
        steps=steps.against(found.profile, machine, whole.median),
        rounds=rounds.against(found.profile, machine, speculative.median),
    )


def fitted(machine: Machine, listed: Sequence[Case], samples: Samples) -> Measurement:
    """Turn timed cases into a profile."""
    median, spread = samples.median, samples.spread
    operations = np.array([case.operation for case in listed])
    flops, traffic = (np.array([getattr(case, name) for case in listed]) for name in ("flops", "traffic"))
    peak = float(np.max(flops / median))
    bandwidth = float(np.max((traffic / median)[operations == "memory"]))
    source = f"measured by latency-model with {machine.software}, {datetime.date.today().isoformat()}"
    fits = []
    for operation in FITTED:
        own = operations == operation
        work = Work(compute=flops[own] / peak, memory=traffic[own] / bandwidth, seconds=median[own])
        constants = fit_constants(work, BOUNDS)
        fits.append(
            OperationFit(
                operation=operation,
                cases=tuple(case for case, chosen in zip(listed, own, strict=True) if chosen),
                measured=median[own],
                predicted=work.predict(constants),
                spread=float(np.median(spread[own])),
                efficiency=_efficiency(operation, constants, work, source),
            )
        )
    return Measurement(
        profile=_profile(machine, peak, bandwidth, fits, samples, source),
        machine=machine,
        fits=tuple(fits),
        launch=float(median[operations == "launch"][0]),
        passes=len(samples.seconds),
    )


def _efficiency(operation: str, constants: Constants, work: Work, source: str) -> Efficiency:
    """A block of the profile; each constant is as uncertain as the cases it rules are scattered."""
    error, shares = np.abs(work.residuals(constants)), work.shares(constants)
    uncertainties = []
    for share in shares:
        weight = share / max(float(share.sum()), 1e-12)
        scatter = float(np.sqrt(weight @ error**2)) if share.max() > 0.05 else LARGEST_UNCERTAINTY
        uncertainties.append(min(float(f"{scatter:.2g}"), LARGEST_UNCERTAINTY))
    return Efficiency(
        compute=constants.compute if operation != "elementwise" else 1.0,
        memory=constants.memory,
        overhead=constants.overhead,
        sharpness=constants.sharpness,
        compute_uncertainty=uncertainties[0] if operation != "elementwise" else 0.25,
        memory_uncertainty=uncertainties[1],
        overhead_uncertainty=uncertainties[2],
        kind="measured",
        source=source,
        note=NOTES[operation],
    )


def _profile(
    machine: Machine,
    peak: float,
    bandwidth: float,
    fits: Sequence[OperationFit],
    samples: Samples,
    source: str,
) -> HardwareProfile:
    def quantity(value: float, note: str) -> Quantity:
        scatter = float(f"{np.median(samples.spread):.2g}")
        return Quantity(value=float(f"{value:.4g}"), source=source, kind="measured", uncertainty=scatter, note=note)

    return HardwareProfile(
        name=re.sub(r"[^a-z0-9.+-]+", "-", machine.title.casefold()).strip("-")[:60] + "-measured",
        title=machine.title,
        vendor="",
        device_kind="gpu" if machine.is_gpu else "cpu",
        peaks={machine.dtype: quantity(peak, "the fastest matrix product seen")},
        memory_bandwidth=quantity(bandwidth, "the faster of copying and reading"),
        memory_capacity=Quantity(value=machine.memory_capacity, source=source, kind="measured"),
        efficiencies={(fit.operation, machine.dtype): fit.efficiency for fit in fits},
        note=f"{machine.software}; medians of {len(samples.seconds)} passes; one device, so no collectives",
    )
