"""The fit of roofline constants: it finds constants that made the data, and its intervals hold what they promise."""

from __future__ import annotations

import math

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import latency_model as lm
from latency_model.errors import InputError
from latency_model.evidence.fit import Bounds, Constants, Errors, Work, fit_constants, fit_rows, kept_aside, work_of
from latency_model.evidence.refit import efficiency_of, rounding_of, with_blocks
from latency_model.evidence.silicon import Rows, power_law_load, tables
from latency_model.evidence.silicon.attention import _counts as attention_counts
from latency_model.evidence.silicon.gemm import matrix_bytes
from latency_model.evidence.silicon.moe import _counts as moe_counts
from latency_model.evidence.silicon.moe import drawn_loads
from latency_model.evidence.silicon.tables import Table, read_table
from latency_model.specs.hardware_text import efficiency_text

TRUE = Constants(compute=0.7, memory=0.85, overhead=5e-6, sharpness=2.2)


def synthetic(constants: Constants = TRUE, noise: float = 0.0, count: int = 3000, seed: int = 1) -> Work:
    rng = np.random.default_rng(seed)
    work = Work(
        compute=10 ** rng.uniform(-7, -3, count), memory=10 ** rng.uniform(-7, -3, count), seconds=np.ones(count)
    )
    return attrs.evolve(work, seconds=work.predict(constants) * np.exp(noise * rng.standard_normal(count)))


@given(compute=st.floats(0.1, 0.95), memory=st.floats(0.1, 0.95), overhead=st.floats(2e-6, 5e-5), p=st.floats(1.1, 4.0))
def test_a_fit_finds_the_constants_that_made_the_data(compute, memory, overhead, p):
    true = Constants(compute=compute, memory=memory, overhead=overhead, sharpness=p)
    found = fit_constants(synthetic(true, count=500), Bounds())
    for name in ("compute", "memory", "overhead", "sharpness"):
        assert getattr(found, name) == pytest.approx(getattr(true, name), rel=0.02)


def test_a_message_fit_finds_latency_bandwidth_and_sharpness():
    sizes = np.geomspace(1e-8, 1e-3, 40)
    true = Constants(compute=1.0, memory=0.7, overhead=5e-6, sharpness=0.6)
    work = Work(compute=np.zeros(40), memory=sizes, seconds=np.ones(40), message=True)
    work = attrs.evolve(work, seconds=work.predict(true))
    found = fit_constants(work, Bounds(sharpness=(0.3, 3.0)))
    assert (found.memory, found.overhead, found.sharpness) == pytest.approx((0.7, 5e-6, 0.6), rel=0.02)


@given(tail=st.floats(0.05, 5.0), quantise=st.floats(0.1, 1.5))
def test_a_fit_finds_last_pieces_and_the_pass_that_rounds(tail, quantise):
    true = attrs.evolve(TRUE, tail=tail, quantise=quantise)
    rng = np.random.default_rng(1)
    work = attrs.evolve(
        synthetic(count=800), piece=10 ** rng.uniform(-7, -4, 800), rounded=10 ** rng.uniform(-7, -4, 800)
    )
    found = fit_constants(attrs.evolve(work, seconds=work.predict(true)), Bounds())
    for name in ("compute", "memory", "overhead", "sharpness", "tail", "quantise"):
        assert getattr(found, name) == pytest.approx(getattr(true, name), rel=0.03)


def test_rows_without_a_last_piece_do_not_tell_one():
    found = fit_constants(synthetic(), Bounds())
    assert (found.tail, found.quantise) == (0.0, 1.0)


def test_outliers_hardly_move_a_fit():
    work = synthetic(noise=0.03)
    spoiled = work.seconds.copy()
    spoiled[::25] *= 4.0  # 4 % of the rows are four times too slow
    found = fit_constants(attrs.evolve(work, seconds=spoiled), Bounds())
    assert found.compute == pytest.approx(TRUE.compute, rel=0.05)
    assert found.memory == pytest.approx(TRUE.memory, rel=0.05)


def rows_of(work: Work) -> Rows:
    """Rows of an H100 that took these times."""
    h100 = lm.load_hardware("h100-sxm")
    return Rows(
        device="h100-sxm",
        engine="vllm",
        version="0",
        operation="gemm",
        dtype="bf16",
        table_format="bfloat16",
        kernel="made up",
        flops=work.compute * h100.peak_flops("bf16").value,
        traffic=work.memory * h100.memory_bandwidth.value,
        seconds=work.seconds,
    )


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.3])
def test_uncertainties_are_the_noise_and_intervals_hold_four_fifths(noise):
    fit = fit_rows(rows_of(synthetic(noise=noise, count=8000)), Bounds())
    assert fit.errors.rows in (1599, 1600)
    assert fit.coverage == pytest.approx(0.8, abs=0.04)
    for sigma in fit.uncertainty:
        assert 0.9 * noise < sigma < 1.7 * noise  # parts are independent, so a mixture of them needs wider parts
    # Of a log-normal error the median is .674 sigma and the p90 1.645 sigma.
    assert fit.errors.median == pytest.approx(0.674 * noise, rel=0.15)


