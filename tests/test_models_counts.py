"""Parameters, cache and state of bundled models against numbers published or counted elsewhere."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest

from latency_model.specs.loader import load_bundled, load_model, model_names
from latency_model.specs.model import Attention, LatentAttention, MoE, RecurrentMixer

# Counted by transformers 5.24 on torch's meta device from each published config: norms, biases and tied
# embeddings once, MTP layers not built.  Total, routed experts, token embedding.
TRANSFORMERS_COUNTS = {
    "DeepSeek-V3": (671_026_404_352, 653_908_770_816, 926_679_040),
    "DeepSeek-V3.2": (671_877_929_216, 653_908_770_816, 926_679_040),
    "Kimi-K2-Instruct": (1_026_408_209_408, 1_014_686_023_680, 1_174_405_120),
    "Llama-4-Scout-17B-16E-Instruct": (107_769_861_120, 96_636_764_160, 1_034_485_760),
    "Meta-Llama-3.1-70B": (70_553_706_496, 0, 1_050_673_152),
    "Meta-Llama-3.1-8B": (8_030_261_248, 0, 525_336_576),
    "MiniMax-M2.5": (228_689_748_992, 224_680_476_672, 614_596_608),
    "Mixtral-8x7B-v0.1": (46_702_792_704, 45_097_156_608, 131_072_000),
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": (31_577_937_344, 29_374_808_064, 352_321_536),
    "Qwen3-0.6B": (596_049_920, 0, 155_582_464),
    "Qwen3-235B-A22B": (235_093_634_560, 227_096_395_776, 622_329_856),
    "Qwen3-235B-A22B-FP8": (235_093_634_560, 227_096_395_776, 622_329_856),
    "Qwen3-235B-A22B-NVFP4": (235_093_634_560, 227_096_395_776, 622_329_856),
    "Qwen3-30B-A3B": (30_532_122_624, 28_991_029_248, 311_164_928),
    "Qwen3-32B": (32_762_123_264, 0, 777_912_320),
    "Qwen3-8B": (8_190_735_360, 0, 622_329_856),
    "Qwen3.5-35B-A3B": (34_660_610_688, 32_212_254_720, 508_559_360),
    "gemma-4-26B-A4B": (25_233_141_760, 22_837_985_280, 738_197_504),
    "gpt-oss-120b": (116_829_156_672, 114_701_598_720, 579_133_440),
    "gpt-oss-20b": (20_914_757_184, 19_116_933_120, 579_133_440),
}

# Total and active parameters in billions as the authors state them on the model card, and how they round.
MODEL_CARDS = [
    ("DeepSeek-V2-Lite", 15.7, 2.4, 0.4),  # "15.7B total, 2.4B activated" (embedding not counted as active)
    ("DeepSeek-V3", 671, 37, 1),
    ("GLM-4.5-Air", 106, 12, 1.5),
    ("Kimi-K2-Instruct", 1026, 32, 1),  # "1T total, 32B activated"
    ("Llama-4-Maverick-17B-128E-Instruct", 400, 17, 1),
    ("Mixtral-8x7B-v0.1", 46.7, 12.9, 0.1),
    ("OLMoE-1B-7B-0924", 6.92, 1.3, 0.1),
    ("Phi-3.5-MoE-instruct", 41.9, 6.6, 0.1),
    ("Qwen2-57B-A14B", 57.4, 14, 0.3),
    ("Qwen3-Coder-480B-A35B-Instruct", 480, 35, 1),
    ("gpt-oss-120b", 117, 5.1, 0.7),  # "117B, 5.1B active" (embedding not counted as active)
]

# metadata.total_size of each checkpoint's model.safetensors.index.json [B]: mxfp4 blocks and scales, biases and all.
CHECKPOINT_BYTES = {
    "Meta-Llama-3.1-8B": 16_060_522_496,
    "gpt-oss-20b": 13_761_264_768,
    "gpt-oss-120b": 65_248_815_744,
}


@pytest.mark.parametrize("name", TRANSFORMERS_COUNTS)
def test_counts_to_the_unit(name: str) -> None:
    model = load_model(name)
    counts = (model.total_parameters, model.routed_expert_parameters, model.embedding.parameters)
    assert counts == TRANSFORMERS_COUNTS[name]


@pytest.mark.parametrize(("name", "total", "active", "rounding"), MODEL_CARDS)
def test_counts_round_to_the_model_card(name: str, total: float, active: float, rounding: float) -> None:
    model = load_model(name)
    assert model.total_parameters / 1e9 == pytest.approx(total, abs=max(rounding, 0.006 * total))
    assert model.active_parameters / 1e9 == pytest.approx(active, abs=rounding + 0.05)


@pytest.mark.parametrize("name", CHECKPOINT_BYTES)
def test_weight_bytes_equal_the_checkpoint(name: str) -> None:
    assert load_model(name).weight_bytes == CHECKPOINT_BYTES[name]


def test_cache_of_grouped_query_attention() -> None:
    # 2 (K and V) x 32 layers x 8 heads x 128 x 2 bytes
    assert load_model("Meta-Llama-3.1-8B").kv_bytes_per_token("bf16") == 2 * 32 * 8 * 128 * 2


def test_cache_of_latent_attention_is_the_latent_and_one_rotary_key() -> None:
    model = load_model("DeepSeek-V3")  # 61 layers x (512 + 64) x 2 bytes: 70 kB, DeepSeek-V3 report, table 1
    assert model.kv_bytes_per_token("bf16") == 61 * 576 * 2
    assert model.kv_bytes_per_token("fp8") == 61 * 576


def test_windowed_layers_stop_growing() -> None:
    model = load_model("gpt-oss-20b")  # 12 of 24 layers see 128 tokens
    per_layer = 2 * 8 * 64 * 2
    short, long = model.kv_bytes(np.array([100.0, 10_000.0]))
    assert short == 100 * 24 * per_layer
    assert long == (10_000 * 12 + 128 * 12) * per_layer


def test_state_of_linear_layers_does_not_grow() -> None:
    model = load_model("Qwen3.5-35B-A3B")  # 30 of 40 layers: 32 heads x 128 x 128 fp32, 3 x 8192 conv inputs
    assert model.linear_state_bytes == 30 * (32 * 128 * 128 * 4 + 3 * 8192 * 2)
    assert model.kv_bytes_per_token("bf16") == 10 * 2 * 2 * 256 * 2


def test_hybrid_cache_counts_attention_layers_only() -> None:
    model = load_model("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")  # 6 attention layers of 52, 2 KV heads of 128
    assert model.kv_bytes_per_token("bf16") == 6 * 2 * 2 * 128 * 2
    kinds = [type(layer.mixer or layer.feed_forward[0]) for layer in model.layers]
    assert (kinds.count(RecurrentMixer), kinds.count(Attention), kinds.count(MoE)) == (23, 6, 23)


@pytest.mark.parametrize("name", model_names())
def test_every_bundled_model_is_consistent(name: str) -> None:
    model = load_model(name)
    assert 0 < model.active_parameters <= model.total_parameters
    assert (model.active_parameters == model.total_parameters) == (not model.is_moe)
    assert model.source.startswith("https://huggingface.co/")
    assert model.weight_bytes > 0.4 * model.total_parameters
    for layer in model.layers:
        if isinstance(layer.mixer, Attention):
            assert layer.mixer.heads % layer.mixer.kv_heads == 0
        if isinstance(layer.mixer, LatentAttention):
            assert layer.mixer.cache_elements_per_token == 576  # every published MLA model so far
        for block in layer.feed_forward:
            if isinstance(block, MoE):
                assert 1 <= block.top_k <= block.num_experts


def test_at_least_twenty_models_ship() -> None:
    assert len(model_names()) >= 20


def test_loading_is_quick_and_light() -> None:
    code = (
        "import sys; from latency_model.specs.loader import load_model; load_model('Qwen3-235B-A22B-FP8');"
        "print(sorted({'scipy', 'sympy', 'xarray', 'plotly', 'pandas', 'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    load_bundled.cache_clear()
    times = []
    for _ in range(5):
        start = time.perf_counter()
        load_bundled("Qwen3-235B-A22B-FP8")
        times.append(time.perf_counter() - start)
        load_bundled.cache_clear()
    assert min(times) < 0.03
