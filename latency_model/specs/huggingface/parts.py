"""Building blocks the families share: shapes, attention, feed-forward blocks, stacks of layers."""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from latency_model.specs.huggingface.reader import LIMITS, Config
from latency_model.specs.model import Attention, DenseMLP, Layer, Matrix, MoE, Projection

__all__ = [
    "GATED",
    "PLAIN",
    "Decoder",
    "Experts",
    "Shape",
    "attention",
    "dense_mlp",
    "feed_forward",
    "linear",
    "moe",
    "read_experts",
    "read_shape",
    "stack",
]

GATED = ("gate_proj", "up_proj", "down_proj")
PLAIN = ("up_proj", "down_proj")


@frozen(kw_only=True)
class Decoder:
    """What a family makes of a config, before number formats are applied."""

    hidden_size: int
    vocab_size: int
    layers: tuple[Layer, ...]
    tied: bool
    final_norm: int
    head_bias: int = 0


@frozen(kw_only=True)
class Shape:
    """The sizes every softmax decoder has."""

    hidden: int
    layers: int
    vocab: int
    heads: int
    kv_heads: int
    head_dim: int
    tied: bool

    def decoder(self, layers: tuple[Layer, ...], *, final_norm: int | None = None, head_bias: int = 0) -> Decoder:
        """Wrap the layers with embedding, final norm (one vector by default) and LM head."""
        return Decoder(
            hidden_size=self.hidden,
            vocab_size=self.vocab,
            layers=layers,
            tied=self.tied,
            final_norm=self.hidden if final_norm is None else final_norm,
            head_bias=head_bias,
        )


def read_shape(config: Config, *, tied: bool = False, free_head_dim: bool = True, kv_heads: bool = True) -> Shape:
    """Read the sizes every decoder has.

    Parameters
    ----------
    config : Config
        The (text) config.
    tied : bool
        What the family does where ``tie_word_embeddings`` is absent.
    free_head_dim : bool
        False where the family derives the head size as hidden size over heads and allows no other.
    kv_heads : bool
        True where ``num_key_value_heads`` is required; False where absent means one per query head.
    """
    hidden = config.integer("hidden_size")
    heads = config.integer("num_attention_heads")
    head_dim = read_head_dim(config, hidden, heads, free=free_head_dim)
    key_value = config.integer("num_key_value_heads", default=None if kv_heads else heads)
    if heads % key_value and config.sound("num_attention_heads", "num_key_value_heads"):
        config.wrong("num_key_value_heads", f"must divide num_attention_heads = {heads}", key_value)
    return Shape(
        hidden=hidden,
        layers=config.integer("num_hidden_layers", high=LIMITS["layers"]),
        vocab=config.integer("vocab_size"),
        heads=heads,
        kv_heads=key_value,
        head_dim=head_dim,
        tied=config.flag("tie_word_embeddings", tied),
    )


