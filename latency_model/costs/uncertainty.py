"""How far a prediction may be off: every uncertain constant moved by one standard deviation, effects added squared.

To the constants of machine, engine and acceptance come the errors of the step model itself, which no constant states.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs
import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

from latency_model.costs.setting import Setting
from latency_model.formulas.uncertainty import exceedance_probability
from latency_model.specs.profile import Efficiency
from latency_model.specs.quantity import KIND_ERRORS, KINDS, Quantity

if TYPE_CHECKING:
    from latency_model.costs.round import Round, RoundCost
    from latency_model.costs.step import Scales, StepCost

__all__ = [
    "INTERVAL_80",
    "MODEL_ERRORS",
    "Constant",
    "Estimate",
    "Estimates",
    "ModelErrors",
    "RoundDeviations",
    "drafting_estimate",
    "log_deviation",
    "log_deviations",
    "model_errors",
    "round_deviations",
    "round_estimates",
    "step_estimate",
    "uncertain_constants",
]

FloatArray = NDArray[np.floating[Any]]

#: Standard deviations on each side of an 80 % interval of a normal distribution.
INTERVAL_80 = 1.2815515655446004
#: Groups of operations that move bytes through the device's memory.
MEMORY_GROUPS = ("weights", "experts", "KV", "state", "activations")


class ModelErrors(NamedTuple):
    """What the step model leaves out, as standard deviations of ln(time) [1].

    ``common`` is the same for every step of one model on one machine in one engine, and so cancels in a speedup.
    ``own`` is that of one step against another of them, such as a verification against a plain step, and does not.
    """

    common: float
    own: float


#: From the scatter of 2,640 served runs about predictions that never saw their model, split into what the runs of one
#: configuration share and the rest: docs/silicon.md, "Intervals"; ``latency_model.evidence.coverage`` computes it.
MODEL_ERRORS = ModelErrors(common=0.16, own=0.1)
EXACT = ModelErrors(common=0.0, own=0.0)


@frozen(kw_only=True, eq=False)
class Estimate:
    """A predicted quantity with its 80 % interval; arrays of one shape, in the unit of ``best``.

    Attributes
    ----------
    best : ndarray
        The prediction, the median of a log-normal.
    deviation : ndarray
        Standard deviation of its logarithm [1].
    limit : ndarray
        What the quantity cannot exceed.

    Examples
    --------
    >>> guess = Estimate(best=np.array(1.2), deviation=np.array(0.1))
    >>> round(float(guess.low), 3), round(float(guess.high), 3), round(float(guess.probability_above(1.0)), 3)
    (1.056, 1.364, 0.966)
    """

    best: FloatArray
    deviation: FloatArray
    limit: ArrayLike = field(default=math.inf, repr=False)

    @property
    def low(self) -> FloatArray:
        """Lower end of the 80 % interval."""
        return np.asarray(self.best * np.exp(-INTERVAL_80 * self.deviation))

    @property
    def high(self) -> FloatArray:
        """Upper end of the 80 % interval."""
        return np.asarray(np.minimum(self.best * np.exp(INTERVAL_80 * self.deviation), self.limit))

    def probability_above(self, threshold: ArrayLike) -> FloatArray:
        """Probability that the quantity lies above a threshold in its unit [1]."""
        return exceedance_probability(self.best, self.deviation, threshold=threshold)


class Estimates(NamedTuple):
    """What a round predicts, each with its interval: named as the attributes of ``Round``."""

    baseline_time: Estimate  # [s]
    time: Estimate  # [s]
    tpot: Estimate  # [s/token]
    speedup: Estimate  # [1]


class RoundDeviations(NamedTuple):
    """Standard deviations of the logarithms of a round's times and their ratio, acceptance not counted [1]."""

    baseline_time: FloatArray
    time: FloatArray
    ratio: FloatArray


class Constant(NamedTuple):
    """An uncertain constant: the terms of a time that move with it, and its relative standard deviation [1]."""

    terms: tuple[tuple[str, str], ...]
    deviation: float

    def moved(self, factor: float) -> Scales:
        """Every term made slower by a factor."""
        return dict.fromkeys(self.terms, factor)


