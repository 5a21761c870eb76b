"""The controls of the page: what they are called, what explains them, and how their values make a State."""

from __future__ import annotations

from typing import Any

import attrs

from latency_model.views.explorer.presets import presets
from latency_model.views.explorer.state import PRESET, State
from latency_model.views.symbols import find_symbol

__all__ = ["CONTROLS", "TITLES", "control_values", "explanation", "state_values"]

#: Fields of a State that are controls of the same name.
PLAIN = tuple(known.name for known in attrs.fields(State) if known.name not in ("acceptance", "config", "device"))
#: Acceptance is one field and four controls, of which ``acceptance_form`` says which of the others counts.
ACCEPTANCE = ("acceptance_form", "acceptance_constant", "acceptance_text", "acceptance_preset")
CONTROLS = (*PLAIN, *ACCEPTANCE)

TITLES = {
    "model": "Model",
    "hardware": "Device",
    "draft": "Drafter",
    "draft_model": "Draft model",
    "draft_tp": "Draft TP",
    "acceptance_constant": "Acceptance α",
    "acceptance_text": "Acceptance by position",
    "acceptance_preset": "Published acceptance",
    "batch": "Batch B",
    "context": "Context S",
    "draft_length": "Drafts γ",
    "tp": "TP",
    "ep": "EP",
    "pp": "PP",
    "dp": "DP",
    "persistence": "Persistence ρ",
    "stickiness": "Stickiness s",
    "popularity_cv": "Uneven popularity",
    "kv_reread": "KV re-reading r",
    "weights": "Weights",
    "kv_dtype": "KV cache",
    "activations": "Activations",
    "fallback": "A format the device lacks",
    "engine": "Engine",
}
#: Choices that are no symbols.
WORDS = {
    "model": "the architecture, as the config.json of its checkpoint describes it",
    "hardware": "peaks, memory, link and measured efficiencies of a device, from its profile",
    "draft": "what proposes the tokens that the model then verifies",
    "draft_model": "a smaller model with the same tokenizer",
    "draft_tp": "tensor-parallel ranks the draft model runs on",
    "acceptance_preset": "acceptance published for a drafter, a model and a kind of traffic",
    "engine": "the serving engine whose host times are added to the time of the kernels",
    "weights": "format of the weights of linear layers; as stored is what the config says",
    "kv_dtype": "format of the cache; as stored is what the config says",
    "activations": "format of activations and of the arithmetic of attention",
    "fallback": "the next wider format has the same bytes and fewer operations a second",
}
#: The symbol that explains a control of another name.
SYMBOL_OF = {"acceptance_constant": "acceptance", "acceptance_text": "conditional"}


def explanation(name: str) -> str:
    """What a control chooses, in the words of the glossary where it is a symbol.

    >>> explanation("batch")
    'B [sequences]: sequences in one step, over all replicas'
    """
    return WORDS[name] if name in WORDS else find_symbol(SYMBOL_OF.get(name, name)).tooltip


def state_values(values: dict[str, Any]) -> dict[str, Any]:
    """What a State is made of, from the values of the controls.

    >>> state_values({"acceptance_form": "constant", "acceptance_constant": 0.7, "batch": 8})
    {'batch': 8, 'acceptance': '0.7'}
    """
    chosen = {
        "constant": str(values.get("acceptance_constant")),
        "text": values.get("acceptance_text") or "",
        "preset": f"{PRESET}{values.get('acceptance_preset')}",
    }
    plain = {name: value for name, value in values.items() if name not in ACCEPTANCE}
    return plain | {"acceptance": chosen.get(values["acceptance_form"], "")}


def control_values(state: State) -> dict[str, Any]:
    """The values of the controls that show a State; the forms of acceptance not in use get examples.

    >>> control_values(State(acceptance="0.6"))["acceptance_form"]
    'constant'
    """
    values: dict[str, Any] = {name: getattr(state, name) for name in PLAIN}
    examples = {"constant": 0.7, "text": State().acceptance, "preset": next(iter(presets()))}
    form, value = _form(state.acceptance)
    return (
        values | {"acceptance_form": form} | {f"acceptance_{key}": of for key, of in (examples | {form: value}).items()}
    )


def _form(acceptance: str) -> tuple[str, str | float]:
    """Which control shows an acceptance, and the value it has there."""
    if acceptance.startswith(PRESET):
        return "preset", acceptance.removeprefix(PRESET)
    try:
        return "constant", float(acceptance)
    except ValueError:
        return "text", acceptance
