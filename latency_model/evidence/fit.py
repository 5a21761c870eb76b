"""Fit the constants of the roofline to measured kernels, score them on rows kept aside, and bound their error.

The robust fit minimises a soft-L1 loss of ln(predicted / measured), so that a slow outlier counts no more than it is
worth.  Every fifth row is kept aside, spread evenly over the table by the golden ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from latency_model.evidence.silicon.rows import BoolArray, FloatArray, Rows
from latency_model.formulas.roofline import p_norm, roofline_time
from latency_model.specs.hardware import load_hardware

__all__ = ["COLLECTIVES", "Bounds", "Constants", "Errors", "Fit", "Work", "fit_rows", "kept_aside", "work_of"]

#: Share of rows kept aside.
HELD_OUT = 0.2
#: Rows a fit uses at most; more change the third digit.
MOST_ROWS = 6000
#: Residual [1] where the loss turns from squared to linear.
LOSS_SCALE = 0.1
#: Standard deviations on each side of an 80 % interval of a normal distribution.
INTERVAL_80 = 1.2815515655446004
#: Digits of the constants; scores are those of the rounded ones.
DIGITS = 3
GOLDEN_RATIO = (math.sqrt(5.0) - 1.0) / 2.0
COLLECTIVES = ("all_reduce", "all_to_all", "p2p")


#: Constants in the order they are fitted, and where a search for them starts; overheads start from the fastest row.
START = {"compute": 0.6, "memory": 0.7, "overhead": 0.7, "sharpness": 1.5, "tail": 0.3, "quantise": 0.8}


@frozen(kw_only=True)
class Constants:
    """What an operation makes of a device.

    Fractions of the peak and of the bandwidth, fixed time [s] and sharpness of the corner.  Where there are such rows,
    also how many longest pieces one core does alone at the end, and the fraction of the bandwidth that rounding inputs
    reaches.
    """

    compute: float
    memory: float
    overhead: float
    sharpness: float
    tail: float = 0.0
    quantise: float = 1.0


@frozen(kw_only=True)
class Bounds:
    """Smallest and largest value each constant may take."""

    compute: tuple[float, float] = (0.02, 1.0)
    memory: tuple[float, float] = (0.02, 1.0)
    overhead: tuple[float, float] = (1e-6, 1e-3)  # [s]
    sharpness: tuple[float, float] = (1.0, 8.0)  # from the sum to what cannot be told from the maximum
    tail: tuple[float, float] = (1e-3, 20.0)
    quantise: tuple[float, float] = (0.05, 2.0)  # above 1 where activations stay in the L2 cache


@frozen(kw_only=True, eq=False)
class Work:
    """Rows in seconds at the rates of the datasheet, so that constants are fractions of them."""

    compute: FloatArray  # FLOPs over the peak, the exponentials beside them over theirs [s]
    memory: FloatArray  # bytes over the bandwidth of the memory, or of the link [s]
    seconds: FloatArray  # measured [s]
    piece: FloatArray = field(default=0.0, converter=np.asarray)  # what one core does alone, likewise [s]
    rounded: FloatArray = field(default=0.0, converter=np.asarray)  # bytes of rounding over the bandwidth [s]
    message: bool = False  # a collective: its latency takes the place of the compute term

    @property
    def names(self) -> tuple[str, ...]:
        """Constants these rows can tell."""
        absent = {"tail": not self.piece.any(), "quantise": not self.rounded.any(), "compute": self.message}
        return tuple(name for name in START if not absent.get(name, False))

    def where(self, mask: NDArray[np.bool_] | NDArray[np.intp]) -> Work:
        """Keep some rows."""
        arrays = ("compute", "memory", "seconds", "piece", "rounded")
        kept = {name: np.broadcast_to(getattr(self, name), self.seconds.shape)[mask] for name in arrays}
        return Work(**kept, message=self.message)

    def predict(self, constants: Constants) -> FloatArray:
        """Time of each row, as the step model computes it [s]."""
        if self.message:
            return p_norm(constants.overhead, self.memory / constants.memory, constants.sharpness)
        product = roofline_time(
            self.compute + constants.tail * self.piece,
            self.memory,
            peak_flops=constants.compute,
            bandwidth=constants.memory,
            overhead=constants.overhead,
            sharpness=constants.sharpness,
        )
        return product + self.rounded / constants.quantise

    def residuals(self, constants: Constants) -> FloatArray:
        """ln(predicted / measured) [1]."""
        return np.log(self.predict(constants) / self.seconds)

    def shares(self, constants: Constants) -> FloatArray:
        """How much ln(time) of each row grows with those of 1/compute, 1/memory, overhead and 1/quantise [4, rows]."""
        first = (self.compute + constants.tail * self.piece) / constants.compute
        if self.message:
            first = np.full_like(self.memory, constants.overhead)
        second = self.memory / constants.memory
        with np.errstate(divide="ignore", over="ignore"):
            part = 1.0 / (1.0 + (second / first) ** constants.sharpness)
        nothing = np.zeros_like(part)
        if self.message:
            return np.stack([nothing, 1.0 - part, part, nothing])
        total = self.predict(constants)
        fixed, rounding = constants.overhead / total, self.rounded / constants.quantise / total
        moving = 1.0 - fixed - rounding
        return np.stack([moving * part, moving * (1.0 - part), fixed, nothing + rounding])


@frozen(kw_only=True)
class Errors:
    """Relative error of predictions: |predicted / measured - 1|."""

    rows: int
    median: float
    p90: float

    @classmethod
    def of(cls, work: Work, constants: Constants) -> Errors:
        """Score constants on rows."""
        error = np.abs(np.expm1(work.residuals(constants)))
        return cls(rows=len(error), median=float(np.median(error)), p90=float(np.quantile(error, 0.9)))


@frozen(kw_only=True, eq=False)
class Fit:
    """Constants of one set of rows, with what they were fitted on and how well they predict the rest."""

    rows: Rows
    constants: Constants
    fitted_on: int
    errors: Errors  # on the rows kept aside
    subsets: dict[str, Errors]
    uncertainty: tuple[float, ...]  # relative, one sigma: compute, memory, overhead, quantise
    coverage: float  # share of rows kept aside inside their 80 % interval
    at_bound: tuple[str, ...] = field(default=())  # constants the data push to their bound


def kept_aside(count: int) -> BoolArray:
    """Which rows of a table are not used to fit: those where the fractional part of i·φ is at least 0.8.

    >>> int(kept_aside(1000).sum())
    200
    """
    return np.arange(count) * GOLDEN_RATIO % 1.0 >= 1.0 - HELD_OUT


def work_of(rows: Rows) -> Work:
    """Divide counts by the datasheet rates of the device's profile."""
    hardware = load_hardware(rows.device)
    if rows.operation in COLLECTIVES:
        link = hardware.link_bandwidth or hardware.pcie
        return Work(
            compute=rows.flops,
            memory=rows.traffic / (link.value if link else math.nan),
            seconds=rows.seconds,
            message=True,
        )
    peak = hardware.peak_flops(rows.dtype, allow_fallback=True).value
    rate = math.inf if hardware.exponentials is None else hardware.exponentials.value
    each = (1.0 + rows.exponentials * peak / rate) / peak  # a FLOP with its share of exponentials [s]
    return Work(
        compute=rows.flops * each,
        memory=rows.traffic / hardware.memory_bandwidth.value,
        piece=(hardware.cores or 0) * rows.piece * each,
        rounded=rows.rounded / hardware.memory_bandwidth.value,
        seconds=rows.seconds,
    )


