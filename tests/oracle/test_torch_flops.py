"""FLOPs of one decode step against torch's FlopCounterMode on the meta device.

torch counts the whole query-key rectangle; one new token after S cached ones sees exactly S + 1, so both count
the same pairs.  Routed experts choose their tokens by value, which meta tensors do not have: they are replaced
by a stub, and our count leaves them out.
"""

from __future__ import annotations

import copy
import re
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

from latency_model.costs.counts import token_operations
from latency_model.costs.mixers import context_operations
from latency_model.specs.loader import load_model
from latency_model.specs.model import LatentAttention, Matrix, ModelArchitecture
from latency_model.specs.parallelism import Parallelism
from latency_model.specs.precision import DTypes

pytestmark = pytest.mark.oracle

BATCH, CACHED = 2, 192

SHAPE: dict[str, Any] = {
    "hidden_size": 192,
    "intermediate_size": 416,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 640,
    "tie_word_embeddings": False,
    "max_position_embeddings": 1024,
}
DENSE: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama"},
    "mistral": {"model_type": "mistral", "sliding_window": 64, "head_dim": 32},
    "phi3": {"model_type": "phi3", "pad_token_id": 0, "num_key_value_heads": 6},
    "qwen2": {"model_type": "qwen2"},
    "qwen3": {"model_type": "qwen3", "head_dim": 48},
    "gemma2": {"model_type": "gemma2", "head_dim": 40, "sliding_window": 64},
    "gemma3": {"model_type": "gemma3_text", "head_dim": 40, "sliding_window": 64, "num_hidden_layers": 7},
}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 96}
LATENT = {
    "num_key_value_heads": 6,
    "kv_lora_rank": 48,
    "q_lora_rank": 64,
    "qk_nope_head_dim": 24,
    "qk_rope_head_dim": 8,
    "v_head_dim": 32,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 96,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
ROUTED: dict[str, dict[str, Any]] = {
    "mixtral": {"model_type": "mixtral", "num_local_experts": 6, "num_experts_per_tok": 2},
    "qwen3_moe": {"model_type": "qwen3_moe", "head_dim": 48, "decoder_sparse_step": 1, **EXPERTS},
    "qwen2_moe": {"model_type": "qwen2_moe", "shared_expert_intermediate_size": 128, **EXPERTS},
    "gpt_oss": {
        "model_type": "gpt_oss",
        "head_dim": 32,
        "num_local_experts": 6,
        "num_experts_per_tok": 2,
        "sliding_window": 64,
        "attention_bias": True,
    },
    "deepseek_v2": {"model_type": "deepseek_v2", **LATENT, "q_lora_rank": None},
    "deepseek_v3": {"model_type": "deepseek_v3", **LATENT},
    "glm4_moe": {
        "model_type": "glm4_moe",
        "head_dim": 32,
        "attention_bias": True,
        **{key: value for key, value in LATENT.items() if key.startswith(("n_", "num_e", "moe", "first", "topk"))},
    },
}


def counted_by_torch(values: dict[str, Any]) -> tuple[int, int]:
    """FLOPs of matrix products (experts stubbed) and of softmax attention in one decode step."""
    config = transformers.AutoConfig.for_model(**copy.deepcopy(values))
    config._attn_implementation = "eager"
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        for module in model.modules():
            if type(module).__name__.endswith("Experts"):
                module.forward = lambda hidden, *rest: torch.zeros_like(hidden)
        with torch.no_grad():
            cache = model(torch.zeros(BATCH, CACHED, dtype=torch.long), use_cache=True).past_key_values
            with FlopCounterMode(display=False) as counter:
                model(torch.zeros(BATCH, 1, dtype=torch.long), cache=cache, use_cache=True)
    products, attention = 0, 0
    for module, operations in counter.flop_counts.items():
        by_name = {str(operation): flops for operation, flops in operations.items()}
        if module == "Global":
            products = sum(flops for name, flops in by_name.items() if name in ("aten.mm", "aten.addmm"))
        elif re.search(r"layers\.\d+\.self_attn$", module):
            attention += sum(flops for name, flops in by_name.items() if name in ("aten.bmm", "aten.baddbmm"))
    return products, attention


def counted_here(values: dict[str, Any]) -> tuple[float, float]:
    model = load_model(copy.deepcopy(values))
    common: dict[str, Any] = {"parallelism": Parallelism(), "dtypes": DTypes()}
    tokens = np.array(float(BATCH))
    gemms = token_operations(model, tokens=tokens, sampled=tokens, **common)
    attention = context_operations(
        model,
        batch=tokens,
        tokens_per_sequence=np.array(1.0),
        context=np.array(float(CACHED)),
        kv_reread=0.0,
        prefill=True,  # transformers expands latent keys and values, as engines do in a prefill
        **common,
    )
    products = sum(float(op.flops) * op.repeats for op in gemms)
    # transformers keeps latents and expands every cached one again; engines absorb the expansion instead.
    expanded = 2.0 * BATCH * CACHED * sum(m.inputs * m.outputs for m in latent_up(model))
    return products + expanded, sum(float(op.flops) * op.repeats for op in attention)


def latent_up(model: ModelArchitecture) -> list[Matrix]:
    """The maps from cached latents to keys and values, of all layers."""
    mixers = [layer.mixer for layer in model.layers if isinstance(layer.mixer, LatentAttention)]
    return [m for mixer in mixers for p in mixer.projections if p.name == "latent_up" for m in p.matrices]


@pytest.mark.parametrize("family", [*DENSE, *ROUTED])
def test_decode_flops_agree_within_one_percent(family: str) -> None:
    values = {**SHAPE, **{**DENSE, **ROUTED}[family]}
    assert counted_here(values) == pytest.approx(counted_by_torch(values), rel=0.01)


def test_real_dense_model() -> None:
    values = {
        **SHAPE,
        "model_type": "qwen3",
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151_936,
    }
    assert counted_here(values) == pytest.approx(counted_by_torch(values), rel=0.01)
