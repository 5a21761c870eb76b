"""A plan as settings that paste into a serving engine, one function per engine.

Written for the vLLM 0.2x to 0.32 line, SGLang of 2026 and the TensorRT-LLM 1.3 line, from their documentation.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import Any

from attrs import frozen

from latency_model.decisions.optimize import Plan, Switch
from latency_model.errors import InputError

__all__ = [
    "ENGINES",
    "EngineSettings",
    "engine_settings",
    "has_settings",
    "sglang_settings",
    "trtllm_settings",
    "vllm_settings",
]

#: vLLM's ``method``, SGLang's algorithm and TensorRT-LLM's decoding type, by kind of drafter.
METHODS = {
    "eagle": {"vllm": "eagle", "sglang": "EAGLE", "trtllm": "Eagle"},
    "eagle3": {"vllm": "eagle3", "sglang": "EAGLE3", "trtllm": "Eagle3"},
    "mtp": {"vllm": "mtp", "sglang": "NEXTN", "trtllm": "MTP"},
    "ngram": {"vllm": "ngram", "sglang": "NGRAM", "trtllm": "NGram"},
    "model": {"vllm": "draft_model", "sglang": "STANDALONE", "trtllm": "Draft_Target"},
    "parallel": {"vllm": "dflash"},
}
TITLES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}
ADAPTIVE_FILE = "speculative_adaptive.json"


@frozen(kw_only=True)
class EngineSettings:
    """What to paste, the same as data, and what to know about it.

    Attributes
    ----------
    text : str
        Lines to paste; empty when the engine should run without speculation.
    values : dict
        The settings as the engine names them.
    notes : tuple of str
        Sentences for the reader.
    """

    text: str
    values: dict[str, Any]
    notes: tuple[str, ...] = ()


def engine_settings(plan: Plan, engine: str) -> EngineSettings:
    """Settings of ``vllm``, ``sglang`` or ``trtllm`` for a plan; the table is for the first context asked."""
    if engine not in ENGINES:
        raise InputError(f"settings can be written for {', '.join(ENGINES)}, got {engine!r}")
    return ENGINES[engine](plan)


def has_settings(plan: Plan, engine: str) -> bool:
    """Whether the engine has a setting for the plan's kind of drafter."""
    return engine in METHODS.get(plan.best.draft.kind, {})


def vllm_settings(plan: Plan) -> EngineSettings:
    """``--speculative-config`` of vLLM, with lengths per batch size when several batches were asked.

    Examples
    --------
    >>> from latency_model.decisions.optimize import optimize
    >>> vllm_settings(optimize("Qwen3-8B", "h100-sxm", acceptance=0.7)).values["method"]
    'eagle3'
    """
    table, notes = _table(plan), _notes(plan)
    method = _method(plan, "vllm")
    longest = max(switch.draft_length for switch in table)
    if longest == 0:
        return _plain(notes)
    values: dict[str, Any] = {"method": method}
    draft = plan.best.draft
    if draft.kind != "mtp" and draft.kind != "ngram":
        values["model"] = _drafter_path(plan)
    values["num_speculative_tokens"] = longest
    if draft.kind == "ngram":
        values["prompt_lookup_max"] = 4  # as in vLLM's own example
    if draft.parallelism is not None and draft.kind != "ngram":  # which has no network to spread
        values["draft_tensor_parallel_size"] = draft.parallelism.tp
    if len(table) > 1:
        values["num_speculative_tokens_per_batch_size"] = [list(switch) for switch in table]
        if plan.best.setting.parallelism.dp > 1:
            notes.append(f"vLLM ignores lengths per batch size with data parallelism and always drafts {longest}")
    if draft.kind == "parallel":
        notes.append("method dflash stands for block drafters; write the one you have")
    text = f"--speculative-config {shlex.quote(json.dumps(values))}"
    return EngineSettings(text=text, values=values, notes=tuple(notes))


