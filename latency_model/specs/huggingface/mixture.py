"""Softmax-attention families with routed experts."""

from __future__ import annotations

from latency_model.specs.huggingface.dense import qwen_windows, read_window
from latency_model.specs.huggingface.parts import (
    Decoder,
    attention,
    dense_mlp,
    feed_forward,
    linear,
    moe,
    read_experts,
    read_shape,
    stack,
)
from latency_model.specs.huggingface.reader import Config
from latency_model.specs.model import DenseMLP, Layer, MoE, Projection

__all__ = ["mixtral", "qwen2_moe", "qwen3_moe", "qwen_sparse_layers", "shared_expert"]


def mixtral(config: Config) -> Decoder:
    """Mixtral: routed experts in every layer, none shared."""
    shape = read_shape(config)
    window = read_window(config)
    experts = read_experts(config, ("num_local_experts", "num_experts"), "intermediate_size")
    config.check()
    layer = Layer(
        mixer=attention(shape, window=window),
        feed_forward=(moe(shape.hidden, experts, module="block_sparse_moe", names=("w1", "w3", "w2")),),
        vectors=2 * shape.hidden,
    )
    return shape.decoder((layer,) * shape.layers)


def qwen3_moe(config: Config) -> Decoder:
    """Qwen3 with experts: dense where ``decoder_sparse_step`` or ``mlp_only_layers`` say so."""
    shape = read_shape(config)
    bias = config.flag("attention_bias", False)
    windows = qwen_windows(config, shape.layers)
    experts = read_experts(config, ("num_experts", "num_local_experts"), "moe_intermediate_size")
    sparse = qwen_sparse_layers(config, shape.layers)
    width = config.integer("intermediate_size") if not all(sparse) else ignore_width(config)
    config.check()

    def layer(index: int) -> Layer:
        block: MoE | DenseMLP = moe(shape.hidden, experts) if sparse[index] else dense_mlp(shape.hidden, width)
        mixer = attention(
            shape, qkv_bias=bias, output_bias=bias, window=windows[index], vectors=2 * shape.head_dim
        )
        return Layer(mixer=mixer, feed_forward=(block,), vectors=2 * shape.hidden)

    return shape.decoder(stack(shape.layers, layer))


def qwen2_moe(config: Config) -> Decoder:
    """Qwen1.5/2 with experts: a shared expert behind a sigmoid gate beside the routed ones."""
    shape = read_shape(config)
    bias = config.flag("qkv_bias", True)
    windows = qwen_windows(config, shape.layers)
    experts = read_experts(config, ("num_experts", "num_local_experts"), "moe_intermediate_size")
    shared_width = config.integer("shared_expert_intermediate_size")
    sparse = qwen_sparse_layers(config, shape.layers)
    width = config.integer("intermediate_size") if not all(sparse) else ignore_width(config)
    config.check()
    routed = moe(shape.hidden, experts, shared=shared_expert(shape.hidden, shared_width))

    def layer(index: int) -> Layer:
        return Layer(
            mixer=attention(shape, qkv_bias=bias, window=windows[index]),
            feed_forward=(routed if sparse[index] else dense_mlp(shape.hidden, width),),
            vectors=2 * shape.hidden,
        )

    return shape.decoder(stack(shape.layers, layer))


def ignore_width(config: Config) -> int:
    """The dense width a config states although no layer uses it."""
    config.get("intermediate_size")
    return 1


def qwen_sparse_layers(config: Config, layers: int) -> tuple[bool, ...]:
    """Which layers are routed: every ``decoder_sparse_step``-th one that is not in ``mlp_only_layers``."""
    step = config.integer("decoder_sparse_step", default=1)
    dense = set(config.integers("mlp_only_layers") or ())
    return tuple(index not in dense and (index + 1) % step == 0 for index in range(layers))


def shared_expert(hidden: int, width: int) -> tuple[Projection, ...]:
    """Qwen's shared expert with its sigmoid gate of one output."""
    gate = Projection(name="shared_gate", matrices=(linear("mlp.shared_expert_gate", hidden, 1),))
    return (*feed_forward(hidden, width, "mlp.shared_expert"), gate)
