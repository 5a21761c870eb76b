"""Families with multi-head latent attention: DeepSeek-V2 and later, Kimi-K2, GLM-5."""

from __future__ import annotations

from attrs import evolve

from latency_model.specs.huggingface.parts import (
    Decoder,
    Experts,
    dense_mlp,
    feed_forward,
    linear,
    moe,
    read_experts,
    stack,
)
from latency_model.specs.huggingface.reader import LIMITS, Config
from latency_model.specs.model import Indexer, LatentAttention, Layer, Projection

__all__ = ["deepseek", "deepseek_sparse"]


def deepseek(config: Config) -> Decoder:
    """DeepSeek-V2, V2-Lite, V3, R1 and Kimi-K2: latent attention, shared experts, the first layers dense."""
    return _decoder(config, indexed=False)


def deepseek_sparse(config: Config) -> Decoder:
    """DeepSeek-V3.2: V3 with an indexer that picks the cached tokens each query reads."""
    return _decoder(config, indexed=True)


def _decoder(config: Config, *, indexed: bool) -> Decoder:
    hidden = config.integer("hidden_size")
    layers = config.integer("num_hidden_layers", high=LIMITS["layers"])
    vocab = config.integer("vocab_size")
    tied = config.flag("tie_word_embeddings", False)
    mixer = read_latent_attention(config, hidden)
    if indexed:
        mixer = evolve(mixer, indexer=read_indexer(config, hidden))
    width = config.integer("intermediate_size")
    experts = read_experts(config, ("n_routed_experts", "num_local_experts", "num_experts"), "moe_intermediate_size")
    shared = read_shared_experts(config, hidden, experts)
    sparse = read_sparse_layers(config, layers)
    config.check()
    routed = Layer(
        mixer=mixer, feed_forward=(moe(hidden, experts, shared=shared),), vectors=2 * hidden
    )
    dense = Layer(mixer=mixer, feed_forward=(dense_mlp(hidden, width),), vectors=2 * hidden)
    return Decoder(
        hidden_size=hidden,
        vocab_size=vocab,
        layers=stack(layers, lambda index: routed if sparse[index] else dense),
        tied=tied,
        final_norm=hidden,
    )


def read_shared_experts(config: Config, hidden: int, experts: Experts) -> tuple[Projection, ...]:
    """Shared experts run as one MLP of their summed width; none where the count is null or zero."""
    count = config.integer("n_shared_experts", "num_shared_experts", default=0, low=0)
    return feed_forward(hidden, count * experts.width, "mlp.shared_experts") if count else ()


def read_sparse_layers(config: Config, layers: int) -> tuple[bool, ...]:
    """Which layers are routed: from ``first_k_dense_replace`` on, every ``moe_layer_freq``-th one."""
    kinds = config.layer_list("mlp_layer_types", ("dense", "sparse"), layers)
    first = config.optional_integer("first_k_dense_replace", low=0)
    every = config.integer("moe_layer_freq", default=1)
    if kinds is not None:
        return tuple(kind == "sparse" for kind in kinds)
    if first is None:
        config.wrong("first_k_dense_replace", "is missing; it says how many leading layers are dense")
        return (True,) * layers
    return tuple(index >= first and index % every == 0 for index in range(layers))


def read_latent_attention(config: Config, hidden: int) -> LatentAttention:
    """Latent attention with (V3) or without (V2-Lite) a low-rank query path.

    The down-projections of queries and of the cached latent read the same input: one kernel, ``latent_down``.
    """
    heads = config.integer("num_attention_heads")
    key_value = config.integer("num_key_value_heads", default=heads)
    if key_value != heads:
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
        down = (Projection(name="latent_down", matrices=(q_a, kv_a)), Projection(name="query_up", matrices=(q_b,)))
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
    """The scorer of sparse attention: queries from the query latent, one key and one weight per head."""
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
