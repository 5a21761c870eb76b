"""The only place with prefixes: text with a unit in, SI floats out, and back.

Decimal prefixes are powers of 1000 (``GB``), binary ones powers of 1024 (``GiB``); rates end in ``/s``.
Inside the package every number is a float in B, B/s, FLOP, FLOP/s, s, W or $/h.
"""

from __future__ import annotations

import math
import re

from latency_model.errors import InputError, shorten

__all__ = ["DIMENSIONS", "SI_UNITS", "format_quantity", "parse"]

# Powers of ten, so that '3.8 us' is read as 3.8e-6, the nearest float, without a rounding of its own.
_DECIMAL = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {f"{prefix}i": 1024.0**power for power, prefix in enumerate("KMGTPE", start=1)}
_FRACTIONS = {"": 0, "m": -3, "µ": -6, "\u03bc": -6, "u": -6, "n": -9, "p": -12}  # both Unicode micro signs

# dimension: (what it is called in an error, what a reader should write, an example)
DIMENSIONS = {
    "size": ("a size", "bytes", "'80 GB'"),
    "bandwidth": ("a bandwidth", "bytes per second", "'3350 GB/s'"),
    "flops": ("an amount of work", "floating-point operations", "'2 GFLOP'"),
    "compute": ("a compute rate", "operations per second", "'989 TFLOP/s'"),
    "time": ("a time", "seconds", "'3.8 us'"),
    "power": ("a power", "watts", "'700 W'"),
    "price": ("a price", "dollars per hour", "'2.95 $/h'"),
    "count": ("a count", "a number without unit", "'132'"),
    "ratio": ("a ratio", "a number without unit", "'0.88'"),
}


def _table() -> dict[str, tuple[str, int, float]]:
    """Map each unit to its dimension, power of ten and binary factor."""
    units = {"$/h": ("price", 0, 1.0), "USD/h": ("price", 0, 1.0)}
    for rate, dimension in {"": "size", "/s": "bandwidth"}.items():
        units |= {f"{prefix}B{rate}": (dimension, power, 1.0) for prefix, power in _DECIMAL.items()}
        units |= {f"{prefix}B{rate}": (dimension, 0, factor) for prefix, factor in _BINARY.items()}
    for prefix, power in _DECIMAL.items():
        for operation in ("FLOP", "OP"):
            units[f"{prefix}{operation}"] = ("flops", power, 1.0)
            units[f"{prefix}{operation}/s"] = units[f"{prefix}{operation}S"] = ("compute", power, 1.0)
        units[f"{prefix}W"] = ("power", power, 1.0)
    units |= {f"{prefix}s": ("time", power, 1.0) for prefix, power in _FRACTIONS.items()}
    return units


_UNITS = _table()
_NUMBER_AND_UNIT = re.compile(r"([0-9]+\.?[0-9]*)(?:[eE]([+-]?[0-9]+))?\s*([^\s0-9.+-]\S*)?", re.ASCII)
_BITS = re.compile(r"([kMGTPE]?)(?:b|bit)(?:ps|/s)")
_LONGEST_TEXT = 64
_PLAIN = {"count", "ratio"}
SI_UNITS = {
    "size": "B",
    "bandwidth": "B/s",
    "flops": "FLOP",
    "compute": "FLOP/s",
    "time": "s",
    "power": "W",
    "price": "$/h",
}
_SHOWN_PREFIXES = {10.0**power: prefix for prefix, power in _DECIMAL.items()}
_SHOWN_TIMES = {1.0: "", 1e-3: "m", 1e-6: "µ", 1e-9: "n"}


def parse(text: str, dimension: str) -> float:
    """Read a number with its unit.

    Parameters
    ----------
    text
        Number and unit, such as ``'3350 GB/s'``; not negative, finite, at most 64 characters.
    dimension
        One of ``DIMENSIONS``: which kind of unit is expected.

    Returns
    -------
    float
        The value in SI units (B, B/s, FLOP, FLOP/s, s, W) or $/h.

    Examples
    --------
    >>> parse("3350 GB/s", "bandwidth")
    3350000000000.0
    >>> parse("3350 GB", "bandwidth")
    Traceback (most recent call last):
    latency_model.errors.InputError: '3350 GB' is a size; expected bytes per second, e.g. '3350 GB/s'
    """
    _, wanted, example = DIMENSIONS[dimension]
    expected = f"expected {wanted}, e.g. {example}"
    match = _NUMBER_AND_UNIT.fullmatch(text.strip()) if len(text) <= _LONGEST_TEXT else None
    if match is None:
        raise InputError(f"{shorten(text)} is not a number with a unit; {expected}")
    number, exponent, unit = match.groups()
    if unit is None:
        if dimension not in _PLAIN:
            raise InputError(f"{shorten(text)} has no unit; {expected}")
        found, power, factor = dimension, 0, 1.0
    elif unit in _UNITS:
        found, power, factor = _UNITS[unit]
    else:
        raise InputError(f"{shorten(text)} has the unknown unit {unit!r}{_unit_hint(unit)}; {expected}")
    if found != dimension:
        raise InputError(f"{shorten(text)} is {DIMENSIONS[found][0]}; {expected}")
    value = float(f"{number}e{int(exponent or 0) + power}") * factor
    if not math.isfinite(value):
        raise InputError(f"{shorten(text)} is too large; {expected}")
    return value


def _unit_hint(unit: str) -> str:
    """Say what a mistaken unit probably was: bits, or the wrong case."""
    if bits := _BITS.fullmatch(unit):
        return f" (bits: divide by 8 and write '{bits[1]}B/s')"
    same = sorted(known for known in _UNITS if known.casefold() == unit.casefold())
    return f" (did you mean {' or '.join(map(repr, same))}?)" if same else ""


def format_quantity(value: float, dimension: str, digits: int = 3) -> str:
    """Show a value with the decimal prefix that leaves 1 to 999 before the point.

    Parameters
    ----------
    value
        Value in SI units; may be negative, zero or infinite.
    dimension
        One of ``DIMENSIONS``.
    digits
        Significant digits.

    Returns
    -------
    str
        Number and unit; ``parse`` reads it back to within the rounding.

    Examples
    --------
    >>> format_quantity(3.35e12, "bandwidth"), format_quantity(3.8e-6, "time"), format_quantity(132, "count")
    ('3.35 TB/s', '3.8 µs', '132')
    """
    if dimension == "count":
        return f"{value:.0f}"
    if dimension == "ratio":
        return f"{value:.{digits}g}"
    if dimension == "price":
        return f"{value:.{digits}g} $/h"
    rounded = float(f"{value:.{digits}g}")  # before the prefix is chosen: 999.9 GB is 1 TB at three digits
    prefixes = _SHOWN_TIMES if dimension == "time" else _SHOWN_PREFIXES
    if rounded == 0.0 or not math.isfinite(rounded):
        return f"{rounded:g} {SI_UNITS[dimension]}"
    factor = max((f for f in prefixes if f <= abs(rounded)), default=min(prefixes))
    return f"{rounded / factor:.{max(digits, 3)}g} {prefixes[factor]}{SI_UNITS[dimension]}"
