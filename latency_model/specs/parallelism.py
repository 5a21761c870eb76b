"""How one model is spread over devices: tensor, expert, pipeline and data parallelism."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from latency_model.errors import Problems
from latency_model.specs.model import Attention, LatentAttention, ModelArchitecture, MoE, RecurrentMixer
from latency_model.specs.workload import is_integer

__all__ = ["Parallelism"]

FloatArray = NDArray[np.floating[Any]]


def _plain(size: object) -> object:
    """Turn numpy's integers into Python's."""
    return int(size) if is_integer(size) else size  # type: ignore[call-overload]


@frozen(kw_only=True)
class Parallelism:
    """Ranks per dimension, as serving engines count them.

    Parameters
    ----------
    tp : int
        Tensor-parallel ranks inside one replica of the attention layers [1].
    ep : int
        Expert-parallel ranks; they are the ``tp * dp`` ranks of one pipeline stage, or a divisor of them [1].
        With ``ep = 1`` routed experts are split by width over those ranks instead.
    pp : int
        Pipeline stages [1]; with more than one, a batch is one micro-batch and every stage is busy with another.
    dp : int
        Replicas of the attention layers, each serving its share of the batch [1].

    Raises
    ------
    InputError
        When a size is not a positive integer or ``ep`` does not divide ``tp * dp``.

    Examples
    --------
    >>> Parallelism(tp=4, ep=4).devices
    4
    >>> Parallelism().assumptions
    ('one device (tp = ep = pp = dp = 1)',)
    """

    tp: int = field(default=1, converter=_plain)
    ep: int = field(default=1, converter=_plain)
    pp: int = field(default=1, converter=_plain)
    dp: int = field(default=1, converter=_plain)

    def __attrs_post_init__(self) -> None:
        problems = Problems("parallelism")
        for name in ("tp", "ep", "pp", "dp"):
            size = getattr(self, name)
            if not is_integer(size) or not 1 <= size <= 65536:
                problems.add(name, "must be an integer from 1 to 65536", size)
        problems.raise_if_any()
        if (self.tp * self.dp) % self.ep:
            problems.add(
                "ep",
                f"must divide the {self.tp * self.dp} ranks of a stage (tp * dp)",
                self.ep,
                "raise tp or dp",
            )
        problems.raise_if_any()

    @property
    def devices(self) -> int:
        """Devices in all [1]; expert parallelism reuses those of tp and dp."""
        return self.tp * self.pp * self.dp

    def doublings(self, moe: bool) -> float:
        """How often the ranks that wait for each other in a step double from one [1].

        Replicas of a model with experts exchange tokens in every layer, log2(tp dp); those of a dense one never meet.
        """
        return math.log2(self.tp * (self.dp if moe else 1))

    @property
    def expert_tp(self) -> int:
        """Ranks that share one routed expert by splitting its width [1]."""
        return self.tp * self.dp // self.ep

    def sequences_per_replica(self, batch: FloatArray) -> FloatArray:
        """Sequences the busiest replica serves when ``batch`` are spread over all [1]."""
        return np.ceil(batch / self.dp) if self.dp > 1 else batch

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What this layout takes for granted."""
        if self.devices == 1:
            return ("one device (tp = ep = pp = dp = 1)",)
        return ("all ranks reach each other at the profile's link bandwidth",)

    def check(self, model: ModelArchitecture) -> None:
        """Raise one :class:`InputError` naming everything in ``model`` that these ranks cannot divide."""
        problems = Problems(f"{model.name} on {self.describe()}")
        if self.pp > len(model.layers):
            problems.add("pp", f"must not exceed the {len(model.layers)} layers", self.pp)
        seen: set[str] = set()
        for layer, _ in model.layer_kinds:
            for field_name, rule in _indivisible(layer.mixer, self.tp):
                if rule not in seen:
                    seen.add(rule)
                    problems.add(field_name, rule, self.tp, f"try {_divisors(layer.mixer)}")
            for block in layer.feed_forward:
                if isinstance(block, MoE) and f"ep{block.num_experts}" not in seen:
                    seen.add(f"ep{block.num_experts}")
                    if self.ep > block.num_experts:
                        problems.add("ep", f"must not exceed the {block.num_experts} routed experts", self.ep)
        problems.raise_if_any()

    def describe(self) -> str:
        """Short text such as ``tp=4 ep=4``.

        >>> Parallelism(tp=4, ep=4).describe()
        'tp=4 ep=4'
        """
        sizes = ((name, getattr(self, name)) for name in ("tp", "ep", "pp", "dp"))
        return " ".join(f"{name}={size}" for name, size in sizes if size > 1) or "one device"


def _head_count(mixer: object) -> int | None:
    return mixer.heads if isinstance(mixer, Attention | LatentAttention | RecurrentMixer) else None


def _indivisible(mixer: object, tp: int) -> list[tuple[str, str]]:
    """Rules of ``mixer`` that ``tp`` breaks, as (field, rule)."""
    heads = _head_count(mixer)
    broken = []
    if heads is not None and heads % tp:
        broken.append(("tp", f"must divide the {heads} attention heads"))
    if isinstance(mixer, Attention) and mixer.kv_heads % tp and tp % mixer.kv_heads:
        broken.append(("tp", f"must divide the {mixer.kv_heads} KV heads or be a multiple of them"))
    return broken


def _divisors(mixer: object) -> str:
    """The tensor-parallel sizes up to 16 that fit ``mixer``, for an error's hint."""
    fits = [str(tp) for tp in range(1, 17) if not _indivisible(mixer, tp)]
    return ", ".join(fits)
