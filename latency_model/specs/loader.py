"""Find a model by name, path or mapping, and read it; every fault of its config is one clear sentence."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from latency_model.errors import InputError, nearest, shorten
from latency_model.specs.huggingface import architecture_from_config
from latency_model.specs.model import ModelArchitecture

__all__ = ["load_model", "model_names"]

BUNDLED = Path(__file__).parent / "bundled_models"
LARGEST_FILE = 4 * 1024 * 1024  # bytes; the longest published config.json we know has 60 kB

#: Other names of a bundled model's architecture.  Instruction-tuned variants need no entry: see ``VARIANT``.
ALIASES = {
    "deepseek-r1": "DeepSeek-V3",
    "deepseek-v3-0324": "DeepSeek-V3",
    "deepseek-v3.1": "DeepSeek-V3",
    "kimi-k2": "Kimi-K2-Instruct",
    "llama-2-7b": "Llama-2-7b-hf",
    "llama-3.1-70b": "Meta-Llama-3.1-70B",
    "llama-3.1-8b": "Meta-Llama-3.1-8B",
    "llama-3.3-70b": "Meta-Llama-3.1-70B",
    "llama-4-maverick": "Llama-4-Maverick-17B-128E-Instruct",
    "llama-4-scout": "Llama-4-Scout-17B-16E-Instruct",
    "mistral-7b-instruct-v0.1": "Mistral-7B-v0.1",
    "mixtral-8x7b": "Mixtral-8x7B-v0.1",
    "nemotron-3-nano-30b-a3b": "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "nvidia-nemotron-3-nano-30b-a3b": "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "olmoe-1b-7b": "OLMoE-1B-7B-0924",
    "qwen3-next-80b-a3b": "Qwen3-Next-80B-A3B-Thinking",
    "tinyllama-1.1b": "TinyLlama-1.1B-Chat-v1.0",
}
#: Endings that name a tuning of the same architecture.
VARIANT = re.compile(r"(-(instruct|chat|thinking|it|base|hf))+(-v\d[\d.]*)?$")


def load_model(model: str | os.PathLike[str] | Mapping[str, object] | ModelArchitecture) -> ModelArchitecture:
    """Read a model's architecture.

    Parameters
    ----------
    model : str, path, mapping or ModelArchitecture
        A bundled name (case, ``org/`` prefix and underscores do not matter), a ``config.json``, a directory
        that holds one, or its parsed content.  A ModelArchitecture is returned as it is.

    Returns
    -------
    ModelArchitecture
        Layers, counts and bytes.

    Examples
    --------
    >>> load_model("Qwen/Qwen3-30B-A3B").total_parameters
    30532122624
    """
    if isinstance(model, ModelArchitecture):
        return model
    if isinstance(model, Mapping):
        name = model.get("_name_or_path")
        shown = Path(name).name if isinstance(name, str) and name else "model"
        return architecture_from_config(model, name=shown, where="config", source="a mapping given by the caller")
    if not isinstance(model, str | os.PathLike):
        raise InputError(f"a model is a name, a path, a mapping or a ModelArchitecture, got {shorten(model)}")
    text = os.fspath(model)
    if not isinstance(text, str):
        raise InputError(f"a model path must be text, got {shorten(model)}")
    path = config_path(text)
    if path is not None:
        return load_path(path)
    bundled = find_bundled(text)
    if bundled is None:
        raise InputError(f"model {shorten(text)} is neither a bundled model nor a file; {closest(text)}")
    return load_bundled(bundled)


@functools.cache
def model_names() -> tuple[str, ...]:
    """Names of the models that ship with the package, sorted.

    >>> "Mixtral-8x7B-v0.1" in model_names()
    True
    """
    return tuple(sorted((entry.stem for entry in BUNDLED.glob("*.json")), key=str.casefold))


@functools.cache
def known_names() -> dict[str, str]:
    """Map every folded name, alias and name without its tuning to the bundled model it means."""
    names = {VARIANT.sub("", folded(name)): name for name in model_names()}
    return names | ALIASES | {folded(name): name for name in model_names()}


def find_bundled(text: str) -> str | None:
    """Find the bundled model meant by a name, or None."""
    parts = text.strip().split("/")
    if len(parts) > 2 or parts[0] in ("", ".", "..", "~"):
        return None  # a path, not an organisation and a name
    name = folded(parts[-1])
    return known_names().get(name) or known_names().get(VARIANT.sub("", name))


def closest(text: str) -> str:
    """Say which bundled models continue a name, or else come closest to it."""
    name = text.strip().split("/")[-1]
    longer = [known for known in model_names() if name and folded(known).startswith(folded(name))]
    return nearest(name, longer or model_names())


def folded(name: str) -> str:
    """Write a name without case and with one kind of separator."""
    return name.casefold().replace("_", "-").replace(" ", "-")


@functools.cache
def load_bundled(name: str) -> ModelArchitecture:
    """Read a bundled model once."""
    path = BUNDLED / f"{name}.json"
    values = read_json(path)
    quantization = values.pop("_hf_quant_config", None)
    return architecture_from_config(
        values,
        name=name,
        where=f"bundled model {name}",
        source=str(values.pop("_source")),
        quantization=quantization,
    )


def config_path(text: str) -> Path | None:
    """Find the config named as a file or as a directory that holds one; None where there is neither."""
    if not text:  # as a path it would be the directory one stands in
        return None
    try:
        path = Path(text).expanduser()
        if path.is_file():
            return path
        if path.is_dir():
            if (path / "config.json").is_file():
                return path / "config.json"
            if find_bundled(text) is None:
                raise InputError(f"{path}: the directory holds no config.json; put the model's config.json there")
    except (OSError, RuntimeError, ValueError) as error:  # too long, loops, null bytes, no such user
        if isinstance(error, InputError):
            raise
    return None


def load_path(path: Path) -> ModelArchitecture:
    """Read a config file and the ``hf_quant_config.json`` that may lie beside it."""
    beside = path.with_name("hf_quant_config.json")
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    return architecture_from_config(
        read_json(path),
        name=name or "model",
        where=str(path),
        source=str(path),
        quantization=read_json(beside) if beside.is_file() else None,
    )


def reason(error: Exception) -> str:
    """Say what the operating system says, without the path."""
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()


def read_json(path: Path) -> dict[str, Any]:
    """Parse a JSON object strictly: UTF-8, no NaN, no duplicate keys, not too large, not too deep."""
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise InputError(f"{path}: has {size} bytes, more than the {LARGEST_FILE} a config may have")
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {reason(error)}") from None
    return parse_json(content, str(path))


def parse_json(content: bytes, where: str) -> dict[str, Any]:
    """Parse what :func:`read_json` read; ``where`` names it in errors.

    >>> parse_json(b'{"model_type": "llama"}', "config")
    {'model_type': 'llama'}
    """
    try:
        values = json.loads(content.decode("utf-8-sig"), parse_constant=refuse_constant, object_pairs_hook=unique_keys)
    except RecursionError:
        raise InputError(f"{where}: is nested too deeply to be a config") from None
    except UnicodeDecodeError:
        raise InputError(f"{where}: is not UTF-8 text; a config.json is JSON text") from None
    except ValueError as error:
        raise InputError(f"{where}: is not valid JSON: {error}") from None
    if not isinstance(values, dict):
        raise InputError(f"{where}: must hold a JSON object, got {shorten(values)}")
    return values


def refuse_constant(name: str) -> object:
    """Refuse NaN and Infinity, which are not JSON."""
    raise ValueError(f"{name} is not a JSON value")


def unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Build an object whose keys are all different."""
    values = dict(pairs)
    if len(values) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {shorten(twice)} occurs twice")
    return values
