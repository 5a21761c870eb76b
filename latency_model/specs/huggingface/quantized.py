"""Which format each matrix of a checkpoint is stored in (first cut)."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from latency_model.specs.huggingface.reader import Config
from latency_model.specs.model import Layer
from latency_model.specs.quantization import WeightFormat, weight_format

__all__ = ["StoredFormats", "read_formats"]


@frozen(kw_only=True)
class StoredFormats:
    base: WeightFormat
    kv_dtype: str | None = None
    assumptions: tuple[str, ...] = ()

    def of(self, path: str) -> WeightFormat:
        return self.base

    def applied(self, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
        return layers


def read_formats(config: Config, dtype: str, beside: Mapping[str, object] | None) -> StoredFormats:
    config.get("quantization_config")
    return StoredFormats(base=weight_format(dtype))
