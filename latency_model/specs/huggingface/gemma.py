"""Gemma 1 to 4: tied embeddings, norms before and after each block, windowed layers between full ones."""

from __future__ import annotations

from attrs import evolve

from latency_model.specs.huggingface.parts import (
    Decoder,
    Shape,
    attention,
    dense_mlp,
    linear,
    moe,
    read_experts,
    read_shape,
    stack,
)
from latency_model.specs.huggingface.reader import Config
from latency_model.specs.model import Attention, DenseMLP, FeedForward, Layer, Matrix, Projection

__all__ = ["gemma", "gemma2", "gemma3", "gemma4", "read_windows"]

SLIDING, FULL = "sliding_attention", "full_attention"

#: What the published Gemma-3 text configs leave out because their configuration class fixes it.
GEMMA3_CLASS = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262_208}


def gemma(config: Config) -> Decoder:
    """Read Gemma 1: Llama with a head size of its own and tied embeddings."""
    return _dense(config, norms=2, query_key_norm=False, windowed=False)


def gemma2(config: Config) -> Decoder:
    """Read Gemma 2: every second layer windowed, four norms."""
    return _dense(config, norms=4, query_key_norm=False, pattern=2)


def gemma3(config: Config) -> Decoder:
    """Read Gemma 3: five windowed layers to one full one, norms on queries and keys."""
    absent = {name: value for name, value in GEMMA3_CLASS.items() if not config.has(name)}
    config.defaulted.update(absent)
    config.values = {**config.values, **absent}
    return _dense(config, norms=4, query_key_norm=True, pattern=6)


def _dense(config: Config, *, norms: int, query_key_norm: bool, windowed: bool = True, pattern: int = 1) -> Decoder:
    shape = read_shape(config, tied=True)
    config.require("head_dim")
    width = config.integer("intermediate_size")
    bias = config.flag("attention_bias", False)
    windows = read_windows(config, shape.layers, pattern) if windowed else (None,) * shape.layers
    config.check()
    vectors = 2 * shape.head_dim if query_key_norm else 0
    mlp = dense_mlp(shape.hidden, width)

    def layer(index: int) -> Layer:
        mixer = attention(shape, qkv_bias=bias, output_bias=bias, window=windows[index], vectors=vectors)
        return Layer(mixer=mixer, feed_forward=(mlp,), vectors=norms * shape.hidden)

    return shape.decoder(stack(shape.layers, layer))


def read_windows(config: Config, layers: int, pattern: int) -> tuple[int | None, ...]:
    """Read the window of each layer from ``layer_types``, else every ``pattern``-th layer is full."""
    window = config.optional_integer("sliding_window")
    every = config.integer("sliding_window_pattern", "_sliding_window_pattern", default=pattern)
    kinds = config.layer_list("layer_types", (FULL, SLIDING), layers)
    if kinds is None:
        kinds = tuple(SLIDING if (index + 1) % every else FULL for index in range(layers))
    else:
        config.defaulted.pop("sliding_window_pattern", None)
    if SLIDING in kinds and window is None:
        config.wrong("sliding_window", "is missing; some layers are sliding_attention")
    return tuple(window if kind == SLIDING else None for kind in kinds)


