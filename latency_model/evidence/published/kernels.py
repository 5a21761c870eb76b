"""Published times of layers and steps, predicted from the machine's profile."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latency_model.costs.round import speculate
from latency_model.costs.step import Scales, step_cost
from latency_model.costs.uncertainty import drafting_estimate, log_deviation, model_errors, uncertain_constants
from latency_model.evidence.published.record import Group, Row, read_table
from latency_model.evidence.published.speculation import VLLM_OF_2025, magicdec_rounds
from latency_model.formulas.routing import distinct_experts
from latency_model.specs.draft import Draft
from latency_model.specs.routing import Routing

__all__ = ["affine_fits", "dense_steps", "moe_layer"]

FloatArray = NDArray[np.floating[Any]]


def moe_layer() -> Group:
    """Time of an MoE layer of Qwen3-30B-A3B against the distinct experts it touches (OEA)."""
    table = read_table("oea_qwen3_30b_moe_layer_latency")
    batch = np.arange(1.0, 17.0)
    cost = step_cost("Qwen3-30B-A3B", "h100-sxm", batch=batch, context=1024, routing=Routing.uniform(), engine="none")
    layers = 48

    def layer(scales: Scales) -> FloatArray:
        measured = ("routed experts", "router")
        used = ((part, each) for part, each in cost.operations() if each.operation.name in measured)
        return np.asarray(sum(part.spread(each.time(scales)) for part, each in used)) / layers

    # A part of a step errs at least as much as the step does.
    constants = log_deviation(layer, uncertain_constants([cost], cost.setting))
    times, deviations = layer({}), np.hypot(constants, np.hypot(*model_errors(cost.setting)))
    experts = distinct_experts(128, 8, 1, batch)
    rows = []
    for row in table.rows:
        touched = float(row["avg_active_experts_per_layer"])
        rows.append(
            Row(
                case=f"{row['benchmark']} k0={row['k0']}, {touched} experts",
                predicted=1e6 * np.interp(touched, experts, times),
                measured=row["moe_layer_latency_us"],
                deviation=np.interp(touched, experts, deviations),
            )
        )
    return Group(
        name="moe-layer",
        quantity="time of an MoE layer [µs]",
        rows=tuple(rows),
        sources=table.sources,
        assumptions=(
            "H100 SXM; router and routed experts timed alone, whole launches",
            "few tokens, so only the experts touched matter",
        ),
    )


def dense_steps() -> Group:
    """Steps and EAGLE-3 drafting of Llama-3.1-8B in vLLM, beside the cost model fitted to them by others."""
    table = read_table("specdecodebench_h100_llama8b_cost_model")
    value = {row["coefficient"]: float(row["value"]) for row in table.rows}
    rows = []
    for batch, context, fed in itertools.product((1, 8, 32, 64), (512, 2048), (1, 4)):
        forward = (
            value["target_c_kv"] * batch * context
            + value["target_c_compute"] * batch * fed
            + value["target_c_fixed"]
            + value["overhead_constant_per_step"]
        )
        step = step_cost(
            "Llama-3.1-8B", "h100-sxm", batch=batch, context=context, tokens_per_sequence=fed, engine=VLLM_OF_2025
        )
        case = f"step, batch {batch}, context {context}, {fed} tokens"
        rows.append(Row.of(step.estimate, unit=1e-3, case=case, measured=1e3 * forward))
    drafts = 3
    for batch, context in itertools.product((1, 8, 32, 64), (512, 2048)):
        drafting = (
            value["draft_c_kv"] * batch * context + value["draft_c_num_spec_tokens"] * drafts + value["draft_c_fixed"]
        )
        round_ = speculate(
            "Llama-3.1-8B",
            "h100-sxm",
            draft=Draft.eagle(),
            draft_length=drafts,
            batch=batch,
            context=context,
            engine=VLLM_OF_2025,
        )
        predicted = drafting_estimate(round_.cost, round_.setting)
        case = f"{drafts} drafts, batch {batch}, context {context}"
        rows.append(Row.of(predicted, unit=1e-3, case=case, measured=1e3 * drafting))
    return Group(
        name="dense-steps",
        quantity="time of a step and of drafting, dense 8B on H100 [ms]",
        rows=tuple(rows),
        sources=table.sources,
        assumptions=(
            "measured = the published affine fit, overhead per step included; 3 drafts (depth not stated)",
            "vLLM of 2025, which schedules nothing ahead",
        ),
    )


def affine_fits() -> Group:
    """Fixed, per-sequence and per-cached-token time of MagicDec's steps, same fit to predicted times."""
    table = read_table("magicdec_affine_fits")
    coefficients = ("t0_ms", "t_seq_ms_per_sequence", "t_kv_ms_per_kv_token")
    times: dict[str, Callable[[Any], FloatArray]] = {
        "T_T": lambda round_: round_.baseline_time,
        "T_V(gamma=2)": lambda round_: round_.verify_time,
        "T_D": lambda round_: round_.draft_time / 2,
    }
    rows = []
    for row in table.rows:
        points = [
            (float(each["B"]), float(each["S"]), float(times[row["quantity"]](round_)))
            for each, _, round_ in magicdec_rounds()
            if (each["target"], each["draft"]) == (row["target"], row["draft"])
        ]
        batch, context, seconds = np.array(points).T
        known = [name for name in coefficients if row[name]]
        columns = np.stack([np.ones_like(batch), batch, batch * context][: len(known)], axis=1)
        fitted = np.linalg.lstsq(columns / seconds[:, None], np.ones_like(seconds), rcond=None)[0]
        rows += [
            Row(
                case=f"{row['target']}, {row['draft'].split()[0]} draft, {row['quantity']} {name.split('_ms')[0]}",
                predicted=1e3 * coefficient,
                measured=float(row[name]),
            )
            for name, coefficient in zip(known, fitted, strict=True)
        ]
    return Group(
        name="magicdec-fits",
        quantity="affine coefficients of step times, 8x A100 [ms]",
        rows=tuple(rows),
        sources=table.sources,
        assumptions=("same batches and contexts, same relative least squares",),
    )
