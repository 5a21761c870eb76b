"""What engine users reported, replayed: gains and losses of speculation, and the draft length that was best.

The reports leave fields open; ``engine_case_readings.csv`` says how each is read, or why it is left out.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from latency_model.costs.round import Round, speculate
from latency_model.costs.step import step_cost
from latency_model.costs.uncertainty import Estimate
from latency_model.evidence.published.record import Group, Row, published_model, read_table
from latency_model.evidence.published.speculation import eagle_tokens
from latency_model.specs.draft import Draft
from latency_model.specs.parallelism import Parallelism

__all__ = ["depths", "rounds", "speedups"]

#: 993 of 1,814 rounds had a proposal (matches of 2 to 5 tokens, code editing): github.com/vllm-project/vllm/pull/24344.
NGRAM_HIT_RATE = 0.55
DRAFTERS = {"EAGLE1": "eagle", "EAGLE3": "eagle3", "n-gram": "ngram"}


def _readings() -> dict[str, dict[str, str]]:
    return {row["case_id"]: row for row in read_table("engine_case_readings").rows}


def _tokens_per_round(case: dict[str, str], reading: dict[str, str], draft: Draft) -> float:
    """Tokens per round as reported, or from the published source the reading names [token]."""
    drafts, value = int(case["steps_k"]), case["acceptance_value"]
    if case["acceptance_kind"] == "accept_len":
        return float(value)
    if case["acceptance_kind"].endswith("accept_rate"):  # of what was proposed
        return 1.0 + draft.hit_rate * float(value) * drafts
    if case["acceptance_kind"] == "accept_pos0":
        return 1.0 + float(value)
    if reading["acceptance"] == "eagle-mtbench":
        return float(
            eagle_tokens(drafts, case["drafter_method"].replace("1", "").replace("3", "-3")).tokens_per_round(drafts)
        )
    if reading["acceptance"] == "default":
        return float(draft.default_acceptance.tokens_per_round(drafts))
    return next(
        float(row["mean_acceptance_length"])
        for row in read_table("acceptance_length_curves").rows
        if row["model"] == reading["acceptance"] and int(row["num_speculative_tokens"]) == drafts
    )


def _context(case: dict[str, str], reading: dict[str, str]) -> int:
    """Cached tokens: the reading's, or those the report names as ``ctx 2067`` [token]."""
    return int(reading["context"] or case["context_or_workload"].split("ctx ")[1].split(",")[0])


def _predict(case: dict[str, str], reading: dict[str, str]) -> tuple[Estimate, Estimate]:
    """Speedup and seconds per token of a case [1], [s/token].

    A tree is drafted by ``topk`` rows a sequence and verified as ``draft_tokens_verified`` tokens; it is as uncertain
    as a chain as long.
    """
    layout = Parallelism(tp=int(reading["tp"]))
    draft = Draft.parse(reading["draft"] or DRAFTERS[case["drafter_method"]])
    networkless = draft.kind == "ngram"
    draft = Draft.ngram(hit_rate=NGRAM_HIT_RATE) if networkless else attrs.evolve(draft, parallelism=layout)
    steps, batch, context = int(case["steps_k"]), int(case["batch_or_concurrency"]), _context(case, reading)
    where: dict[str, Any] = {
        "parallelism": layout,
        "dtypes": {"weights": reading["weights"]} if reading["weights"] else None,
        "engine": reading["engine"],
    }
    model, device = published_model(reading["architecture"]), reading["device"]

    def round_of(sequences: int, drafts: int) -> Round:
        return speculate(
            model,
            device,
            draft=draft,
            draft_length=drafts,
            batch=sequences,
            context=context,
            kv_reread=float(reading["kv_reread"]),
            **where,
        )

    drafting = round_of(batch * int(case["topk"] or 1), steps).draft_time
    verified = round_of(batch, int(case["draft_tokens_verified"]) - 1)
    times = verified.times
    prompts = 0.0
    if reading["output"]:  # throughput over whole requests: each token waits for its share of the batch's prompts
        prompt = step_cost(model, device, context=0, tokens_per_sequence=context, prefill=True, **where).time
        prompts = batch / int(reading["output"]) * float(prompt)
    per_token = float(drafting + times.verify + times.overhead) / _tokens_per_round(case, reading, draft) + prompts
    speedup = (float(times.baseline) + prompts) / per_token
    chain = verified.estimates
    return (
        Estimate(best=np.asarray(speedup), deviation=chain.speedup.deviation),
        Estimate(best=np.asarray(per_token), deviation=chain.time.deviation),
    )