def uncertain_constants(steps: Iterable[StepCost | None], setting: Setting) -> list[Constant]:
    """Every uncertain constant that the time of some steps depends on.

    Constants of one kind of kernel move together in target and drafter, as they are those of one machine.  Constants
    that were not measured on it share one more error: what their kind leaves out moves all of them at once.
    """
    return [constant for constant in _constants(steps, setting) if constant.deviation > 0.0]


def _constants(steps: Iterable[StepCost | None], setting: Setting) -> Iterator[Constant]:
    kinds: dict[tuple[str, bool], set[str]] = {}
    for step in filter(None, steps):
        for _, component in step.operations():
            operation = component.operation
            kinds.setdefault((operation.kind, operation.group == "communication"), set()).add(operation.dtype)
    origins: dict[str, list[str]] = {}
    for (kind, between_devices), dtypes in kinds.items():
        origin, constants = (_of_messages if between_devices else _of_kernels)(kind, dtypes, setting)
        origins.setdefault(origin, []).append(kind)
        yield from constants
    for origin, taken_over in origins.items():
        for part in ("compute", "memory", "overhead"):
            yield Constant(tuple((kind, part) for kind in taken_over), KIND_ERRORS[origin])
    for part, quantity in attrs.asdict(setting.engine, recurse=False).items():
        if isinstance(quantity, Quantity):
            yield Constant((("engine", part),), quantity.deviation)
    hardware = setting.hardware
    yield Constant(tuple((group, "memory") for group in MEMORY_GROUPS), hardware.memory_bandwidth.deviation)
    if hardware.link_bandwidth is not None:
        yield Constant((("communication", "memory"),), hardware.link_bandwidth.deviation)


def _of_messages(kind: str, dtypes: set[str], setting: Setting) -> tuple[str, list[Constant]]:
    """How the constants of one kind of message are known, and what each leaves open.

    The latency of a message is its compute term: see costs.step.Component.
    """
    blocks = [setting.hardware.efficiency(kind, dtype) for dtype in dtypes]
    return _origin(blocks), [
        Constant(((kind, "compute"),), max(block.overhead_uncertainty for block in blocks)),
        Constant(((kind, "memory"),), max(block.memory_uncertainty for block in blocks)),
    ]


def _of_kernels(kind: str, dtypes: set[str], setting: Setting) -> tuple[str, list[Constant]]:
    """The same for one kind of kernel; of several number formats the least certain counts."""
    hardware, fallback = setting.hardware, setting.dtypes.allow_fallback
    peaks = [hardware.peak_flops(dtype, allow_fallback=fallback) for dtype in dtypes]
    blocks = [hardware.efficiency(kind, peak.dtype) for peak in peaks]
    compute = (
        math.hypot(block.compute_uncertainty, peak.quantity.deviation)
        for block, peak in zip(blocks, peaks, strict=True)
    )
    return _origin(blocks), [
        Constant(((kind, "compute"),), max(compute)),
        Constant(((kind, "memory"),), max(block.memory_uncertainty for block in blocks)),
        Constant(((kind, "overhead"),), max(block.overhead_uncertainty for block in blocks)),
    ]


def _origin(blocks: Iterable[Efficiency]) -> str:
    """The least certain kind among some blocks."""
    return max((block.kind for block in blocks), key=KINDS.index)


def model_errors(setting: Setting) -> ModelErrors:
    """What to add for the step model itself: nothing where the profile was calibrated with this engine.

    A calibration fits host times of the engine on the machine and widens its constants until they cover the points,
    whatever moved them.
    """
    calibrated = any(engine == setting.engine.name for engine, _ in setting.hardware.host_times)
    return EXACT if calibrated else MODEL_ERRORS


