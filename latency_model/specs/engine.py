"""Host time of the serving engine: what a step costs beyond its kernels."""

from __future__ import annotations

from functools import cache
from typing import Any

from attrs import evolve, frozen

from latency_model.errors import InputError, Problems, nearest, shorten
from latency_model.specs.hardware import profiles_directory
from latency_model.specs.profile import HOST_TIMES, HardwareProfile
from latency_model.specs.quantity import Quantity
from latency_model.specs.toml_fields import Fields, read_toml

__all__ = ["EngineOverheads", "engine_names", "load_engine"]

_FILE = "engines.toml"


@frozen(kw_only=True)
class EngineOverheads:
    """Host times [s] of one engine, each with its provenance."""

    name: str
    version: str
    kernels: str  # whose kernel constants apply where a device's profile has some of its own
    per_layer: Quantity  # launch and synchronisation gaps left between the kernels of a layer
    per_step: Quantity  # scheduler, input preparation, sampling
    per_draft_step: Quantity  # host part of one sequential drafting step
    per_round: Quantity  # rejection sampling and bookkeeping of a draft-and-verify round
    per_round_layer: Quantity  # launches of a verification outside CUDA graphs, for each layer of the target
    per_sequence: Quantity  # bookkeeping of a draft-and-verify round for each sequence in it


@cache
def _shipped() -> dict[str, EngineOverheads]:
    """Every engine of the file that ships, read once."""
    document, _ = read_toml(profiles_directory() / _FILE)
    sources = document.pop("sources")
    problems = Problems(_FILE)
    engines = {}
    for name, table in document.items():
        fields = Fields(table, problems, f"{name}.", sources)
        version = fields.text("version")
        kernels = fields.text("kernels", default=name)
        times = {part: fields.required_quantity(part, "time") for part in HOST_TIMES}
        fields.close()
        problems.raise_if_any()
        engines[name] = EngineOverheads(name=name, version=version, kernels=kernels, **times)
    return engines


def engine_names() -> tuple[str, ...]:
    """Return the engines that ship with the package."""
    return tuple(_shipped())


def load_engine(name: str | EngineOverheads, hardware: HardwareProfile | None = None) -> EngineOverheads:
    """Load the host overheads of an engine.

    Parameters
    ----------
    name
        ``vllm``, ``sglang``, ``trtllm``, or ``none`` for bare kernels; overheads are returned as they are.
    hardware
        A machine whose profile may state host times of its own, which then replace the shipped ones.

    Returns
    -------
    EngineOverheads
        Host times [s].

    Examples
    --------
    >>> load_engine("vllm").per_step.value, load_engine("none").per_step.value
    (0.00093, 0.0)
    """
    if isinstance(name, EngineOverheads):
        return name
    shipped = _shipped()
    key = name.strip().casefold().replace("tensorrt-llm", "trtllm") if isinstance(name, str) else ""
    if key not in shipped:
        raise InputError(f"no engine is named {shorten(name)}; {nearest(name, shipped)}")
    measured = {} if hardware is None else hardware.host_times
    own: dict[str, Any] = {part: time for (engine, part), time in measured.items() if engine == key}
    return evolve(shipped[key], **own)
