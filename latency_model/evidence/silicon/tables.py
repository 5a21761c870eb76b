"""Where the measured kernel tables lie in the aiconfigurator-core package, and how a table becomes columns.

The package (Apache-2.0) is read where it is installed; nothing of it is copied.  It brings pyarrow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import version as installed_version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from latency_model.errors import InputError

__all__ = ["DEVICES", "ENGINES", "Table", "package_version", "read_table", "systems_directory"]

#: Folder of a device in the package: profile it calibrates.
DEVICES = {
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200-sxm",
    "b200_sxm": "b200-sxm",
    "b300_sxm": "b300-sxm",
    "gb200": "gb200",
    "gb300": "gb300",
    "a100_sxm": "a100-sxm-80gb",
    "l40s": "l40s",
    "rtx_pro_6000_server": "rtx-pro-6000",
    "b60": "arc-pro-b60",
}
ENGINES = ("vllm", "sglang", "trtllm")

#: Versions collected as a whole; single tables of later versions cover a few shapes only.
_COMPLETE = {"vllm": "0.24.0", "sglang": "0.5.14", "trtllm": "1.3.0rc20"}
_NEED = "measured kernel tables need aiconfigurator-core: pip install 'latency-model[silicon]'"


@frozen(kw_only=True, eq=False)
class Table:
    """Columns of one table: numbers as float arrays, names as text arrays."""

    device: str
    engine: str
    version: str
    columns: Mapping[str, NDArray[Any]]

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def where(self, mask: NDArray[np.bool_]) -> Table:
        """Keep some rows."""
        kept = {name: column[mask] for name, column in self.columns.items()}
        return Table(device=self.device, engine=self.engine, version=self.version, columns=kept)


@cache
def systems_directory() -> Path:
    """Find the folder ``systems`` of the installed package."""
    spec = find_spec("aiconfigurator_core")
    if spec is None or not spec.submodule_search_locations:
        raise InputError(_NEED)
    return Path(next(iter(spec.submodule_search_locations))) / "systems"


def package_version() -> str:
    """Version of the installed package."""
    return installed_version("aiconfigurator-core")


def read_table(
    device: str, engine: str, family: str, table: str, columns: tuple[str, ...], **defaults: float
) -> Table | None:
    """Read columns of a device's table under one engine; None where it was not measured.

    Parameters
    ----------
    device : str
        Folder of the package: a key of ``DEVICES``.
    engine : str
        One of ``ENGINES``, or ``nccl``.
    family, table : str
        Kind of operation and file, e.g. ``gemm`` and ``gemm_perf``.
    columns : tuple of str
        What to read.
    **defaults
        Values of columns that older tables lack.
    """
    folder = systems_directory() / "data" / device / family / engine
    versions = sorted((path.parent.name for path in folder.glob(f"*/{table}.parquet")), key=_order)
    if not versions:
        return None
    chosen = _COMPLETE.get(engine, "")
    version = chosen if chosen in versions else versions[-1]
    parquet = _pyarrow("pyarrow.parquet")
    path = folder / version / f"{table}.parquet"
    stored = set(parquet.read_schema(path).names)
    read = parquet.read_table(path, columns=[name for name in columns if name in stored])
    arrays = {name: _column(read.column(name)) for name in read.column_names}
    for name in columns:
        if name not in stored:
            arrays[name] = np.full(read.num_rows, defaults[name])
    return Table(device=device, engine=engine, version=version, columns=arrays)


def _pyarrow(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise InputError(_NEED) from None


def _column(column: Any) -> NDArray[Any]:
    values = column.to_pylist()
    return np.asarray(values, dtype=str if isinstance(values[0], str) else float)


def _order(version: str) -> tuple[int, ...]:
    """1.3.0rc9 before 1.3.0rc20."""
    return tuple(int(number) for number in re.findall(r"\d+", version))