def fit_rows(rows: Rows, bounds: Bounds) -> Fit:
    """Fit on four fifths of the rows, score on the rest.

    Parameters
    ----------
    rows : Rows
        Measured kernels of one device, engine, operation and number format.
    bounds : Bounds
        Limits of the constants.

    Returns
    -------
    Fit
        Rounded constants with their errors on rows they have not seen.
    """
    work = work_of(rows)
    aside = kept_aside(len(rows))
    seen, unseen = work.where(~aside), work.where(aside)
    constants = fit_constants(seen, bounds)
    uncertainty = _uncertainty(seen, constants)
    inside = np.abs(unseen.residuals(constants)) <= INTERVAL_80 * _spread(unseen, constants, uncertainty)
    subsets = {
        name: Errors.of(work.where(aside & chosen), constants)
        for name, chosen in rows.subsets.items()
        if np.any(aside & chosen)
    }
    return Fit(
        rows=rows,
        constants=constants,
        fitted_on=int((~aside).sum()),
        errors=Errors.of(unseen, constants),
        subsets=subsets,
        uncertainty=uncertainty,
        coverage=float(np.mean(inside)),
        at_bound=_at_bound(constants, bounds, work.names),
    )


def fit_constants(work: Work, bounds: Bounds) -> Constants:
    """Constants with the smallest soft-L1 loss of log-residuals, rounded to three digits."""
    from scipy.optimize import least_squares

    if len(work.seconds) > MOST_ROWS:
        work = work.where(np.linspace(0, len(work.seconds) - 1, MOST_ROWS).astype(np.intp))
    names = work.names
    low, high = np.log([getattr(bounds, name) for name in names]).T
    first = START | {"overhead": START["overhead"] * work.seconds.min()}
    start = np.log([first[name] for name in names])

    def residuals(logarithms: FloatArray) -> FloatArray:
        return work.residuals(_constants(names, np.exp(logarithms)))

    found = least_squares(
        residuals,
        np.clip(start, low + 1e-6, high - 1e-6),
        bounds=(low, high),
        loss="soft_l1",
        f_scale=LOSS_SCALE,
    )
    return _constants(names, [float(f"{value:.{DIGITS}g}") for value in np.exp(found.x)])