def gemma4(config: Config) -> Decoder:
    """Read Gemma 4: full layers with their own head size and KV heads, shared caches, PLE, experts.

    Where ``enable_moe_block`` is set a dense MLP and routed experts run side by side in every layer.  Where
    ``hidden_size_per_layer_input`` is positive each layer gathers a small embedding of its own (PLE), mixes
    it with a projection of the input embedding and adds it through a gate.
    """
    local = read_shape(config, tied=True)
    config.require("head_dim")
    windows = read_windows(config, local.layers, 6)
    windows = (*windows[:-1], None)  # the last layer is always full, whatever the list says
    full = read_global_shape(config, local)
    bias = config.flag("attention_bias", False)
    same_key_value = config.flag("attention_k_eq_v", False)
    shared = config.integer("num_kv_shared_layers", default=0, low=0)
    owners = windows[: max(0, local.layers - shared)]
    if shared and len({window is None for window in owners}) != len({window is None for window in windows}):
        config.wrong("num_kv_shared_layers", "must leave one unshared layer of each attention kind", shared)
    width = config.integer("intermediate_size")
    wide = config.flag("use_double_wide_mlp", False)
    routed = read_routed_block(config, local.hidden)
    own = config.integer("hidden_size_per_layer_input", default=0, low=0)
    rows = config.integer("vocab_size_per_layer_input", default=local.vocab)
    config.check()
    inputs = per_layer_input(local.hidden, own) if own else ()
    embedding = Matrix(name="embed_tokens_per_layer", inputs=rows, outputs=own, split="inputs") if own else None
    norms = 4 + (3 if routed else 0) + (1 if own else 0)

    def layer(index: int) -> Layer:
        shares = index >= len(owners)
        mixer = gemma4_attention(
            full if windows[index] is None else local,
            bias=bias,
            window=windows[index],
            value=not (same_key_value and windows[index] is None),
            shares_cache=shares,
        )
        mlp = dense_mlp(local.hidden, width * (2 if wide and shares else 1))
        return Layer(
            mixer=mixer,
            feed_forward=(mlp, *routed, *inputs),
            vectors=norms * local.hidden,
            embedding=embedding,
        )

    return local.decoder(stack(local.layers, layer), final_norm=local.hidden + own)


def read_global_shape(config: Config, local: Shape) -> Shape:
    """Read the head size and KV heads of full-attention layers."""
    head_dim = config.integer("global_head_dim", default=512)
    key_value = config.optional_integer("num_global_key_value_heads")
    if key_value is None or config.values.get("attention_k_eq_v") is not True:
        key_value = local.kv_heads
    if local.heads % key_value and config.sound("num_attention_heads", "num_key_value_heads"):
        config.wrong("num_global_key_value_heads", f"must divide num_attention_heads = {local.heads}", key_value)
    return evolve(local, head_dim=head_dim, kv_heads=key_value)


def read_routed_block(config: Config, hidden: int) -> tuple[FeedForward, ...]:
    """Read the routed block beside the dense MLP; its router scales inputs and experts."""
    if not config.flag("enable_moe_block", False):
        for name in ("num_experts", "top_k_experts", "moe_intermediate_size"):
            if config.get(name) not in (None, 0):
                config.wrong(name, "is given but enable_moe_block is not true", config.values[name])
        return ()
    experts = read_experts(config, ("num_experts",), "moe_intermediate_size", ("top_k_experts",))
    block = moe(hidden, experts, router="router.proj", expert="experts.0", vectors=hidden + experts.count)
    return (block,)


def gemma4_attention(shape: Shape, *, bias: bool, window: int | None, value: bool, shares_cache: bool) -> Attention:
    """Build attention that may reuse keys as values or read the cache of an earlier layer."""
    mixer = attention(
        shape,
        qkv_bias=bias,
        output_bias=bias,
        window=window,
        vectors=shape.head_dim * (1 if shares_cache else 2),
    )
    qkv, output = mixer.projections
    kept = qkv.matrices[:1] if shares_cache else qkv.matrices if value else qkv.matrices[:2]
    return evolve(mixer, projections=(Projection(name="qkv", matrices=kept), output), shares_cache=shares_cache)


def per_layer_input(hidden: int, own: int) -> tuple[DenseMLP, ...]:
    """Build the block that adds a layer's own embedding: its share of the projection, gate, way back."""

    def single(name: str, inputs: int, outputs: int) -> Projection:
        return Projection(name=name, matrices=(linear(name, inputs, outputs),))

    return (
        DenseMLP(
            projections=(
                single("per_layer_model_projection", hidden, own),
                single("per_layer_input_gate", hidden, own),
                single("per_layer_projection", own, hidden),
            )
        ),
    )
