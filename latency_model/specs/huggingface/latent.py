"""Families with multi-head latent attention: DeepSeek-V2 and later, Kimi-K2, GLM-5."""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve

from latency_model.specs.huggingface.mixture import read_dense_width, read_shared_experts, read_sparse_layers
from latency_model.specs.huggingface.parts import (
    Decoder,
    dense_mlp,
    linear,
    moe,
    read_experts,
    stack,
)
from latency_model.specs.huggingface.reader import LIMITS, Config
from latency_model.specs.model import Indexer, LatentAttention, Layer, Projection

__all__ = ["deepseek", "deepseek_sparse", "glm_moe_dsa"]


def deepseek(config: Config) -> Decoder:
    """Read DeepSeek-V2, V3, R1 and Kimi-K2: latent attention, shared experts, leading dense layers."""
    return _decoder(config, lambda hidden, layers: (None,) * layers)


def deepseek_sparse(config: Config) -> Decoder:
    """Read DeepSeek-V3.2: V3 with an indexer that picks the cached tokens each query reads."""
    return _decoder(config, lambda hidden, layers: (read_indexer(config, hidden),) * layers)


def glm_moe_dsa(config: Config) -> Decoder:
    """Read GLM-5: DeepSeek-V3.2's layout, where some layers may reuse the choice of an earlier indexer."""
    return _decoder(config, lambda hidden, layers: read_indexers(config, hidden, layers))


def _decoder(config: Config, read: Callable[[int, int], tuple[Indexer | None, ...]]) -> Decoder:
    hidden = config.integer("hidden_size")
    layers = config.integer("num_hidden_layers", high=LIMITS["layers"])
    vocab = config.integer("vocab_size")
    tied = config.flag("tie_word_embeddings", False)
    mixer = read_latent_attention(config, hidden)
    indexers = read(hidden, layers)
    experts = read_experts(config, ("n_routed_experts", "num_local_experts", "num_experts"), "moe_intermediate_size")
    shared = read_shared_experts(config, hidden, experts)
    sparse = read_sparse_layers(config, layers)
    width = read_dense_width(config, sparse)
    config.check()
    routed = moe(hidden, experts, shared=shared)
    dense = dense_mlp(hidden, width)

    def layer(index: int) -> Layer:
        block = routed if sparse[index] else dense
        return Layer(mixer=evolve(mixer, indexer=indexers[index]), feed_forward=(block,), vectors=2 * hidden)

    return Decoder(hidden_size=hidden, vocab_size=vocab, layers=stack(layers, layer), tied=tied, final_norm=hidden)


def read_latent_attention(config: Config, hidden: int) -> LatentAttention:
    """Read latent attention with (V3) or without (V2-Lite) a low-rank query path.

    The down-projections of queries and of the cached latent read the same input: one kernel, ``latent_down``.
    """
    heads = config.integer("num_attention_heads")
    key_value = config.integer("num_key_value_heads", default=heads)
    if key_value != heads and config.sound("num_attention_heads", "num_key_value_heads"):
        config.wrong("num_key_value_heads", f"must equal num_attention_heads = {heads} in latent attention", key_value)
    rank = config.integer("kv_lora_rank")
    nope = config.integer("qk_nope_head_dim")
    rope = config.integer("qk_rope_head_dim")
    value = config.integer("v_head_dim")
    query_rank = config.optional_integer("q_lora_rank")
    if "q_lora_rank" not in config.values:
        config.wrong("q_lora_rank", "is missing; null says that queries have no low-rank path")
    bias = config.flag("attention_bias", False)

    kv_a = linear("self_attn.kv_a_proj_with_mqa", hidden, rank + rope, bias=bias)
    kv_b = linear("self_attn.kv_b_proj", rank, heads * (nope + value), split="outputs")
    output = linear("self_attn.o_proj", heads * value, hidden, bias=bias, split="inputs")
    if query_rank is None:
        queries = (linear("self_attn.q_proj", hidden, heads * (nope + rope), split="outputs"),)
        down = (Projection(name="query", matrices=queries), Projection(name="latent_down", matrices=(kv_a,)))
    else:
        q_a = linear("self_attn.q_a_proj", hidden, query_rank, bias=bias)
        q_b = linear("self_attn.q_b_proj", query_rank, heads * (nope + rope), split="outputs")
        down = (
            Projection(name="latent_down", matrices=(q_a, kv_a)),
            Projection(name="query_up", matrices=(q_b,)),
        )
    return LatentAttention(
        projections=(
            *down,
            Projection(name="latent_up", matrices=(kv_b,)),
            Projection(name="output", matrices=(output,)),
        ),
        heads=heads,
        latent_rank=rank,
        rope_dim=rope,
        nope_dim=nope,
        value_dim=value,
        vectors=rank + (query_rank or 0),
    )


def read_indexer(config: Config, hidden: int) -> Indexer:
    """Read the scorer of sparse attention: queries from the query latent, one key and one weight per head."""
    heads = config.integer("index_n_heads")
    dim = config.integer("index_head_dim")
    top_k = config.integer("index_topk")
    query_rank = config.integer("q_lora_rank")
    module = "self_attn.indexer"
    key = Projection(
        name="indexer_key",
        matrices=(linear(f"{module}.wk", hidden, dim), linear(f"{module}.weights_proj", hidden, heads)),
    )
    query = Projection(name="indexer_query", matrices=(linear(f"{module}.wq_b", query_rank, heads * dim),))
    return Indexer(projections=(key, query), heads=heads, dim=dim, top_k=top_k, vectors=2 * dim)


def read_indexers(config: Config, hidden: int, layers: int) -> tuple[Indexer, ...]:
    """Read one indexer per layer; a ``shared`` one has no weights and reuses the tokens chosen before it."""
    kinds = config.layer_list("indexer_types", ("full", "shared"), layers)
    pattern = config.get("index_topk_pattern")
    every = config.optional_integer("index_topk_freq") or 1
    offset = config.integer("index_skip_topk_offset", default=2, low=0) if every > 1 else 2
    if pattern is not None and kinds is None:
        letters = {"F": "full", "S": "shared"}
        if not isinstance(pattern, str) or len(pattern) != layers or set(pattern) - set(letters):
            config.wrong("index_topk_pattern", f"must be {layers} letters F or S", pattern)
        else:
            kinds = tuple(letters[letter] for letter in pattern)
    if kinds is None:
        kinds = tuple("shared" if max(index - offset + 1, 0) % every else "full" for index in range(layers))
    if kinds[0] == "shared":
        config.wrong("indexer_types", "must start with a full indexer", kinds[0])
    own = read_indexer(config, hidden)
    reused = Indexer(projections=(), heads=0, dim=0, top_k=own.top_k)
    return tuple(own if kind == "full" else reused for kind in kinds)