def _constants(names: Sequence[str], values: Sequence[float] | FloatArray) -> Constants:
    """Constants with those values; a collective has no fraction of the peak."""
    return Constants(**{"compute": 1.0} | {name: float(value) for name, value in zip(names, values, strict=True)})


def _at_bound(constants: Constants, bounds: Bounds, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(
        name
        for name in names
        if any(math.isclose(getattr(constants, name), limit, rel_tol=5e-3) for limit in getattr(bounds, name))
    )


def _uncertainty(work: Work, constants: Constants) -> tuple[float, ...]:
    """One sigma of compute, memory, overhead and quantise such that 80 % of the rows lie in their 80 % interval.

    Each part takes the spread of the rows it dominates (the 80 % quantile of |ln error| over 1.28), then all
    are scaled together.  Rows whose time has several parts have narrower intervals, since the parts are independent.
    """
    error, shares = np.abs(work.residuals(constants)), work.shares(constants)
    everywhere = float(np.quantile(error, 0.8)) / INTERVAL_80
    parts = []
    for share in shares:
        ruled = share > 0.5
        parts.append(float(np.quantile(error[ruled], 0.8)) / INTERVAL_80 if ruled.sum() >= 50 else everywhere)
    scale = float(np.quantile(error / _spread(work, constants, parts), 0.8)) / INTERVAL_80
    return tuple(float(f"{max(scale * part, 1e-3):.2g}") for part in parts)


def _spread(work: Work, constants: Constants, uncertainty: Sequence[float]) -> FloatArray:
    """Standard deviation of ln(time) of each row [1]."""
    deviations: FloatArray = work.shares(constants) * np.array(uncertainty)[:, None]
    return np.asarray(np.sqrt((deviations**2).sum(axis=0)))
