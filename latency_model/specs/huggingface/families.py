"""From a config mapping to a model: find the family, read it strictly, apply number formats."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from attrs import frozen

from latency_model.errors import InputError, Problems, nearest, shorten
from latency_model.specs.dtypes import canonical_dtype
from latency_model.specs.huggingface import dense, gemma, hybrid, latent, mixture
from latency_model.specs.huggingface.parts import Decoder
from latency_model.specs.huggingface.quantized import read_formats
from latency_model.specs.huggingface.reader import Config
from latency_model.specs.model import Matrix, ModelArchitecture
from latency_model.specs.quantization import weight_format

__all__ = ["FAMILIES", "architecture_from_config"]


@frozen
class Family:
    """How the configs of one ``model_type`` are read.

    ``architecture`` is the class name of its checkpoints, ``mtp`` the field that counts their
    multi-token-prediction layers.
    """

    read: Callable[[Config], Decoder]
    architecture: str
    mtp: str = ""


FAMILIES: Final[dict[str, Family]] = {
    "llama": Family(dense.llama, "LlamaForCausalLM"),
    "mistral": Family(dense.mistral, "MistralForCausalLM"),
    "phi3": Family(dense.phi3, "Phi3ForCausalLM"),
    "qwen2": Family(dense.qwen2, "Qwen2ForCausalLM"),
    "qwen3": Family(dense.qwen3, "Qwen3ForCausalLM"),
    "gemma": Family(gemma.gemma, "GemmaForCausalLM"),
    "gemma2": Family(gemma.gemma2, "Gemma2ForCausalLM"),
    "gemma3": Family(gemma.gemma3, "Gemma3ForCausalLM"),
    "gemma4": Family(gemma.gemma4, "Gemma4ForCausalLM"),
    "mixtral": Family(mixture.mixtral, "MixtralForCausalLM"),
    "olmoe": Family(mixture.olmoe, "OlmoeForCausalLM"),
    "phimoe": Family(mixture.phimoe, "PhimoeForCausalLM"),
    "qwen2_moe": Family(mixture.qwen2_moe, "Qwen2MoeForCausalLM"),
    "qwen3_moe": Family(mixture.qwen3_moe, "Qwen3MoeForCausalLM"),
    "gpt_oss": Family(mixture.gpt_oss, "GptOssForCausalLM"),
    "llama4": Family(mixture.llama4, "Llama4ForCausalLM"),
    "minimax_m2": Family(mixture.minimax_m2, "MiniMaxM2ForCausalLM", mtp="num_mtp_modules"),
    "glm4_moe": Family(mixture.glm4_moe, "Glm4MoeForCausalLM", mtp="num_nextn_predict_layers"),
    "deepseek_v2": Family(latent.deepseek, "DeepseekV2ForCausalLM"),
    "deepseek_v3": Family(latent.deepseek, "DeepseekV3ForCausalLM", mtp="num_nextn_predict_layers"),
    "kimi_k2": Family(latent.deepseek, "KimiK2ForCausalLM", mtp="num_nextn_predict_layers"),
    "deepseek_v32": Family(latent.deepseek_sparse, "DeepseekV32ForCausalLM", mtp="num_nextn_predict_layers"),
    "glm4_moe_lite": Family(latent.deepseek, "Glm4MoeLiteForCausalLM", mtp="num_nextn_predict_layers"),
    "glm_moe_dsa": Family(latent.glm_moe_dsa, "GlmMoeDsaForCausalLM", mtp="num_nextn_predict_layers"),
    "qwen3_next": Family(hybrid.qwen3_next, "Qwen3NextForCausalLM", mtp="mtp_num_hidden_layers"),
    "qwen3_5": Family(hybrid.qwen3_5, "Qwen3_5ForCausalLM", mtp="mtp_num_hidden_layers"),
    "qwen3_5_moe": Family(hybrid.qwen3_5_moe, "Qwen3_5MoeForCausalLM", mtp="mtp_num_hidden_layers"),
    "nemotron_h": Family(hybrid.nemotron_h, "NemotronHForCausalLM", mtp="num_nextn_predict_layers"),
}

#: Model types whose text model has the layout of another family to the last parameter.
SAME_LAYOUT: Final = {
    "glm4v_moe": "glm4_moe",
    "granite": "llama",
    "ministral3": "mistral",
    "qwen2_5_vl": "qwen2",
    "qwen2_vl": "qwen2",
    "qwen3_vl": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
}

#: Wrappers of a text model with other modalities: the text model's config is nested in ``text_config``.
NESTED = "text_config"
LONGEST_NAME = 80  # characters of a name that fit beside other words
INHERITED = ("tie_word_embeddings", "torch_dtype", "dtype", "quantization_config", "compression_config")

#: Keys that change no size here: token ids, training, rotary settings, routing arithmetic, bookkeeping.
IGNORED: Final = frozenset(
    """
    _attn_implementation_autoset _name_or_path _source add_cross_attention architectures
    attention_dropout attn_implementation attn_logit_softcapping attn_scale attn_temperature_tuning
    auto_map aux_loss_alpha bos_token_id cache_implementation chunk_size chunk_size_feed_forward
    classifier_dropout clip_qkv cross_attention_hidden_size embd_pdrop eos_token_id ep_size expand
    final_logit_softcapping finetuning_task floor_scale for_llm_compressor head_dim hidden_act
    hidden_activation hidden_dropout hidden_dropout_prob id2label indexer_rope_interleave
    initial_context_length initializer_range input_jitter_noise is_decoder is_encoder_decoder label2id
    layer_norm_eps layer_norm_epsilon mamba_hidden_act mlp_hidden_act mlp_only_layers model_type
    moe_router_dtype moe_shared_expert_overlap mtp_hybrid_override_pattern mtp_layers_block_type
    mtp_transformer_layers mtp_use_dedicated_embeddings n_group norm_eps norm_topk_prob
    num_logits_to_keep original_max_position_embeddings output_attentions output_hidden_states
    output_router_logits pad_token_id partial_rotary_factor pretraining_tp problem_type qk_head_dim
    qk_norm_type query_pre_attn_scalar rescale_prenorm_residual resid_pdrop residual_in_fp32 return_dict
    rms_norm_eps rope_interleave rope_local_base_freq rope_parameters rope_scaling rope_theta rotary_dim
    routed_scaling_factor router_aux_loss_coef router_jitter_noise router_z_loss_coef scoring_func
    seq_aux swiglu_limit task_specific_params tie_encoder_decoder time_step_floor time_step_limit
    time_step_max time_step_min tokenizer_class topk_group topk_method transformers_version
    use_bidirectional_attention use_cache use_mamba_kernels use_mtp use_routing_bias
    """.split()  # noqa: SIM905 - a word list reads better than a hundred quoted strings
)

#: Keys that, unread, would make every count wrong: experts, latent attention, recurrent layers.
DECISIVE: Final = re.compile(
    r"expert|moe|router|lora_rank|ssm|mamba|conv|recurrent|state_size|linear_(num|key|value)|^index_",
    re.IGNORECASE,
)
#: Keys that, unread, may matter: they are listed among the assumptions.
STRUCTURAL: Final = re.compile(
    r"head|layer|hidden|rank|window|state|conv|vocab|intermediate|quant|ffn|attention|attn|kv_", re.IGNORECASE
)


def architecture_from_config(
    values: Mapping[str, object],
    *,
    name: str,
    where: str,
    source: str = "",
    quantization: Mapping[str, object] | None = None,
) -> ModelArchitecture:
    """Read a parsed ``config.json``.

    Parameters
    ----------
    values : mapping
        The config.
    name : str
        Display name of the model.
    where : str
        File name for error sentences.
    source : str
        Where the facts come from, for display.
    quantization : mapping or None
        A parsed ``hf_quant_config.json`` found next to it.
    """
    problems = Problems(where)
    outer = Config(values, problems)
    config = text_config(outer)
    family_name, family, notes = find_family(outer, config)
    decoder = family.read(config)
    max_context = config.optional_integer("max_position_embeddings")
    mtp_layers = (config.optional_integer(family.mtp, low=0) or 0) if family.mtp else 0
    dtype = stored_dtype(config)
    formats = read_formats(config, dtype, quantization)
    notes += unread_keys(config, family_name)
    config.check()
    embedding = Matrix(
        name="embed_tokens",
        inputs=decoder.vocab_size,
        outputs=decoder.hidden_size,
        format=weight_format(dtype),
        split="inputs",
    )
    head = Matrix(
        name="lm_head",
        inputs=decoder.hidden_size,
        outputs=decoder.vocab_size,
        bias=decoder.head_bias,
        format=weight_format(dtype) if decoder.tied else formats.of("lm_head"),
        split="outputs",
    )
    return ModelArchitecture(
        name=display_name(name),
        family=family_name,
        hidden_size=decoder.hidden_size,
        vocab_size=decoder.vocab_size,
        layers=formats.applied(decoder.layers),
        embedding=embedding,
        head=head,
        tied=decoder.tied,
        vectors=decoder.final_norm,
        kv_dtype=formats.kv_dtype or dtype,
        max_context=max_context,
        mtp_layers=mtp_layers,
        source=source,
        assumptions=(*notes, *config.assumptions, *config.describe_defaults(), *formats.assumptions),
    )


def display_name(name: str) -> str:
    r"""A name fit for a line of text, whatever a config or a directory calls itself.

    >>> display_name("Tiny\x1b[31m\u202e Llama")
    'Tiny [31m Llama'
    """
    printable = "".join(character if character.isprintable() else " " for character in name)
    return " ".join(printable.split())[:LONGEST_NAME].rstrip() or "model"


def text_config(outer: Config) -> Config:
    """Return the config of the text model, nested in multimodal wrappers, with what the wrapper states."""
    nested = outer.section(NESTED)
    if nested is None:
        return outer
    inherited = {key: outer.values[key] for key in INHERITED if outer.has(key) and not nested.has(key)}
    config = Config({**nested.values, **inherited}, outer.problems, nested.path)
    tied = nested.values.get("tie_word_embeddings"), outer.values.get("tie_word_embeddings")
    if None not in tied and tied[0] != tied[1]:
        config.assumptions.append("tie_word_embeddings differs outside text_config: the text model's is used")
    return config


def find_family(outer: Config, config: Config) -> tuple[str, Family, list[str]]:
    """Find the family: an unknown dense one is read as Llama with a note, an unknown MoE is an error."""
    stated = [config.text("model_type").removesuffix("_text"), outer.text("model_type")]
    architectures = outer.strings("architectures") or ()
    named = [name for name, family in FAMILIES.items() if family.architecture in architectures]
    for model_type in stated:
        name = SAME_LAYOUT.get(model_type, model_type)
        if name in FAMILIES:
            if named and all(FAMILIES[other].read is not FAMILIES[name].read for other in named):
                config.wrong(
                    "model_type", f"says {name} where architectures says {named[0]}", hint="correct one of them"
                )
            return name, FAMILIES[name], []
    if named:
        note = f"model_type {shorten(stated[0])} is not known: read as {named[0]} by its architecture"
        return named[0], FAMILIES[named[0]], [note] if stated[0] else []
    shown = " / ".join(filter(None, (*stated[:1], *architectures))) or "no model_type"
    unknown = [key for key in config.values if DECISIVE.search(str(key)) and is_active(config.values[key])]
    if unknown:
        listed = ", ".join(f"{key} = {shorten(config.values[key], 24)}" for key in unknown[:12])
        config.wrong(
            "model_type",
            f"{shorten(shown)} is not a family known here and these keys of it are not understood: {listed}",
            hint=nearest(stated[0], FAMILIES),
        )
        config.check()
    note = f"model family {shorten(shown)} is not known: read as a dense Llama layout"
    config.problems.where += f" ({note})"
    return "llama", FAMILIES["llama"], [note]


def is_active(value: object) -> bool:
    """Say whether a value switches something on: not null, false, zero, one or empty."""
    return not (value is None or value is False or value in (0, 1) or value in ("", [], {}, ()))


def stored_dtype(config: Config) -> str:
    """Read the format of weights that are not quantised."""
    text = config.text("torch_dtype") or config.text("dtype")
    config.understood.update(("torch_dtype", "dtype"))
    if not text:
        config.defaulted["torch_dtype"] = "bf16"
        return "bf16"
    try:
        dtype = canonical_dtype(text)
    except InputError as error:
        config.wrong("torch_dtype", f"is not understood: {error}")
        return "bf16"
    if dtype not in ("fp32", "bf16", "fp16"):
        config.wrong("torch_dtype", "must be a 16- or 32-bit format; quantisation is told by quantization_config", text)
        return "bf16"
    return dtype


def unread_keys(config: Config, family: str) -> list[str]:
    """Refuse decisive keys nobody read; list other structural ones as not used."""
    unread = [key for key in config.unread() if key not in IGNORED]
    for key in unread:
        if DECISIVE.search(str(key)) and is_active(config.values[key]):
            config.wrong(
                str(key),
                f"is not part of the {family} family as known here, and would change every count",
                config.values[key],
                "check model_type, or remove the key if it changes no size",
            )
    structural = [str(key) for key in unread if STRUCTURAL.search(str(key)) and is_active(config.values[key])]
    if not structural:
        return []
    return [f"not used by the {family} layout: " + ", ".join(structural[:20])]
