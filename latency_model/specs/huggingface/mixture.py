"""Softmax-attention families with routed experts."""

from __future__ import annotations

from latency_model.specs.huggingface.dense import qwen_windows, read_window
from latency_model.specs.huggingface.gemma import read_windows
from latency_model.specs.huggingface.parts import (
    Decoder,
    Experts,
    attention,
    dense_mlp,
    feed_forward,
    linear,
    moe,
    read_experts,
    read_shape,
    stack,
)
from latency_model.specs.huggingface.reader import LIMITS, Config
from latency_model.specs.model import DenseMLP, Layer, MoE, Projection

__all__ = [
    "glm4_moe",
    "gpt_oss",
    "llama4",
    "minimax_m2",
    "mixtral",
    "olmoe",
    "phimoe",
    "qwen2_moe",
    "qwen3_moe",
    "qwen_sparse_layers",
    "read_dense_width",
    "read_shared_experts",
    "read_sparse_layers",
    "shared_expert",
]

BLOCK_SPARSE = ("w1", "w3", "w2")  # gate, up and down as Mixtral and its heirs name them


def mixtral(config: Config) -> Decoder:
    """Read Mixtral: routed experts in every layer, none shared."""
    shape = read_shape(config)
    window = read_window(config)
    experts = read_experts(config, ("num_local_experts", "num_experts"), "intermediate_size")
    config.check()
    layer = Layer(
        mixer=attention(shape, window=window),
        feed_forward=(moe(shape.hidden, experts, module="block_sparse_moe", names=BLOCK_SPARSE),),
        vectors=2 * shape.hidden,
    )
    return shape.decoder((layer,) * shape.layers)


def qwen3_moe(config: Config) -> Decoder:
    """Read Qwen3 with experts: dense where ``decoder_sparse_step`` or ``mlp_only_layers`` say so."""
    shape = read_shape(config)
    bias = config.flag("attention_bias", False)
    windows = qwen_windows(config, shape.layers)
    experts = read_experts(config, ("num_experts", "num_local_experts"), "moe_intermediate_size")
    sparse = qwen_sparse_layers(config, shape.layers)
    width = read_dense_width(config, sparse)
    config.check()

    def layer(index: int) -> Layer:
        block: MoE | DenseMLP = moe(shape.hidden, experts) if sparse[index] else dense_mlp(shape.hidden, width)
        mixer = attention(shape, qkv_bias=bias, output_bias=bias, window=windows[index], vectors=2 * shape.head_dim)
        return Layer(mixer=mixer, feed_forward=(block,), vectors=2 * shape.hidden)

    return shape.decoder(stack(shape.layers, layer))


def qwen2_moe(config: Config) -> Decoder:
    """Read Qwen1.5/2 with experts: a shared expert behind a sigmoid gate beside the routed ones."""
    shape = read_shape(config)
    bias = config.flag("qkv_bias", True)
    windows = qwen_windows(config, shape.layers)
    experts = read_experts(config, ("num_experts", "num_local_experts"), "moe_intermediate_size")
    shared_width = config.integer("shared_expert_intermediate_size")
    sparse = qwen_sparse_layers(config, shape.layers)
    width = read_dense_width(config, sparse)
    config.check()
    routed = moe(shape.hidden, experts, shared=shared_expert(shape.hidden, shared_width))

    def layer(index: int) -> Layer:
        return Layer(
            mixer=attention(shape, qkv_bias=bias, window=windows[index]),
            feed_forward=(routed if sparse[index] else dense_mlp(shape.hidden, width),),
            vectors=2 * shape.hidden,
        )

    return shape.decoder(stack(shape.layers, layer))


def read_dense_width(config: Config, sparse: tuple[bool, ...]) -> int:
    """Read the width of dense layers, required only where there are any."""
    return (config.optional_integer("intermediate_size") or 1) if all(sparse) else config.integer("intermediate_size")


def qwen_sparse_layers(config: Config, layers: int) -> tuple[bool, ...]:
    """Read which layers are routed: every ``decoder_sparse_step``-th one not in ``mlp_only_layers``."""
    step = config.optional_integer("decoder_sparse_step") or 1
    dense = set(config.integers("mlp_only_layers") or ())
    return tuple(index not in dense and (index + 1) % step == 0 for index in range(layers))


