"""Parameter counts against an independent implementation: transformers builds each config on the meta device."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import torch
import transformers

from latency_model.specs.huggingface.families import SAME_LAYOUT
from latency_model.specs.loader import BUNDLED, load_model, model_names

pytestmark = pytest.mark.oracle

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 101,
    "tie_word_embeddings": False,
    "max_position_embeddings": 512,
}
SMALL = {key: value for key, value in LLAMA.items() if key != "model_type"}
QWEN_MOE = {**SMALL, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "decoder_sparse_step": 1}
LATENT = {
    **SMALL,
    "num_key_value_heads": 6,
    "kv_lora_rank": 12,
    "q_lora_rank": 20,
    "qk_nope_head_dim": 7,
    "qk_rope_head_dim": 4,
    "v_head_dim": 9,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 22,
    "first_k_dense_replace": 1,
    "n_group": 2,
    "topk_group": 1,
}
SPARSE = {**LATENT, "index_n_heads": 3, "index_head_dim": 8, "index_topk": 16}
HYBRID = {
    **SMALL,
    "num_hidden_layers": 5,
    "head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 5,
    "linear_value_head_dim": 6,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
ROUTED = {
    "num_experts": 5,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 28,
}
GEMMA = {**SMALL, "head_dim": 12, "tie_word_embeddings": True, "sliding_window": 16, "num_hidden_layers": 7}
GEMMA4 = {
    **GEMMA,
    "model_type": "gemma4_text",
    "global_head_dim": 20,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": False,
    "hidden_size_per_layer_input": 0,
    "layer_types": ["sliding_attention", "full_attention"] * 3 + ["full_attention"],
    "vocab_size_per_layer_input": 101,
}
NEMOTRON = {
    **SMALL,
    "model_type": "nemotron_h",
    "num_hidden_layers": 5,
    "hybrid_override_pattern": "ME*-M",
    "head_dim": 10,
    "mamba_num_heads": 4,
    "mamba_head_dim": 6,
    "ssm_state_size": 8,
    "n_groups": 2,
    "conv_kernel": 4,
    "n_routed_experts": 6,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 20,
    "moe_shared_expert_intermediate_size": 36,
}
LLAMA4 = {
    **SMALL,
    "model_type": "llama4_text",
    "num_hidden_layers": 5,
    "head_dim": 8,
    "intermediate_size_mlp": 112,
    "num_local_experts": 4,
    "num_experts_per_tok": 1,
    "interleave_moe_layer_step": 2,
    "attention_chunk_size": 64,
}

#: A base config of each family and the changes tried on it, each on its own.
CASES: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "llama": (
        LLAMA,
        [{"tie_word_embeddings": True}, {"attention_bias": True}, {"mlp_bias": True}, {"head_dim": 10}],
    ),
    "mistral": ({**SMALL, "model_type": "mistral", "sliding_window": 32}, [{"head_dim": 10}, {"sliding_window": None}]),
    "phi3": (
        {**SMALL, "model_type": "phi3", "pad_token_id": 0},
        [{"num_key_value_heads": 6}, {"num_hidden_layers": 1}],
    ),
    "qwen2": ({**SMALL, "model_type": "qwen2"}, [{"tie_word_embeddings": True}, {"num_key_value_heads": 1}]),
    "qwen3": (
        {**SMALL, "model_type": "qwen3", "head_dim": 16},
        [{"tie_word_embeddings": True}, {"attention_bias": True}],
    ),
    "mixtral": (
        {**SMALL, "model_type": "mixtral", "num_local_experts": 5, "num_experts_per_tok": 2},
        [{"num_local_experts": 1, "num_experts_per_tok": 1}, {"tie_word_embeddings": True}],
    ),
    "qwen2_moe": (
        {**QWEN_MOE, "model_type": "qwen2_moe", "shared_expert_intermediate_size": 28},
        [{"decoder_sparse_step": 2}, {"mlp_only_layers": [0]}, {"qkv_bias": False}, {"tie_word_embeddings": True}],
    ),
    "qwen3_moe": (
        {**QWEN_MOE, "model_type": "qwen3_moe", "head_dim": 16},
        [{"decoder_sparse_step": 3}, {"mlp_only_layers": [0, 2]}, {"attention_bias": True}, {"head_dim": 10}],
    ),
    "olmoe": (
        {**SMALL, "model_type": "olmoe", "num_experts": 5, "num_experts_per_tok": 2, "pad_token_id": 0},
        [{"attention_bias": True}, {"num_key_value_heads": 6}],
    ),
    "phimoe": (
        {**SMALL, "model_type": "phimoe", "num_local_experts": 5, "num_experts_per_tok": 2},
        [{"attention_bias": True}, {"lm_head_bias": True}],
    ),
    "minimax_m2": (
        {**SMALL, "model_type": "minimax_m2", "head_dim": 16, "num_local_experts": 5, "num_experts_per_tok": 2},
        [{"num_hidden_layers": 1}, {"tie_word_embeddings": True}],
    ),
    "gpt_oss": (
        {
            **SMALL,
            "model_type": "gpt_oss",
            "head_dim": 16,
            "num_local_experts": 5,
            "num_experts_per_tok": 2,
            "sliding_window": 16,
            "attention_bias": True,
        },
        [{"attention_bias": False}, {"tie_word_embeddings": True}],
    ),
    "llama4": (
        LLAMA4,
        [
            {"interleave_moe_layer_step": 1},
            {"moe_layers": [0, 3]},
            {"moe_layers": []},
            {"attention_bias": True},
            {"no_rope_layers": [1, 0, 1, 0, 1]},
        ],
    ),
    "glm4_moe": (
        {
            **SMALL,
            "model_type": "glm4_moe",
            "head_dim": 16,
            "n_routed_experts": 6,
            "n_shared_experts": 1,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 20,
            "first_k_dense_replace": 1,
            "use_qk_norm": True,
            "attention_bias": True,
        },
        [{"use_qk_norm": False}, {"attention_bias": False}, {"first_k_dense_replace": 2}, {"n_shared_experts": 2}],
    ),
    "deepseek_v2": (
        {**LATENT, "model_type": "deepseek_v2"},
        [{"q_lora_rank": None}, {"first_k_dense_replace": 0}, {"attention_bias": True}],
    ),
    "deepseek_v3": (
        {**LATENT, "model_type": "deepseek_v3"},
        [{"q_lora_rank": None}, {"first_k_dense_replace": 3}, {"n_shared_experts": 1}, {"tie_word_embeddings": True}],
    ),
    "glm4_moe_lite": (
        {**LATENT, "model_type": "glm4_moe_lite"},
        [{"q_lora_rank": None}, {"attention_bias": True}, {"mlp_layer_types": ["sparse", "dense", "sparse"]}],
    ),
    "deepseek_v32": ({**SPARSE, "model_type": "deepseek_v32"}, [{"index_n_heads": 5}, {"attention_bias": True}]),
    "glm_moe_dsa": (
        {**SPARSE, "model_type": "glm_moe_dsa"},
        [
            {"mlp_layer_types": ["sparse", "dense", "sparse"]},
            {"indexer_types": ["full", "shared", "full"]},
            {"index_topk_pattern": "FFS"},
            {"index_topk_freq": 2},
        ],
    ),
    "qwen3_next": (
        {**HYBRID, **ROUTED, "model_type": "qwen3_next"},
        [
            {"mlp_only_layers": [1]},
            {"decoder_sparse_step": 2},
            {"layer_types": ["full_attention"] * 5},
            {"linear_num_value_heads": 8},
        ],
    ),
    "qwen3_5": ({**HYBRID, "model_type": "qwen3_5_text"}, [{"tie_word_embeddings": True}, {"attention_bias": True}]),
    "qwen3_5_moe": (
        {**HYBRID, **ROUTED, "model_type": "qwen3_5_moe_text"},
        [{"full_attention_interval": 2}, {"linear_conv_kernel_dim": 3}],
    ),
    "nemotron_h": (
        NEMOTRON,
        [
            {"hybrid_override_pattern": "M-M-*", "n_groups": 1},
            {"use_bias": True},
            {"use_conv_bias": False},
            {"mlp_bias": True},
            {"moe_latent_size": 14},
            {"moe_latent_size": 14, "mlp_bias": True},
        ],
    ),
    "gemma": ({**GEMMA, "model_type": "gemma"}, [{"attention_bias": True}]),
    "gemma2": ({**GEMMA, "model_type": "gemma2"}, [{"num_hidden_layers": 4}, {"attention_bias": True}]),
    "gemma3": ({**GEMMA, "model_type": "gemma3_text"}, [{"num_hidden_layers": 6}, {"attention_bias": True}]),
    "gemma4": (
        GEMMA4,
        [
            {"attention_k_eq_v": True},
            {"hidden_size_per_layer_input": 6},
            {"hidden_size_per_layer_input": 6, "vocab_size_per_layer_input": 90},
            {"num_kv_shared_layers": 3},
            {"num_kv_shared_layers": 3, "use_double_wide_mlp": True, "attention_k_eq_v": True},
            {"enable_moe_block": True, "num_experts": 5, "top_k_experts": 2, "moe_intermediate_size": 24},
            {"attention_bias": True},
            {"tie_word_embeddings": False},
        ],
    ),
}


def counted_by_transformers(values: dict[str, Any]) -> tuple[int, int, int]:
    """Return all parameters, those of routed experts, and those of the token embedding."""
    config = transformers.AutoConfig.for_model(**copy.deepcopy(values))
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    parameters = dict(model.named_parameters())
    return (
        sum(parameter.numel() for parameter in parameters.values()),
        sum(parameter.numel() for name, parameter in parameters.items() if ".experts." in name),
        model.get_input_embeddings().weight.numel(),
    )


@pytest.mark.parametrize(
    ("family", "change"),
    [(family, change) for family, (_, changes) in CASES.items() for change in [{}, *changes]],
    ids=lambda value: str(value),
)
def test_counts_equal_transformers(family: str, change: dict[str, Any]) -> None:
    values = {**CASES[family][0], **change}
    ours = load_model(copy.deepcopy(values))
    assert ours.family == family
    counts = (ours.total_parameters, ours.routed_expert_parameters, ours.embedding.parameters)
    assert counts == counted_by_transformers(values)


@pytest.mark.parametrize("model_type", SAME_LAYOUT)
def test_model_types_of_the_same_layout(model_type: str) -> None:
    family = SAME_LAYOUT[model_type]
    plain = model_type in ("granite", "ministral3")
    values = {
        "head_dim": 8,
        **CASES[family][0],
        "use_qk_norm": False,
        "model_type": model_type if plain else f"{model_type}_text",
    }
    ours = load_model(copy.deepcopy(values))
    assert ours.family == family
    with torch.device("meta"):  # without the LM head: multimodal classes hold it outside the text model
        body = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(**values))
    assert ours.total_parameters - ours.head.parameters == sum(p.numel() for p in body.parameters())


@pytest.mark.parametrize("name", model_names())
def test_bundled_models_equal_transformers(name: str) -> None:
    values = json.loads((BUNDLED / f"{name}.json").read_text())
    values |= values.pop("text_config", {})
    if values["model_type"] == "kimi_k2":
        values["model_type"] = "deepseek_v3"
    for key in ("_source", "_hf_quant_config", "quantization_config", "architectures"):
        values.pop(key, None)
    ours = load_model(name)
    counts = (ours.total_parameters, ours.routed_expert_parameters, ours.embedding.parameters)
    assert counts == counted_by_transformers(values)
