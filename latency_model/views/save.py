"""Write results to files, each whole or not at all."""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from latency_model.errors import InputError, shorten
from latency_model.views.axes import AXES, Grid
from latency_model.views.sweep import QUANTITIES, TERMS, Progress, evaluated

if TYPE_CHECKING:
    import xarray

__all__ = [
    "STORE",
    "check_target",
    "columns",
    "partial_path",
    "rows",
    "save_csv",
    "save_netcdf",
    "save_parquet",
    "unwritable",
    "whole_file",
    "whole_store",
]

#: Points of a grid that are in memory at once while it is written row by row.
PIECE = 1 << 18
#: What the name of a Zarr store, a directory, ends in.
STORE = ".zarr"
#: Columns of axes whose name lacks the unit.
COLUMNS = {"context": "context_tokens"}


def check_target(path: Path, *, force: bool) -> None:
    """Refuse a path that cannot be written, or that would overwrite what is there."""
    try:
        _check_place(path, force=force)
    except OSError as error:  # a name may be too long to ask anything about it
        raise unwritable(path, error) from None


def _check_place(path: Path, *, force: bool) -> None:
    if path.is_dir() and not _is_store(path):
        raise InputError(f"{path} is a directory; give the name of a file")
    if path.exists() and not force:
        raise InputError(f"{path} exists; take another name, or --force to replace it")
    if not path.parent.is_dir():
        raise InputError(f"{path} cannot be written: there is no directory {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{path} cannot be written: no permission in {path.parent.resolve()}")


def _is_store(path: Path) -> bool:
    """Whether a directory is what a sweep writes as one: ``.zarr`` by name and a Zarr store by content."""
    return path.suffix == STORE and any((path / name).is_file() for name in (".zgroup", "zarr.json"))


def partial_path(path: Path) -> Path:
    """Where what is already written is kept when writing ``path`` is interrupted."""
    if path.suffix == STORE:
        return path.with_name(f"{path.stem}.partial{STORE}")
    return path.with_name(f"{path.name}.partial")


@contextlib.contextmanager
def whole_file(path: Path, *, force: bool = False) -> Iterator[Path]:
    """Give a path to write to in the same directory; what stands there becomes ``path`` if nothing goes wrong."""
    check_target(path, force=force)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    except OSError as error:
        raise unwritable(path, error) from None
    os.close(handle)
    beside = Path(name)
    try:
        yield beside
        beside.chmod(0o666 & ~_umask())
        os.replace(beside, path)
    except OSError as error:
        raise unwritable(path, error) from None
    finally:
        beside.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_store(path: Path, *, force: bool = False) -> Iterator[Path]:
    """Give a directory to write to; it becomes ``path`` if nothing goes wrong, and stays when interrupted."""
    check_target(path, force=force)
    beside = partial_path(path)
    check_target(beside, force=True)
    try:
        _remove(beside)
        yield beside
        _remove(path)
        os.replace(beside, path)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        _remove(beside)
        if isinstance(error, OSError):
            raise unwritable(path, error) from None
        raise


def unwritable(path: Path, error: OSError) -> InputError:
    """Say why the system will not write to a path."""
    return InputError(f"{path} cannot be written: {error.strerror or error}")


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def columns(dataset: xarray.Dataset) -> dict[str, NDArray[Any]]:
    """One flat array per axis and quantity, SI units, unit in the name; a row is a point."""
    dims = [name for name in AXES if name in dataset.sizes]
    shape = tuple(dataset.sizes[name] for name in dims)

    def flat(values: NDArray[Any], own: Iterable[object]) -> NDArray[Any]:
        kept = [length if name in own else 1 for name, length in zip(dims, shape, strict=True)]
        return np.broadcast_to(values.reshape(kept), shape).ravel()

    found = {}
    for name in (axis for axis in AXES if axis in dataset.coords):
        found[COLUMNS.get(name, name)] = flat(dataset[name].values, dataset[name].dims)
    for name in (quantity for quantity in QUANTITIES if quantity in dataset):
        variable = dataset[name]
        if "term" not in variable.dims:
            found[QUANTITIES[name].column] = flat(variable.values, variable.dims)
            continue
        for index, term in enumerate(TERMS):
            seconds = variable.values[..., index]
            if (seconds > 0).any():
                found[f"{term.replace(' ', '_')}_{QUANTITIES[name].column}"] = flat(seconds, variable.dims)
    return found


def rows(dataset: xarray.Dataset) -> list[dict[str, Any]]:
    """One plain dictionary per point."""
    table = columns(dataset)
    lists = [values.tolist() for values in table.values()]
    return [dict(zip(table, values, strict=True)) for values in zip(*lists, strict=True)]


def save_csv(
    grid: Grid, names: Iterable[str], path: Path, *, force: bool = False, progress: Progress | None = None
) -> None:
    """Evaluate a grid piece by piece into a CSV file, memory flat; when interrupted, complete pieces are kept."""
    names = tuple(names)
    done, kept = 0, 0
    with whole_file(path, force=force) as beside, beside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        try:
            for place in grid.places(grid.lengths(PIECE)):
                piece = grid.part(place)
                table = columns(evaluated(piece, names, strict=piece.size == grid.size))
                if done == 0:
                    writer.writerow(table)
                writer.writerows(zip(*(_cells(values) for values in table.values()), strict=True))
                file.flush()
                done, kept = done + piece.size, file.tell()
                if progress:
                    progress(done, grid.size)
        except KeyboardInterrupt:
            if kept:
                file.truncate(kept)
                file.close()
                os.replace(beside, partial_path(path))
            raise


def _cells(values: NDArray[Any]) -> list[Any]:
    """Text and numbers of one column; what is not a number stays empty."""
    if values.dtype.kind == "f":
        return ["" if value != value else value for value in values.tolist()]
    return list(values.tolist())


def save_netcdf(dataset: xarray.Dataset, path: Path, *, force: bool = False) -> None:
    """Write a netCDF file: version 4 where the netCDF4 library is installed, else the classic format."""
    modern = importlib.util.find_spec("netCDF4") is not None
    with whole_file(path, force=force) as beside:
        if modern:
            dataset.to_netcdf(beside, engine="netcdf4")
        else:
            dataset.to_netcdf(beside, engine="scipy", format="NETCDF3_64BIT")


def save_parquet(dataset: xarray.Dataset, path: Path, *, force: bool = False) -> None:
    """Write a Parquet file with one row per point."""
    import xarray

    if importlib.util.find_spec("pyarrow") is None:
        raise InputError(f"{shorten(path.name)}: Parquet needs pyarrow (pip install pyarrow); .csv and .nc do not")
    points = {name: ("point", values) for name, values in columns(dataset).items()}
    frame = xarray.Dataset(points).to_dataframe()
    with whole_file(path, force=force) as beside:
        frame.to_parquet(beside, engine="pyarrow", index=False)