def read_head_dim(config: Config, hidden: int, heads: int, *, free: bool = True) -> int:
    """Read the elements per head: as stated, else hidden size over heads, which must then be whole."""
    stated = config.optional_integer("head_dim")
    if stated is not None and (free or stated * heads == hidden):
        return stated
    if stated is not None:
        config.wrong("head_dim", f"must be hidden_size / num_attention_heads = {hidden}/{heads} in this family", stated)
    elif hidden % heads and config.sound("hidden_size", "num_attention_heads", "head_dim"):
        config.wrong("hidden_size", f"must be a multiple of num_attention_heads = {heads} without head_dim", hidden)
    return max(1, hidden // heads)


def linear(name: str, inputs: int, outputs: int, *, bias: bool = False, split: str = "none") -> Matrix:
    """Build a linear map with or without a bias per output."""
    return Matrix(name=name, inputs=inputs, outputs=outputs, bias=outputs if bias else 0, split=split)


def attention(
    shape: Shape,
    *,
    qkv_bias: bool = False,
    output_bias: bool = False,
    window: int | None = None,
    vectors: int = 0,
    gated: bool = False,
    fused: str = "",
    module: str = "self_attn",
    output: str = "o_proj",
) -> Attention:
    """Build grouped-query attention: one qkv projection and one output projection.

    ``gated`` doubles the query projection by an output gate; ``fused`` is the module name of checkpoints
    that store Q, K and V as one matrix.
    """
    queries = shape.heads * shape.head_dim
    keys = shape.kv_heads * shape.head_dim

    def part(name: str, outputs: int, split: str) -> Matrix:
        return linear(f"{module}.{fused or name}", shape.hidden, outputs, bias=qkv_bias, split=split)

    qkv = (
        part("q_proj", queries * (2 if gated else 1), "outputs"),
        part("k_proj", keys, "kv_heads"),
        part("v_proj", keys, "kv_heads"),
    )
    back = linear(f"{module}.{output}", queries, shape.hidden, bias=output_bias, split="inputs")
    return Attention(
        projections=(Projection(name="qkv", matrices=qkv), Projection(name="output", matrices=(back,))),
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        key_dim=shape.head_dim,
        value_dim=shape.head_dim,
        window=window,
        vectors=vectors,
    )


def _up(hidden: int, width: int, module: str, names: tuple[str, ...], *, bias: bool = False) -> Projection:
    """Build the column-parallel maps of a feed-forward block: gate and up, or up alone."""
    matrices = tuple(linear(f"{module}.{name}", hidden, width, bias=bias, split="outputs") for name in names)
    return Projection(name="gate_up" if len(names) == 2 else "up", matrices=matrices)


def _down(hidden: int, width: int, module: str, name: str, *, bias: bool = False) -> Projection:
    """Build the row-parallel map of a feed-forward block."""
    return Projection(name="down", matrices=(linear(f"{module}.{name}", width, hidden, bias=bias, split="inputs"),))


def feed_forward(
    hidden: int, width: int, module: str = "mlp", names: tuple[str, ...] = GATED, *, bias: bool = False
) -> tuple[Projection, ...]:
    """Build up and down maps; ``names`` are three module names for a gated block, two for a plain one."""
    return (
        _up(hidden, width, module, names[:-1], bias=bias),
        _down(hidden, width, module, names[-1], bias=bias),
    )


def dense_mlp(
    hidden: int, width: int, module: str = "mlp", names: tuple[str, ...] = GATED, *, bias: bool = False
) -> DenseMLP:
    """Build a feed-forward block every token passes through."""
    return DenseMLP(projections=feed_forward(hidden, width, module, names, bias=bias))


@frozen(kw_only=True)
class Experts:
    """How many routed experts there are, how many a token visits, how wide each is."""

    count: int
    top_k: int
    width: int


def read_experts(
    config: Config, counts: tuple[str, ...], width: str, top_k: tuple[str, ...] = ("num_experts_per_tok",)
) -> Experts:
    """Read the routed experts; ``counts`` and ``top_k`` are spellings of how many there are and are used."""
    experts = config.integer(*counts)
    chosen = config.integer(*top_k)
    if chosen > experts and config.sound(*counts, *top_k):
        config.wrong(top_k[0], f"must not exceed {counts[0]} = {experts}", chosen)
    return Experts(count=experts, top_k=chosen, width=config.integer(width))


def moe(
    hidden: int,
    experts: Experts,
    *,
    module: str = "mlp",
    router: str = "",
    expert: str = "",
    names: tuple[str, ...] = GATED,
    router_bias: bool = False,
    expert_bias: bool = False,
    expert_inputs: int | None = None,
    shared: tuple[Projection, ...] = (),
    vectors: int = 0,
) -> MoE:
    """Build a routed block; the matrices of expert 0 stand for all.

    ``router`` and ``expert`` are module paths where they are not ``module.gate`` and ``module.experts.0``;
    ``expert_inputs`` is the width experts read and write where it is not the hidden size.
    """
    gate = linear(router or f"{module}.gate", hidden, experts.count, bias=router_bias)
    path = expert or f"{module}.experts.0"
    return MoE(
        num_experts=experts.count,
        top_k=experts.top_k,
        router=Projection(name="router", matrices=(gate,)),
        expert=feed_forward(expert_inputs or hidden, experts.width, path, names, bias=expert_bias),
        shared=shared,
        vectors=vectors,
    )


def stack(count: int, layer: Callable[[int], Layer]) -> tuple[Layer, ...]:
    """Build the layers first to last."""
    return tuple(layer(index) for index in range(count))
