"""A number that says where it comes from."""

from __future__ import annotations

from attrs import field, frozen

__all__ = ["KINDS", "Quantity"]

# How a number came to be: printed by its vendor; fitted to or read from a measurement; carried over from
# another machine's measurement; or set by judgement.
KINDS = ("datasheet", "measured", "transferred", "assumed")


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