def shared_expert(hidden: int, width: int) -> tuple[Projection, ...]:
    """Build Qwen's shared expert with its sigmoid gate of one output."""
    gate = Projection(name="shared_gate", matrices=(linear("mlp.shared_expert_gate", hidden, 1),))
    return (*feed_forward(hidden, width, "mlp.shared_expert"), gate)


def olmoe(config: Config) -> Decoder:
    """Read OLMoE: norms over all query and all key channels."""
    shape = read_shape(config, free_head_dim=False, kv_heads=False)
    bias = config.flag("attention_bias", False)
    experts = read_experts(config, ("num_experts", "num_local_experts"), "intermediate_size")
    config.check()
    channels = (shape.heads + shape.kv_heads) * shape.head_dim
    layer = Layer(
        mixer=attention(shape, qkv_bias=bias, output_bias=bias, vectors=channels),
        feed_forward=(moe(shape.hidden, experts),),
        vectors=2 * shape.hidden,
    )
    return shape.decoder((layer,) * shape.layers)


def phimoe(config: Config) -> Decoder:
    """Read Phi-3.5-MoE: Mixtral with biases, layer norms (weight and bias) and a bias on the LM head."""
    shape = read_shape(config, free_head_dim=False)
    bias = config.flag("attention_bias", False)
    head_bias = config.flag("lm_head_bias", False)
    window = read_window(config)
    experts = read_experts(config, ("num_local_experts", "num_experts"), "intermediate_size")
    config.check()
    layer = Layer(
        mixer=attention(shape, qkv_bias=bias, output_bias=bias, window=window),
        feed_forward=(moe(shape.hidden, experts, module="block_sparse_moe", names=BLOCK_SPARSE),),
        vectors=4 * shape.hidden,
    )
    return shape.decoder(
        (layer,) * shape.layers, final_norm=2 * shape.hidden, head_bias=shape.vocab if head_bias else 0
    )


def minimax_m2(config: Config) -> Decoder:
    """Read MiniMax-M2: norms over all query and all key channels, no shared expert."""
    shape = read_shape(config)
    experts = read_experts(config, ("num_local_experts", "num_experts"), "intermediate_size")
    normed = config.flag("use_qk_norm", True)
    if config.integer("shared_intermediate_size", default=0, low=0):
        config.wrong("shared_intermediate_size", "must be 0", config.values["shared_intermediate_size"])
    config.check()
    layer = Layer(
        mixer=attention(shape, vectors=(shape.heads + shape.kv_heads) * shape.head_dim if normed else 0),
        feed_forward=(moe(shape.hidden, experts, module="block_sparse_moe", names=BLOCK_SPARSE),),
        vectors=2 * shape.hidden,
    )
    return shape.decoder((layer,) * shape.layers)


def gpt_oss(config: Config) -> Decoder:
    """Read gpt-oss: biases everywhere, one sink per head, windowed and full layers in turn."""
    shape = read_shape(config)
    bias = config.flag("attention_bias", True)
    windows = read_windows(config, shape.layers, 2)
    experts = read_experts(
        config,
        ("num_local_experts", "num_experts"),
        "intermediate_size",
        ("num_experts_per_tok", "experts_per_token"),
    )
    config.check()
    block = moe(
        shape.hidden,
        experts,
        router="mlp.router",
        expert="mlp.experts",
        names=("gate_up_proj", "gate_up_proj", "down_proj"),
        router_bias=True,
        expert_bias=True,
    )

    def layer(index: int) -> Layer:
        mixer = attention(shape, qkv_bias=bias, output_bias=bias, window=windows[index], vectors=shape.heads)
        return Layer(mixer=mixer, feed_forward=(block,), vectors=2 * shape.hidden)

    return shape.decoder(stack(shape.layers, layer))


def llama4(config: Config) -> Decoder:
    """Read Llama 4: routed layers at a step, one shared expert, chunked attention but for NoPE layers."""
    shape = read_shape(config)
    bias = config.flag("attention_bias", False)
    windows = read_chunks(config, shape.layers)
    experts = read_experts(config, ("num_local_experts", "num_experts"), "intermediate_size")
    sparse = read_interleaved_layers(config, shape.layers)
    width = config.integer("intermediate_size_mlp") if not all(sparse) else 1
    config.understood.update(("intermediate_size_mlp", "use_qk_norm"))  # that norm has no parameters
    config.check()
    module = "feed_forward"
    shared = feed_forward(shape.hidden, experts.width, f"{module}.shared_expert")
    routed = moe(shape.hidden, experts, module=module, router=f"{module}.router", shared=shared)
    dense = dense_mlp(shape.hidden, width, module)

    def layer(index: int) -> Layer:
        return Layer(
            mixer=attention(shape, qkv_bias=bias, output_bias=bias, window=windows[index]),
            feed_forward=(routed if sparse[index] else dense,),
            vectors=2 * shape.hidden,
        )

    return shape.decoder(stack(shape.layers, layer))


