"""A number that says where it comes from."""

from __future__ import annotations

import math

from attrs import field, frozen

__all__ = ["KINDS", "KIND_ERRORS", "Quantity"]

# How a number came to be: printed by its vendor; fitted to or read from a measurement; carried over from
# another machine's measurement; or set by judgement.
KINDS = ("datasheet", "measured", "transferred", "assumed")

#: What numbers of each kind leave open beyond the uncertainty stated beside them: relative standard deviation.  It is
#: how far predicted times move when the measured constants of a device are replaced by those of the H100 (transferred)
#: or by the judged set for devices without measurements (assumed), the larger of decode steps on every measured device
#: and of served runs: docs/silicon.md, "Intervals"; ``latency_model.evidence.coverage`` computes it.
KIND_ERRORS = {"datasheet": 0.0, "measured": 0.0, "transferred": 0.08, "assumed": 0.22}


@frozen(kw_only=True)
class Quantity:
    """One number of a profile, in SI units, with its provenance.

    >>> float(Quantity(value=3.35e12, source="NVIDIA H100 datasheet", kind="datasheet"))
    3350000000000.0
    """

    value: float
    source: str
    kind: str
    uncertainty: float = 0.0  # relative, one sigma; 0 when the number is exact
    note: str = ""
    exception: str = field(default="", repr=False)  # why a rule of `hardware check` does not hold here

    def __float__(self) -> float:
        return self.value

    @property
    def deviation(self) -> float:
        """Relative standard deviation: what is stated and the error of its kind, added in squares [1].

        >>> Quantity(value=1.0, source="judgement", kind="assumed", uncertainty=0.1).deviation > 0.1
        True
        """
        return math.hypot(self.uncertainty, KIND_ERRORS[self.kind])
