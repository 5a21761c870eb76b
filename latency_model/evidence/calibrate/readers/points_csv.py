"""CSV of step times: ``batch,tokens_per_sequence,context,time_ms``; the unit of the time is in its header."""

from __future__ import annotations

import csv
import math

from latency_model.errors import InputError, nearest, shorten
from latency_model.evidence.calibrate.observations import Reading, Timings

NAME = "CSV of batch, tokens_per_sequence, context, time_ms"
COUNTS = ("batch", "tokens_per_sequence", "context")
UNITS = {"time_s": 1.0, "time_ms": 1e-3, "time_us": 1e-6}
#: 1 where the time is that of a whole round with drafting, 0 (as without the column) for a step alone.
OPTIONAL = ("round",)
LOWEST = {"batch": 1.0, "tokens_per_sequence": 1.0, "context": 0.0, "round": 0.0}


def recognises(text: str) -> bool:
    """Whether the first line names a batch and a time."""
    header = next((line for line in text.splitlines() if line.strip() and not line.startswith("#")), "")
    names = [name.strip().casefold() for name in header.split(",")]
    return len(names) > 1 and ("batch" in names or any(name.startswith("time") for name in names))


def read(text: str, source: str) -> Reading:
    """Read every row; the first fault ends in a sentence with its line."""
    lines = [
        (n, line) for n, line in enumerate(text.splitlines(), start=1) if line.strip() and not line.startswith("#")
    ]
    names = [name.strip().casefold() for name in next(csv.reader([lines[0][1]]))]
    unit = _check_header(names)
    rows = [_row(number, line, names) for number, line in lines[1:]]
    if not rows:
        raise InputError("has a header and no rows")
    columns = {name: [row[name] for row in rows] for name in names}
    return Reading(
        source=source,
        format=NAME,
        timings=Timings(
            **{name: columns[name] for name in COUNTS},
            time=[UNITS[unit] * value for value in columns[unit]],
            drafting=columns.get("round", [0.0] * len(rows)),
        ),
    )


def _check_header(names: list[str]) -> str:
    """The name of the time column; a sentence where columns are missing, unknown, doubled or of two units."""
    times = [name for name in names if name in UNITS]
    if "time" in names:
        raise InputError(f"the column 'time' must name its unit: {', '.join(UNITS)}")
    if len(times) != 1:
        got = f"got {' and '.join(times)}" if times else f"got {', '.join(names)}"
        raise InputError(f"must have one time column, time_s, time_ms or time_us, {got}; keep to one unit")
    known = {*COUNTS, *OPTIONAL, times[0]}
    for name in names:
        if name not in known:
            raise InputError(f"column {shorten(name)} is not known; {nearest(name, known)}")
        if names.count(name) > 1:
            raise InputError(f"column {shorten(name)} is there twice")
    missing = [name for name in COUNTS if name not in names]
    if missing:
        raise InputError(f"column {missing[0]!r} is missing; the header must name {', '.join((*COUNTS, times[0]))}")
    return times[0]


def _row(line_number: int, line: str, names: list[str]) -> dict[str, float]:
    cells = next(csv.reader([line]))
    if len(cells) != len(names):
        raise InputError(f"line {line_number} has {len(cells)} cells and the header {len(names)}; is the file cut off?")
    row = {}
    for name, cell in zip(names, cells, strict=True):
        try:
            value = float(cell)
        except ValueError:
            hint = "; the unit belongs into the header only" if name in UNITS and cell.strip()[:1].isdigit() else ""
            raise InputError(f"line {line_number}: {name} must be a number, got {shorten(cell)}{hint}") from None
        if not math.isfinite(value):
            raise InputError(f"line {line_number}: {name} must be finite, got {cell.strip()}")
        if value < LOWEST.get(name, 0.0) or (name in UNITS and value == 0.0):
            bound = "above 0" if name in UNITS else f"at least {LOWEST[name]:g}"
            raise InputError(f"line {line_number}: {name} must be {bound}, got {value:g}")
        row[name] = value
    return row
