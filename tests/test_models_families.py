"""What each family's config means, layer by layer, and what is refused rather than guessed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve

from latency_model.errors import InputError
from latency_model.specs.loader import BUNDLED, load_model
from latency_model.specs.model import (
    Attention,
    DenseMLP,
    LatentAttention,
    Layer,
    ModelArchitecture,
    MoE,
    RecurrentMixer,
)


def raw(name: str) -> dict[str, Any]:
    """A bundled config as a mapping to change."""
    values: dict[str, Any] = json.loads((BUNDLED / f"{name}.json").read_text())
    return values


def windows(model: ModelArchitecture) -> list[int | None]:
    return [layer.mixer.window for layer in model.layers if isinstance(layer.mixer, Attention)]


def routed(model: ModelArchitecture) -> list[bool]:
    return [any(isinstance(block, MoE) for block in layer.feed_forward) for layer in model.layers]


def experts_of(layer: Layer) -> MoE:
    return next(block for block in layer.feed_forward if isinstance(block, MoE))


def test_qwen_window_is_honoured_only_when_used() -> None:
    values = raw("Qwen2.5-7B-Instruct")  # states sliding_window 131072 but use_sliding_window false
    assert set(windows(load_model(values))) == {None}
    used = load_model({**values, "use_sliding_window": True, "max_window_layers": 20, "sliding_window": 4096})
    assert windows(used) == [None] * 20 + [4096] * 8


def test_mistral_and_mixtral_windows() -> None:
    assert set(windows(load_model("Mistral-7B-v0.1"))) == {4096}
    assert set(windows(load_model("Mixtral-8x7B-v0.1"))) == {None}


def test_gpt_oss_alternates_and_its_experts_have_biases() -> None:
    model = load_model("gpt-oss-20b")
    assert windows(model) == [128, None] * 12
    expert = experts_of(model.layers[0])
    assert [matrix.bias for p in expert.expert for matrix in p.matrices] == [2880, 2880, 2880]
    assert expert.router.matrices[0].bias == 32
    assert model.layers[0].mixer.vectors == 64  # type: ignore[union-attr]  # one sink per head


def test_gemma3_has_five_windowed_layers_to_one_full() -> None:
    assert windows(load_model("gemma-3-27b-it"))[:12] == ([1024] * 5 + [None]) * 2


def test_gemma4_full_layers_have_their_own_heads_and_run_dense_beside_routed() -> None:
    model = load_model("gemma-4-26B-A4B")
    local, full = model.layers[0].mixer, model.layers[5].mixer
    assert isinstance(local, Attention)
    assert isinstance(full, Attention)
    assert (local.kv_heads, local.key_dim, local.window) == (8, 256, 1024)
    assert (full.kv_heads, full.key_dim, full.window) == (2, 512, None)
    assert [matrix.name for matrix in full.projections[0].matrices] == ["self_attn.q_proj", "self_attn.k_proj"]
    assert [type(block) for block in model.layers[0].feed_forward] == [DenseMLP, MoE]


def test_gemma4_shared_caches_and_per_layer_inputs() -> None:
    values = raw("gemma-4-26B-A4B")
    text = {**values["text_config"], "num_kv_shared_layers": 10, "hidden_size_per_layer_input": 256}
    model = load_model({**values, "text_config": text})
    shares = [isinstance(layer.mixer, Attention) and layer.mixer.shares_cache for layer in model.layers]
    assert shares == [False] * 20 + [True] * 10
    assert model.kv_bytes_per_token_by_layer()[20:] == (0.0,) * 10
    tables = [layer.embedding.parameters for layer in model.layers if layer.embedding is not None]
    assert tables == [262_144 * 256] * 30


def test_llama4_interleaves_experts_and_chunks_attention() -> None:
    scout, maverick = load_model("Llama-4-Scout"), load_model("Llama-4-Maverick")
    assert routed(scout) == [True] * 48
    assert routed(maverick) == [False, True] * 24
    assert windows(scout)[:8] == [8192, 8192, 8192, None] * 2
    dense = maverick.layers[0].feed_forward[0]
    assert isinstance(dense, DenseMLP)
    assert dense.projections[0].matrices[0].outputs == 16_384


def test_deepseek_first_layers_are_dense_and_query_rank_is_optional() -> None:
    v3, lite = load_model("DeepSeek-V3"), load_model("DeepSeek-V2-Lite")
    assert routed(v3) == [False] * 3 + [True] * 58
    assert routed(lite) == [False] + [True] * 26
    names = [[p.name for p in model.layers[0].mixer.projections] for model in (v3, lite)]  # type: ignore[union-attr]
    assert names[0] == ["latent_down", "query_up", "latent_up", "output"]
    assert names[1] == ["query", "latent_down", "latent_up", "output"]


def test_moe_layer_frequency() -> None:
    values = {**raw("DeepSeek-V2-Lite"), "moe_layer_freq": 2, "first_k_dense_replace": 3}
    assert routed(load_model(values))[:8] == [False] * 4 + [True, False, True, False]


def test_sparse_attention_indexer() -> None:
    mixer = load_model("DeepSeek-V3.2").layers[0].mixer
    assert isinstance(mixer, LatentAttention)
    assert mixer.indexer is not None
    assert (mixer.indexer.top_k, mixer.indexer.heads, mixer.indexer.dim) == (2048, 64, 128)
    plain = evolve(mixer, indexer=None)
    assert (
        plain
        == load_model({**raw("DeepSeek-V3"), "quantization_config": raw("DeepSeek-V3.2")["quantization_config"]})
        .layers[0]
        .mixer
    )


def test_shared_indexers_bring_no_weights() -> None:
    every = load_model(raw("GLM-5"))
    some = load_model({**raw("GLM-5"), "index_topk_freq": 4})
    own = [layer.mixer.indexer.heads > 0 for layer in some.layers]  # type: ignore[union-attr]
    assert own[:10] == [True, True, False, False, False, True, False, False, False, True]
    assert some.total_parameters < every.total_parameters
    assert some.kv_bytes_per_token() < every.kv_bytes_per_token()


def test_qwen_hybrid_layout_and_gated_attention() -> None:
    model = load_model("Qwen3.5-35B-A3B")
    kinds = [isinstance(layer.mixer, RecurrentMixer) for layer in model.layers]
    assert kinds == [True, True, True, False] * 10
    softmax = model.layers[3].mixer
    assert isinstance(softmax, Attention)
    assert softmax.projections[0].matrices[0].outputs == 2 * 16 * 256  # queries and their gate
    shared = experts_of(model.layers[0]).shared
    assert [p.name for p in shared] == ["gate_up", "down", "shared_gate"]


def test_qwen_sparse_step_and_listed_dense_layers() -> None:
    values = {**raw("Qwen3-30B-A3B"), "decoder_sparse_step": 2, "mlp_only_layers": [1, 5]}
    assert routed(load_model(values))[:8] == [False, False, False, True, False, False, False, True]


def test_nemotron_experts_are_not_gated() -> None:
    model = load_model("nemotron-3-nano-30b-a3b")
    block = experts_of(model.layers[1])
    assert [[matrix.name for matrix in p.matrices] for p in block.expert] == [
        ["mixer.experts.0.up_proj"],
        ["mixer.experts.0.down_proj"],
    ]


def test_recurrence_flops_grow_with_the_state() -> None:
    mixer = load_model("Qwen3-Next-80B-A3B").layers[0].mixer
    assert isinstance(mixer, RecurrentMixer)
    # decay 1, k S 2, rank-one update 2, S q 2 per element of 32 x 128 x 128; convolution 2 x 4 x 8192
    assert mixer.flops_per_token == 7 * 32 * 128 * 128 + 2 * 4 * 8192


def test_tied_head_is_counted_once() -> None:
    values = raw("Qwen3-0.6B")
    tied, free = load_model(values), load_model({**values, "tie_word_embeddings": False})
    assert free.total_parameters - tied.total_parameters == 151_936 * 1024


def test_mtp_layers_are_told_but_not_counted() -> None:
    assert load_model("DeepSeek-V3").mtp_layers == 1
    assert load_model("Kimi-K2").mtp_layers == 0
    assert load_model("Qwen3.5-35B-A3B").mtp_layers == 1


def test_wrapper_configs_pass_their_tie_on() -> None:
    values = raw("Qwen3.5-35B-A3B")
    assert not load_model(values).tied
    assert load_model({**values, "tie_word_embeddings": True}).tied


def test_null_expert_counts_in_a_dense_model_are_fine() -> None:
    values = {**raw("Meta-Llama-3.1-8B"), "num_local_experts": None, "num_experts_per_tok": None}
    assert load_model(values).total_parameters == 8_030_261_248


def test_unknown_dense_family_is_read_as_llama_and_says_so() -> None:
    values = {**raw("Meta-Llama-3.1-8B"), "model_type": "brandnew", "architectures": ["BrandNewForCausalLM"]}
    model = load_model(values)
    assert model.total_parameters == 8_030_261_248
    assert "brandnew" in model.assumptions[0]


def test_unknown_family_without_the_usual_keys_says_both() -> None:
    values = {"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "ffn_config": {"moe_num_experts": 16}}
    with pytest.raises(InputError, match=r"'dbrx' is not known: .*hidden_size is missing"):
        load_model(values)


def test_real_configs_with_unused_keys_load() -> None:
    # keys seen beside the usual ones in published configs of Qwen3-Coder-480B
    extra = {"qkv_bias": False, "use_qk_norm": True, "shared_expert_intermediate_size": 0, "router_aux_loss_coef": 0.0}
    plain, odd = raw("Qwen3-Coder-480B-A35B-Instruct"), load_model({**raw("Qwen3-Coder-480B-A35B-Instruct"), **extra})
    assert odd.layers == load_model(plain).layers


def test_gemma3_text_configs_leave_out_what_their_class_fixes() -> None:
    # google/gemma-3-4b-it states five sizes only; its text model has 3 880 263 168 parameters
    text = {"hidden_size": 2560, "intermediate_size": 10_240, "num_hidden_layers": 34, "sliding_window": 1024}
    values = {"model_type": "gemma3", "text_config": {**text, "model_type": "gemma3_text"}}
    model = load_model(values)
    assert model.total_parameters == 3_880_263_168
    assert "num_attention_heads = 8" in " ".join(model.assumptions)


def test_architecture_name_alone_finds_the_family() -> None:
    values = raw("Mixtral-8x7B-v0.1")
    del values["model_type"]
    assert load_model(values).family == "mixtral"


@pytest.mark.parametrize(
    ("name", "changes", "sentence"),
    [
        ("Qwen3-30B-A3B", {"model_type": "newmoe", "architectures": ["NewMoE"]}, "num_experts = 128"),
        ("Meta-Llama-3.1-8B", {"num_local_experts": 8}, "num_local_experts is not part of the llama family"),
        ("Mistral-7B-v0.1", {"moe": {"num_experts": 8}}, "moe is not part of the mistral family"),
        ("Qwen3-8B", {"model_type": "newmla", "architectures": [], "kv_lora_rank": 512}, "kv_lora_rank"),
        (
            "Mixtral-8x7B-v0.1",
            {"num_experts": 16},
            "num_local_experts and num_experts are the same quantity but differ",
        ),
        ("gpt-oss-20b", {"experts_per_token": 8}, "differ"),
        ("Mixtral-8x7B-v0.1", {"num_experts_per_tok": 9}, "num_experts_per_tok must not exceed num_local_experts = 8"),
        ("Mixtral-8x7B-v0.1", {"num_experts_per_tok": None}, "num_experts_per_tok is null"),
        ("Qwen3-8B", {"hidden_size": 0}, "hidden_size must be a whole number from 1"),
        ("Qwen3-8B", {"hidden_size": "4096"}, "hidden_size must be a whole number"),
        ("Qwen3-8B", {"hidden_size": True}, "got True"),
        ("Qwen3-8B", {"hidden_size": float("nan")}, "got nan"),
        ("Qwen3-8B", {"num_hidden_layers": 10**9}, "num_hidden_layers must be a whole number from 1 to 2000"),
        ("Qwen3-8B", {"num_key_value_heads": 5}, "num_key_value_heads must divide num_attention_heads = 32"),
        ("Phi-3.5-MoE-instruct", {"head_dim": 64}, "head_dim must be hidden_size / num_attention_heads"),
        ("gpt-oss-20b", {"layer_types": ["full_attention"] * 3}, "must name one kind for each of the 24 layers"),
        ("gpt-oss-20b", {"layer_types": ["odd"] * 24}, "may hold full_attention, sliding_attention only"),
        ("gpt-oss-20b", {"sliding_window": None}, "sliding_window is missing"),
        ("DeepSeek-V3", {"num_key_value_heads": 8}, "must equal num_attention_heads"),
        ("Qwen3-8B", {"torch_dtype": "float8_e4m3fn"}, "torch_dtype must be a 16- or 32-bit format"),
        ("Qwen3-8B", {"torch_dtype": "f33"}, "not a number format"),
        ("MiniMax-M2.5", {"shared_intermediate_size": 512}, "shared_intermediate_size must be 0"),
        ("Qwen3.5-35B-A3B", {"text_config": 3}, "text_config must be an object"),
        ("Qwen3-8B", {"tie_word_embeddings": "no"}, "tie_word_embeddings must be true or false"),
    ],
)
def test_contradictions_are_named(name: str, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        load_model({**raw(name), **changes})
    assert sentence in str(caught.value)


def test_all_problems_are_reported_at_once() -> None:
    values = raw("Qwen3-30B-A3B")
    del values["vocab_size"]
    with pytest.raises(InputError, match=r"3 problems: .*hidden_size.*vocab_size is missing.*num_experts"):
        load_model({**values, "hidden_size": -1, "num_experts": "many"})


@pytest.mark.parametrize(
    "field", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "intermediate_size"]
)
def test_missing_sizes_are_never_defaulted(field: str) -> None:
    values = raw("Qwen3-8B")
    for broken in ({**values, field: None}, {key: value for key, value in values.items() if key != field}):
        with pytest.raises(InputError, match=field):
            load_model(broken)


def test_absent_keys_with_a_default_are_listed() -> None:
    values = raw("Qwen3-8B")
    del values["attention_bias"]
    assert any("attention_bias = False" in sentence for sentence in load_model(values).assumptions)


def test_a_config_that_contradicts_itself_about_its_family_is_refused():
    values = {**raw("Meta-Llama-3.1-8B"), "architectures": ["Qwen3ForCausalLM"]}
    with pytest.raises(InputError, match="says llama where architectures says qwen3"):
        load_model(values)


def test_an_unknown_type_with_a_known_architecture_says_so():
    model = load_model({**raw("Qwen3-30B-A3B"), "model_type": "weird"})
    assert model.family == "qwen3_moe"
    assert any("'weird' is not known: read as qwen3_moe" in note for note in model.assumptions)
