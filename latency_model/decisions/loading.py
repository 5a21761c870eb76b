"""What loading experts costs: how many a step touches, what they weigh, and when more tokens load no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

from latency_model.costs.counts import expert_operations
from latency_model.costs.setting import Setting
from latency_model.costs.step import timed
from latency_model.decisions.rows import plain_rows
from latency_model.errors import InputError
from latency_model.formulas.roofline import crossover_tokens
from latency_model.specs.hardware import HardwareProfile
from latency_model.specs.model import ModelArchitecture, MoE
from latency_model.specs.parallelism import Parallelism
from latency_model.specs.precision import DTypes
from latency_model.specs.routing import Routing
from latency_model.specs.workload import checked_numbers

__all__ = ["ExpertLoading", "expert_loading"]

FloatArray = NDArray[np.floating[Any]]

#: Verification counts as free of expert loads once it touches less than this much more than a plain step.
FREE = 0.05
LARGEST_BATCH = 1 << 16

NOT_MODELLED = ("hot experts and the waiting they cause", "caches that keep experts on the chip")


@frozen(kw_only=True, eq=False)
class ExpertLoading:
    """Routed experts of one layer; arrays have the shape of ``batch`` followed by that of ``tokens_per_sequence``.

    Attributes
    ----------
    block : MoE
        The experts looked at: those most layers have.
    layers : int
        Layers that have them [1].
    batch, tokens_per_sequence : ndarray
        Sequences in the step and tokens each feeds [1], [token].
    distinct, distinct_uniform : ndarray
        Experts touched with the routing given, and if every token chose alone [experts].
    loaded_bytes : ndarray
        Bytes of those experts in one layer, over all ranks [B].
    tokens_per_expert : ndarray
        Tokens that share one touched expert [token].
    time : ndarray
        Seconds of the routed experts of one layer on one rank [s].
    bound : ndarray
        ``memory``, ``compute`` or ``overhead``.
    growth : ndarray
        Experts touched against those of a plain step of the same batch [1].
    crossover_tokens : float
        Tokens per touched expert above which multiplying takes longer than loading [token].
    free_batch : ndarray
        For each entry of ``tokens_per_sequence``, the batch from which on less than 5 % more experts are touched
        than by a plain step; NaN where none up to 65,536 is [1].
    setting : Setting
        Model, machine and routing.
    """

    block: MoE
    layers: int
    batch: FloatArray
    tokens_per_sequence: FloatArray
    distinct: FloatArray
    distinct_uniform: FloatArray
    loaded_bytes: FloatArray
    tokens_per_expert: FloatArray
    time: FloatArray
    bound: NDArray[np.str_]
    growth: FloatArray
    crossover_tokens: float
    free_batch: FloatArray
    setting: Setting = field(repr=False)
    assumptions: tuple[str, ...] = field(repr=False)
    not_modelled: tuple[str, ...] = field(default=NOT_MODELLED, repr=False)

    def rows(self) -> list[dict[str, Any]]:
        """One plain dictionary per (batch, tokens), SI units, unit in the key."""
        columns: dict[str, Any] = {
            "batch": self.batch.astype(int),
            "tokens_per_sequence": self.tokens_per_sequence.astype(int),
            "distinct_experts": self.distinct,
            "distinct_experts_uniform": self.distinct_uniform,
            "share_of_experts": self.distinct / self.block.num_experts,
            "loaded_bytes": self.loaded_bytes,
            "tokens_per_expert": self.tokens_per_expert,
            "time_s": self.time,
            "bound": self.bound,
            "experts_against_plain": self.growth,
        }
        return plain_rows(columns, self.distinct.shape)


def expert_loading(
    model: ModelArchitecture | str | Mapping[str, object],
    hardware: HardwareProfile | str,
    *,
    batch: ArrayLike = 1,
    tokens_per_sequence: ArrayLike = 1,
    parallelism: Parallelism | None = None,
    routing: Routing | None = None,
    dtypes: DTypes | Mapping[str, object] | str | None = None,
) -> ExpertLoading:
    """What the routed experts of one layer cost for every batch and number of tokens.

    Parameters
    ----------
    model, hardware, parallelism, routing, dtypes
        As in :func:`latency_model.step_cost`; the model must have routed experts.
    batch, tokens_per_sequence : array_like
        Every batch is combined with every number of tokens: 1 for a plain step, γ + 1 to verify [1], [token].

    Returns
    -------
    ExpertLoading
        Arrays of shape ``batch.shape + tokens_per_sequence.shape``.

    Raises
    ------
    InputError
        When the model is dense or an argument breaks its rule.

    Notes
    -----
    Distinct experts, layer time and crossover: equations.md section 3.

    Examples
    --------
    >>> loading = expert_loading("Qwen3-30B-A3B", "h100-sxm", batch=[1, 64], tokens_per_sequence=[1, 4])
    >>> float(loading.distinct[0, 0]), bool(loading.growth[0, 1] > loading.growth[1, 1])
    (8.0, True)
    """
    setting = Setting.of(model, hardware, parallelism=parallelism, routing=routing, dtypes=dtypes, engine="none")
    layouts: Counter[MoE] = Counter()
    for layer, count in setting.model.layer_kinds:
        for moe in layer.feed_forward:
            if isinstance(moe, MoE):
                layouts[moe] += count
    if not layouts:
        raise InputError(f"{setting.model.name} is dense: it has no experts to load; try Qwen3-30B-A3B")
    ((block, layers),) = layouts.most_common(1)

    each = checked_numbers("tokens_per_sequence", tokens_per_sequence)
    sequences = checked_numbers("batch", batch)
    every = sequences.reshape(sequences.shape + (1,) * each.ndim)
    operations = expert_operations(
        setting.model,
        batch=every,
        tokens_per_sequence=each,
        routing=setting.routing,
        parallelism=setting.parallelism,
        dtypes=setting.dtypes,
    )
    experts = [component for component in timed(operations, setting) if component.operation.group == "experts"]
    component = experts[list(layouts).index(block)]
    touched = _touched(block, each, every, setting.routing)
    plain = _touched(block, 1.0, every, setting.routing)
    return ExpertLoading(
        block=block,
        layers=layers,
        batch=every,
        tokens_per_sequence=each,
        distinct=touched,
        distinct_uniform=_touched(block, each, every, Routing.uniform()),
        loaded_bytes=touched * block.expert_bytes,
        tokens_per_expert=every * each * block.top_k / touched,
        time=component.time() / component.repeats,
        bound=component.bound,
        growth=touched / plain,
        crossover_tokens=float(
            crossover_tokens(
                peak_flops=component.peak_flops,
                bandwidth=component.bandwidth,
                bytes_per_weight=block.expert_bytes / block.expert_parameters,
            )
        ),
        free_batch=_free_batch(block, each, setting.routing),
        setting=setting,
        assumptions=setting.layout_assumptions
        if len(layouts) == 1
        else (*setting.layout_assumptions, _others(layouts, layers)),
    )


def _touched(block: MoE, tokens: ArrayLike, batch: FloatArray, routing: Routing) -> FloatArray:
    return np.asarray(routing.distinct_experts(block.num_experts, block.top_k, tokens, batch))


def _free_batch(block: MoE, tokens: FloatArray, routing: Routing) -> FloatArray:
    """The first batch (to about 1 %) at which U(B, n) < 1.05 U(B, 1); the ratio falls with B from there on."""
    batches = np.unique(np.round(np.geomspace(1, LARGEST_BATCH, 1025)))
    ratio = _touched(block, tokens[..., None], batches, routing) / _touched(block, 1.0, batches, routing)
    free = ratio < 1.0 + FREE
    return np.where(free.any(axis=-1), batches[np.argmax(free, axis=-1)], np.nan)


def _others(layouts: Counter[MoE], layers: int) -> str:
    return f"shown for the experts of {layers} layers; {layouts.total() - layers} layers have others"