def log_deviations(
    quantities: Callable[[Scales], tuple[FloatArray, ...]], constants: Iterable[Constant]
) -> tuple[FloatArray, ...]:
    """Standard deviation of ln(quantity) of each quantity when constants vary independently and log-normally [1].

    First order: half the difference between one deviation up and one down, added in squares.
    """
    variances: list[FloatArray] = []
    for constant in constants:
        factor = 1.0 + constant.deviation
        up, down = quantities(constant.moved(factor)), quantities(constant.moved(1.0 / factor))
        moved: list[FloatArray] = [(np.log(high / low) / 2.0) ** 2 for high, low in zip(up, down, strict=True)]
        variances = [a + b for a, b in zip(variances, moved, strict=True)] if variances else moved
    if not variances:
        return tuple(np.zeros(np.shape(quantity)) for quantity in quantities({}))
    return tuple(np.sqrt(variance) for variance in variances)


def log_deviation(quantity: Callable[[Scales], FloatArray], constants: Iterable[Constant]) -> FloatArray:
    """Standard deviation of ln(quantity): :func:`log_deviations` of one quantity [1]."""
    return log_deviations(lambda scales: (quantity(scales),), constants)[0]


def step_estimate(cost: StepCost, setting: Setting) -> Estimate:
    """The time of a step with its interval [s]."""
    constants = log_deviation(cost.scaled_time, uncertain_constants([cost], setting))
    return Estimate(best=cost.time, deviation=_root_of_squares(constants, *model_errors(setting)))


def drafting_estimate(cost: RoundCost, setting: Setting) -> Estimate:
    """The time spent drafting in rounds that draft something, with its interval [s]."""
    constants = log_deviation(cost.draft_time, uncertain_constants((cost.draft_step, cost.once), setting))
    return Estimate(best=cost.draft_time(), deviation=_root_of_squares(constants, *model_errors(setting)))


def round_deviations(cost: RoundCost, setting: Setting) -> RoundDeviations:
    r"""Standard deviations of ln(plain step), ln(round) and their ratio [1].

    With v and d the shares of verification and drafting in a round, the step model itself adds

    .. math:: \sigma^2_{plain} = c^2 + o^2, \quad \sigma^2_{round} = c^2 + (v^2 + d^2)\,o^2, \quad
        \sigma^2_{ratio} = (1 + v^2 + d^2)\,o^2

    and nothing to the ratio at γ = 0, where a round is a plain step.
    """

    def times(scales: Scales) -> tuple[FloatArray, FloatArray, FloatArray]:
        plain, whole = cost.baseline.scaled_time(scales), cost.time(scales)
        return plain, whole, plain / whole

    used = uncertain_constants((cost.verify, cost.draft_step, cost.once), setting)
    plain, whole, ratio = log_deviations(times, used)
    common, own = model_errors(setting)
    seconds = cost.time()
    verifying = (1.0 + cost.tax * cost.drafting) * cost.verify.time / seconds
    apart = own * np.hypot(verifying, cost.draft_time() / seconds)
    return RoundDeviations(
        baseline_time=_root_of_squares(plain, common, own),
        time=_root_of_squares(whole, common, apart),
        ratio=_root_of_squares(ratio, cost.drafting * own, cost.drafting * apart),
    )


def round_estimates(round_: Round, deviations: RoundDeviations) -> Estimates:
    """What a round predicts with intervals, the uncertainty of its acceptance included."""
    up, down = (round_.acceptance.shifted(side).tokens_per_round(round_.draft_length) for side in (1.0, -1.0))
    from_acceptance = np.log(up / down) / 2.0
    return Estimates(
        baseline_time=Estimate(best=round_.baseline_time, deviation=deviations.baseline_time),
        time=Estimate(best=round_.time, deviation=deviations.time),
        tpot=Estimate(best=round_.tpot, deviation=np.hypot(deviations.time, from_acceptance)),
        speedup=Estimate(
            best=round_.speedup,
            deviation=np.hypot(deviations.ratio, from_acceptance),
            limit=round_.draft_length + 1.0,
        ),
    )


def _root_of_squares(*parts: ArrayLike) -> FloatArray:
    """Independent deviations together [1]."""
    total = np.asarray(parts[0])
    for part in parts[1:]:
        total = np.hypot(total, part)
    return total
