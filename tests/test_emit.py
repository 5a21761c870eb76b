"""Settings paste: what an engine would parse says what the plan found, within the engine's rules."""

from __future__ import annotations

import ast
import itertools
import json
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import latency_model as lm
from latency_model.decisions.optimize import SCHEDULE_TOLERANCE
from latency_model.views.emit import engine_settings, has_settings, sglang_settings, trtllm_settings, vllm_settings

VECTOR = lm.Acceptance.conditional([0.70, 0.62, 0.60, 0.58])


def plan_for(model="Qwen3-30B-A3B", hardware="h100-sxm", **asked) -> lm.Plan:
    return lm.optimize(model, hardware, **{"acceptance": VECTOR, "batch": [1, 4, 16, 64, 256], **asked})


def vllm_config(plan: lm.Plan) -> dict:
    """What vLLM gets after the shell has taken the quotes away."""
    flag, config = shlex.split(vllm_settings(plan).text)
    assert flag == "--speculative-config"
    return json.loads(config)


def sglang_flags(plan: lm.Plan) -> dict[str, str]:
    words = shlex.split(sglang_settings(plan).text.splitlines()[-1])
    flags = {word: following for word, following in zip(words, [*words[1:], ""], strict=True) if word[:2] == "--"}
    return {flag: "" if value.startswith("--") else value for flag, value in flags.items()}


def trtllm_config(plan: lm.Plan) -> dict:
    """Read the two levels of YAML that are written."""
    title, *lines = trtllm_settings(plan).text.splitlines()
    assert title == "speculative_config:"
    pairs = (line.strip().partition(": ")[::2] for line in lines)
    return {key: ast.literal_eval(value) if value[0] in "{0123456789" else value for key, value in pairs}


acceptances = st.floats(0.05, 0.95).map(lm.Acceptance.constant)
loads = st.lists(st.integers(1, 600), min_size=2, max_size=4, unique=True)


@settings(max_examples=25)
@given(acceptance=acceptances, batch=loads)
def test_vllm_gets_ranges_from_1_without_gaps_and_no_length_above_its_maximum(acceptance, batch):
    plan = plan_for("Qwen3-8B", "b200-sxm", acceptance=acceptance, batch=sorted(batch), context=256)
    if not vllm_settings(plan).text:
        assert not plan.draft_length.any()
        return
    config = vllm_config(plan)
    most = config["num_speculative_tokens"]
    table = config.get("num_speculative_tokens_per_batch_size", [[1, max(batch), most]])
    assert table[0][0] == 1
    assert table[-1][1] == max(batch)
    assert all(after[0] == before[1] + 1 for before, after in itertools.pairwise(table))
    assert max(length for _, _, length in table) == most
    assert all(first <= last and length >= 0 for first, last, length in table)


def test_the_vllm_table_loses_less_than_its_tolerance_at_every_batch_asked():
    plan = plan_for()
    table = vllm_config(plan)["num_speculative_tokens_per_batch_size"]
    for batch, curve in zip([1, 4, 16, 64, 256], plan.curve, strict=True):
        (length,) = (length for first, last, length in table if first <= batch <= last)
        assert curve[length] >= (1 - SCHEDULE_TOLERANCE) * curve.max()


@settings(max_examples=25)
@given(acceptance=acceptances, batch=loads)
def test_trtllm_gets_a_schedule_with_batch_1_at_the_maximum(acceptance, batch):
    plan = plan_for("Qwen3-8B", "b200-sxm", acceptance=acceptance, batch=sorted(batch), context=256)
    if not trtllm_settings(plan).text:
        assert not plan.draft_length.any()
        return
    config = trtllm_config(plan)
    schedule = config.get("draft_len_schedule", {1: config["max_draft_len"]})
    assert schedule[1] == config["max_draft_len"] == max(schedule.values())
    assert list(schedule) == sorted(schedule)


def test_trtllm_keeps_the_plan_from_batch_2_on_and_says_what_it_changed():
    plan = plan_for()
    (ranges,) = plan.schedules
    schedule = trtllm_config(plan)["draft_len_schedule"]
    assert ranges[0].draft_length < max(r.draft_length for r in ranges), "this plan must need the change"
    assert schedule[2] == ranges[0].draft_length
    assert {start: length for start, length in schedule.items() if start > 2} == {
        r.start: r.draft_length for r in ranges[1:]
    }
    assert any("batch 1" in note for note in trtllm_settings(plan).notes)


