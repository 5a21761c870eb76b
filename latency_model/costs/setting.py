"""One model on one machine in one engine: everything a cost needs to know besides batch, tokens and context."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TypeVar

import attrs
from attrs import field, frozen

from latency_model.errors import InputError, shorten
from latency_model.specs.draft import Draft
from latency_model.specs.engine import EngineOverheads, load_engine
from latency_model.specs.hardware import HardwareProfile, load_hardware
from latency_model.specs.loader import load_model
from latency_model.specs.model import ModelArchitecture
from latency_model.specs.parallelism import Parallelism
from latency_model.specs.precision import DTypes, quantized
from latency_model.specs.routing import Routing
from latency_model.specs.workload import checked_number

__all__ = ["Setting"]

T = TypeVar("T")


@frozen(kw_only=True, eq=False)
class Setting:
    """A model, a machine and how the one runs on the other.

    Parameters
    ----------
    model : ModelArchitecture
        With its weights in the formats they run in.
    hardware : HardwareProfile
        The machine, one device of it.
    parallelism, routing, dtypes
        Layout, expert choice and number formats.
    engine : EngineOverheads
        Host times of the serving engine, and what its CUDA graphs leave of the kernels' fixed times.
    kv_reread : float
        0 when a verification kernel reads the cache once for all tokens of a sequence, 1 when it reads it again
        for every one; the re-read factor is ρ = 1 + kv_reread·(n − 1) [1].
    """

    model: ModelArchitecture
    hardware: HardwareProfile
    parallelism: Parallelism = field(factory=Parallelism)
    routing: Routing = field(factory=Routing)
    dtypes: DTypes = field(factory=DTypes)
    engine: EngineOverheads
    kv_reread: float = 0.0

    @classmethod
    def of(
        cls,
        model: ModelArchitecture | str | Mapping[str, object],
        hardware: HardwareProfile | str,
        *,
        parallelism: Parallelism | None = None,
        routing: Routing | None = None,
        dtypes: DTypes | Mapping[str, object] | str | None = None,
        engine: EngineOverheads | str = "vllm",
        kv_reread: float = 0.0,
    ) -> Setting:
        """Resolve names, check that the layout fits the model, and put the weights in their formats."""
        formats = DTypes.of(dtypes)
        layout = _instance("parallelism", parallelism, Parallelism)
        architecture = quantized(load_model(model), formats.weights)
        layout.check(architecture)
        machine = load_hardware(hardware)
        overheads = load_engine(engine, machine)
        return cls(
            model=architecture,
            hardware=machine.for_engine(overheads.kernels),
            parallelism=layout,
            routing=_instance("routing", routing, Routing),
            dtypes=formats,
            engine=overheads,
            kv_reread=checked_number("kv_reread", kv_reread),
        )

    def for_draft(self, draft: Draft) -> Setting | None:
        """The setting the drafter's network runs in, or None where it has none.

        A draft model keeps its own layout, one device per replica unless told otherwise: it does not shrink with the
        target's.  Heads and MTP layers are spread like the target (on its last stage) unless told otherwise, as
        engines do.  The host time of a draft step is part of the round; only what is paid between its kernels is
        added here.
        """
        network = draft.network(self.model)
        if network is None:
            return None
        if draft.kind == "self_speculation":
            layout = self.parallelism
        elif draft.parallelism is None and draft.kind != "model":
            layout = attrs.evolve(self.parallelism, pp=1)
        else:
            own = draft.parallelism or Parallelism()
            layout = own if own.dp > 1 else attrs.evolve(own, dp=self.parallelism.dp)
        layout.check(network)
        engine = self.engine
        bare = attrs.evolve(
            load_engine("none"),
            per_layer=engine.per_layer,
            per_moe_layer=engine.per_moe_layer,
            launch_share=engine.launch_share,
        )
        return attrs.evolve(self, model=network, parallelism=layout, engine=bare)

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """Number formats the machine lacks, each with the one it computes in instead."""
        matrices = [self.model.head]
        for layer, _ in self.model.layer_kinds:
            matrices += [matrix for projection, _ in layer.projections() for matrix in projection.matrices]
        formats = {self.dtypes.arithmetic(matrix.format) for matrix in matrices} | {self.dtypes.activations}
        peaks = (self.hardware.peak_flops(name, allow_fallback=True) for name in sorted(formats))
        return tuple(peak.note for peak in peaks if peak.note)

    @cached_property
    def assumptions(self) -> tuple[str, ...]:
        """Everything taken for granted, model first."""
        read = (
            "once for all tokens of a sequence" if self.kv_reread == 0 else f"again for {self.kv_reread:.0%} of tokens"
        )
        return (*self.layout_assumptions, f"verification reads the KV cache {read}")

    @property
    def layout_assumptions(self) -> tuple[str, ...]:
        """What is taken for granted whether or not a cache is read."""
        notes = [*self.model.assumptions]
        if self.model.is_moe:
            notes += self.routing.assumptions
        if self.parallelism.devices > 1:
            notes += self.parallelism.assumptions
        if self.parallelism.ep > 1:
            even = (
                "experts placed at random, none hot" if self.model.is_moe else "no routed experts: ep changes nothing"
            )
            notes.append(even)
        if self.dtypes.allow_fallback:
            notes += self.fallbacks
        return tuple(notes)


def _instance(name: str, value: T | None, kind: type[T]) -> T:
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise InputError(f"{name} must be a {kind.__name__}, got {shorten(value)}")
    return value
