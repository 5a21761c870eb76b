"""How often drafted tokens are accepted, in every form engines and papers print it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import ArrayLike, NDArray

from latency_model.errors import InputError, shorten
from latency_model.formulas.acceptance import (
    acceptance_from_mean_length,
    conditional_from_survival,
    survival_from_conditional,
)
from latency_model.specs.workload import checked_numbers, is_integer, is_number

__all__ = ["Acceptance"]

FloatArray = NDArray[np.floating[Any]]

#: Acceptance moves by several points between workloads (.69-.72 at the first position over four data sets of
#: one EAGLE-3 head, SpecDecode-Bench arXiv 2601.11580); assumed one standard deviation of each probability.
TYPICAL_UNCERTAINTY = 0.03
MIXTURE_POSITIONS = 64


def _probabilities(form: str, values: Sequence[float]) -> tuple[float, ...]:
    """Check a list of probabilities; ``form`` names it in errors."""
    try:
        given = tuple(values)
        if not all(map(is_number, given)):
            raise TypeError
        numbers = tuple(float(value) for value in given)
    except (TypeError, OverflowError):
        raise InputError(f"acceptance: {form} must be numbers from 0 to 1, got {shorten(values)}") from None
    if not 1 <= len(numbers) <= 1024:
        raise InputError(f"acceptance: {form} must have 1 to 1024 positions, got {len(numbers)}")
    for number in numbers:
        if not 0.0 <= number <= 1.0:
            hint = f"; write {number / 100:g} for {number:g} %" if 10.0 <= number <= 100.0 else ""
            raise InputError(f"acceptance: {form} must be from 0 to 1, got {number:g}{hint}")
    return numbers


def _conditionals(values: Sequence[float]) -> tuple[float, ...]:
    return _probabilities("conditionals", values)


def _deviation(value: float) -> float:
    if not (is_number(value) and 0.0 <= value <= 1.0):
        raise InputError(f"acceptance: uncertainty must be a number from 0 to 1, got {shorten(value)}")
    return float(value)


@frozen(kw_only=True)
class Acceptance:
    """Probability that each drafted token is accepted, given that all before it were.

    Build it with :meth:`constant`, :meth:`conditional`, :meth:`survival`, :meth:`mean_length`,
    :meth:`mixture` or :meth:`parse`.  Beyond the positions given, the last conditional continues.

    Parameters
    ----------
    conditionals : tuple of float
        α_1, α_2, ... [1].
    uncertainty : float
        One standard deviation of every conditional [1].
    assumptions : tuple of str
        What was assumed in building it.

    Examples
    --------
    >>> float(Acceptance.constant(0.8).tokens_per_round(4))
    3.3616
    >>> Acceptance.survival([0.8, 0.6]).conditionals
    (0.8, 0.75)
    >>> float(Acceptance.parse("len:2.73@3").tokens_per_round(3))
    2.73
    """

    conditionals: tuple[float, ...] = field(converter=_conditionals)
    uncertainty: float = field(default=TYPICAL_UNCERTAINTY, converter=_deviation)
    assumptions: tuple[str, ...] = ()

    @classmethod
    def constant(cls, acceptance: float) -> Acceptance:
        """The same α at every position [1]; over-predicts deep drafts, prefer a vector where one is known."""
        return cls(
            conditionals=_probabilities("α", [acceptance]),
            assumptions=("the same acceptance at every position (measured ones usually fall with depth)",),
        )

    @classmethod
    def conditional(cls, acceptances: Sequence[float]) -> Acceptance:
        """Per-position α_i = P(i accepted | all before accepted) [1]."""
        return cls(conditionals=_probabilities("conditionals", acceptances))

    @classmethod
    def survival(cls, survivals: Sequence[float]) -> Acceptance:
        """Per-position s_i = P(draft i accepted), what vLLM prints as per-position acceptance [1]."""
        numbers = _probabilities("survivals", survivals)
        for position, (before, after) in enumerate(itertools.pairwise(numbers), start=2):
            if after > before:
                raise InputError(
                    f"acceptance: survivals must not rise, got {after:g} at position {position} after {before:g}; "
                    "if these are conditional on earlier acceptance, use the conditional form"
                )
        return cls(conditionals=tuple(conditional_from_survival(np.array(numbers)).tolist()))

    @classmethod
    def mean_length(cls, tokens: float, *, draft_length: int) -> Acceptance:
        """From tokens per round including the bonus token (vLLM mean acceptance length, SGLang accept length)."""
        if not (is_integer(draft_length) and 1 <= draft_length <= 1024):
            raise InputError(f"acceptance: draft_length must be an integer from 1 to 1024, got {shorten(draft_length)}")
        if not (is_number(tokens) and 1.0 <= tokens <= draft_length + 1):
            raise InputError(
                f"acceptance: mean length must be from 1 to draft_length + 1 = {draft_length + 1}, "
                f"got {shorten(tokens)}; it counts the bonus token"
            )
        alpha = float(acceptance_from_mean_length(float(tokens), draft_length))
        note = (
            f"one acceptance {alpha:.3f} for all positions, solved from mean length {tokens:g} at {draft_length} drafts"
        )
        return cls(conditionals=(alpha,), assumptions=(note,))

    @classmethod
    def mixture(cls, parts: Sequence[tuple[float, Acceptance]]) -> Acceptance:
        """Traffic of several classes, as (weight, acceptance); survivals average, so tokens per round do too.

        >>> both = Acceptance.mixture([(1, Acceptance.constant(0.9)), (1, Acceptance.constant(0.1))])
        >>> round(float(both.tokens_per_round(2)), 6)  # the mean of 2.71 and 1.11, not Ω of the mean
        1.91
        """
        try:
            classes = [(float(weight), part) for weight, part in parts]
        except (TypeError, ValueError, OverflowError):
            raise InputError(
                f"acceptance: a mixture needs pairs of weight and Acceptance, got {shorten(parts)}"
            ) from None
        weights = np.array([weight for weight, _ in classes])
        if not all(isinstance(part, Acceptance) for _, part in classes):
            raise InputError(f"acceptance: a mixture needs pairs of weight and Acceptance, got {shorten(classes)}")
        if not weights.size or not np.isfinite(weights).all() or (weights < 0).any() or not weights.sum() > 0:
            raise InputError("acceptance: a mixture needs at least one part and weights ≥ 0 that are not all 0")
        survivals = np.stack([part.survivals(MIXTURE_POSITIONS) for _, part in classes])
        mean = weights @ survivals / weights.sum()
        return cls(
            conditionals=tuple(conditional_from_survival(mean).tolist()),
            uncertainty=float(np.sqrt(weights**2 @ [p.uncertainty**2 for _, p in classes]) / weights.sum()),
        )

    @classmethod
    def parse(cls, text: str) -> Acceptance:
        """Read the command line's forms: ``.8``, ``.8,.75,.7``, ``survival:.8,.6``, ``len:2.73@3``."""
        form, _, rest = str(text).strip().rpartition(":")
        try:
            if form == "len":
                tokens, _, drafts = rest.partition("@")
                return cls.mean_length(float(tokens), draft_length=int(drafts))
            numbers = [float(part) for part in rest.split(",")]
        except InputError:
            raise
        except ValueError:
            raise InputError(
                f"acceptance {shorten(text)} is not understood; write .8 or .8,.75,.7 or survival:.8,.6 or len:2.73@3"
            ) from None
        if form in ("survival", "surv"):
            return cls.survival(numbers)
        if form in ("", "conditional", "cond"):
            return cls.constant(numbers[0]) if len(numbers) == 1 else cls.conditional(numbers)
        raise InputError(
            f"acceptance form {shorten(form)} is not known; use conditional:, survival: or len:LENGTH@DRAFTS"
        )

    def extended(self, positions: int) -> FloatArray:
        """Conditionals of the first ``positions`` drafts, shape [positions] [1]."""
        index = np.minimum(np.arange(positions), len(self.conditionals) - 1)
        return np.asarray(self.conditionals)[index]

    def survivals(self, positions: int) -> FloatArray:
        """Survivals s_1..s_positions, shape [positions] [1]."""
        return survival_from_conditional(self.extended(positions))

    def tokens_per_round(self, draft_length: ArrayLike) -> FloatArray:
        """Ω = 1 + Σ_{i ≤ γ} s_i, bonus token included, same shape as ``draft_length`` [token]."""
        lengths = checked_numbers("draft_length", draft_length).astype(np.int64)
        longest = int(lengths.max(initial=0))
        totals = np.concatenate(([1.0], 1.0 + np.cumsum(self.survivals(longest))))
        return totals[lengths]

    def shifted(self, deviations: float) -> Acceptance:
        """Every conditional moved by so many standard deviations, kept within [0, 1]."""
        moved = np.clip(np.asarray(self.conditionals) + deviations * self.uncertainty, 0.0, 1.0)
        return evolve(self, conditionals=tuple(moved.tolist()))

    def extrapolation_note(self, draft_length: int) -> tuple[str, ...]:
        """A sentence when ``draft_length`` reaches beyond the positions given."""
        known = len(self.conditionals)
        if known == 1 or draft_length <= known:
            return ()
        return (f"acceptance beyond position {known} continues at {self.conditionals[-1]:.3g}",)
