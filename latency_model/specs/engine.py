"""Host time of the serving engine: what a step costs beyond its kernels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

from attrs import evolve, frozen

from latency_model.errors import InputError, Problems, nearest, shorten
from latency_model.specs.hardware import profiles_directory, read_fit
from latency_model.specs.profile import HOST_TIMES, FitRecord, HardwareProfile
from latency_model.specs.quantity import Quantity
from latency_model.specs.toml_fields import Fields, read_toml

__all__ = ["EngineOverheads", "engine_names", "forget_engines", "load_engine"]

_FILE = "engines.toml"
#: What an engine may take over from another one.
_PARTS = {**dict.fromkeys(HOST_TIMES, "time"), "launch_share": "ratio"}


@frozen(kw_only=True)
class EngineOverheads:
    """Host times [s] of one engine and what it leaves of a kernel's fixed time, each with its provenance."""

    name: str
    version: str
    kernels: str  # whose kernel constants apply where a device's profile has some of its own
    per_step: Quantity  # scheduler, input preparation, sampling
    per_step_doubling: Quantity  # ranks that wait for each other, for each doubling of their number
    per_layer: Quantity  # gaps left between the kernels of a layer
    per_moe_layer: Quantity  # routing kernels of a layer with experts: choosing, sorting, gathering
    per_draft_step: Quantity  # host part of one sequential drafting step
    per_round: Quantity  # rejection sampling and bookkeeping of a draft-and-verify round
    per_round_doubling: Quantity  # what each doubling of the ranks adds to that
    per_host_proposal: Quantity  # a round whose drafts the host looks up: nothing is scheduled ahead of it
    per_sequence: Quantity  # bookkeeping of a draft-and-verify round for each sequence in it
    launch_share: Quantity  # of a kernel's fixed time when timed alone, what is left of it in a step, in (0, 1] [1]
    fit: FitRecord | None = None  # where host times and launch share were fitted to served runs


@cache
def _shipped() -> dict[str, EngineOverheads]:
    """Every engine of the file that ships, read once."""
    document, _ = read_toml(profiles_directory() / _FILE)
    sources = document.pop("sources")
    problems = Problems(_FILE)
    engines: dict[str, EngineOverheads] = {}
    for name, table in document.items():
        fields = Fields(table, problems, f"{name}.", sources)
        version = fields.text("version")
        kernels = fields.text("kernels", default=name)
        parts = _read_parts(fields, engines)
        fit = read_fit(fields.child("fit")) if "fit" in fields else None
        fields.close()
        problems.raise_if_any()
        engines[name] = EngineOverheads(name=name, version=version, kernels=kernels, fit=fit, **parts)
    return engines


def _read_parts(fields: Fields, engines: Mapping[str, EngineOverheads]) -> dict[str, Quantity]:
    """Read every part; what a table leaves out is that of the engine it is ``like``, with an error of transfer."""
    like = fields.text("like", choices=engines)
    error = fields.number("transfer_error", default=0.0)
    parts = {}
    for part, dimension in _PARTS.items():
        if like and part not in fields:
            parts[part] = _transferred(getattr(engines[like], part), error, like)
        else:
            parts[part] = fields.required_quantity(part, dimension)
    return parts


def _transferred(quantity: Quantity, error: float, engine: str) -> Quantity:
    return evolve(
        quantity,
        kind="assumed" if quantity.kind == "assumed" else "transferred",
        uncertainty=math.hypot(quantity.uncertainty, error),
        note=f"as {engine}",
    )


def forget_engines() -> None:
    """Read the file again when it is asked for next: it was written anew."""
    _shipped.cache_clear()


def engine_names() -> tuple[str, ...]:
    """Return the engines that ship with the package."""
    return tuple(_shipped())


def load_engine(name: str | EngineOverheads, hardware: HardwareProfile | None = None) -> EngineOverheads:
    """Load the host overheads of an engine.

    Parameters
    ----------
    name
        ``vllm``, ``sglang``, ``trtllm``, one of an earlier year such as ``sglang-0.4``, or ``none`` for bare kernels;
        overheads are returned as they are.
    hardware
        A machine whose profile may state host times of its own, which then replace the shipped ones.

    Returns
    -------
    EngineOverheads
        Host times [s].

    Examples
    --------
    >>> load_engine("vllm-0.9").per_step.value, load_engine("none").per_step.value
    (0.00097, 0.0)
    """
    if isinstance(name, EngineOverheads):
        return name
    shipped = _shipped()
    key = name.strip().casefold().replace("tensorrt-llm", "trtllm") if isinstance(name, str) else ""
    if key not in shipped:
        raise InputError(f"no engine is named {shorten(name)}; {nearest(name, shipped)}")
    measured = {} if hardware is None else hardware.host_times
    own: dict[str, Any] = {part: time for (engine, part), time in measured.items() if engine == key}
    return evolve(shipped[key], **own) if own else shipped[key]
