"""Host time of the serving engine: what a step costs beyond its kernels."""

from __future__ import annotations

from attrs import frozen

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
    per_layer: Quantity  # launch and synchronisation gaps left between the kernels of a layer
    per_step: Quantity  # scheduler, input preparation, sampling
    per_draft_step: Quantity  # host part of one sequential drafting step
    per_round: Quantity  # rejection sampling and bookkeeping of a draft-and-verify round
    per_sequence: Quantity  # bookkeeping of a draft-and-verify round for each sequence in it


def engine_names() -> tuple[str, ...]:
    """Return the engines that ship with the package."""
    document, _ = read_toml(profiles_directory() / _FILE)
    return tuple(name for name in document if name != "sources")


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
    (0.0012, 0.0)
    """
    if isinstance(name, EngineOverheads):
        return name
    document, _ = read_toml(profiles_directory() / _FILE)
    sources = document.pop("sources")
    key = name.strip().casefold().replace("tensorrt-llm", "trtllm") if isinstance(name, str) else ""
    if key not in document:
        raise InputError(f"no engine is named {shorten(name)}; {nearest(str(name), document)}")
    problems = Problems(_FILE)
    fields = Fields(document[key], problems, f"{key}.", sources)
    version = fields.text("version")
    times = {part: fields.required_quantity(part, "time") for part in HOST_TIMES}
    fields.close()
    problems.raise_if_any()
    if hardware is not None:
        times |= {part: time for (engine, part), time in hardware.host_times.items() if engine == key}
    return EngineOverheads(name=key, version=version, **times)