def test_sglang_gets_a_chain_and_the_candidates_for_its_adaptive_mode():
    plan = plan_for()
    flags = sglang_flags(plan)
    assert flags["--speculative-algorithm"] == "EAGLE3"
    assert flags["--speculative-eagle-topk"] == "1"
    assert int(flags["--speculative-num-draft-tokens"]) == int(flags["--speculative-num-steps"]) + 1
    echo, content, arrow, file = shlex.split(sglang_settings(plan).text.splitlines()[0])
    assert (echo, arrow) == ("echo", ">")
    assert flags["--speculative-adaptive-config"] == file
    candidates = json.loads(content)["candidate_steps"]
    assert candidates == sorted({r.draft_length for r in plan.schedules[0]})
    assert max(candidates) == int(flags["--speculative-num-steps"])


def test_one_batch_needs_no_table():
    plan = plan_for(batch=16)
    (best,) = plan.draft_length.ravel()
    assert vllm_config(plan) == {
        "method": "eagle3",
        "model": "PATH_OF_EAGLE3_HEAD",
        "num_speculative_tokens": best,
    }
    assert trtllm_config(plan)["max_draft_len"] == best
    assert "draft_len_schedule" not in trtllm_config(plan)
    assert "--speculative-adaptive" not in sglang_flags(plan)


def test_plain_decoding_sets_nothing_and_says_so():
    plan = plan_for(acceptance=0.0)
    for engine in ("vllm", "sglang", "trtllm"):
        written = engine_settings(plan, engine)
        assert written.text == ""
        assert "plain decoding is best" in written.notes[0]


def test_batches_where_plain_decoding_wins_get_length_0_or_a_warning():
    plan = plan_for(model="Qwen3-8B", acceptance=0.2, batch=[1, 512], context=512)
    assert plan.draft_length.tolist()[1] == 0
    assert vllm_config(plan)["num_speculative_tokens_per_batch_size"][-1][2] == 0
    assert trtllm_config(plan)["draft_len_schedule"][plan.schedules[0][-1].start] == 0
    assert any("cannot stop drafting" in note for note in sglang_settings(plan).notes)


def test_data_parallel_vllm_is_warned_that_it_drafts_the_maximum_always():
    plan = plan_for(parallelism=lm.Parallelism(dp=2))
    assert any("data parallelism" in note for note in vllm_settings(plan).notes)
    assert not any("data parallelism" in note for note in vllm_settings(plan_for()).notes)


def test_contexts_that_disagree_are_named():
    plan = plan_for(context=[1024, 32768])
    assert plan.schedules[0] != plan.schedules[1], "these contexts must disagree"
    (note,) = (note for note in vllm_settings(plan).notes if "context" in note)
    assert "context 1024" in note
    assert "at 32768" in note
    assert vllm_config(plan) == vllm_config(plan_for(context=1024))


@pytest.mark.parametrize(
    ("draft", "vllm", "sglang", "trtllm"),
    [
        (lm.Draft.eagle(version=1), "eagle", "EAGLE", "Eagle"),
        (lm.Draft.mtp(), "mtp", "NEXTN", "MTP"),
        (lm.Draft.ngram(), "ngram", "NGRAM", "NGram"),
        (lm.Draft.model(lm.load_model("Qwen3-0.6B")), "draft_model", "STANDALONE", "Draft_Target"),
    ],
)
def test_every_engine_names_the_drafter_its_way(draft, vllm, sglang, trtllm):
    plan = plan_for(draft=draft, acceptance=0.8, batch=1)
    assert vllm_config(plan)["method"] == vllm
    assert sglang_flags(plan)["--speculative-algorithm"] == sglang
    assert trtllm_config(plan)["decoding_type"] == trtllm


def test_a_draft_model_is_named_with_its_ranks():
    drafter = lm.Draft.model(lm.load_model("Qwen3-0.6B"), parallelism=lm.Parallelism(tp=2))
    config = vllm_config(plan_for(draft=drafter, acceptance=0.8, batch=1))
    assert config["model"] == "Qwen3-0.6B"
    assert config["draft_tensor_parallel_size"] == 2


def test_a_drafter_the_engine_lacks_is_refused():
    plan = plan_for(draft=lm.Draft.self_speculation(), acceptance=0.8, batch=1)
    for engine in ("vllm", "sglang", "trtllm"):
        assert not has_settings(plan, engine)
        with pytest.raises(lm.InputError, match="self-speculation"):
            engine_settings(plan, engine)


def test_an_unknown_engine_is_refused():
    with pytest.raises(lm.InputError, match="llama"):
        engine_settings(plan_for(batch=1), "llama.cpp")
