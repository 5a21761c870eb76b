"""Does it fit: weights, cache, recurrent state and drafter on one device, and the largest batch that does."""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from latency_model.costs.counts import rank_draft_bytes, rank_weight_bytes
from latency_model.costs.setting import Setting
from latency_model.errors import InputError
from latency_model.specs.draft import Draft
from latency_model.specs.dtypes import dtype_bytes
from latency_model.specs.model import Attention, Mixer, ModelArchitecture, RecurrentMixer, cache_bytes
from latency_model.specs.parallelism import Parallelism
from latency_model.units import format_quantity

__all__ = ["MemoryUse", "memory_use"]

FloatArray = NDArray[np.floating[Any]]

#: vLLM's default gpu_memory_utilization; the rest is for activations, graphs and the runtime.
USABLE_FRACTION = 0.9


@frozen(kw_only=True, eq=False)
class MemoryUse:
    """Bytes on the fullest device.

    Attributes
    ----------
    capacity : float
        Bytes weights and cache may take [B].
    weights, draft_weights : float
        Bytes of the target's and the drafter's own weights [B].
    cache_per_sequence : ndarray
        Cache, state and the drafter's cache of one sequence with γ + 1 reserved slots [B].
    batch : ndarray
        Sequences on one replica [1].
    replicas : int
        Replicas that share all sequences [1].
    """

    capacity: float
    weights: float
    draft_weights: float
    cache_per_sequence: FloatArray
    batch: FloatArray
    replicas: int = 1

    @property
    def cache(self) -> FloatArray:
        """Bytes of cache and state of the whole batch [B]."""
        return self.batch * self.cache_per_sequence

    @property
    def total(self) -> FloatArray:
        """All bytes needed [B]."""
        return self.weights + self.draft_weights + self.cache

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Where everything fits."""
        return np.asarray(self.total <= self.capacity)

    @property
    def largest_batch(self) -> FloatArray:
        """Most sequences over all replicas that fit beside the weights, 0 where none does [1]."""
        room = max(self.capacity - self.weights - self.draft_weights, 0.0)
        with np.errstate(divide="ignore"):
            most = self.replicas * np.floor(room / self.cache_per_sequence)
        return np.where(np.isinf(most), np.inf if room else 0.0, most)


def memory_use(
    setting: Setting, draft: Draft | None, *, batch: FloatArray, context: FloatArray, draft_length: FloatArray
) -> MemoryUse:
    """Memory a round needs on the fullest device, K + 1 slots a sequence reserved (equations.md section 5).

    Raises
    ------
    InputError
        When weights and drafter alone do not fit, with the smallest tensor parallelism that would hold them.
    """
    layout = setting.parallelism
    slots = context + draft_length + 1.0
    cache_dtype = setting.dtypes.kv or setting.model.kv_dtype
    per_sequence = _cache_bytes(setting.model, slots, layout.tp, cache_dtype)
    draft_weights = 0.0
    if draft is not None:
        own = setting.for_draft(draft)
        if own is not None and draft.kind != "self_speculation":
            draft_weights = _draft_weights(setting, draft, own)
            per_sequence = per_sequence + _cache_bytes(own.model, slots, own.parallelism.tp, cache_dtype)
    use = MemoryUse(
        capacity=USABLE_FRACTION * setting.hardware.memory_capacity.value,
        weights=rank_weight_bytes(setting.model, layout),
        draft_weights=draft_weights,
        cache_per_sequence=per_sequence,
        batch=layout.sequences_per_replica(batch),
        replicas=layout.dp,
    )
    if use.weights + use.draft_weights > use.capacity:
        raise InputError(_too_big(setting, use))
    return use


def _draft_weights(setting: Setting, draft: Draft, own: Setting) -> float:
    """Bytes of weights the drafter adds on one device; what it shares with the target is not counted again [B]."""
    if draft.kind == "model":
        return rank_weight_bytes(own.model, own.parallelism)
    fusion = draft.feature_fusion(setting.model)
    extra = 0.0 if fusion is None else fusion.bytes
    return extra + rank_draft_bytes(own.model, own.parallelism, own_head=draft.vocabulary is not None)


def _too_big(setting: Setting, use: MemoryUse) -> str:
    needed = format_quantity(use.weights + use.draft_weights, "size")
    room = format_quantity(use.capacity, "size")
    device = setting.hardware
    drafter = f", {format_quantity(use.draft_weights, 'size')} of it the drafter," if use.draft_weights else ""
    sentence = (
        f"{setting.model.name} on {setting.parallelism.describe()}: weights need {needed} per device{drafter} "
        f"but {USABLE_FRACTION:.0%} of {device.title} is {room}"
    )
    if use.weights <= use.capacity:
        return f"{sentence}; without this drafter it fits: try a smaller one or draft tensor parallelism"
    for tp in (2, 4, 8, 16, 32, 64):
        if tp <= setting.parallelism.tp:
            continue
        wider = Parallelism(tp=tp, pp=setting.parallelism.pp)
        try:
            wider.check(setting.model)
        except InputError:
            continue
        if rank_weight_bytes(setting.model, wider) + use.draft_weights <= use.capacity:
            return f"{sentence}; try --tp {tp}, fewer bits per weight or a larger device"
    return f"{sentence}; try fewer bits per weight, --pp or a larger device"


def _cache_bytes(model: ModelArchitecture, slots: FloatArray, tp: int, cache_dtype: str) -> FloatArray:
    """Bytes one sequence of ``slots`` tokens keeps on one tensor-parallel rank [B]."""
    element = dtype_bytes(cache_dtype)
    total: FloatArray = np.zeros_like(slots)
    for mixer, count in model.mixer_kinds:
        total = total + count * _mixer_bytes(mixer, slots, tp, element)
    return total


def _mixer_bytes(mixer: Mixer, slots: FloatArray, tp: int, element: float) -> FloatArray:
    if isinstance(mixer, Attention):
        return cache_bytes(mixer, slots, element) * max(mixer.kv_heads / tp, 1.0) / mixer.kv_heads
    if isinstance(mixer, RecurrentMixer):
        return np.full_like(slots, mixer.state_bytes / tp)
    return cache_bytes(mixer, slots, element)
