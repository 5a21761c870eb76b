"""Measuring for real: torch runs the kernels, small models run whole steps, a profile predicts them.

Timings depend on what else the machine does, so limits here only catch blunders; ``latency-model measure --check``
prints the figures, and docs/measure.md has those of an idle machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from latency_model.evidence.measure import Measurement, layers, measure
from latency_model.evidence.measure.chain import (
    DENSE,
    DRAFT_LENGTHS,
    DRAFTER,
    MIXTURE,
    Network,
)
from latency_model.specs.hardware import load_hardware
from latency_model.specs.hardware_text import write_hardware

pytestmark = pytest.mark.oracle

torch = pytest.importorskip("torch")

SECONDS = 25.0


@pytest.fixture(scope="module")
def measurement() -> Iterator[Measurement]:
    before = torch.get_num_threads()
    yield measure("cpu", seconds=SECONDS, threads=1, check=True)
    torch.set_num_threads(before)


def test_attention_is_causal_among_new_tokens_and_sees_all_cached_ones() -> None:
    torch.manual_seed(0)
    batch, heads, kv_heads, tokens, cached, dim = 2, 6, 2, 3, 5, 8
    query = torch.randn(batch, heads, tokens, dim)
    keys, values = torch.randn(2, batch, kv_heads, cached + 4, dim)
    new_keys, new_values = torch.randn(2, batch, kv_heads, tokens, dim)
    found = layers.attend(torch, query, new_keys, new_values, keys.clone(), values.clone(), cached)
    for head in range(heads):
        group = head // (heads // kv_heads)
        k = torch.cat((keys[:, group, :cached], new_keys[:, group]), dim=1)
        v = torch.cat((values[:, group, :cached], new_values[:, group]), dim=1)
        for place in range(tokens):
            seen = cached + place + 1
            scores = torch.einsum("bd,bsd->bs", query[:, head, place], k[:, :seen]) / dim**0.5
            expected = torch.einsum("bs,bsd->bd", scores.softmax(-1), v[:, :seen])
            torch.testing.assert_close(found[:, head, place], expected)


def test_looped_experts_equal_every_expert_weighted() -> None:
    torch.manual_seed(0)
    tokens, hidden, inner, experts, top_k = 7, 6, 5, 4, 2
    x, first, second = (
        torch.randn(tokens, hidden),
        torch.randn(experts, 2 * inner, hidden),
        torch.randn(experts, hidden, inner),
    )
    ids, shares = torch.rand(tokens, experts).argsort(dim=-1)[:, :top_k], torch.rand(tokens, top_k)
    weights = torch.zeros(tokens, experts).scatter_(1, ids, shares)
    every = torch.einsum("ehm,etm->eth", second, layers.gate(torch, torch.einsum("eih,th->eti", first, x)))
    found = layers.experts(torch, x, ids, shares, first, second)
    torch.testing.assert_close(found, torch.einsum("te,eth->th", weights, every))


@pytest.mark.parametrize("config", [DENSE, DRAFTER, MIXTURE])
def test_the_networks_hold_the_weights_their_architecture_counts(
    measurement: Measurement, config: dict[str, object]
) -> None:
    network = Network(machine=measurement.machine, config=config)
    held = sum(weight.numel() for layer in network._weights for weight in layer.values())
    held += network._embedding.numel() + network._head.numel()
    # Both norms of a layer are one tensor here, and the last norm is the first again.
    assert held == pytest.approx(network.architecture.total_parameters, rel=1e-3)


def test_a_machine_measures_itself(measurement: Measurement, tmp_path: Path) -> None:
    assert measurement.passes >= 3
    for fit in measurement.fits:
        assert np.median(np.abs(fit.errors)) < 0.6
        assert 0.0 < fit.efficiency.memory <= 1.5
    gemm = {case.name: time for case, time in zip(measurement.fits[0].cases, measurement.fits[0].measured, strict=True)}
    assert gemm["1 x [768, 8192]"] > gemm["1 x [768, 1280]"]
    write_hardware(measurement.profile, tmp_path / "my.toml")
    assert load_hardware(tmp_path / "my.toml") == measurement.profile


def test_whole_steps_are_predicted_from_kernels(measurement: Measurement) -> None:
    points = measurement.steps
    for model in ("dense", "mixture"):
        errors = np.array([point.error for point in points if point.model == model])
        assert np.median(np.abs(errors)) < 0.6
    measured, predicted = np.array([(point.measured, point.predicted) for point in points]).T
    assert np.corrcoef(np.log(measured), np.log(predicted))[0, 1] > 0.8


def test_forced_acceptance_gives_the_speedup_predicted(measurement: Measurement) -> None:
    points = measurement.rounds
    assert [point.draft_length for point in points] == list(DRAFT_LENGTHS)
    assert points[0].measured == points[0].predicted == 1.0
    ratios = np.array([point.predicted / point.measured for point in points])
    assert np.median(np.abs(ratios - 1.0)) < 0.6