def test_shares_are_the_derivatives_of_the_logarithm_of_time():
    work, step = synthetic(count=50), 1e-6
    for index, name in enumerate(("compute", "memory", "overhead")):
        exponent = 1 if name == "overhead" else -1
        slower = attrs.evolve(TRUE, **{name: getattr(TRUE, name) * (1 + step) ** exponent})
        slope = np.log(work.predict(slower) / work.predict(TRUE)) / step
        np.testing.assert_allclose(work.shares(TRUE)[index], slope, atol=1e-5)
    np.testing.assert_allclose(work.shares(TRUE).sum(axis=0), 1.0)


@given(count=st.integers(50, 5000))
def test_a_fifth_of_the_rows_is_kept_aside_evenly(count):
    aside = kept_aside(count)
    assert abs(aside.mean() - 0.2) < 2 / count + 1e-9
    assert np.diff(np.flatnonzero(aside)).max() <= 8


def test_a_block_states_what_it_was_fitted_on(monkeypatch):
    monkeypatch.setattr("latency_model.evidence.refit.package_version", lambda: "0.12.0")
    fit = fit_rows(rows_of(synthetic(noise=0.05)), Bounds())
    block = efficiency_of(fit)
    assert (block.compute, block.kind) == (fit.constants.compute, "measured")
    assert (block.fit.rows, block.fit.held_out) == (2400, 600)
    assert "vLLM 0 tables of aiconfigurator-core 0.12.0" in block.source


def test_blocks_replace_the_marked_part_and_nothing_else(monkeypatch, tmp_path):
    monkeypatch.setattr("latency_model.evidence.refit.package_version", lambda: "0.12.0")
    block = efficiency_of(fit_rows(rows_of(synthetic(noise=0.05)), Bounds()))
    bare = 'title = "x"\ncompute.bf16 = "1 TFLOP/s"\nmemory.bandwidth = "1 TB/s"\nmemory.capacity = "1 GB"\n'
    text = bare + "\n[sources]\n"
    once = with_blocks(text, [efficiency_text("efficiency.gemm.bf16", block)])
    assert once.startswith(bare)
    assert with_blocks(once, [efficiency_text("efficiency.gemm.bf16", block)]) == once
    other = attrs.evolve(block, compute=0.5)
    twice = with_blocks(once, [efficiency_text("efficiency.gemm.bf16", other)])
    assert twice.count("[efficiency.gemm.bf16]") == 1
    path = tmp_path / "x.toml"
    path.write_text(twice)
    assert lm.load_hardware(path).efficiency("gemm", "bf16") == other


# --- counts are those of the step model ----------------------------------------------------------------------


def table(**columns: list[float] | list[str]) -> Table:
    arrays = {
        name: np.asarray(values, dtype=None if isinstance(values[0], str) else float)
        for name, values in columns.items()
    }
    return Table(device="h100_sxm", engine="vllm", version="0", columns=arrays)


@pytest.mark.parametrize("prefill", [False, True])
def test_attention_is_counted_as_a_step_counts_it(prefill):
    model = lm.load_model("Meta-Llama-3.1-8B")  # 32 heads of 128, 8 of them for the cache
    batch, tokens, cached = (3, 700, 0) if prefill else (3, 1, 5000)
    cost = lm.step_cost(
        model,
        "h100-sxm",
        batch=batch,
        tokens_per_sequence=tokens,
        context=cached,
        prefill=prefill,
        dtypes={"kv": "bf16"},
    )
    row = next(row for row in cost.table if row["name"] == "attention")
    flops, traffic = attention_counts(
        table(
            batch_size=[batch],
            isl=[tokens],
            num_heads=[32],
            num_key_value_heads=[8],
            head_dim=[128],
            step=[cached],
            window_size=[0],
        ),
        2.0,
    )
    assert 32 * flops[0] == pytest.approx(float(row["flops"]))
    assert 32 * traffic[0] == pytest.approx(float(row["traffic_bytes"]))


