"""How far a prediction may be off: every uncertain constant moved by one standard deviation, effects added squared."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latency_model.costs.round import RoundCost
from latency_model.costs.setting import Setting
from latency_model.costs.step import COMMUNICATION, Scales
from latency_model.specs.profile import HOST_TIMES

__all__ = ["INTERVAL_80", "log_deviation", "log_deviations", "uncertain_scales"]

FloatArray = NDArray[np.floating[Any]]

#: Standard deviations on each side of an 80 % interval of a normal distribution.
INTERVAL_80 = 1.2815515655446004
#: Groups of operations that move bytes through the device's memory.
MEMORY_GROUPS = ("weights", "experts", "KV", "state", "activations")


def uncertain_scales(cost: RoundCost, setting: Setting) -> list[tuple[tuple[str, str], float]]:
    """Every constant the round's time depends on and that is uncertain, as (term, relative standard deviation).

    Constants of one kind of kernel move together in target and drafter, as they are those of one machine.
    """
    return [(term, deviation) for term, deviation in _constants(cost, setting) if deviation > 0.0]


def _constants(cost: RoundCost, setting: Setting) -> Iterator[tuple[tuple[str, str], float]]:
    kinds: dict[str, set[str]] = {}
    for step in filter(None, (cost.verify, cost.draft_step)):
        for _, component in step.operations():
            kinds.setdefault(component.operation.kind, set()).add(component.operation.dtype)
    for kind, dtypes in kinds.items():
        yield from _kernel_terms(kind, dtypes, setting)
    for part in HOST_TIMES:
        yield ("engine", part), getattr(setting.engine, part).uncertainty
    for group in MEMORY_GROUPS:
        yield (group, "memory"), setting.hardware.memory_bandwidth.uncertainty
    if setting.hardware.link_bandwidth is not None:
        yield ("communication", "memory"), setting.hardware.link_bandwidth.uncertainty


def _kernel_terms(kind: str, dtypes: set[str], setting: Setting) -> Iterator[tuple[tuple[str, str], float]]:
    """The constants of one kind of kernel; of several number formats the least certain counts."""
    hardware, fallback = setting.hardware, setting.dtypes.allow_fallback
    if kind in COMMUNICATION:
        blocks = [hardware.efficiency(kind, dtype) for dtype in dtypes]
        # The latency of a message is its compute term: see costs.step.Component.
        yield (kind, "compute"), max(block.overhead_uncertainty for block in blocks)
        yield (kind, "memory"), max(block.memory_uncertainty for block in blocks)
        return
    peaks = [hardware.peak_flops(dtype, allow_fallback=fallback) for dtype in dtypes]
    reached = [hardware.efficiency(kind, peak.dtype) for peak in peaks]
    yield (
        (kind, "compute"),
        max(
            math.hypot(block.compute_uncertainty, peak.quantity.uncertainty)
            for block, peak in zip(reached, peaks, strict=True)
        ),
    )
    yield (kind, "memory"), max(block.memory_uncertainty for block in reached)
    yield (kind, "overhead"), max(block.overhead_uncertainty for block in reached)


def log_deviations(
    quantities: Callable[[Scales], tuple[FloatArray, ...]], terms: Iterable[tuple[tuple[str, str], float]]
) -> tuple[FloatArray, ...]:
    """Standard deviation of ln(quantity) of each quantity when the terms vary independently and log-normally [1].

    First order: half the difference between one deviation up and one down, added in squares.
    """
    variances: list[FloatArray] = []
    for term, deviation in terms:
        factor = 1.0 + deviation
        up, down = quantities({term: factor}), quantities({term: 1.0 / factor})
        moved: list[FloatArray] = [(np.log(high / low) / 2.0) ** 2 for high, low in zip(up, down, strict=True)]
        variances = [a + b for a, b in zip(variances, moved, strict=True)] if variances else moved
    if not variances:
        return tuple(np.zeros(np.shape(quantity)) for quantity in quantities({}))
    return tuple(np.sqrt(variance) for variance in variances)


def log_deviation(
    quantity: Callable[[Scales], FloatArray], terms: Iterable[tuple[tuple[str, str], float]]
) -> FloatArray:
    """Standard deviation of ln(quantity): :func:`log_deviations` of one quantity [1]."""
    return log_deviations(lambda scales: (quantity(scales),), terms)[0]
