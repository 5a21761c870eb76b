"""How far a prediction may be off: every uncertain constant moved by one standard deviation, effects added squared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latency_model.costs.round import RoundCost
from latency_model.costs.setting import Setting
from latency_model.costs.step import Scales
from latency_model.specs.profile import HOST_TIMES

__all__ = ["INTERVAL_80", "log_deviation", "uncertain_scales"]

FloatArray = NDArray[np.floating[Any]]

#: Standard deviations on each side of an 80 % interval of a normal distribution.
INTERVAL_80 = 1.2815515655446004


def uncertain_scales(cost: RoundCost, setting: Setting) -> Iterator[tuple[tuple[str, str], float]]:
    """Yield (term, relative standard deviation) for every constant the round's time depends on.

    Constants of one kind of kernel move together in target and drafter, as they are those of one machine.
    """
    kinds: dict[str, set[str]] = {}
    for step in filter(None, (cost.verify, cost.draft_step)):
        for _, component in step.operations():
            kinds.setdefault(component.operation.kind, set()).add(component.operation.dtype)
    hardware, fallback = setting.hardware, setting.dtypes.allow_fallback
    for kind, dtypes in kinds.items():
        blocks = [
            hardware.efficiency(kind, hardware.peak_flops(dtype, allow_fallback=fallback).dtype) for dtype in dtypes
        ]
        communicates = kind in ("all_reduce", "all_to_all", "p2p")
        # The latency of a message is its compute term: see costs.step.Component.
        fixed = ("compute" if communicates else "overhead", "overhead_uncertainty")
        for part, attribute in (("compute", "compute_uncertainty"), ("memory", "memory_uncertainty"), fixed):
            if communicates and attribute == "compute_uncertainty":
                continue
            yield (kind, part), max(getattr(block, attribute) for block in blocks)
    for part in HOST_TIMES:
        yield ("engine", part), getattr(setting.engine, part).uncertainty
    machine = max(hardware.memory_bandwidth.uncertainty, 0.0)
    if machine > 0:
        for group in ("weights", "experts", "KV", "state", "activations"):
            yield (group, "memory"), machine


def log_deviation(quantity: Callable[[Scales], FloatArray], terms: list[tuple[tuple[str, str], float]]) -> FloatArray:
    """Standard deviation of ln(quantity) when each term varies independently and log-normally [1].

    First order: half the difference between one deviation up and one down, added in squares.
    """
    variance: FloatArray = np.zeros(())
    for term, deviation in terms:
        if deviation <= 0.0:
            continue
        factor = 1.0 + deviation
        up, down = quantity({term: factor}), quantity({term: 1.0 / factor})
        variance = variance + (np.log(up / down) / 2.0) ** 2
    return np.sqrt(variance)
