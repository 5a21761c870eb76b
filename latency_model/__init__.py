"""Closed-form latency models for LLM serving: how much to speculate, what experts cost to load, where that flips.

>>> import latency_model as lm
>>> plan = lm.optimize("Qwen3-30B-A3B", "h100-sxm", draft=lm.Draft.eagle(), batch=[1, 4, 64], context=4096)
>>> plan.draft_length.shape
(3,)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

#: Where each public name lives; a name is imported when it is first used.
_HOMES = {
    "Acceptance": "latency_model.specs.acceptance",
    "DTypes": "latency_model.specs.precision",
    "Draft": "latency_model.specs.draft",
    "Estimate": "latency_model.costs.uncertainty",
    "HardwareProfile": "latency_model.specs.hardware",
    "InputError": "latency_model.errors",
    "ModelArchitecture": "latency_model.specs.model",
    "Parallelism": "latency_model.specs.parallelism",
    "Plan": "latency_model.decisions.optimize",
    "Round": "latency_model.costs.round",
    "Routing": "latency_model.specs.routing",
    "ServingCurve": "latency_model.decisions.serving",
    "StepCost": "latency_model.costs.step",
    "expert_loading": "latency_model.decisions.loading",
    "hardware_names": "latency_model.specs.hardware",
    "load_engine": "latency_model.specs.engine",
    "load_hardware": "latency_model.specs.hardware",
    "load_model": "latency_model.specs.loader",
    "model_names": "latency_model.specs.loader",
    "optimize": "latency_model.decisions.optimize",
    "serve": "latency_model.decisions.serving",
    "speculate": "latency_model.costs.round",
    "step_cost": "latency_model.costs.step",
    "sweep": "latency_model.views.sweep",
}
_MODULES = {
    "figures": "latency_model.views.figures",
    "formulas": "latency_model.formulas",
    "gallery": "latency_model.views.gallery",
}

__all__ = sorted([*_HOMES, *_MODULES])

if TYPE_CHECKING:
    from latency_model import formulas as formulas
    from latency_model.costs.round import Round as Round
    from latency_model.costs.round import speculate as speculate
    from latency_model.costs.step import StepCost as StepCost
    from latency_model.costs.step import step_cost as step_cost
    from latency_model.costs.uncertainty import Estimate as Estimate
    from latency_model.decisions.loading import expert_loading as expert_loading
    from latency_model.decisions.optimize import Plan as Plan
    from latency_model.decisions.optimize import optimize as optimize
    from latency_model.decisions.serving import ServingCurve as ServingCurve
    from latency_model.decisions.serving import serve as serve
    from latency_model.errors import InputError as InputError
    from latency_model.specs.acceptance import Acceptance as Acceptance
    from latency_model.specs.draft import Draft as Draft
    from latency_model.specs.engine import load_engine as load_engine
    from latency_model.specs.hardware import HardwareProfile as HardwareProfile
    from latency_model.specs.hardware import hardware_names as hardware_names
    from latency_model.specs.hardware import load_hardware as load_hardware
    from latency_model.specs.loader import load_model as load_model
    from latency_model.specs.loader import model_names as model_names
    from latency_model.specs.model import ModelArchitecture as ModelArchitecture
    from latency_model.specs.parallelism import Parallelism as Parallelism
    from latency_model.specs.precision import DTypes as DTypes
    from latency_model.specs.routing import Routing as Routing
    from latency_model.views import figures as figures
    from latency_model.views import gallery as gallery
    from latency_model.views.sweep import sweep as sweep


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = import_module(_MODULES[name])
    else:
        raise AttributeError(f"module 'latency_model' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
