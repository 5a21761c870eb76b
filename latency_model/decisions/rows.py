"""Results as plain rows, for tables, files and anything that knows no arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["plain_rows"]


def plain_rows(columns: Mapping[str, ArrayLike], shape: tuple[int, ...]) -> list[dict[str, Any]]:
    """Columns that broadcast to ``shape`` as one plain dictionary a point, the last axis running fastest.

    >>> plain_rows({"batch": np.array([[1], [4]]), "fits": np.array([True, False])}, (2, 2))[1]
    {'batch': 1, 'fits': False}
    """
    flat = {name: np.broadcast_to(np.asarray(values), shape).ravel().tolist() for name, values in columns.items()}
    return [dict(zip(flat, values, strict=True)) for values in zip(*flat.values(), strict=True)]
