"""How checkpoints store their matrices: every tool's config, and patterns of strangers evaluated as data."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latency_model.errors import InputError
from latency_model.specs.huggingface.patterns import compile_subset, read_patterns
from latency_model.specs.loader import BUNDLED, load_model
from latency_model.specs.model import ModelArchitecture


def raw(name: str) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((BUNDLED / f"{name}.json").read_text())
    return values


def quantized(block: dict[str, Any], name: str = "Qwen3-30B-A3B") -> ModelArchitecture:
    return load_model({**raw(name), "quantization_config": block})


def formats(model: ModelArchitecture, index: int = 0) -> dict[str, str]:
    """Format name of every matrix of a layer, by the last part of its path."""
    layer = model.layers[index]
    found = {m.name.split(".")[-1]: m.format.name for p, _ in layer.projections() for m in p.matrices}
    return {**found, "lm_head": model.head.format.name, "embed_tokens": model.embedding.format.name}


def compressed(weights: dict[str, Any], **others: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": others.pop("inputs", None)}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, **others}


def test_deepseek_fp8_blocks_with_fp32_scales() -> None:
    model = load_model("DeepSeek-V3")
    found = formats(model, 5)
    assert found["kv_b_proj"] == found["gate_proj"] == found["o_proj"] == "fp8_block"
    assert found["gate"] == found["lm_head"] == found["embed_tokens"] == "bf16"
    down = model.layers[0].feed_forward[0].projections[1].matrices[0]  # type: ignore[union-attr]
    assert down.bytes == 18_432 * 7168 + 4 * 144 * 56


def test_indexer_weights_stay_16_bit() -> None:
    found = formats(load_model("DeepSeek-V3.2"))
    assert (found["wq_b"], found["wk"], found["weights_proj"]) == ("fp8_block", "fp8_block", "bf16")


def test_only_the_experts_of_gpt_oss_are_mxfp4() -> None:
    found = formats(load_model("gpt-oss-20b"))
    assert found["gate_up_proj"] == found["down_proj"] == "mxfp4"
    assert {found[name] for name in ("q_proj", "o_proj", "router", "lm_head")} == {"bf16"}


def test_modelopt_file_beside_the_config() -> None:
    model = load_model("Qwen3-235B-A22B-NVFP4")
    found = formats(model, 93)
    assert {found[name] for name in ("q_proj", "o_proj", "gate_proj", "down_proj")} == {"nvfp4"}
    assert found["gate"] == found["lm_head"] == "bf16"
    assert model.kv_dtype == "fp8"


def test_wildcards_of_modelopt() -> None:
    block = {"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ["model.layers.1*", "*self_attn*"]}
    model = quantized(block)
    assert formats(model, 0)["gate_proj"] == "fp8"
    assert formats(model, 0)["q_proj"] == "bf16"
    assert formats(model, 1)["gate_proj"] == formats(model, 10)["gate_proj"] == "bf16"
    assert formats(model, 2)["gate_proj"] == "fp8"


def test_modelopt_mixed_precision() -> None:
    layers = {f"model.layers.{index}.mlp.experts": {"quant_algo": "NVFP4"} for index in range(48)}
    layers |= {f"model.layers.{index}.self_attn": {"quant_algo": "FP8"} for index in range(48)}
    block = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    found = formats(quantized(block), 7)
    assert (found["gate_proj"], found["q_proj"], found["lm_head"]) == ("nvfp4", "fp8", "bf16")


def test_awq_and_gptq_group_sizes_and_zero_points() -> None:
    awq = quantized({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, "Qwen3-8B")
    gptq = quantized({"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": False}, "Qwen3-8B")
    matrix = awq.layers[0].mixer.projections[1].matrices[0]  # type: ignore[union-attr]
    assert matrix.bytes == 4096 * 4096 / 2 + 32 * 4096 * 2.5
    matrix = gptq.layers[0].mixer.projections[1].matrices[0]  # type: ignore[union-attr]
    assert matrix.bytes == 4096 * 4096 / 2 + 64 * 4096 * 2.5
    assert formats(awq)["lm_head"] == "bf16"


def test_gptq_may_name_the_modules_it_quantises() -> None:
    listed = [["self_attn.k_proj", "self_attn.v_proj", "self_attn.q_proj"], ["self_attn.o_proj"]]
    block = {"quant_method": "gptq", "bits": 4, "group_size": 128, "modules_in_block_to_quantize": listed}
    found = formats(quantized(block, "Qwen3-8B"))
    assert (found["q_proj"], found["gate_proj"]) == ("int4", "bf16")


def test_bitsandbytes() -> None:
    block = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    single, double = (quantized({**block, "bnb_4bit_use_double_quant": flag}, "Qwen3-8B") for flag in (False, True))
    assert formats(single)["q_proj"] == "nf4"
    assert double.weight_bytes < single.weight_bytes < load_model("Qwen3-8B").weight_bytes
    assert formats(quantized({"quant_method": "bitsandbytes", "load_in_8bit": True}))["q_proj"] == "int8"


@pytest.mark.parametrize(
    ("weights", "inputs", "name", "compute"),
    [
        (
            {"num_bits": 8, "type": "float", "strategy": "channel"},
            {"num_bits": 8, "type": "float"},
            "fp8_channel",
            "fp8",
        ),
        ({"num_bits": 8, "type": "float", "strategy": "tensor"}, {"num_bits": 8, "type": "float"}, "fp8", "fp8"),
        ({"num_bits": 8, "type": "float", "strategy": "channel"}, None, "fp8_channel", "bf16"),
        ({"num_bits": 8, "type": "int", "strategy": "channel"}, {"num_bits": 8, "type": "int"}, "int8", "int8"),
        ({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}, None, "int4", "bf16"),
        (
            {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16},
            {"num_bits": 4, "type": "float"},
            "nvfp4",
            "fp4",
        ),
    ],
)
def test_compressed_tensors(weights: dict[str, Any], inputs: dict[str, Any] | None, name: str, compute: str) -> None:
    model = quantized(compressed(weights, inputs=inputs, ignore=["lm_head", "re:.*mlp.gate$"]), "Qwen3-8B")
    matrix = model.layers[0].mixer.projections[0].matrices[0]  # type: ignore[union-attr]
    assert (matrix.format.name, matrix.format.compute) == (name, compute)
    assert formats(model)["lm_head"] == "bf16"


def test_kimi_thinking_quantises_experts_only() -> None:
    # moonshotai/Kimi-K2-Thinking and K2.5: 4-bit experts in groups of 32, everything else 16-bit
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
    ignore = [
        "lm_head",
        "re:.*self_attn.*",
        "re:.*shared_experts.*",
        "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
    ]
    model = quantized(compressed(weights, ignore=ignore), "Kimi-K2-Instruct")
    names = {m.name: m.format.name for p, _ in model.layers[5].projections() for m in p.matrices}
    assert {name for name, form in names.items() if form == "int4"} == {
        f"mlp.experts.0.{part}_proj" for part in ("gate", "up", "down")
    }
    assert {m.format.name for p, _ in model.layers[0].projections() for m in p.matrices} == {"bf16"}


def test_cache_scheme_sets_the_cache_format() -> None:
    weights = {"num_bits": 8, "type": "float", "strategy": "tensor"}
    model = quantized(compressed(weights, kv_cache_scheme={"num_bits": 8, "type": "float"}), "Qwen3-8B")
    assert model.kv_dtype == "fp8"


def test_fp32_checkpoint() -> None:
    model = load_model({**raw("Qwen3-0.6B"), "torch_dtype": "float32"})
    assert formats(model)["q_proj"] == "fp32"
    assert model.kv_dtype == "fp32"


@pytest.mark.parametrize(
    ("block", "sentence"),
    [
        ({"quant_method": "quantum"}, "quant_method must be one of awq, bitsandbytes, compressed-tensors"),
        ({}, "quantization_config.quant_method must be one of"),
        ({"quant_method": "awq", "bits": 4}, "quantization_config.group_size is missing"),
        (
            {"quant_method": "awq", "bits": 99, "group_size": 128},
            "bits must be",
        ),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "must be two whole numbers"),
        ({"quant_method": "modelopt", "quant_algo": "FP3"}, "quant_algo must be one of FP8"),
        ({"quant_method": "compressed-tensors"}, "config_groups is missing"),
        ({"quant_method": "fp8", "ignored_layers": ["re:(a+)+$"]}, "pattern that is not understood"),
        ({"quant_method": "bitsandbytes"}, "load_in_8bit must be true, not both"),
        (7, "quantization_config must be an object"),
    ],
)
def test_unknown_schemes_say_what_is_known(block: Any, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        quantized(block, "Qwen3-8B")
    assert sentence in str(caught.value)


def test_modelopt_file_must_not_contradict_the_config(tmp_path: Any) -> None:
    block = {"quant_method": "modelopt", "quant_algo": "FP8"}
    (tmp_path / "config.json").write_text(json.dumps({**raw("Qwen3-8B"), "quantization_config": block}))
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "NVFP4"}}))
    with pytest.raises(InputError, match="contradicts"):
        load_model(tmp_path)


def refuse(text: str) -> None:
    raise AssertionError(text)


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("gate", "layers.0.mlp.gate", True),
        ("gate", "layers.0.mlp.gate_proj", False),
        ("model.layers.1", "layers.1.mlp.gate_proj", True),
        ("model.layers.1", "layers.11.mlp.gate_proj", False),
        ("model.layers.*.self_attn", "layers.3.self_attn.q_proj", True),
        ("model.layers.*.self_attn", "layers.3.mlp.up_proj", False),
        ("*mlp.gate*", "layers.3.mlp.gate_proj", True),
        ("model.language_model.layers.2.", "layers.2.mlp.gate", True),
        ("re:.*self_attn.*", "layers.3.self_attn.q_proj", True),
        ("re:.*mlp.gate$", "layers.3.mlp.gate", True),
        ("re:.*mlp.gate$", "layers.3.mlp.gate_proj", False),
        ("re:model\\.layers\\.\\d+\\.mlp\\..*", "layers.31.mlp.down_proj", True),
        ("re:.*(q|k|v)_proj", "layers.0.self_attn.k_proj", True),
        ("re:.*(q|k|v)_proj", "layers.0.self_attn.o_proj", False),
        ("re:.*\\.experts\\.[0-9]+\\.down_proj", "layers.0.mlp.experts.0.down_proj", True),
        ("lm_head", "lm_head", True),
    ],
)
def test_patterns(pattern: str, path: str, expected: bool) -> None:
    assert read_patterns([pattern], refuse).match(path) is expected


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(?!x)y", "a{9}", "(" * 5 + ")" * 5, ".*.*.*.*a", "a" * 999])
def test_expensive_or_unknown_patterns_are_refused(pattern: str) -> None:
    assert compile_subset(pattern) is None


@given(st.text(alphabet="ab.*+?()|[]^$\\d-", max_size=60))
def test_no_accepted_pattern_takes_long(pattern: str) -> None:
    compiled = compile_subset(pattern)
    if compiled is None:
        return
    start = time.perf_counter()
    compiled.match("a" * 80 + "!")
    assert time.perf_counter() - start < 0.5


@given(st.lists(st.text(alphabet="ab.*?[]!-", max_size=40), max_size=5))
def test_wildcards_never_fail(patterns: list[str]) -> None:
    found = read_patterns(patterns, lambda text: None)
    start = time.perf_counter()
    found.match("layers.0." + "ab" * 40)
    assert time.perf_counter() - start < 0.5