def sglang_settings(plan: Plan) -> EngineSettings:
    """Flags of SGLang; with several best lengths also the file its adaptive speculation chooses from."""
    table, notes = _table(plan), _notes(plan)
    algorithm = _method(plan, "sglang")
    candidates = sorted({switch.draft_length for switch in table} - {0})
    if not candidates:
        return _plain(notes)
    steps = candidates[-1]
    values: dict[str, Any] = {"speculative-algorithm": algorithm}
    if plan.best.draft.kind not in ("mtp", "ngram"):
        values["speculative-draft-model-path"] = _drafter_path(plan)
    if algorithm != "NGRAM":
        values |= {"speculative-num-steps": steps, "speculative-eagle-topk": 1}
    values["speculative-num-draft-tokens"] = steps + 1
    lines = []
    if len(candidates) > 1:
        values |= {"speculative-adaptive": True, "speculative-adaptive-config": ADAPTIVE_FILE}
        adaptive = json.dumps({"candidate_steps": candidates})
        lines.append(f"echo {shlex.quote(adaptive)} > {ADAPTIVE_FILE}")
        notes.append("SGLang picks among candidate_steps by measured acceptance, not by batch")
    plain = [f"{switch.start}-{switch.end}" for switch in table if switch.draft_length == 0]
    if plain:
        notes.append(f"SGLang cannot stop drafting at some batches: plain decoding would be best at {', '.join(plain)}")
    flags = (f"--{name}" if value is True else f"--{name} {shlex.quote(str(value))}" for name, value in values.items())
    return EngineSettings(text="\n".join([*lines, " ".join(flags)]), values=values, notes=tuple(notes))


def trtllm_settings(plan: Plan) -> EngineSettings:
    """``speculative_config`` of TensorRT-LLM as YAML, with a schedule when several batches were asked."""
    table, notes = _table(plan), _notes(plan)
    kind = _method(plan, "trtllm")
    longest = max(switch.draft_length for switch in table)
    if longest == 0:
        return _plain(notes)
    values: dict[str, Any] = {"decoding_type": kind, "max_draft_len": longest}
    if plan.best.draft.kind not in ("mtp", "ngram"):
        values["speculative_model"] = _drafter_path(plan)
    if len(table) > 1:
        schedule = {switch.start: switch.draft_length for switch in table}
        first = table[0]
        if first.draft_length != longest:
            schedule = {
                1: longest,
                **({2: first.draft_length} if first.end > 1 else {}),
                **dict(list(schedule.items())[1:]),
            }
            notes.append(
                f"TensorRT-LLM wants the longest draft at batch 1: {longest} stands there, "
                f"where {first.draft_length} would be best"
            )
        values["draft_len_schedule"] = schedule
    lines = ["speculative_config:"]
    for name, value in values.items():
        shown = "{" + ", ".join(f"{k}: {v}" for k, v in value.items()) + "}" if isinstance(value, dict) else value
        lines.append(f"  {name}: {shown}")
    return EngineSettings(text="\n".join(lines), values=values, notes=tuple(notes))


ENGINES: dict[str, Callable[[Plan], EngineSettings]] = {
    "vllm": vllm_settings,
    "sglang": sglang_settings,
    "trtllm": trtllm_settings,
}


def _table(plan: Plan, context: int = 0) -> tuple[Switch, ...]:
    """Draft lengths by batch from 1 without gaps; one range when one batch was asked."""
    if plan.batch.size > 1:
        return plan.schedules[context]
    (length,) = plan.draft_length.reshape(1, -1)[:, context].tolist()
    return (Switch(1, int(plan.batch.max()), length),)


def _method(plan: Plan, engine: str) -> str:
    kind = plan.best.draft.kind
    method = METHODS.get(kind, {}).get(engine)
    if method is None:
        raise InputError(f"{TITLES[engine]} has no setting for a {kind.replace('_', '-')} drafter; leave --emit out")
    return method


def _drafter_path(plan: Plan) -> str:
    architecture = plan.best.draft.architecture
    return f"PATH_OF_{plan.best.draft.kind.upper()}_HEAD" if architecture is None else architecture.name


def _notes(plan: Plan) -> list[str]:
    """What holds for every engine: which context the table is for, what the others would say, what does not fit."""
    contexts = plan.context.ravel().astype(int).tolist()
    notes = []
    if len(contexts) > 1:
        first = _table(plan)
        others = {context: _table(plan, column) for column, context in enumerate(contexts)}
        differ = {context: table for context, table in others.items() if table != first}
        if differ:
            shown = "; ".join(f"at {context} {_shown(table)}" for context, table in differ.items())
            notes.append(f"the setting is for context {contexts[0]}; {shown} would be best")
    if not plan.memory.fits.all():
        notes.append("not every batch asked fits the memory")
    return notes


def _shown(table: tuple[Switch, ...]) -> str:
    return json.dumps([list(switch) for switch in table])


def _plain(notes: list[str]) -> EngineSettings:
    sentence = "plain decoding is best at every batch asked: start the engine without speculation"
    return EngineSettings(text="", values={}, notes=(sentence, *notes))