def _name(case: dict[str, str]) -> str:
    tree = f" tree {case['topk']}x{case['draft_tokens_verified']}" if case["topk"] not in ("", "1") else ""
    where = f" {case['context_or_workload']}" if case["context_or_workload"].startswith("ctx") else ""
    return (
        f"{case['case_id']} {case['target_model']} {case['drafter_method']} γ={case['steps_k']}{tree}"
        f" b={case['batch_or_concurrency']}{where}"
    )


def speedups(*, known: bool = True) -> Group:
    """Speedups users measured; ``known`` takes those that state device and model, else the others."""
    table, readings = read_table("engine_cases"), _readings()
    rows, assumed, skipped = [], {}, {}
    for case in table.rows:
        reading = readings[case["case_id"]]
        if (reading["known"] == "yes") != known:
            continue
        if reading["skip"]:
            skipped[f"{case['case_id']} {case['source']}"] = reading["skip"]
        elif case["speedup"]:
            assumed[f"{case['case_id']} ({case['source']})"] = reading["assumed"]
            series = f"{case['case_id']} {case['drafter_method']} b={case['batch_or_concurrency']}"
            rows.append(
                Row.of(
                    _predict(case, reading)[0],
                    case=_name(case),
                    measured=float(case["speedup"]),
                    series=series if case["topk"] == "1" and not case["context_or_workload"].startswith("ctx") else "",
                    depth=int(case["steps_k"]),
                )
            )
    return Group(
        name="engine-cases" if known else "engine-cases-assumed",
        quantity=f"speedup engine users report, device and model {'stated' if known else 'assumed in part'}",
        rows=tuple(rows),
        sources=table.sources,
        assumptions=tuple(f"{case}: {text}" for case, text in assumed.items()),
        skipped=tuple(skipped.items()),
        gain=True,
    )


def depths() -> Group:
    """Throughput against draft length where users report no baseline, relative to the mean of each series."""
    table, readings = read_table("engine_cases"), _readings()
    series: dict[str, list[tuple[dict[str, str], float, float]]] = {}
    assumed: dict[str, str] = {}
    for case in table.rows:
        reading = readings[case["case_id"]]
        if not reading["skip"] and case["spec"] and not case["speedup"]:
            assumed[f"{case['case_id']} ({case['source']})"] = reading["assumed"]
            key = f"{case['case_id']} b={case['batch_or_concurrency']}"
            series.setdefault(key, []).append((case, 1.0 / float(_predict(case, reading)[1].best), float(case["spec"])))
    rows = []
    for key, points in series.items():
        predicted = sum(rate for _, rate, _ in points) / len(points)
        measured = sum(seen for _, _, seen in points) / len(points)
        rows += [
            Row(
                case=_name(case),
                predicted=rate / predicted,
                measured=seen / measured,
                series=key,
                depth=int(case["steps_k"]),
            )
            for case, rate, seen in points
        ]
    return Group(
        name="engine-depths",
        quantity="throughput against draft length, over the mean of the series",
        rows=tuple(rows),
        sources=table.sources,
        assumptions=tuple(f"{case}: {text}" for case, text in assumed.items()),
    )


def rounds() -> Group:
    """Time of a round at batch 1 where users report both tokens per round and tokens per second."""
    table, readings = read_table("engine_cases"), _readings()
    rows, assumed = [], {}
    for case in table.rows:
        reading = readings[case["case_id"]]
        stated = case["acceptance_kind"] == "accept_len" and case["unit"].startswith("tok/s")
        usable = reading["known"] == "yes" and not reading["skip"] and case["spec"]
        if stated and usable and case["batch_or_concurrency"] == "1":
            tokens = float(case["acceptance_value"])
            per_token = _predict(case, reading)[1]
            measured = 1e3 * tokens / float(case["spec"])
            rows.append(Row.of(per_token, unit=1e-3 / tokens, case=_name(case), measured=measured))
            assumed[f"{case['case_id']} ({case['source']})"] = reading["assumed"]
    return Group(
        name="engine-rounds",
        quantity="time of a round in engine users' reports, batch 1 [ms]",
        rows=tuple(rows),
        sources=table.sources,
        assumptions=(
            *(f"{case}: {text}" for case, text in assumed.items()),
            "larger batches are left out: their throughput holds the wait for the longest reply, which is not stated",
        ),
    )