def test_a_matrix_is_counted_as_a_step_counts_it():
    model = lm.load_model("Meta-Llama-3.1-8B")
    row = next(row for row in lm.step_cost(model, "h100-sxm", batch=7, context=0).table if row["name"] == "down")
    n, k = 4096.0, 14336.0
    assert 32 * 2 * 7 * n * k == pytest.approx(float(row["flops"]))
    traffic = matrix_bytes("bf16", np.array([k]), np.array([n]))[0] + 7 * (n + k) * 2
    assert 32 * traffic == pytest.approx(float(row["traffic_bytes"]))


def test_what_a_fit_adds_to_a_product_a_step_adds_too(monkeypatch):
    """Last pieces and rounding: a fit of fp8 rows predicts those rows as the step model prices their product."""
    monkeypatch.setattr("latency_model.evidence.refit.package_version", lambda: "0.12.0")
    rng = np.random.default_rng(2)
    n, k = 4096.0, 14336.0
    m = np.geomspace(1, 8192, 300).round()
    h100 = lm.load_hardware("h100-sxm")
    true = attrs.evolve(TRUE, tail=0.3, quantise=0.5)
    rows = attrs.evolve(
        rows_of(synthetic(count=300)),
        dtype="fp8",
        flops=2.0 * m * n * k,
        traffic=matrix_bytes("fp8", np.array([k]), np.array([n]))[0] + m * (k + 2.0 * n),
        piece=np.full(300, 2.0 * 128**2 * k),
        rounded=m * k * 5.0,
    )
    made = work_of(rows).predict(true)
    fit = fit_rows(attrs.evolve(rows, seconds=made * np.exp(0.001 * rng.standard_normal(300))), Bounds())
    blocks = {("gemm", "fp8"): efficiency_of(fit), ("quantise", "fp8"): rounding_of(fit)}
    mine = attrs.evolve(h100, efficiencies={**h100.efficiencies, **blocks})
    cost = lm.step_cost("Meta-Llama-3.1-8B", mine, batch=m, context=0, dtypes="fp8", engine="none")
    components = [component for _, component in cost.operations()]
    place = next(i for i, component in enumerate(components) if component.operation.name == "down")
    product, rounding = components[place : place + 2]
    assert rounding.operation.name == "quantise"
    np.testing.assert_allclose((product.time() + rounding.time()) / 32, made, rtol=0.01)


def test_experts_are_counted_as_a_step_counts_them():
    model = lm.load_model("Qwen3-30B-A3B")  # 48 layers, 128 experts of 2048 x 768, 8 a token
    row = next(
        row for row in lm.step_cost(model, "h100-sxm", batch=1, context=0).table if row["name"] == "routed experts"
    )
    flops, traffic = moe_counts(
        table(
            num_tokens=[1],
            hidden_size=[2048],
            inter_size=[768],
            topk=[8],
            num_experts=[128],
            moe_tp_size=[1],
            moe_ep_size=[1],
            distribution=["balanced"],
        ),
        "bf16",
        drawn_loads,
    )
    assert 48 * flops[0] == pytest.approx(float(row["flops"]))
    assert 48 * traffic[0] == pytest.approx(float(row["traffic_bytes"]))


@given(
    tokens=st.integers(1, 600),
    experts=st.sampled_from([8, 32, 128]),
    top_k=st.sampled_from([1, 2, 8]),
    ranks=st.sampled_from([1, 2, 8]),
    exponent=st.sampled_from([1.01, 1.2]),
)
def test_a_power_law_draw_keeps_every_visit_and_touches_no_more_than_there_is(tokens, experts, top_k, ranks, exponent):
    touched, visits = power_law_load(tokens, experts, top_k, ranks, exponent)
    assert tokens * top_k / ranks - 1e-9 <= visits <= tokens * top_k
    assert math.ceil(top_k / ranks) - 1e-9 <= touched <= min(experts / ranks, visits)
    if ranks == 1:
        assert visits == tokens * top_k


def test_without_the_package_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setattr(tables, "find_spec", lambda name: None)
    tables.systems_directory.cache_clear()
    with pytest.raises(InputError, match=r"pip install 'latency-model\[silicon\]'"):
        read_table("h100_sxm", "vllm", "gemm", "gemm_perf", ("m",))


def test_errors_are_relative_to_what_was_measured():
    work = Work(compute=np.array([1.0, 1.0]), memory=np.zeros(2), seconds=np.array([1.0, 2.0]))
    errors = Errors.of(work, Constants(compute=0.5, memory=1.0, overhead=0.0, sharpness=2.0))
    assert (errors.rows, errors.median) == (2, pytest.approx(0.5))


def test_counts_are_divided_by_the_rates_of_the_datasheet():
    work = synthetic(count=10)
    back = work_of(rows_of(work))
    np.testing.assert_allclose(back.compute, work.compute)
    np.testing.assert_allclose(back.memory, work.memory)
