"""Evaluating millions of points: work once per distinct value, in blocks that keep memory flat."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["blocks", "distinct"]

FloatArray = NDArray[np.floating[Any]]
IndexArray = NDArray[np.intp]

#: Below this many points a table costs more than it saves.
SMALL = 2048
#: Tables are for counts: beyond this many keys they would not pay.
LARGEST_TABLE = 1 << 21


def distinct(*coordinates: FloatArray) -> tuple[tuple[FloatArray, ...], IndexArray | None]:
    """Distinct tuples of whole-numbered coordinates and, for each point, which of them it is.

    Where that does not pay (few points, fractions, a huge range, axes of a grid) the coordinates come back as they are,
    with None for the index.

    >>> values, index = distinct(np.tile([3.0, 1.0], 2000))
    >>> values[0].tolist(), values[0][index][:3].tolist()
    ([1.0, 3.0], [3.0, 1.0, 3.0])
    """
    shape = np.broadcast_shapes(*(np.shape(c) for c in coordinates))
    if len(shape) == 0 or np.prod(shape) < SMALL or _crossed(coordinates, shape):
        return coordinates, None
    spans = [int(c.max()) + 1 for c in coordinates if np.isfinite(c).all()]
    if len(spans) < len(coordinates) or np.prod(spans, dtype=float) > min(LARGEST_TABLE, 8.0 * np.prod(shape)):
        return coordinates, None
    integers = [c.astype(np.intp) for c in coordinates]
    if any((whole != c).any() for whole, c in zip(integers, coordinates, strict=True)):
        return coordinates, None
    key = np.zeros((), dtype=np.intp)
    for span, whole in zip(spans, integers, strict=True):
        key = key * span + whole
    present = np.zeros(int(np.prod(spans)), dtype=bool)
    present[key] = True
    keys = np.flatnonzero(present)
    place = np.empty(present.size, dtype=np.intp)
    place[keys] = np.arange(keys.size)
    values = np.unravel_index(keys, spans)
    return tuple(value.astype(np.float64) for value in values), place[key]


def _crossed(coordinates: tuple[FloatArray, ...], shape: tuple[int, ...]) -> bool:
    """Whether each of several coordinates has axes of its own, so that none of their tuples repeats by itself."""
    sizes = [c.size for c in coordinates if c.size > 1]
    return len(sizes) > 1 and math.prod(sizes) == math.prod(shape)


def blocks(shape: tuple[int, ...], size: int) -> Iterator[tuple[slice, ...]]:
    """Cut an array of ``shape`` along its axes, first to last, into pieces of at most about ``size`` points.

    >>> list(blocks((4, 10), 20))
    [(slice(0, 2, None),), (slice(2, 4, None),)]
    """
    total = int(np.prod(shape))
    if total <= size or not shape:
        yield ()
        return
    inner = total // shape[0]
    step = max(size // inner, 1)
    for start in range(0, shape[0], step):
        piece = slice(start, min(start + step, shape[0]))
        if step > 1 or inner <= size:
            yield (piece,)
        else:
            yield from ((piece, *rest) for rest in blocks(shape[1:], size))