def read_interleaved_layers(config: Config, layers: int) -> tuple[bool, ...]:
    """Read which Llama-4 layers are routed: those listed in ``moe_layers``, else every step-th."""
    listed = config.integers("moe_layers", high=LIMITS["layers"])
    if listed is not None:
        if any(index >= layers for index in listed):
            config.wrong("moe_layers", f"must name layers below num_hidden_layers = {layers}", max(listed))
        config.understood.add("interleave_moe_layer_step")
        return tuple(index in set(listed) for index in range(layers))
    step = config.integer("interleave_moe_layer_step")
    return tuple((index + 1) % step == 0 for index in range(layers))


def read_chunks(config: Config, layers: int) -> tuple[int | None, ...]:
    """Read the attention chunk of each Llama-4 layer: none where the layer has no rotary embedding."""
    chunk = config.optional_integer("attention_chunk_size")
    kinds = config.layer_list("layer_types", ("full_attention", "chunked_attention"), layers)
    rotary = config.integers("no_rope_layers", high=1)  # the name misleads: 1 marks layers with rotary embedding
    interval = config.optional_integer("no_rope_layer_interval") or 4
    if kinds is not None:
        if chunk is None and "chunked_attention" in kinds:
            config.wrong("attention_chunk_size", "is missing; some layers are chunked_attention")
        return tuple(chunk if kind == "chunked_attention" else None for kind in kinds)
    if rotary and len(rotary) != layers:
        config.wrong("no_rope_layers", f"must hold one number for each of the {layers} layers", len(rotary))
        rotary = None
    marks = rotary or tuple(int((index + 1) % interval != 0) for index in range(layers))
    return tuple(chunk if mark else None for mark in marks)


def glm4_moe(config: Config) -> Decoder:
    """Read GLM-4.5 and later: grouped-query attention with DeepSeek's experts."""
    shape = read_shape(config)
    bias = config.flag("attention_bias", False)
    normed = config.flag("use_qk_norm", False)
    experts = read_experts(config, ("n_routed_experts", "num_local_experts", "num_experts"), "moe_intermediate_size")
    shared = read_shared_experts(config, shape.hidden, experts)
    sparse = read_sparse_layers(config, shape.layers)
    width = read_dense_width(config, sparse)
    config.check()
    routed = moe(shape.hidden, experts, shared=shared)
    dense = dense_mlp(shape.hidden, width)
    mixer = attention(shape, qkv_bias=bias, vectors=2 * shape.head_dim if normed else 0)

    def layer(index: int) -> Layer:
        block = routed if sparse[index] else dense
        return Layer(mixer=mixer, feed_forward=(block,), vectors=2 * shape.hidden)

    return shape.decoder(stack(shape.layers, layer))


def read_shared_experts(config: Config, hidden: int, experts: Experts) -> tuple[Projection, ...]:
    """Read shared experts, which run as one MLP of their summed width; none where the count is null or 0."""
    count = config.integer("n_shared_experts", "num_shared_experts", default=0, low=0)
    return feed_forward(hidden, count * experts.width, "mlp.shared_experts") if count else ()


def read_sparse_layers(config: Config, layers: int) -> tuple[bool, ...]:
    """Read which layers are routed: from ``first_k_dense_replace`` on, every ``moe_layer_freq``-th one."""
    kinds = config.layer_list("mlp_layer_types", ("dense", "sparse"), layers)
    first = config.optional_integer("first_k_dense_replace", low=0)
    every = config.optional_integer("moe_layer_freq") or 1
    if kinds is not None:
        return tuple(kind == "sparse" for kind in kinds)
    if first is None:
        config.wrong("first_k_dense_replace", "is missing; it says how many leading layers are dense")
        return (True,) * layers
    return tuple(index >= first and index % every == 0 for index in range(layers))
