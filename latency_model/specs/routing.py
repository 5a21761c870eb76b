"""How tokens choose experts: how alike the choices of one request are, how uneven those of all traffic."""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

from latency_model.errors import InputError, shorten
from latency_model.formulas.routing import distinct_experts
from latency_model.specs.workload import is_number

__all__ = ["Routing"]

FloatArray = NDArray[np.floating[Any]]

#: Fit of the sticky-persistent model to the distinct experts of a public code trace of Qwen3.6-35B-A3B
#: (256 experts, top-8; 22.1, 35.9 and 56.3 experts for 4, 8 and 16 consecutive tokens).  Other public traces
#: give persistence .16-.25 and stickiness 0-.23.
TYPICAL_PERSISTENCE = 0.114
TYPICAL_STICKINESS = 0.230


def _unit_interval(name: str, value: float | None) -> None:
    if not (is_number(value) and 0.0 <= value <= 1.0):
        raise InputError(f"routing: {name} must be a number from 0 to 1, got {shorten(value)}")


def _or_typical_persistence(value: float | None) -> float:
    return TYPICAL_PERSISTENCE if value is None else value


def _or_typical_stickiness(value: float | None) -> float:
    return TYPICAL_STICKINESS if value is None else value


@frozen(kw_only=True)
class Routing:
    """Statistics of expert choice; see :func:`latency_model.formulas.distinct_experts`.

    Parameters
    ----------
    persistence : float or None
        Intra-request correlation ρ of an expert's activations [1]; None takes a published trace's.
    stickiness : float or None
        Probability s that an expert keeps its on/off state from one token to the next [1]; None likewise.
    popularity_cv : float
        Coefficient of variation of expert popularity over all traffic [1]; 0 means all are equally popular.

    Examples
    --------
    >>> Routing().persistence
    0.114
    >>> Routing.uniform().stickiness
    0.0
    """

    persistence: float = field(default=None, converter=_or_typical_persistence)
    stickiness: float = field(default=None, converter=_or_typical_stickiness)
    popularity_cv: float = 0.0
    assumptions: tuple[str, ...] = field(init=False, eq=False)

    def __attrs_post_init__(self) -> None:
        _unit_interval("persistence", self.persistence)
        _unit_interval("stickiness", self.stickiness)
        if not (is_number(self.popularity_cv) and 0.0 <= self.popularity_cv <= 16.0):
            raise InputError(f"routing: popularity_cv must be a number from 0 to 16, got {shorten(self.popularity_cv)}")
        typical = (self.persistence, self.stickiness) == (TYPICAL_PERSISTENCE, TYPICAL_STICKINESS)
        notes = ["routing persistence .114 and stickiness .230 as in a public Qwen3.6 code trace"] if typical else []
        if self.popularity_cv == 0.0:
            notes.append("experts equally popular over all traffic")
        object.__setattr__(self, "assumptions", tuple(notes))

    def distinct_experts(
        self, num_experts: int, top_k: int, tokens_per_sequence: ArrayLike, sequences: ArrayLike = 1
    ) -> FloatArray:
        """Routed experts of one layer that a step touches on average [expert]; see the formula of that name.

        >>> round(float(Routing.uniform().distinct_experts(128, 8, 4)), 2)
        29.12
        """
        return distinct_experts(
            num_experts,
            top_k,
            tokens_per_sequence,
            sequences,
            persistence=self.persistence,
            stickiness=self.stickiness,
            popularity_cv=self.popularity_cv,
        )

    @classmethod
    def uniform(cls) -> Routing:
        """Independent uniform routing: the textbook union, an upper bound on the experts touched."""
        return cls(persistence=0.0, stickiness=0.0)
