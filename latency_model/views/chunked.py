"""Sweeps larger than memory or than one machine: blocks evaluated when asked for, elsewhere, or into a store."""

from __future__ import annotations

import importlib.util
import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen

from latency_model.errors import InputError, nearest, shorten
from latency_model.views.axes import ARRAYS, Grid, Place
from latency_model.views.save import whole_store
from latency_model.views.sweep import TERMS, Progress, evaluated

if TYPE_CHECKING:
    from latency_model.views.cluster import Client
    from latency_model.views.sweep import Dataset

__all__ = ["chunked", "evaluated_on", "save_zarr"]

#: Points in one block of a sweep that is cut without saying how: a chunk of a store, a task of a worker.
CHUNK = 1 << 18
#: How a store holds the name of what takes most of a round.
TEXT = f"<U{max(map(len, TERMS))}"


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

    if not grid.swept:
        raise InputError("chunks: nothing to cut, give several values of some axis")
    sizes, work = _lengths(grid, chunks), _Work.of(grid, names)
    template = _template(grid, work.names, _unwritten).chunk(sizes)
    places = {f"place on {name}": (name, np.arange(len(grid.axes[name]))) for name in grid.swept}
    blocks = xarray.Dataset(places, template.coords).chunk(sizes)
    whole: Dataset = xarray.map_blocks(_block, blocks, (work,), template=template)
    return whole.assign_attrs(template.attrs)


def evaluated_on(
    client: Client,
    grid: Grid,
    names: Iterable[str],
    chunks: Mapping[str, int] | None = None,
    *,
    progress: Progress | None = None,
) -> Dataset:
    """The Dataset that ``evaluated`` gives, its blocks evaluated by the workers of a cluster.

    ``chunks`` says how many values of an axis make a block; a block that dies with its worker is evaluated again.
    """
    from latency_model.views.cluster import mapped

    work = _Work.of(grid, names)
    sizes = grid.lengths(CHUNK) if chunks is None else _lengths(grid, chunks)
    whole = _template(grid, work.names, np.empty)
    for place, block in _told(mapped(client, work.evaluate, grid.places(sizes)), grid, progress):
        for name, values in block.data_vars.items():
            whole[name][_within(grid, place, values.dims)] = values.values
    return whole


