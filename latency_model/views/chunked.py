"""Sweeps larger than memory or than one machine: a Dataset whose blocks Dask evaluates when they are asked for."""

from __future__ import annotations

import importlib.util
import pickle
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from latency_model.errors import InputError, nearest, shorten
from latency_model.views.axes import ARRAYS, Grid
from latency_model.views.sweep import evaluated

if TYPE_CHECKING:
    from latency_model.views.sweep import Dataset

__all__ = ["chunked"]


def chunked(grid: Grid, names: Iterable[str], chunks: Mapping[str, int]) -> Dataset:
    """The Dataset that ``evaluated`` gives, Dask-backed.

    Parameters
    ----------
    grid, names
        As in :func:`latency_model.views.sweep.evaluated`.
    chunks : mapping
        Values of an axis in one block; axes not named are not cut.

    Returns
    -------
    xarray.Dataset
        Evaluated by whatever scheduler Dask uses when it is computed or written, a cluster's where one is connected.
    """
    import xarray

    sizes = _checked(grid, chunks)
    names = tuple(names)
    template = _template(grid, names, sizes)
    places = {f"place on {name}": (name, np.arange(len(grid.axes[name]))) for name in grid.swept}
    blocks = xarray.Dataset(places, template.coords).chunk(sizes)
    whole: Dataset = xarray.map_blocks(_block, blocks, (pickle.dumps(grid), names), template=template)
    return whole.assign_attrs(template.attrs)


def _checked(grid: Grid, chunks: Mapping[str, int]) -> dict[str, int]:
    if importlib.util.find_spec("dask") is None:
        raise InputError("sweep: chunks need dask; pip install 'latency-model[cluster]', or leave chunks out")
    for name, length in chunks.items():
        if name not in grid.swept:
            raise InputError(f"chunks: {name!r} is no list of values here; {nearest(name, grid.swept)}")
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise InputError(f"chunks: {name} must be a whole number of values from 1, got {shorten(length)}")
    if not grid.swept:
        raise InputError("chunks: nothing to cut, give several values of some axis")
    return {name: min(chunks.get(name, len(grid.axes[name])), len(grid.axes[name])) for name in grid.swept}


@lru_cache(maxsize=4)
def _unpacked(packed: bytes) -> Grid:
    """The grid of a sweep, built once in each process: its models remember what was counted of them."""
    grid: Grid = pickle.loads(packed)
    return grid


def _block(places: Dataset, packed: bytes, names: tuple[str, ...]) -> Dataset:
    """Evaluate the block of the grid that the places of its values describe."""
    grid = _unpacked(packed)
    axes = dict(grid.axes)
    for name in grid.swept:
        place = places[f"place on {name}"].values
        axes[name] = axes[name].part(slice(int(place[0]), int(place[-1]) + 1))
    return evaluated(Grid(axes=axes), names, strict=False)


def _template(grid: Grid, names: tuple[str, ...], sizes: Mapping[str, int]) -> Dataset:
    """Dimensions, types and notes of the result, from the first point of every cell."""
    first = Grid(axes=dict(grid.axes) | {name: grid.axes[name].part(slice(1)) for name in ARRAYS})
    point = evaluated(first, names)
    shapes = dict(point.sizes) | {name: len(grid.axes[name]) for name in grid.swept}
    variables: dict[str, Any] = {
        str(name): (variable.dims, _unwritten(tuple(shapes[d] for d in variable.dims), variable.dtype), variable.attrs)
        for name, variable in point.data_vars.items()
    }
    labels = {name: (name, np.asarray(grid.axes[name].labels), point[name].attrs) for name in grid.swept}
    whole = point.drop_vars([*point.data_vars, *grid.swept]).assign_coords(labels).assign(variables)
    return whole.chunk(sizes)


def _unwritten(shape: tuple[int, ...], dtype: Any) -> Any:
    """An array that takes no memory however large it is."""
    return np.broadcast_to(np.zeros((), dtype), shape)
