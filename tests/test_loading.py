"""What loading experts costs: reductions, limits and a measured table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import latency_model as lm
from latency_model.decisions.loading import expert_loading


def loading(**asked):
    return expert_loading("Qwen3-30B-A3B", "h100-sxm", **asked)


def test_one_token_of_one_sequence_loads_exactly_the_experts_it_uses():
    one = loading()
    assert one.distinct == 8
    assert one.tokens_per_expert == 1
    assert one.loaded_bytes == 8 * 3 * 2048 * 768 * 2  # gate, up and down of width 768 in bf16


@given(batch=st.integers(1, 512), tokens=st.integers(1, 16))
def test_experts_grow_with_batch_and_tokens_and_never_pass_all_or_the_uniform_union(batch, tokens):
    here = loading(batch=[batch, batch + 1], tokens_per_sequence=[tokens, tokens + 1])
    assert (np.diff(here.distinct, axis=0) >= -1e-9).all()
    assert (np.diff(here.distinct, axis=1) >= -1e-9).all()
    assert (here.distinct <= here.distinct_uniform + 1e-9).all()
    assert (here.distinct <= 128 + 1e-9).all()


def test_uniform_routing_is_the_textbook_union():
    here = loading(batch=4, tokens_per_sequence=3, routing=lm.Routing.uniform())
    assert here.distinct == pytest.approx(128 * (1 - (1 - 8 / 128) ** 12))


def test_from_the_free_batch_on_verification_touches_under_5_percent_more():
    here = loading(batch=np.arange(1, 129), tokens_per_sequence=[1, 4])
    free = int(here.free_batch[1])
    assert here.free_batch[0] == 1
    assert here.growth[free - 1, 1] < 1.05 <= here.growth[free - 2, 1]
    assert (here.growth[free - 1 :, 1] < 1.05).all()


def test_the_bound_changes_at_the_crossover():
    here = loading(batch=[64, 16384])
    assert here.tokens_per_expert[0] < here.crossover_tokens < here.tokens_per_expert[1]
    assert here.bound.tolist() == ["memory", "compute"]


def test_layer_time_follows_the_measured_line():
    """Opportunistic Expert Activation, arXiv 2511.02237: 33.3 µs + 2.923 µs per expert, Qwen3-30B-A3B on one H100."""
    here = loading(batch=np.arange(1, 17), routing=lm.Routing.uniform())
    slope, level = np.polyfit(here.distinct, here.time, 1)
    assert slope == pytest.approx(2.923e-6, rel=0.10)
    assert level == pytest.approx(33.3e-6, rel=0.10)


def test_a_dense_model_has_nothing_to_load():
    with pytest.raises(lm.InputError, match="dense"):
        expert_loading("Qwen3-8B", "h100-sxm")
