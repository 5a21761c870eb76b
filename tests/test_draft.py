"""Drafters know what they are made of and say when they do not suit the target."""

from __future__ import annotations

import pytest

import latency_model as lm

TARGET = lm.load_model("Qwen3-30B-A3B")


def test_names_and_engine_spellings_mean_the_same_drafter() -> None:
    assert lm.Draft.parse("EAGLE3") == lm.Draft.eagle()
    assert lm.Draft.parse("nextn") == lm.Draft.parse("mtp") == lm.Draft.mtp()
    assert lm.Draft.parse("prompt-lookup") == lm.Draft.ngram()
    with pytest.raises(lm.InputError, match="did you mean 'eagle"):
        lm.Draft.parse("eagel3")


def test_an_mtp_layer_is_the_last_layer_behind_a_join() -> None:
    target = lm.load_model("DeepSeek-V3")
    network = lm.Draft.mtp().network(target)
    assert network is not None
    (layer,) = network.layers
    width = target.hidden_size
    assert layer.parameters == target.layers[-1].parameters + 2 * width * width + 2 * width
    # DeepSeek-V3 technical report: the MTP module has 11.5 B unique parameters (14 B with embedding and head).
    assert layer.parameters == pytest.approx(11.5e9, rel=0.02)


def test_poor_matches_are_named() -> None:
    assert any("no MTP layer" in note for note in lm.Draft.mtp().assumptions_for(TARGET))
    assert not any("no MTP layer" in note for note in lm.Draft.mtp().assumptions_for(lm.load_model("DeepSeek-V3")))
    heavy = lm.Draft.model(lm.load_model("Qwen3-8B")).assumptions_for(TARGET)
    assert any("expect little gain" in note for note in heavy)
    other = lm.Draft.model(lm.load_model("Meta-Llama-3.1-8B")).assumptions_for(TARGET)
    assert any("same tokenizer" in note for note in other)


def test_default_acceptance_names_its_source() -> None:
    every = (lm.Draft.eagle(), lm.Draft.eagle(version=1), lm.Draft.mtp(), lm.Draft.ngram(), lm.Draft.parallel())
    for draft in (*every, lm.Draft.self_speculation(), lm.Draft.model(TARGET)):
        (note,) = draft.default_acceptance.assumptions
        assert "arXiv" in note or "report" in note


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: lm.Draft.eagle(version=4), "version must be 1, 2 or 3"),
        (lambda: lm.Draft.eagle(layers=0), "layers must be an integer from 1"),
        (lambda: lm.Draft.self_speculation(kv_budget=-5), "kv_budget must be"),
        (lambda: lm.Draft.ngram(host_time=-1), "host_time must be"),
        (lambda: lm.Draft.ngram(hit_rate=1.1), "hit_rate must be a share"),
        (lambda: lm.Draft.ngram(hit_rate=float("nan")), "hit_rate must be a share"),
        (lambda: lm.Draft.model("Qwen3-0.6B"), "must be a ModelArchitecture"),
    ],
)
def test_wrong_drafters_are_one_sentence(build, sentence: str) -> None:
    with pytest.raises(lm.InputError, match=sentence):
        build()
