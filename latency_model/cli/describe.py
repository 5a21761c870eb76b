"""What a table says above itself: which model, which machine, which drafter; and the same as JSON inputs."""

from __future__ import annotations

from collections import Counter
from typing import Any

from latency_model.cli.options import ENGINES
from latency_model.costs.setting import Setting
from latency_model.costs.step import StepCost
from latency_model.specs.acceptance import Acceptance
from latency_model.specs.draft import Draft
from latency_model.specs.model import ModelArchitecture, MoE

__all__ = ["drafter_inputs", "drafter_line", "machine_line", "model_line", "setting_inputs", "weight_formats"]

DRAFTERS = {
    "eagle": "EAGLE head",
    "eagle3": "EAGLE-3 head",
    "mtp": "multi-token-prediction layer",
    "ngram": "n-gram lookup",
    "parallel": "block drafter",
    "self_speculation": "the target itself",
}


def model_line(setting: Setting) -> str:
    """One line about the model: formats, sizes, experts."""
    model = setting.model
    facts = [
        f"{'+'.join(weight_formats(model))} weights",
        f"{setting.dtypes.kv or model.kv_dtype} KV cache",
        f"{billions(model.total_parameters)} parameters",
    ]
    if model.is_moe:
        facts.append(f"{billions(model.active_parameters)} active")
        facts.append(experts_text(model))
    return f"{model.name}: {', '.join(facts)}"


def machine_line(setting: Setting, step: StepCost) -> str:
    """One line about the machine: how many devices, and how its efficiencies are known."""
    layout = setting.parallelism
    ranks = f" ({layout.describe()})" if layout.devices > 1 else ""
    name = setting.engine.name
    engine = "bare kernels" if name == "none" else f"host times of {ENGINES.get(name, name)}"
    return f"on {layout.devices} x {setting.hardware.title}{ranks}, {engine}; efficiencies {_evidence(setting, step)}"


def _evidence(setting: Setting, step: StepCost) -> str:
    """How the constants of the kernels in this step are known: ``measured for gemm and moe, assumed for p2p``."""
    kinds: dict[str, dict[str, None]] = {}
    for _, component in step.operations():
        operation = component.operation
        block = setting.hardware.efficiency(operation.kind, operation.dtype)
        kinds.setdefault(block.kind, {})[operation.kind.replace("_", " ")] = None
    return "; ".join(f"{kind}: {', '.join(operations)}" for kind, operations in kinds.items())


def drafter_line(setting: Setting, draft: Draft, acceptance: Acceptance) -> str:
    """One line about drafter, acceptance and routing."""
    rates = " ".join(f"{rate:.2f}".lstrip("0") for rate in acceptance.conditionals)
    given = "at every position" if len(acceptance.conditionals) == 1 else "by position"
    parts = [f"{drafter_title(draft)}, acceptance {rates} {given}"]
    if setting.model.is_moe:
        routing = setting.routing
        parts.append(f"routing persistence {routing.persistence:.3f}, stickiness {routing.stickiness:.3f}")
    return "; ".join(parts)


def drafter_title(draft: Draft) -> str:
    """What people call the drafter."""
    return draft.architecture.name if draft.architecture is not None else DRAFTERS[draft.kind]


def weight_formats(model: ModelArchitecture) -> tuple[str, ...]:
    """Formats that hold at least a tenth of the weight bytes, most first."""
    held: Counter[str] = Counter()
    for layer, count in model.layer_kinds:
        for projection, copies in layer.projections():
            for matrix in projection.matrices:
                held[matrix.format.name] += round(matrix.bytes) * copies * count
    total = held.total()
    return tuple(name for name, size in held.most_common() if size >= 0.1 * total)


def billions(parameters: int) -> str:
    """Write a count of parameters in billions."""
    return f"{parameters / 1e9:.1f} B"


def experts_text(model: ModelArchitecture) -> str:
    """How many routed experts there are and how many a token uses."""
    blocks = {block for layer, _ in model.layer_kinds for block in layer.feed_forward if isinstance(block, MoE)}
    return " and ".join(f"{block.num_experts} experts top-{block.top_k}" for block in blocks)


def setting_inputs(setting: Setting) -> dict[str, Any]:
    """Everything resolved about model, machine and layout, for JSON."""
    return {
        "model": setting.model.name,
        "hardware": setting.hardware.name,
        "parallelism": {name: getattr(setting.parallelism, name) for name in ("tp", "ep", "pp", "dp")},
        "weights": list(weight_formats(setting.model)),
        "kv_dtype": setting.dtypes.kv or setting.model.kv_dtype,
        "activations": setting.dtypes.activations,
        "allow_dtype_fallback": setting.dtypes.allow_fallback,
        "engine": setting.engine.name,
        "persistence": setting.routing.persistence,
        "stickiness": setting.routing.stickiness,
        "popularity_cv": setting.routing.popularity_cv,
        "kv_reread": setting.kv_reread,
    }


def drafter_inputs(draft: Draft, acceptance: Acceptance) -> dict[str, Any]:
    """The resolved drafter and acceptance, for JSON."""
    return {
        "draft": draft.kind,
        "draft_model": None if draft.architecture is None else draft.architecture.name,
        "draft_tp": 1 if draft.parallelism is None else draft.parallelism.tp,
        "acceptance": list(acceptance.conditionals),
        "acceptance_uncertainty": acceptance.uncertainty,
    }