def save_zarr(
    grid: Grid,
    names: Iterable[str],
    path: Path,
    *,
    client: Client | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> None:
    """Write a Zarr store chunk by chunk, memory flat; when interrupted, complete chunks are kept.

    With a client the workers of its cluster write, so ``path`` must lie where all of them see it.
    """
    _need("zarr")
    work, sizes = _Work.of(grid, names), grid.lengths(CHUNK)
    with whole_store(path, force=force) as beside:
        template = _storable(_template(grid, work.names, _unwritten))
        cut = {
            name: {"chunks": [sizes.get(str(axis), length) for axis, length in values.sizes.items()]}
            for name, values in template.data_vars.items()
        }
        # Version 2 of the format has text; in version 3 that is not settled yet.
        template.to_zarr(beside, compute=False, zarr_format=2, encoding=cut)
        write = partial(work.write, beside.resolve())
        places = grid.places(sizes)
        written: Iterator[tuple[Place, None]] = ((place, write(place)) for place in places)
        if client is not None:
            from latency_model.views.cluster import mapped

            written = mapped(client, write, places)
        for _ in _told(written, grid, progress):
            pass


def _told(results: Iterable[tuple[Place, Any]], grid: Grid, progress: Progress | None) -> Iterator[tuple[Place, Any]]:
    """Pass results on, and tell of how many points they were."""
    done = 0
    for place, result in results:
        yield place, result
        done += grid.part(place).size
        if progress:
            progress(done, grid.size)


def _need(library: str) -> None:
    if importlib.util.find_spec("dask") is None or importlib.util.find_spec(library) is None:
        raise InputError(f"sweep: blocks need dask and {library}; pip install 'latency-model[cluster]'")


def _lengths(grid: Grid, chunks: Mapping[str, int]) -> dict[str, int]:
    """Values of every axis in a block, as asked."""
    _need("dask")
    if not isinstance(chunks, Mapping):
        raise InputError(f"chunks must map axes to numbers of values, as in {{'batch': 64}}, got {shorten(chunks)}")
    for name, length in chunks.items():
        if name not in grid.swept:
            raise InputError(f"chunks: {name!r} is no list of values here; {nearest(name, grid.swept)}")
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise InputError(f"chunks: {name} must be a whole number of values from 1, got {shorten(length)}")
    return {name: min(chunks.get(name, len(grid.axes[name])), len(grid.axes[name])) for name in grid.swept}


@frozen
class _Work:
    """What a worker needs to evaluate any block: the grid, packed once for all of them, and what is asked."""

    packed: bytes
    names: tuple[str, ...]

    @classmethod
    def of(cls, grid: Grid, names: Iterable[str]) -> _Work:
        return cls(zlib.compress(pickle.dumps(grid)), tuple(names))

    def evaluate(self, place: Place) -> Dataset:
        """The block at ``place``."""
        return evaluated(_unpacked(self.packed).part(place), self.names, strict=False)

    def write(self, store: Path, place: Place) -> None:
        """Evaluate the block at ``place`` into a store that holds the whole."""
        grid, block = _unpacked(self.packed), self.evaluate(place)
        # Of blocks that differ only along axes a quantity does not depend on, the first writes it.
        mine = {
            name: values.variable
            for name, values in block.data_vars.items()
            if values.dims and all(axis in values.dims or not place[axis].start for axis in grid.swept)
        }
        if mine:
            part = _storable(type(block)(mine))
            part.to_zarr(store, region={name: place[name] for name in grid.swept if name in part.dims}, mode="r+")


@lru_cache(maxsize=4)
def _unpacked(packed: bytes) -> Grid:
    """The grid of a sweep, built once in each process: its models remember what was counted of them."""
    grid: Grid = pickle.loads(zlib.decompress(packed))
    return grid


def _block(places: Dataset, work: _Work) -> Dataset:
    """Evaluate the block of the grid that the places of its values describe."""
    ends = {str(name).removeprefix("place on "): values.values[[0, -1]] for name, values in places.data_vars.items()}
    return work.evaluate({name: slice(int(first), int(last) + 1) for name, (first, last) in ends.items()})


def _storable(dataset: Dataset) -> Dataset:
    """Text with a fixed width, which a store can hold without having seen all of it."""
    return dataset.map(lambda values: values.astype(TEXT) if values.dtype == object else values, keep_attrs=True)


def _within(grid: Grid, place: Place, dims: tuple[Any, ...]) -> tuple[slice, ...]:
    return tuple(place[name] if name in grid.axes else slice(None) for name in dims)


def _template(grid: Grid, names: tuple[str, ...], array: Callable[[tuple[int, ...], Any], Any]) -> Dataset:
    """Dimensions, types and notes of the result, from one point of every cell: that of the longest draft.

    ``array`` makes what will hold the values; what depends on no axis has its value already.
    """
    longest = int(np.argmax(grid.axes["draft_length"].values))
    one = {name: slice(longest, longest + 1) if name == "draft_length" else slice(1) for name in ARRAYS}
    point = evaluated(grid.part(one), names)
    shapes = dict(point.sizes) | {name: len(grid.axes[name]) for name in grid.swept}
    variables: dict[str, Any] = {
        str(name): (values.dims, array(tuple(shapes[axis] for axis in values.dims), values.dtype), values.attrs)
        for name, values in point.data_vars.items()
        if values.dims
    }
    labels = {name: (name, np.asarray(grid.axes[name].labels), point[name].attrs) for name in grid.swept}
    whole: Dataset = point.drop_vars([*variables, *grid.swept]).assign_coords(labels).assign(variables)
    return whole


def _unwritten(shape: tuple[int, ...], dtype: Any) -> Any:
    """A Dask array that takes no memory however large it is."""
    import dask.array

    return dask.array.zeros(shape, dtype=dtype, chunks=-1)
