"""What a file says, whatever its format: step times, accepted drafts, routed experts."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

from latency_model.errors import InputError
from latency_model.formulas.acceptance import acceptance_from_mean_length
from latency_model.specs.acceptance import TYPICAL_UNCERTAINTY, Acceptance

__all__ = ["AcceptanceCounts", "Reading", "RoutingTrace", "Timings"]

FloatArray = NDArray[np.floating[Any]]


def _flags(values: ArrayLike) -> NDArray[np.bool_]:
    return np.asarray(values, dtype=bool)


def _floats(values: ArrayLike) -> FloatArray:
    return np.asarray(values, dtype=np.float64)


@frozen(kw_only=True, eq=False)
class Timings:
    """Measured seconds of steps, or of whole rounds with drafting; all arrays have shape [points].

    Parameters
    ----------
    batch : ndarray
        Sequences in the step B [1].
    tokens_per_sequence : ndarray
        Tokens each sequence feeds n, γ + 1 for a round [token].
    context : ndarray
        Tokens cached per sequence S [token]; NaN where the file does not say.
    time : ndarray
        Seconds measured [s].
    drafting : ndarray of bool
        True where the time is that of a whole round: drafting, verification and bookkeeping.
    """

    batch: FloatArray = field(converter=_floats)
    tokens_per_sequence: FloatArray = field(converter=_floats)
    context: FloatArray = field(converter=_floats)
    time: FloatArray = field(converter=_floats)
    drafting: NDArray[np.bool_] = field(converter=_flags)

    def __len__(self) -> int:
        return len(self.time)

    def __add__(self, other: Timings) -> Timings:
        """Both sets of points."""
        names = [attribute.name for attribute in attrs.fields(Timings)]
        return Timings(**{name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in names})


@frozen(kw_only=True)
class AcceptanceCounts:
    """What an engine counted about its drafts.

    Parameters
    ----------
    rounds : float
        Draft-and-verify rounds, summed over sequences [1].
    accepted : float
        Drafted tokens accepted, bonus tokens not included [token].
    drafted : float or None
        Tokens drafted [token]; None where the file does not say.
    per_position : tuple of float
        Rounds in which the draft at each position was accepted [1].

    Examples
    --------
    >>> counts = AcceptanceCounts(rounds=87, drafted=259, accepted=167, per_position=(70, 55, 42))
    >>> counts.mean_length
    2.92
    >>> counts.acceptance().conditionals
    (0.805, 0.786, 0.764)
    """

    rounds: float
    accepted: float
    drafted: float | None = None
    per_position: tuple[float, ...] = ()

    @property
    def mean_length(self) -> float:
        """Tokens per round, bonus token included [token]."""
        return 1.0 + self.accepted / self.rounds

    def __add__(self, other: AcceptanceCounts) -> AcceptanceCounts:
        """Counts of both."""
        return self._combined(other, 1.0)

    def __sub__(self, earlier: AcceptanceCounts) -> AcceptanceCounts:
        """What was counted since ``earlier``."""
        return self._combined(earlier, -1.0)

    def _combined(self, other: AcceptanceCounts, sign: float) -> AcceptanceCounts:
        positions = max(len(self.per_position), len(other.per_position))
        own, others = (np.array([*counts.per_position, *[0.0] * positions])[:positions] for counts in (self, other))
        known = self.drafted is not None and other.drafted is not None
        return AcceptanceCounts(
            rounds=self.rounds + sign * other.rounds,
            accepted=self.accepted + sign * other.accepted,
            drafted=(self.drafted or 0.0) + sign * (other.drafted or 0.0) if known else None,
            per_position=tuple((own + sign * others).tolist()),
        )

    def acceptance(self, draft_length: int | None = None) -> Acceptance:
        """Conditional acceptance with its standard error, by position where positions were counted.

        Parameters
        ----------
        draft_length : int, optional
            Drafted tokens per round [token], needed where ``drafted`` is not known.
        """
        if not self.rounds > 0:
            raise InputError("no draft was counted; acceptance needs at least one round of drafting")
        if min(self.accepted, *self.per_position, 0.0) < 0.0:
            raise InputError(f"counts must not be negative, got {self.accepted:g} accepted tokens")
        if self.per_position:
            survivals = np.array(self.per_position) / self.rounds
            if survivals[0] > 1.0 or np.any(np.diff(survivals) > 0):
                raise InputError(
                    "accepted counts must not exceed the rounds, nor rise along positions, got "
                    f"{', '.join(f'{count:g}' for count in self.per_position)} in {self.rounds:g} rounds"
                )
            built = Acceptance.survival(survivals.tolist())
            reached = self.rounds * np.array([1.0, *survivals[:-1]])
            return attrs.evolve(built, uncertainty=_standard_error(np.array(built.conditionals), reached))
        drafts = self.drafted / self.rounds if self.drafted is not None else draft_length
        if drafts is None:
            raise InputError(
                f"a mean length of {self.mean_length:.3g} tokens says nothing without the number of drafted tokens "
                "per round; give it with --draft-length"
            )
        alpha = float(acceptance_from_mean_length(self.mean_length, drafts))
        note = (
            f"one acceptance {alpha:.3f} for all positions, "
            f"solved from mean length {self.mean_length:.4g} at {drafts:.3g} drafts"
        )
        tested = self.rounds * np.array([1.0 + alpha * min(drafts - 1.0, 1.0)])  # positions one and two at least
        return Acceptance(
            conditionals=(alpha,), uncertainty=_standard_error(np.array([alpha]), tested), assumptions=(note,)
        )


def _standard_error(conditionals: FloatArray, trials: FloatArray) -> float:
    """Binomial standard error of conditionals, root mean square over positions [1]."""
    seen = trials > 0
    if not seen.any():
        return TYPICAL_UNCERTAINTY
    # One success and one failure added: a position where all were accepted is still not certain.
    rate = (conditionals[seen] * trials[seen] + 1.0) / (trials[seen] + 2.0)
    return float(np.sqrt(np.mean(rate * (1.0 - rate) / trials[seen])))


@frozen(kw_only=True, eq=False)
class RoutingTrace:
    """Which experts tokens chose: ids of shape [layers, sequences, tokens, top-k] of ``num_experts`` experts."""

    expert_ids: NDArray[np.integer[Any]]
    num_experts: int


@frozen(kw_only=True, eq=False)
class Reading:
    """All that one file says.

    Parameters
    ----------
    source : str
        Name of the file.
    format : str
        What it was recognised as.
    cumulative : bool
        True where ``counts`` run since the engine started, so that two snapshots are subtracted.
    notes : tuple of str
        What a reader of the results should know.
    """

    source: str
    format: str
    timings: Timings | None = None
    counts: AcceptanceCounts | None = None
    cumulative: bool = False
    routing: RoutingTrace | None = None
    notes: tuple[str, ...] = ()
