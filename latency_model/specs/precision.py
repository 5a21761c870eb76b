"""Number formats a user may choose: of the weights, of the cache, of the activations."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
from attrs import field, frozen

from latency_model.errors import InputError, nearest, shorten
from latency_model.specs.dtypes import canonical_dtype, dtype_bytes
from latency_model.specs.model import (
    DenseMLP,
    FeedForward,
    LatentAttention,
    Layer,
    ModelArchitecture,
    MoE,
    Projection,
)
from latency_model.specs.quantization import FORMATS, WeightFormat, weight_format
from latency_model.specs.workload import checked_flag

__all__ = ["DTypes", "quantized"]


def _flag(value: object) -> bool:
    return checked_flag("dtypes: allow_fallback", value)


def _optional_dtype(name: str | None) -> str | None:
    return None if name is None else canonical_dtype(name)


#: Names of methods and layouts that mean one of the formats.
METHODS = {"awq": "int4", "gptq": "int4", "w4a16": "int4", "w8a8": "int8", "fp4": "nvfp4", "half": "fp16"}


def _known_format(name: str | None) -> str | None:
    if name is None:
        return None
    if not isinstance(name, str):
        raise InputError(f"dtypes: weights must be the name of a format, got {shorten(name)}")
    text = name.strip().lower()
    text = METHODS.get(text, text)
    if text in FORMATS:
        return text
    try:
        return weight_format(canonical_dtype(text)).name
    except InputError:
        return weight_format(text).name


@frozen(kw_only=True)
class DTypes:
    """Number formats that override what the checkpoint says.

    Parameters
    ----------
    weights : str or None
        Weight format for every linear layer but router, embedding and LM head; None keeps the checkpoint's.
    kv : str or None
        Format of the key-value cache; None keeps the checkpoint's (usually bf16).
    activations : str
        Format of activations and of attention arithmetic.
    allow_fallback : bool
        Where the device lacks a format's arithmetic, compute in the next wider one it has
        (the bytes stay) instead of raising an error.

    Examples
    --------
    >>> DTypes(weights="fp8", kv="e4m3").kv
    'fp8'
    """

    weights: str | None = field(default=None, converter=_known_format)
    kv: str | None = field(default=None, converter=_optional_dtype)
    activations: str = field(default="bf16", converter=canonical_dtype)
    allow_fallback: bool = field(default=False, converter=_flag)

    @property
    def activation_bytes(self) -> float:
        """Bytes of one activation element [B]."""
        return dtype_bytes(self.activations)

    def arithmetic(self, weights: WeightFormat) -> str:
        """Format a matrix is multiplied in: 16-bit weights follow the activations, others have their own.

        >>> DTypes(activations="fp16").arithmetic(FORMATS["bf16"])
        'fp16'
        """
        return self.activations if weights.compute in ("bf16", "fp16") else weights.compute

    @classmethod
    def of(cls, value: DTypes | Mapping[str, object] | str | None) -> DTypes:
        """Read what a caller may pass for ``dtypes``: nothing, a weight format, a mapping, or a DTypes.

        >>> DTypes.of("fp8").weights
        'fp8'
        """
        if value is None:
            return cls()
        if isinstance(value, DTypes):
            return value
        if isinstance(value, str):
            return cls(weights=value)
        if isinstance(value, Mapping):
            known = {attribute.name for attribute in attrs.fields(cls)}
            for name in value:
                if name not in known:
                    raise InputError(f"dtypes: {name!r} is not a field; {nearest(name, known)}")
            return cls(**value)  # type: ignore[arg-type]
        raise InputError(f"dtypes must be a weight format, a mapping or DTypes, got {type(value).__name__}")


def quantized(model: ModelArchitecture, format_name: str | None) -> ModelArchitecture:
    """The same model with its linear layers stored in another weight format.

    Routers, embeddings, LM head and everything that is not a matrix keep theirs, as published quantised
    checkpoints do.  ``None`` returns the model unchanged.
    """
    if format_name is None:
        return model
    target = weight_format(format_name)
    converted = {layer: _quantized_layer(layer, target) for layer, _ in model.layer_kinds}
    return attrs.evolve(model, layers=tuple(converted[layer] for layer in model.layers))


def _quantized_layer(layer: Layer, target: WeightFormat) -> Layer:
    mixer = layer.mixer
    if mixer is not None:
        mixer = attrs.evolve(mixer, projections=_all(mixer.projections, target))
        if isinstance(mixer, LatentAttention) and mixer.indexer is not None:
            indexer = attrs.evolve(mixer.indexer, projections=_all(mixer.indexer.projections, target))
            mixer = attrs.evolve(mixer, indexer=indexer)
    blocks = tuple(_quantized_block(block, target) for block in layer.feed_forward)
    return attrs.evolve(layer, mixer=mixer, feed_forward=blocks)


def _quantized_block(block: FeedForward, target: WeightFormat) -> FeedForward:
    if isinstance(block, MoE):
        return attrs.evolve(block, expert=_all(block.expert, target), shared=_all(block.shared, target))
    if isinstance(block, DenseMLP):
        return attrs.evolve(block, projections=_all(block.projections, target))
    return block


def _all(projections: tuple[Projection, ...], target: WeightFormat) -> tuple[Projection, ...]:
    return tuple(
        attrs.evolve(p, matrices=tuple(attrs.evolve(matrix, format=target) for matrix in p.matrices))
        for p in projections
    )
