"""Laws of the step cost, and the published measurements it is checked against."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import latency_model as lm
from latency_model.costs import grid
from latency_model.costs.mixers import visible_pairs
from latency_model.costs.step import Component
from latency_model.specs.model import DenseMLP, Layer, Matrix, MoE, Projection

DENSE, MOE, LATENT, WINDOWED, HYBRID = (
    "Meta-Llama-3.1-8B",
    "Qwen3-30B-A3B",
    "DeepSeek-V3",
    "gpt-oss-20b",
    "Qwen3.5-35B-A3B",
)
EVERY_KIND = (DENSE, MOE, LATENT, WINDOWED, HYBRID, "gemma-4-26B-A4B", "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
batches = st.integers(1, 600)
fed = st.integers(1, 17)
contexts = st.integers(0, 200_000)


def step(model: str, hardware: str = "h100-sxm", **options: object) -> lm.StepCost:
    return lm.step_cost(model, hardware, **{"dtypes": {"allow_fallback": True}} | options)


@pytest.mark.parametrize("model", EVERY_KIND)
def test_parts_add_up(model: str) -> None:
    cost = step(model, batch=[1, 8, 64], context=[[0], [5000]], tokens_per_sequence=4)
    assert cost.time.shape == (2, 3)
    np.testing.assert_allclose(sum(row["time_s"] for row in cost.table), cost.time, rtol=1e-12)
    np.testing.assert_allclose(sum(row["share"] for row in cost.table), 1.0, rtol=1e-12)
    np.testing.assert_allclose(sum(cost.terms().values()), cost.time, rtol=1e-12)
    np.testing.assert_allclose(sum(row["flops"] for row in cost.table), cost.flops, rtol=1e-12)
    np.testing.assert_allclose(sum(row["traffic_bytes"] for row in cost.table), cost.traffic, rtol=1e-12)


@pytest.mark.parametrize("model", EVERY_KIND)
@given(batch=batches, tokens=fed, context=contexts)
def test_more_work_never_takes_less_time(model: str, batch: int, tokens: int, context: int) -> None:
    cost = step(
        model,
        batch=[batch, batch + 1, batch, batch],
        tokens_per_sequence=[tokens, tokens, tokens + 1, tokens],
        context=[context, context, context, context + 1],
    )
    assert (cost.time[1:] >= cost.time[0] * (1 - 1e-12)).all()


@given(batch=batches, tokens=fed, context=contexts)
def test_time_lies_between_each_bound_and_their_sum(batch: int, tokens: int, context: int) -> None:
    for _, component in step(MOE, batch=batch, tokens_per_sequence=tokens, context=context).operations():
        compute = component.work / component.peak_flops
        memory = component.operation.traffic / component.bandwidth
        once = component.time() / component.repeats - component.overhead
        assert once >= max(compute, memory) * (1 - 1e-12)
        assert once <= (compute + memory) * (1 + 1e-12)


@pytest.mark.parametrize("model", EVERY_KIND)
def test_arrays_equal_a_loop_over_scalars(model: str) -> None:
    rng = np.random.default_rng(1)
    batch, tokens, context = rng.integers(1, 300, 40), rng.integers(1, 9, 40), rng.integers(0, 70000, 40)
    together = step(model, batch=batch, tokens_per_sequence=tokens, context=context).time
    one_by_one = [
        float(step(model, batch=b, tokens_per_sequence=n, context=s).time)
        for b, n, s in zip(batch, tokens, context, strict=True)
    ]
    np.testing.assert_allclose(together, one_by_one, rtol=1e-12)


def test_tables_of_distinct_values_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    points = {
        "batch": rng.integers(1, 300, 5000),
        "tokens_per_sequence": rng.integers(1, 9, 5000),
        "context": rng.integers(0, 70000, 5000),
    }
    tabled = step(MOE, **points)
    assert any(part.index is not None for part in tabled.parts)
    monkeypatch.setattr(grid, "SMALL", 10**9)
    direct = step(MOE, **points)
    assert all(part.index is None for part in direct.parts)
    np.testing.assert_allclose(tabled.time, direct.time, rtol=1e-12)
    np.testing.assert_allclose(tabled.flops, direct.flops, rtol=1e-12)


def test_a_machine_twice_as_fast_halves_everything_but_overheads() -> None:
    slow = lm.load_hardware("h100-sxm")
    twice = {dtype: attrs.evolve(peak, value=2 * peak.value) for dtype, peak in slow.peaks.items()}
    fast = attrs.evolve(
        slow,
        peaks=twice,
        memory_bandwidth=attrs.evolve(slow.memory_bandwidth, value=2 * slow.memory_bandwidth.value),
        exponentials=attrs.evolve(slow.exponentials, value=2 * slow.exponentials.value),
    )
    points = {"batch": [1, 32, 512], "tokens_per_sequence": 4, "context": 3000}
    terms_slow, terms_fast = step(MOE, slow, **points).terms(), step(MOE, fast, **points).terms()
    for name in terms_slow:
        fixed = name in ("engine overhead", "kernel launches")
        np.testing.assert_allclose(terms_fast[name] * (1 if fixed else 2), terms_slow[name], rtol=1e-12)


@pytest.mark.parametrize("share", [0.05, 0.35, 1.0])
def test_an_engine_that_hides_launches_changes_nothing_else(share: float) -> None:
    vllm = lm.load_engine("vllm")
    whole, part = (
        attrs.evolve(vllm, launch_share=attrs.evolve(vllm.launch_share, value=value)) for value in (1.0, share)
    )
    points = {"batch": [1, 32], "tokens_per_sequence": 3, "context": 3000, "parallelism": lm.Parallelism(tp=2)}
    before, after = step(MOE, engine=whole, **points).terms(), step(MOE, engine=part, **points).terms()
    for name, seconds in before.items():
        kept = share if name == "kernel launches" else 1.0
        np.testing.assert_allclose(after[name], kept * seconds, rtol=1e-9)
    scaled = step(MOE, engine=whole, **points).scaled_time({("engine", "launch_share"): share})
    np.testing.assert_allclose(scaled, step(MOE, engine=part, **points).time, rtol=1e-12)


def attention(cost: lm.StepCost) -> Component:
    return next(component for _, component in cost.operations() if component.operation.name == "attention")


@pytest.mark.parametrize("prefill", [False, True])
def test_a_softmax_costs_time_and_no_flops(prefill: bool) -> None:
    """One exponential for each score: as many FLOPs as a head of 128 has, over 512 of its products, on an H100."""
    slow = lm.load_hardware("h100-sxm")
    fast = attrs.evolve(slow, exponentials=attrs.evolve(slow.exponentials, value=1e30))
    points = {"batch": 4, "tokens_per_sequence": 2000, "context": 0, "prefill": prefill}
    with_softmax, without = step(DENSE, slow, **points), step(DENSE, fast, **points)
    np.testing.assert_array_equal(with_softmax.flops, without.flops)
    ratio = attention(without).peak_flops / attention(with_softmax).peak_flops
    each = slow.peak_flops("bf16").value / slow.exponentials.value
    assert ratio == pytest.approx(1.0 + each / 512.0, rel=1e-6)
    assert with_softmax.time > without.time


def test_the_last_piece_costs_what_one_core_needs_for_it() -> None:
    h100 = lm.load_hardware("h100-sxm")
    for operation, name, piece in (
        ("gemm", "down", 2 * 128 * 128 * 14336),
        ("attention_prefill", "attention", 4 * 128 * 128 * 3000),
    ):
        block = attrs.evolve(h100.efficiency(operation, "bf16"), sharpness=1.0, tail=0.0)
        times = []
        for tail in (0.0, 0.5):
            blocks = {**h100.efficiencies, (operation, "bf16"): attrs.evolve(block, tail=tail)}
            cost = step(
                DENSE,
                attrs.evolve(h100, efficiencies=blocks),
                tokens_per_sequence=3000,
                context=0,
                prefill=True,
                engine="none",
            )
            component = next(c for _, c in cost.operations() if c.operation.name == name)
            times.append(component.time())
        extra = 32 * 0.5 * 132 * piece / component.peak_flops
        assert float(times[1] - times[0]) == pytest.approx(extra, rel=1e-9)


def test_rounding_to_fp8_reads_twice_and_writes_once() -> None:
    rows = {row["name"]: row for row in step(DENSE, dtypes="fp8", batch=8, context=100).table}
    inputs = 32 * (4096 + 4096 + 4096 + 14336)
    assert float(rows["quantise"]["traffic_bytes"]) == 8 * inputs * 5
    assert float(rows["quantise"]["flops"]) == 0.0
    for hardware in ("h100-sxm", "a100-sxm-80gb"):
        formats = {"weights": "bf16" if hardware == "h100-sxm" else "fp8", "allow_fallback": True}
        assert "quantise" not in {row["name"] for row in step(DENSE, hardware, dtypes=formats).table}


def test_flops_and_bytes_of_a_dense_step_by_hand() -> None:
    model = lm.load_model(DENSE)
    batch, tokens, cached = 3, 2, 1000
    cost = step(DENSE, batch=batch, tokens_per_sequence=tokens, context=cached)
    matrices = model.total_parameters - model.embedding.parameters - 65 * 4096  # 2 norms a layer and a last one
    pairs = sum(cached + i for i in range(1, tokens + 1))
    attention = 4 * batch * pairs * 32 * 32 * 128
    assert float(cost.flops) == 2 * batch * tokens * matrices + attention
    kv_read = batch * cached * model.kv_bytes_per_token()
    assert 2 * matrices + kv_read < float(cost.traffic) < 1.01 * (2 * matrices + kv_read)


@given(tokens=st.integers(1, 60), context=st.integers(0, 60), window=st.integers(1, 60))
def test_visible_pairs_equal_a_count(tokens: int, context: int, window: int) -> None:
    counted = sum(min(context + i, window) for i in range(1, tokens + 1))
    assert visible_pairs(np.float64(tokens), np.float64(context), window) == counted


def test_a_mixture_of_one_expert_is_a_dense_layer() -> None:
    width, middle = 1024, 4096
    projections = (
        Projection(
            name="gate_up",
            matrices=tuple(Matrix(name=n, inputs=width, outputs=middle) for n in ("gate", "up")),
        ),
        Projection(name="down", matrices=(Matrix(name="down", inputs=middle, outputs=width),)),
    )
    router = Projection(name="router", matrices=(Matrix(name="router", inputs=width, outputs=1),))
    base = lm.load_model(DENSE)
    dense = base.replace(layers=(Layer(feed_forward=(DenseMLP(projections=projections),)),))
    moe = base.replace(layers=(Layer(feed_forward=(MoE(num_experts=1, top_k=1, router=router, expert=projections),)),))
    points = {"batch": [1, 7, 300], "context": 0}
    rows = {row["name"]: row for row in step(moe, **points).table}
    dense_flops = sum(row["flops"] for row in step(dense, **points).table if row["name"] in ("gate_up", "down"))
    np.testing.assert_allclose(rows["routed experts"]["flops"], dense_flops)
    dense_bytes = sum(row["traffic_bytes"] for row in step(dense, **points).table if row["name"] in ("gate_up", "down"))
    np.testing.assert_allclose(rows["routed experts"]["traffic_bytes"], dense_bytes, rtol=1e-12)


def test_tensor_parallelism_divides_matrices_and_replicates_kv_heads() -> None:
    model = "Meta-Llama-3.1-70B"
    whole = {row["name"]: row for row in step(model, batch=8, context=4096).table}
    split = {row["name"]: row for row in step(model, batch=8, context=4096, parallelism=lm.Parallelism(tp=16)).table}
    assert split["gate_up"]["flops"] == whole["gate_up"]["flops"] / 16
    assert split["attention"]["flops"] == whole["attention"]["flops"] / 16
    kv = whole["attention"]["traffic_bytes"] / split["attention"]["traffic_bytes"]
    assert kv == pytest.approx(8, rel=0.01)  # 8 KV heads on 16 ranks: one each, twice
    assert "all-reduce" not in whole
    assert split["all-reduce"]["executions"] == 160


def test_expert_parallelism_waits_for_the_busiest_rank() -> None:
    one = {row["name"]: row for row in step(MOE, batch=64, context=0).table}
    ranks = lm.Parallelism(dp=8, ep=8)
    spread = {row["name"]: row for row in step(MOE, batch=64, context=0, parallelism=ranks).table}
    # 64 visits a rank on average: the busiest of 8 ranks has 1 + sqrt(2 ln 8 / 64) times as many.
    busiest = 1 + np.sqrt(2 * np.log(8) / 64)
    assert spread["routed experts"]["flops"] == pytest.approx(one["routed experts"]["flops"] / 8 * busiest)
    many = {row["name"]: row for row in step(MOE, batch=80_000, context=0, parallelism=ranks).table}
    all_in_one = {row["name"]: row for row in step(MOE, batch=80_000, context=0).table}
    assert many["routed experts"]["flops"] == pytest.approx(all_in_one["routed experts"]["flops"] / 8, rel=0.01)
    assert spread["dispatch and combine"]["executions"] == 2 * 48
    assert spread["qkv"]["flops"] == one["qkv"]["flops"] / 8
    inside = {row["name"] for row in step(MOE, batch=64, parallelism=lm.Parallelism(tp=4, ep=4)).table}
    assert "all-reduce" in inside
    assert "dispatch and combine" not in inside


def test_pipeline_stages_add_hops_only() -> None:
    one = {row["name"]: row for row in step(DENSE, batch=4).table}
    staged = {row["name"]: row for row in step(DENSE, batch=4, parallelism=lm.Parallelism(pp=4)).table}
    assert set(staged) - set(one) == {"pipeline hop"}
    assert staged["pipeline hop"]["executions"] == 3


def test_windows_and_recurrent_layers_stop_growing_with_context() -> None:
    windowed = {row["name"]: row["time_s"] for row in step(WINDOWED, batch=32, context=[128, 4096, 100_000]).table}
    assert windowed["windowed attention"][0] == windowed["windowed attention"][2]
    assert windowed["attention"][2] > windowed["attention"][1]
    hybrid = {row["name"]: row["time_s"] for row in step(HYBRID, batch=32, context=[0, 100_000]).table}
    assert hybrid["recurrent state"][0] == hybrid["recurrent state"][1]


def test_recurrent_state_is_written_for_every_verified_token() -> None:
    rows = {row["name"]: row["traffic_bytes"] for row in step(HYBRID, batch=5, tokens_per_sequence=[1, 4]).table}
    state = lm.load_model(HYBRID).linear_state_bytes
    np.testing.assert_allclose(rows["recurrent state"], 5 * state * np.array([2, 5]))


def test_kv_cache_is_read_once_or_for_every_token() -> None:
    def kv_bytes(kv_reread: float) -> float:
        cost = step(DENSE, batch=4, context=32768, tokens_per_sequence=8, kv_reread=kv_reread)
        return next(float(row["traffic_bytes"]) for row in cost.table if row["name"] == "attention")

    assert kv_bytes(1.0) / kv_bytes(0.0) == pytest.approx(8, rel=0.01)


@pytest.mark.parametrize("model", [DENSE, "Qwen3-32B", "Qwen3-8B"])
def test_verifying_eight_tokens_at_32k_costs_little_more_than_one_on_grouped_queries(model: str) -> None:
    # MagicDec arXiv 2408.11049: verification time equals decode time when the cache dominates (read once).
    plain, verify = (step(model, batch=4, context=32768, tokens_per_sequence=n).time for n in (1, 8))
    assert verify < 1.2 * plain


def test_latent_attention_is_compute_bound_when_verifying_at_32k() -> None:
    ranks = lm.Parallelism(tp=8)
    rows = step(LATENT, "h200-sxm", batch=4, context=32768, tokens_per_sequence=8, parallelism=ranks).table
    attention = next(row for row in rows if row["name"] == "latent attention")
    assert str(attention["bound"]) == "compute"
    dense = next(
        row for row in step(DENSE, batch=4, context=32768, tokens_per_sequence=8).table if row["name"] == "attention"
    )
    assert str(dense["bound"]) == "memory"


def test_dense_8b_on_h100_against_a_published_cost_model() -> None:
    # SpecDecode-Bench simulator, predictor.py (arXiv 2601.11580): Llama-3.1-8B-Instruct, one H100, vLLM;
    # T = 3.92645679e-08 s per cached token + 2.10103129e-05 s per fed token + 5.88590713e-03 s.
    def forward(batch: int, tokens: int, context: int) -> float:
        return float(step(DENSE, batch=batch, tokens_per_sequence=tokens, context=context, engine="none").time)

    per_cached = (forward(64, 1, 4096) - forward(64, 1, 1024)) / (64 * 3072)
    per_fed = (forward(512, 8, 0) - forward(512, 2, 0)) / (512 * 6)
    fixed = forward(1, 1, 0)
    assert per_cached == pytest.approx(3.92645679e-08, rel=0.15)
    assert per_fed == pytest.approx(2.10103129e-05, rel=0.15)
    assert fixed == pytest.approx(5.88590713e-03, rel=0.15)


def test_moe_layer_time_against_distinct_experts_as_measured() -> None:
    # Opportunistic Expert Activation, arXiv 2511.02237, Tables 3-4: Qwen3-30B-A3B, SGLang, H100, batch ≤ 16;
    # a least-squares line through the 24 points is 33.33 µs + 2.923 µs per distinct expert.
    from latency_model.formulas import distinct_experts

    batch = np.arange(1, 17)
    routing = lm.Routing.uniform()
    cost = step(MOE, batch=batch, context=1024, routing=routing, engine="none")  # timed alone: whole launches
    layer = sum(row["time_s"] for row in cost.table if row["name"] in ("routed experts", "router")) / 48
    experts = distinct_experts(128, 8, 1, batch)
    slope, level = np.polyfit(experts, layer * 1e6, 1)
    assert slope == pytest.approx(2.923, rel=0.10)
    assert level == pytest.approx(33.33, rel=0.10)
    for touched, measured in ((22.2, 97.9), (43.0, 158.0), (53.5, 189.9)):  # AIME24 k0=3 and vanilla, MATH500
        assert np.interp(touched, experts, layer * 1e6) == pytest.approx(measured, rel=0.10)


def test_prefill_samples_one_row_and_uses_prefill_kernels() -> None:
    rows = {row["name"]: row for row in step(DENSE, batch=2, tokens_per_sequence=2048, context=0, prefill=True).table}
    assert rows["lm_head"]["flops"] == 2 * 2 * 4096 * 128256
    assert str(rows["attention"]["bound"]) == "compute"
    assert str(rows["gate_up"]["bound"]) == "compute"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"batch": 0}, "batch must be at least 1"),
        ({"context": -1}, "context must be at least 0"),
        ({"context": float("nan")}, "context must be"),
        ({"tokens_per_sequence": 0.5}, "tokens_per_sequence must be at least 1"),
        ({"batch": "many"}, "batch must be"),
        ({"batch": []}, "empty"),
        ({"kv_reread": 2}, "kv_reread must be from 0"),
        ({"parallelism": lm.Parallelism(tp=3)}, "must divide the 32 attention heads"),
        ({"dtypes": {"weights": "fp3"}}, "fp3"),
        ({"dtypes": {"weight": "fp8"}}, "is not a field"),
        ({"engine": "vlm"}, "vllm"),
        ({"routing": 3}, "routing must be a Routing"),
    ],
)
def test_wrong_input_is_one_sentence(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(lm.InputError, match=sentence) as caught:
        step(DENSE, **options)
    assert "\n" not in str(caught.value)


def test_ranks_that_do_not_fit_are_named_together() -> None:
    with pytest.raises(lm.InputError, match="must not exceed the 128 routed experts"):
        step(MOE, parallelism=lm.Parallelism(dp=256, ep=256))
    with pytest.raises(lm.InputError, match="must divide the 4 ranks"):
        lm.Parallelism(tp=4, ep=3)


def test_a_format_the_device_lacks_is_refused_unless_allowed() -> None:
    with pytest.raises(lm.InputError, match=r"no fp8 peak.*bf16 rate"):
        lm.step_cost(DENSE, "a100-sxm-80gb", dtypes="fp8")
    allowed = lm.step_cost(DENSE, "a100-sxm-80gb", dtypes={"weights": "fp8", "allow_fallback": True})
    assert allowed.time < lm.step_cost(DENSE, "a100-sxm-80gb").time


@pytest.mark.parametrize(("weights", "kernels"), [("int4", "moe_int4"), ("mxfp4", "moe_mxfp4"), ("bf16", "moe")])
def test_experts_stored_in_four_bits_run_kernels_of_their_own(weights: str, kernels: str) -> None:
    """They multiply as much and load less, and a machine without such a block uses that of the other experts."""
    cost, whole = step(MOE, dtypes={"weights": weights}), step(MOE)
    (routed,) = (each for _, each in cost.operations() if each.operation.name == "routed experts")
    assert routed.operation.kind == kernels
    assert routed.operation.dtype == "bf16"
    np.testing.assert_allclose(cost.flops, whole.flops, rtol=1e-12)
    assert cost.traffic <= whole.traffic
    plain = lm.load_hardware("rtx-4090")
    stand_in = plain.efficiency(kernels, "bf16")
    assert stand_in.memory == plain.efficiency("moe", "bf16").memory
    assert (stand_in.kind == "measured") <= (kernels == "moe")
