"""Robust fit of factors on the terms of a predicted time, with what the data cannot tell apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

__all__ = ["FactorFit", "fit_factors", "hold_out_residuals"]

FloatArray = NDArray[np.floating[Any]]

#: Log-times of all points from log-factors: shape [factors] -> [points].
Predict = Callable[[FloatArray], FloatArray]

LARGEST_FACTOR = 50.0
#: A factor whose standard error is larger than this is left alone: the data do not know it.
LARGEST_ERROR = 0.5
#: Scatter assumed at least: no step model is exact to better, however quiet the measurement (assumed).
SMALLEST_SCATTER = 0.01
#: Terms whose columns of the Jacobian have at least this cosine move the times in the same way.
SAME = 0.9999
#: Terms that cannot be told apart share a factor if their columns are at least so alike.
ALIKE = 0.9
STEP = 1e-4
FOLDS = 5


@frozen(kw_only=True, eq=False)
class FactorFit:
    """Factors on the times of each term, 1 where the data could not identify one.

    Parameters
    ----------
    names : tuple of str
        Terms.
    factors : ndarray
        How much slower than predicted each term is, shape [terms] [1].
    standard_errors : ndarray
        Relative, one sigma; inf for terms left alone, shape [terms] [1].
    remarks : tuple of str
        What the data cannot tell about a term; empty for those they can.
    scatter : float
        Robust standard deviation of ln(predicted/measured) after the fit [1].
    condition : float
        Condition number of the Jacobian of all terms at the start [1].
    """

    names: tuple[str, ...]
    factors: FloatArray
    standard_errors: FloatArray
    remarks: tuple[str, ...]
    scatter: float
    condition: float

    @property
    def fitted(self) -> tuple[bool, ...]:
        """Which terms got a factor of their own or a shared one."""
        return tuple(np.isfinite(self.standard_errors).tolist())


def fit_factors(names: Sequence[str], predict: Predict, measured: FloatArray) -> FactorFit:
    r"""Factors that bring predicted to measured times.

    .. math:: \min_\theta \sum_i 2 c^2 \left(\sqrt{1 + r_i^2/c^2} - 1\right), \quad
        r_i = \ln t_i(\theta) - \ln t_i^{measured}

    Parameters
    ----------
    names : sequence of str
        Terms whose times are multiplied.
    predict : callable
        ln(time) of every point from ln(factor) of every term.
    measured : ndarray
        ln(time) measured, shape [points].

    Returns
    -------
    FactorFit
        Factors with standard errors.

    Notes
    -----
    Terms that move the times alike share one factor.  A term whose standard error would exceed one half joins the one
    it is most like, or stays at 1 where none is.
    Soft-L1 loss whose width c is 1.5 robust standard deviations; errors by the sandwich formula for such losses
    (P. J. Huber, Robust Statistics, section 7.6).
    """
    jacobian = _jacobian(predict, np.zeros(len(names)))
    groups, remarks = _groups(names, jacobian)
    while True:
        shares = np.zeros((len(names), len(groups)))  # which terms each fitted factor multiplies
        for place, group in enumerate(groups):
            shares[group, place] = 1.0
        logs, errors, scatter = _solve(partial(_shared, predict, shares), measured, len(groups))
        worst = int(np.argmax(errors)) if groups else 0
        if not groups or errors[worst] <= LARGEST_ERROR:
            break
        unknown = groups.pop(worst)
        cosines = [_cosine(jacobian[:, group[0]], jacobian[:, unknown[0]]) for group in groups]
        if groups and max(cosines) >= ALIKE:
            nearest = groups[int(np.argmax(cosines))]
            nearest += unknown
            for term in unknown:
                remarks[term] = _shares_with(names[nearest[0]])
        else:
            for term in unknown:
                share = np.abs(jacobian[:, term]).mean()
                remarks[term] = f"left alone: hardly moves these times ({share:.1%} of them)"
    known = shares.any(axis=1)
    return FactorFit(
        names=tuple(names),
        factors=np.exp(shares @ logs),
        standard_errors=np.where(known, shares @ errors, np.inf),
        remarks=tuple(remarks),
        scatter=scatter,
        condition=float(np.linalg.cond(jacobian)) if jacobian.any() else np.inf,
    )


def hold_out_residuals(names: Sequence[str], predict: Predict, measured: FloatArray) -> FloatArray | None:
    """ln(predicted/measured) of each point from a fit to the other folds, shape [points]; None if too few points."""
    points = measured.size
    if points < 2 * len(names) or points < FOLDS:
        return None
    fold = np.random.default_rng(0).permutation(points) % FOLDS
    residuals = np.empty(points)
    for held in range(FOLDS):
        kept, out = fold != held, fold == held

        def on_kept(logs: FloatArray, kept: NDArray[np.bool_] = kept) -> FloatArray:
            return predict(logs)[kept]

        fit = fit_factors(names, on_kept, measured[kept])
        residuals[out] = (predict(np.log(fit.factors)) - measured)[out]
    return residuals


def _groups(names: Sequence[str], jacobian: FloatArray) -> tuple[list[list[int]], list[str]]:
    """Terms to fit, those that move the times in the same way together; and remarks about terms."""
    remarks = [""] * len(names)
    norms = np.linalg.norm(jacobian, axis=0)
    groups: list[list[int]] = []
    for column in np.argsort(-norms, kind="stable").tolist():
        if norms[column] <= 1e-9:
            remarks[column] = "left alone: plays no part in these times"
            continue
        same = [g for g in groups if _cosine(jacobian[:, g[0]], jacobian[:, column]) >= SAME]
        if same:
            same[0].append(column)
            remarks[column] = _shares_with(names[same[0][0]])
        else:
            groups.append([column])
    return groups, remarks


def _cosine(first: FloatArray, second: FloatArray) -> float:
    return float(first @ second / (np.linalg.norm(first) * np.linalg.norm(second)))


def _shares_with(name: str) -> str:
    return f"cannot be told from {name}: one factor for both"


def _shared(predict: Predict, shares: FloatArray, values: FloatArray) -> FloatArray:
    """Log-times when each value is the log-factor of all terms of its group."""
    return predict(shares @ values)


def _solve(predict: Predict, measured: FloatArray, size: int) -> tuple[FloatArray, FloatArray, float]:
    """Log-factors with standard errors, shape [size] each, and the scatter left."""
    from scipy.optimize import least_squares

    values = np.zeros(size)
    if not size:
        return values, values, _spread(predict(values) - measured)
    bound, width = np.log(LARGEST_FACTOR), 0.2
    for _ in range(3):  # the width of the loss follows the scatter
        found = least_squares(
            lambda trial: predict(trial) - measured,
            values,
            bounds=(-bound, bound),
            loss="soft_l1",
            f_scale=width,
            diff_step=STEP,
        )
        values, left = found.x, found.fun
        width = 1.5 * max(_spread(left), SMALLEST_SCATTER / 3.0)
    weights = 1.0 / np.sqrt(1.0 + (left / width) ** 2)
    influence = float(np.sum((weights * left) ** 2)) / max(left.size - size, 1)
    variance = max(influence / float(np.mean(weights**3)) ** 2, SMALLEST_SCATTER**2)
    jacobian = _jacobian(predict, values)
    # The tiny ridge turns a factor without effect into a huge error instead of a singular matrix.
    information = jacobian.T @ jacobian + 1e-10 * np.eye(size)
    errors = np.sqrt(variance * np.diag(np.linalg.inv(information)))
    return values, errors, _spread(left)


def _spread(residuals: FloatArray) -> float:
    """Robust standard deviation around zero: 1.48 times the median of the absolute values [1]."""
    return float(1.4826 * np.median(np.abs(residuals)))


def _jacobian(predict: Predict, at: FloatArray) -> FloatArray:
    """Derivatives of the log-times by the log-factors, shape [points, factors]: the share of time in each term."""
    columns = []
    for place in range(at.size):
        step = np.zeros(at.size)
        step[place] = STEP
        columns.append((predict(at + step) - predict(at - step)) / (2 * STEP))
    return np.stack(columns, axis=1)
