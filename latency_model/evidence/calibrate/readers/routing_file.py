"""Routing traces: which experts each token chose.  npz and parquet by their first bytes, CSV by its header.

npz
    ``expert_ids`` of shape [layers, sequences, tokens, top-k] or [layers, tokens, top-k], and ``num_experts``.
CSV, parquet
    One row per layer and token: ``layer``, ``token``, optional ``sequence``, then ``expert_0`` ... ``expert_{k-1}``;
    or one row per chosen expert with a column ``expert``.  Optional ``num_experts``.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latency_model.errors import InputError, nearest, shorten
from latency_model.evidence.calibrate.observations import Reading, RoutingTrace

NAME = "routing trace (npz, parquet, CSV)"
MOST_EXPERTS = 1 << 16
ZIP, PARQUET = b"PK\x03\x04", b"PAR1"

_RANKED = re.compile(r"expert_[0-9]{1,6}")  # the experts of a token, side by side


def is_binary(content: bytes) -> bool:
    """Whether the file begins as an npz or a parquet file does."""
    return content.startswith((ZIP, PARQUET))


def recognises(text: str) -> bool:
    """Whether the first line names a layer, a token and experts."""
    names = _names(text.lstrip().splitlines()[0])
    return {"layer", "token"} <= set(names) and any(name.startswith("expert") for name in names)


def _names(header: str) -> list[str]:
    return [name.strip().casefold() for name in header.split(",")]


def read_binary(path: Path, content: bytes) -> Reading:
    """Read an npz or a parquet file."""
    try:
        trace = _from_npz(content) if content.startswith(ZIP) else _from_table(_parquet(path))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return Reading(source=path.name, format=NAME, routing=trace)


def read(text: str, source: str) -> Reading:
    """Read a CSV."""
    names = _names(text.lstrip().splitlines()[0])
    lines = text.lstrip().splitlines()
    if len(lines) < 2 or not any(line.strip() for line in lines[1:]):
        raise InputError("has a header and no rows")
    try:
        rows = np.loadtxt(io.StringIO(text.lstrip()), delimiter=",", skiprows=1, ndmin=2)
    except ValueError as error:
        raise InputError(f"{shorten(str(error), 150)}; is the file cut off?") from None
    if rows.size == 0 or rows.shape[1] != len(names):
        raise InputError(
            f"the header names {len(names)} columns and the rows have {rows.shape[-1] if rows.size else 0}"
        )
    return Reading(source=source, format=NAME, routing=_from_table({name: rows[:, i] for i, name in enumerate(names)}))


def _parquet(path: Path) -> dict[str, NDArray[Any]]:
    try:
        frame = import_module("pandas").read_parquet(path)
    except ImportError:
        raise InputError("parquet needs pandas and pyarrow: pip install pandas pyarrow") from None
    except Exception as error:
        raise InputError(f"cannot be read as parquet: {shorten(str(error), 150)}") from None
    return {str(name).casefold(): frame[name].to_numpy() for name in frame.columns}


def _from_npz(content: bytes) -> RoutingTrace:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except Exception as error:
        raise InputError(f"cannot be read as npz: {shorten(str(error), 150)}; is the file cut off?") from None
    if "expert_ids" not in arrays:
        raise InputError(f"must hold an array expert_ids; {nearest('expert_ids', arrays)}")
    ids = arrays["expert_ids"]
    if ids.ndim == 3:
        ids = ids[:, None]
    if ids.ndim != 4:
        raise InputError(f"expert_ids must have axes layers, sequences, tokens, top-k, got shape {ids.shape}")
    return _checked(ids, arrays.get("num_experts"))


def _from_table(columns: Mapping[str, NDArray[Any]]) -> RoutingTrace:
    """Bring rows into the order layers, sequences, tokens, experts; the trace must be complete."""
    wide = sorted((name for name in columns if _RANKED.fullmatch(name)), key=lambda name: int(name[7:]))
    known = {"layer", "sequence", "token", "expert", "num_experts", *wide}
    for name in columns:
        if name not in known:
            raise InputError(f"column {shorten(name)} is not known; {nearest(name, known)}")
    for name in ("layer", "token"):
        if name not in columns:
            raise InputError(f"column {name!r} is missing")
    layer, token = columns["layer"], columns["token"]
    sequence = columns.get("sequence", np.zeros_like(layer))
    chosen = np.stack([columns[name] for name in wide], axis=1) if wide else columns["expert"][:, None]
    order = np.lexsort((token, sequence, layer))
    counts = [np.unique(axis).size for axis in (layer, sequence, token)]
    if chosen.size % np.prod(counts):
        raise InputError(
            f"{len(layer)} rows do not fill {counts[0]} layers x {counts[1]} sequences x {counts[2]} tokens; "
            "is the file cut off?"
        )
    experts = columns.get("num_experts")
    return _checked(chosen[order].reshape(*counts, -1), None if experts is None else np.max(experts))


def _checked(ids: NDArray[Any], num_experts: Any) -> RoutingTrace:
    if not np.issubdtype(ids.dtype, np.integer):
        if not (np.isfinite(ids).all() and (ids == np.floor(ids)).all()):
            raise InputError("expert ids must be whole numbers")
        if ids.size and not np.abs(ids).max() <= MOST_EXPERTS:
            raise InputError(f"expert ids must be from 0 to {MOST_EXPERTS}, got {np.abs(ids).max():g}")
        ids = ids.astype(np.int64)
    largest = int(ids.max(initial=0))
    experts = largest + 1 if num_experts is None else int(num_experts)
    if experts > MOST_EXPERTS:
        raise InputError(f"a layer has at most {MOST_EXPERTS} experts, got {experts}")
    if int(ids.min(initial=0)) < 0 or largest >= experts:
        raise InputError(f"expert ids must be from 0 to {experts - 1}, got {int(ids.min())} to {largest}")
    if ids.shape[2] < 2:
        raise InputError("needs at least two consecutive tokens of a sequence")
    return RoutingTrace(expert_ids=ids, num_experts=experts)
