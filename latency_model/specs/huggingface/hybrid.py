"""Families that mix softmax attention with recurrent layers: Qwen3-Next, Qwen3.5, Nemotron-H."""

from __future__ import annotations

from collections.abc import Callable

from latency_model.errors import InputError
from latency_model.specs.dtypes import canonical_dtype
from latency_model.specs.huggingface.mixture import qwen_sparse_layers, read_dense_width, shared_expert
from latency_model.specs.huggingface.parts import (
    PLAIN,
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
from latency_model.specs.huggingface.reader import LIMITS, Config
from latency_model.specs.model import FeedForward, Layer, Mixer, MoE, Projection, RecurrentMixer

__all__ = ["nemotron_h", "qwen3_5", "qwen3_5_moe", "qwen3_next"]

#: How each Qwen generation stores the input maps of a gated DeltaNet: module name and the parts it holds.
NEXT_INPUTS = (("in_proj_qkvz", "qkvz"), ("in_proj_ba", "ba"))
QWEN35_INPUTS = (("in_proj_qkv", "qkv"), ("in_proj_z", "z"), ("in_proj_b", "b"), ("in_proj_a", "a"))


def qwen3_next(config: Config) -> Decoder:
    """Read Qwen3-Next: gated DeltaNet layers, every fourth softmax with an output gate, experts in all."""
    return _qwen_hybrid(config, NEXT_INPUTS, routed=True)


def qwen3_5(config: Config) -> Decoder:
    """Read Qwen3.5 dense: Qwen3-Next's mixers with a plain MLP."""
    return _qwen_hybrid(config, QWEN35_INPUTS, routed=False)


def qwen3_5_moe(config: Config) -> Decoder:
    """Read Qwen3.5 with experts."""
    return _qwen_hybrid(config, QWEN35_INPUTS, routed=True)


def _qwen_hybrid(config: Config, inputs: tuple[tuple[str, str], ...], *, routed: bool) -> Decoder:
    shape = read_shape(config)
    kinds = read_kinds(config, shape.layers)
    bias = config.flag("attention_bias", False)
    gated = config.flag("attn_output_gate", True)
    recurrent = read_gated_deltanet(config, shape.hidden, inputs)
    sparse = qwen_sparse_layers(config, shape.layers) if routed else (False,) * shape.layers
    experts = read_experts(config, ("num_experts", "num_local_experts"), "moe_intermediate_size") if routed else None
    shared_width = config.integer("shared_expert_intermediate_size") if routed else 0
    width = read_dense_width(config, sparse)
    config.check()
    softmax = attention(shape, qkv_bias=bias, output_bias=bias, gated=gated, vectors=2 * shape.head_dim)
    dense = dense_mlp(shape.hidden, width)
    block = moe(shape.hidden, experts, shared=shared_expert(shape.hidden, shared_width)) if experts else dense

    def layer(index: int) -> Layer:
        return Layer(
            mixer=softmax if kinds[index] == "full_attention" else recurrent,
            feed_forward=(block if sparse[index] else dense,),
            vectors=2 * shape.hidden,
        )

    return shape.decoder(stack(shape.layers, layer))


def read_kinds(config: Config, layers: int) -> tuple[str, ...]:
    """Read which layers are softmax and which recurrent."""
    kinds = config.layer_list("layer_types", ("full_attention", "linear_attention"), layers)
    interval = config.integer("full_attention_interval", default=4)
    if kinds is not None:
        config.defaulted.pop("full_attention_interval", None)
        return kinds
    return tuple("linear_attention" if (index + 1) % interval else "full_attention" for index in range(layers))


def read_gated_deltanet(config: Config, hidden: int, inputs: tuple[tuple[str, str], ...]) -> RecurrentMixer:
    """Read a gated DeltaNet: per value head a state S of key size x value size.

    One token updates S = g S (I - beta k k^T) + beta v k^T and reads S q: per element of S one product for
    the decay, two for k S, two for the rank-one update and two for S q, that is
    7 x value heads x key size x value size, plus 2 x kernel x channels for the convolution over q, k and v.
    """
    key_heads = config.integer("linear_num_key_heads")
    value_heads = config.integer("linear_num_value_heads")
    key_dim = config.integer("linear_key_head_dim")
    value_dim = config.integer("linear_value_head_dim")
    kernel = config.integer("linear_conv_kernel_dim")
    if value_heads % key_heads and config.sound("linear_num_key_heads", "linear_num_value_heads"):
        config.wrong("linear_num_value_heads", f"must be a multiple of linear_num_key_heads = {key_heads}", value_heads)
    keys, values = key_heads * key_dim, value_heads * value_dim
    channels = 2 * keys + values
    outputs = {"q": keys, "k": keys, "v": values, "z": values, "b": value_heads, "a": value_heads}
    matrices = tuple(
        linear(f"linear_attn.{name}", hidden, sum(outputs[part] for part in parts), split="outputs")
        for name, parts in inputs
    )
    back = linear("linear_attn.out_proj", values, hidden, split="inputs")
    state = value_heads * key_dim * value_dim
    return RecurrentMixer(
        kind="gated_deltanet",
        projections=(
            Projection(name="input", matrices=matrices),
            Projection(name="output", matrices=(back,)),
        ),
        state_elements=state,
        convolution_elements=channels * (kernel - 1),
        flops_per_token=7 * state + 2 * kernel * channels,
        heads=value_heads,
        state_dtype=read_state_dtype(config, "mamba_ssm_dtype"),
        vectors=channels * kernel + 2 * value_heads + value_dim,
    )


def read_state_dtype(config: Config, name: str) -> str:
    """Read how the recurrent state is kept; fp32 where the config is silent, as the reference kernels do."""
    text = config.text(name)
    if not text:
        config.defaulted[name] = "fp32"
        return "fp32"
    try:
        return canonical_dtype(text)
    except InputError as error:
        config.wrong(name, f"is not understood: {error}")
        return "fp32"


#: Letters of ``hybrid_override_pattern`` and the layer kinds of newer configs.
PATTERN = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
KIND_NAMES = {"linear_attention": "mamba", "full_attention": "attention"} | {kind: kind for kind in PATTERN.values()}


def nemotron_h(config: Config) -> Decoder:
    """Read Nemotron-H: each layer is one block, Mamba-2, attention, MLP or experts, under one norm.

    MLP and experts are not gated (squared ReLU).  With ``moe_latent_size`` the experts work in a narrower
    space; the maps into and out of it are counted with the shared experts, which every token also passes.
    """
    kinds = read_pattern(config)
    if not config.has("num_hidden_layers"):  # newer configs leave it to the pattern
        config.values = {**config.values, "num_hidden_layers": len(kinds)}
    shape = read_shape(config)
    if len(kinds) != shape.layers and config.sound("num_hidden_layers"):
        config.wrong("num_hidden_layers", f"must be the {len(kinds)} layers of the pattern", shape.layers)
    for name in ("attention_bias", "mamba_proj_bias"):
        if config.flag(name, False):
            config.wrong(name, "is true, which no known Nemotron-H model uses", True)
    window = config.optional_integer("sliding_window")
    mlp_bias = config.flag("mlp_bias", False)
    readers: dict[str, Callable[[], Mixer | FeedForward]] = {
        "mamba": lambda: read_mamba2(config, shape.hidden),
        "attention": lambda: attention(shape, window=window, module="mixer"),
        "mlp": lambda: dense_mlp(shape.hidden, config.integer("intermediate_size"), "mixer", PLAIN, bias=mlp_bias),
        "moe": lambda: read_latent_moe(config, shape.hidden, mlp_bias=mlp_bias),
    }
    config.understood.add("intermediate_size")
    blocks = {kind: readers[kind]() for kind in sorted(set(kinds))}
    if "moe" not in blocks:
        forget_experts(config)
    config.check()

    def layer(index: int) -> Layer:
        block = blocks[kinds[index]]
        if isinstance(block, Mixer):
            return Layer(mixer=block, vectors=shape.hidden)
        return Layer(feed_forward=(block,), vectors=shape.hidden)

    return shape.decoder(stack(len(kinds), layer))


def forget_experts(config: Config) -> None:
    """Count expert sizes as read where the pattern has no routed layer to use them."""
    config.understood.update(
        (
            "moe_intermediate_size",
            "moe_latent_size",
            "moe_shared_expert_intermediate_size",
            "n_routed_experts",
            "n_shared_experts",
            "num_experts_per_tok",
        )
    )


def read_pattern(config: Config) -> tuple[str, ...]:
    """Read the kind of each layer, from the letters of older configs or the list of newer ones."""
    letters = config.text("hybrid_override_pattern")
    named = config.strings("layers_block_type", KIND_NAMES) or config.strings("layer_types", KIND_NAMES)
    unknown = sorted(set(letters) - set(PATTERN))
    if unknown:
        config.wrong("hybrid_override_pattern", f"may hold the letters {' '.join(PATTERN)} only", unknown[0])
    if len(letters) > LIMITS["layers"]:
        config.wrong("hybrid_override_pattern", f"must not name more than {LIMITS['layers']} layers", len(letters))
    if not letters and not named:
        config.wrong("hybrid_override_pattern", "is missing; it names the kind of each layer")
    config.check()
    by_letter = tuple(PATTERN[letter] for letter in letters)
    by_name = tuple(KIND_NAMES[kind] for kind in named or ())
    if letters and named and by_letter != by_name:
        config.wrong("hybrid_override_pattern", "contradicts layers_block_type", letters)
    return by_letter or by_name


def read_mamba2(config: Config, hidden: int) -> RecurrentMixer:
    """Read a Mamba-2 block: per head a state of head size x state size.

    One token updates h = exp(dt A) h + dt x B^T and reads h C: per element of h one product for the decay,
    two for the outer product added, two for the readout, that is 5 x heads x head size x state size, plus
    2 x kernel x channels for the convolution over x, B and C.
    """
    heads = config.integer("mamba_num_heads")
    head_dim = config.integer("mamba_head_dim")
    state = config.integer("ssm_state_size")
    groups = config.integer("n_groups", "mamba_n_groups")
    kernel = config.integer("conv_kernel", "mamba_d_conv")
    bias = config.flag("use_bias", False)
    conv_bias = config.flag("use_conv_bias", True)
    if heads % groups and config.sound("mamba_num_heads", "n_groups"):
        config.wrong("n_groups", f"must divide mamba_num_heads = {heads}", groups)
    width = heads * head_dim
    channels = width + 2 * groups * state
    forth = linear("mixer.in_proj", hidden, width + channels + heads, bias=bias, split="outputs")
    back = linear("mixer.out_proj", width, hidden, bias=bias, split="inputs")
    elements = heads * head_dim * state
    return RecurrentMixer(
        kind="mamba2",
        projections=(
            Projection(name="input", matrices=(forth,)),
            Projection(name="output", matrices=(back,)),
        ),
        state_elements=elements,
        convolution_elements=channels * (kernel - 1),
        flops_per_token=5 * elements + 2 * kernel * channels,
        heads=heads,
        state_dtype=read_state_dtype(config, "mamba_ssm_cache_dtype"),
        vectors=channels * (kernel + int(conv_bias)) + 3 * heads + width,
    )


def read_latent_moe(config: Config, hidden: int, *, mlp_bias: bool) -> MoE:
    """Read a routed block of plain experts, in the hidden space or in a narrower latent one."""
    experts = read_experts(config, ("n_routed_experts",), "moe_intermediate_size")
    shared_width = config.integer("moe_shared_expert_intermediate_size")
    latent = config.optional_integer("moe_latent_size")
    if config.integer("n_shared_experts", default=1, low=0) != 1:
        config.wrong("n_shared_experts", "must be 1 in this family", config.values["n_shared_experts"])
    shared = feed_forward(hidden, shared_width, "mixer.shared_experts", PLAIN, bias=mlp_bias)
    if latent is not None:
        into = linear("mixer.fc1_latent_proj", hidden, latent, bias=mlp_bias)
        back = linear("mixer.fc2_latent_proj", latent, hidden, bias=mlp_bias)
        shared += (
            Projection(name="latent_down", matrices=(into,)),
            Projection(name="latent_up", matrices=(back,)),
        )
    return moe(hidden, experts, module="mixer", names=PLAIN, expert_inputs=latent, shared=shared)
