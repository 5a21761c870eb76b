"""The sentences about a plan say what its arrays say."""

from __future__ import annotations

import re

import pytest

import latency_model as lm
from latency_model.decisions.reasons import reasons

VECTOR = lm.Acceptance.conditional([0.70, 0.62, 0.60, 0.58])


def the_one(sentences, start):
    (found,) = (sentence for sentence in sentences if sentence.startswith(start))
    return found


def test_the_dip_of_a_sparse_model_is_explained_by_the_experts_touched():
    plan = lm.optimize("Qwen3-30B-A3B", "h100-sxm", acceptance=VECTOR, batch=[1, 4, 64])
    assert plan.speedup[1] < min(plan.speedup[0], plan.speedup[2]), "this plan must dip"
    touched = lm.formulas.distinct_experts(
        128, 8, [plan.draft_length[1] + 1, 1], 4, persistence=0.114, stickiness=0.230
    )
    sentence = the_one(reasons(plan), "Why it dips at batch 4")
    assert f"touches {touched[0]:.0f} of 128 experts against {touched[1]:.0f} for a plain step" in sentence


def test_a_dense_model_does_not_dip_and_falls():
    plan = lm.optimize("Qwen3-8B", "h100-sxm", acceptance=VECTOR, batch=[1, 16, 64], context=512)
    sentences = reasons(plan)
    assert not any(sentence.startswith("Why it dips") for sentence in sentences)
    ratio = 1 / plan.best.target_efficiency[-1]
    assert f"{ratio:.2f} times a plain step at 64" in the_one(sentences, "Speedup falls beyond batch 1")


def test_where_plain_decoding_wins_the_break_even_acceptance_is_named():
    plan = lm.optimize("Qwen3-8B", "h100-sxm", acceptance=0.2, batch=[1, 512], context=512)
    assert plan.draft_length.tolist()[1] == 0
    sentence = the_one(reasons(plan), "Plain decoding is best at batch 512")
    assert f"above acceptance {plan.break_even_acceptance[1]:.2f}" in sentence


@pytest.mark.parametrize("batch", [[1, 4, 16, 64, 256], [256, 1, 64, 4, 16]])
def test_the_order_of_the_batches_does_not_matter(batch):
    plan = lm.optimize("Qwen3-30B-A3B", "h100-sxm", acceptance=VECTOR, batch=batch)
    in_order = lm.optimize("Qwen3-30B-A3B", "h100-sxm", acceptance=VECTOR, batch=sorted(batch))
    assert set(reasons(plan)[:3]) == set(reasons(in_order)[:3])


def test_every_batch_is_in_the_lever_sentence_once():
    asked = [1, 4, 16, 256]
    plan = lm.optimize("Qwen3-30B-A3B", "h100-sxm", acceptance=VECTOR, batch=asked)
    sentence = the_one(reasons(plan), "Next best lever")
    named = []
    for lever, text in re.findall(r"([\w ]+?) at batch ([\d, and to]+) \(", sentence):
        runs = [[int(end) for end in run.split(" to ")] for run in re.split(r", | and ", text)]
        batches = [batch for run in runs for batch in asked if run[0] <= batch <= run[-1]]
        assert all(plan.lever[asked.index(batch)] == lever.strip() for batch in batches)
        named += batches
    assert sorted(named) == asked


def test_what_does_not_fit_is_named_with_what_does():
    plan = lm.optimize("Qwen3-30B-A3B", "h100-sxm", acceptance=VECTOR, batch=[1, 64])
    most = int(plan.memory.largest_batch[1].item())
    assert f"batch 64 (marked !): beside the weights {most} sequences fit" in the_one(reasons(plan), "No room")


def test_several_contexts_are_told_apart():
    plan = lm.optimize("Qwen3-30B-A3B", "h100-sxm", acceptance=VECTOR, batch=[1, 64], context=[1024, 32768])
    sentences = reasons(plan)
    for context in (1024, 32768):
        assert any(f"at context {context}" in sentence for sentence in sentences)
