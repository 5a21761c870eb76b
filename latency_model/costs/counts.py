"""FLOPs, bytes and kernels of every operation of one engine step, per device.  Counts, never a time.

Three functions, because three things decide them: :func:`token_operations` depends on how many tokens the step
feeds, :func:`expert_operations` on how they group into sequences, and ``context_operations`` (its own module,
:mod:`latency_model.costs.mixers`) also on what is cached.  Each yields :class:`Operation` objects whose arrays have the
broadcast shape of what they depend on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from latency_model.formulas.parallel import busiest_rank_experts, rank_imbalance
from latency_model.specs.dtypes import dtype_bytes
from latency_model.specs.model import (
    VECTOR_BYTES,
    Attention,
    DenseMLP,
    LatentAttention,
    Layer,
    Matrix,
    ModelArchitecture,
    MoE,
    Projection,
)
from latency_model.specs.parallelism import Parallelism
from latency_model.specs.precision import DTypes
from latency_model.specs.quantization import weight_format
from latency_model.specs.routing import Routing

__all__ = [
    "TILE",
    "Operation",
    "expert_operations",
    "projection_operations",
    "rank_draft_bytes",
    "rank_weight_bytes",
    "token_operations",
]

FloatArray = NDArray[np.floating[Any]]

#: Rows and columns of the output one core computes at a time; kernels differ, and their constant ``tail`` absorbs it.
TILE = 128

#: The projection of latent attention that decoding absorbs into queries and outputs.
ABSORBED = "latent_up"


#: Kernels of experts that are stored in fewer bits than they are multiplied in.
WEIGHT_ONLY = {"int4": "moe_int4", "mxfp4": "moe_mxfp4"}


@frozen(kw_only=True, eq=False)
class Operation:
    """One kernel, or a fused group, as one device executes it ``repeats`` times in a step.

    Parameters
    ----------
    name : str
        What it is, e.g. ``qkv``.
    group : str
        Whose bytes it moves: ``weights``, ``experts``, ``KV``, ``state``, ``activations`` or ``communication``.
    kind : str
        Which efficiency constants apply: ``gemm``, ``moe``, ``attention_decode``, ``all_reduce``...
    dtype : str
        Number format of its arithmetic.
    flops, traffic : ndarray
        FLOPs [FLOP] and bytes [B] of ONE execution; for communication ``traffic`` is what crosses the link.
    exponentials : float
        Exponentials beside each FLOP [1/FLOP]: those of a softmax run on units of their own.
    piece : ndarray
        FLOPs of the longest piece of one execution that one core has to do alone [FLOP].
    kernels : float
        Launches of one execution [1].
    repeats : int
        Executions in the step [1].
    """

    name: str
    group: str
    kind: str
    dtype: str
    flops: FloatArray = field(converter=np.asarray)
    traffic: FloatArray = field(converter=np.asarray)
    exponentials: float = 0.0
    piece: FloatArray = field(default=0.0, converter=np.asarray)
    kernels: float = 1.0
    repeats: int = 1


def token_operations(
    model: ModelArchitecture,
    *,
    tokens: FloatArray,
    sampled: FloatArray,
    parallelism: Parallelism,
    dtypes: DTypes,
) -> Iterator[Operation]:
    """Everything that depends only on how many tokens the step feeds.

    Parameters
    ----------
    model : ModelArchitecture
        The network.
    tokens : ndarray
        Tokens fed on one replica, t = B·n [token].
    sampled : ndarray
        Rows that pass through the LM head [token]: all of them to verify, one a sequence after a prefill.
    parallelism, dtypes
        Layout and number formats.
    """
    for layer, count in model.layer_kinds:
        yield from _layer_token_operations(layer, count, model.hidden_size, tokens, parallelism, dtypes)
    width = dtypes.activation_bytes
    yield Operation(
        name="embedding",
        group="activations",
        kind="elementwise",
        dtype=dtypes.activations,
        flops=np.zeros_like(tokens),
        traffic=2.0 * tokens * model.hidden_size * width,
    )
    head = Projection(name="lm_head", matrices=(model.head,))
    yield from projection_operations(head, sampled, parallelism=parallelism, dtypes=dtypes, kv_heads=None)
    if parallelism.pp > 1:
        hop = tokens * model.hidden_size * width
        yield _communication("pipeline hop", "p2p", hop, parallelism.pp - 1, dtypes)


def _layer_token_operations(
    layer: Layer, count: int, hidden: int, tokens: FloatArray, parallelism: Parallelism, dtypes: DTypes
) -> Iterator[Operation]:
    """Matrix products, element-wise work and all-reduces of ``count`` equal layers."""

    def product(projection: Projection, kernels: float = 1.0) -> Iterator[Operation]:
        return projection_operations(
            projection,
            tokens,
            parallelism=parallelism,
            dtypes=dtypes,
            kv_heads=kv_heads,
            repeats=count,
            kernels=kernels,
        )

    mixer = layer.mixer
    kv_heads = mixer.kv_heads if isinstance(mixer, Attention) else None
    blocks = layer.feed_forward
    if mixer is not None:
        for projection in mixer.projections:
            absorbed = isinstance(mixer, LatentAttention) and projection.name == ABSORBED
            yield from product(_unpacked(projection, dtypes), kernels=2.0) if absorbed else product(projection)
        if isinstance(mixer, LatentAttention) and mixer.indexer is not None:
            for projection in mixer.indexer.projections:
                yield from product(projection)
    for block in blocks:
        if isinstance(block, MoE):
            # Its launch is part of the overhead of the fused MoE layer.
            yield from product(block.router, kernels=0.0)
        for projection in block.shared if isinstance(block, MoE) else block.projections:
            yield from product(projection)
    yield _elementwise(layer, count, hidden, tokens, parallelism, dtypes)
    if parallelism.tp > 1:
        message = tokens * hidden * dtypes.activation_bytes
        # Experts on other replicas combine their own outputs: see expert_operations.
        local = any(isinstance(block, DenseMLP) or parallelism.dp == 1 for block in blocks)
        moved = 2.0 * (parallelism.tp - 1) / parallelism.tp * message
        yield _communication("all-reduce", "all_reduce", moved, count * ((mixer is not None) + local), dtypes)


def _unpacked(projection: Projection, dtypes: DTypes) -> Projection:
    """The same matrices in the format of the activations.

    Engines absorb the latent's up-projection into queries and outputs head by head: two batched products in 16 bits,
    however the checkpoint stores it.
    """
    format_ = weight_format(dtypes.activations)
    return evolve(projection, matrices=tuple(evolve(matrix, format=format_) for matrix in projection.matrices))


def projection_operations(
    projection: Projection,
    tokens: FloatArray,
    *,
    parallelism: Parallelism,
    dtypes: DTypes,
    kv_heads: int | None,
    repeats: int = 1,
    kernels: float = 1.0,
) -> Iterator[Operation]:
    """One fused matrix product of ``tokens`` rows on one rank: F = 2·t·in·out, M = weights + t·(in·b_in + out·b).

    equations.md section 2 (standard GEMM count); matrices of a projection read the same input once.  Where the product
    is in a narrower format than the activations, a pass before it reads them for their scale, reads them again and
    writes them rounded: M = t·in·(2b + b_in).
    """
    weights, products, inputs, outputs = _rank_projection(projection, parallelism.tp, kv_heads)
    dtype, width = dtypes.arithmetic(projection.matrices[0].format), dtypes.activation_bytes
    narrow = min(dtype_bytes(dtype), width)
    yield Operation(
        name=projection.name,
        group="weights",
        kind="gemm",
        dtype=dtype,
        flops=2.0 * tokens * products,
        traffic=weights + tokens * (inputs * narrow + outputs * width),
        piece=2.0 * TILE**2 * inputs,
        kernels=kernels,
        repeats=repeats,
    )
    if narrow < width:
        yield Operation(
            name="quantise",
            group="activations",
            kind="quantise",
            dtype=dtype,
            flops=np.zeros_like(tokens),
            traffic=tokens * inputs * (2.0 * width + narrow),
            kernels=0.0,  # timed with the product
            repeats=repeats,
        )


def _rank_projection(projection: Projection, tp: int, kv_heads: int | None) -> tuple[float, int, int, int]:
    """Weight bytes, multiplications per token, and elements read and written per token on one rank."""
    shapes = [_rank_shape(matrix, tp, kv_heads) for matrix in projection.matrices]
    weights = sum(
        matrix.format.matrix_bytes(inputs, outputs)
        for matrix, (inputs, outputs) in zip(projection.matrices, shapes, strict=True)
    )
    products = sum(inputs * outputs for inputs, outputs in shapes)
    return weights, products, shapes[0][0], sum(outputs for _, outputs in shapes)


def _rank_shape(matrix: Matrix, tp: int, kv_heads: int | None) -> tuple[int, int]:
    """Shape one tensor-parallel rank multiplies; KV heads replicate once ranks outnumber them."""
    if matrix.split == "outputs":
        return matrix.inputs, _share(matrix.outputs, tp)
    if matrix.split == "inputs":
        return _share(matrix.inputs, tp), matrix.outputs
    if matrix.split == "kv_heads":
        return matrix.inputs, _share(matrix.outputs, min(tp, kv_heads or tp))
    return matrix.inputs, matrix.outputs


def _share(size: int, ranks: int) -> int:
    """The largest share when ``size`` is divided over ``ranks``."""
    return -(-size // ranks)


def _elementwise(
    layer: Layer, count: int, hidden: int, tokens: FloatArray, parallelism: Parallelism, dtypes: DTypes
) -> Operation:
    """Norms with residual, rotary embedding and activations: traffic only, no FLOPs worth counting.

    A fused add-and-norm reads and writes residual and activation (4h); rotary reads and writes queries and keys;
    a gated activation reads two widths and writes one.  Routed experts fuse theirs.
    """
    mixer, tp = layer.mixer, parallelism.tp
    elements, kernels = 0.0, 0
    if mixer is not None:
        elements += 4.0 * hidden
        kernels += 1
    if isinstance(mixer, Attention):
        elements += 2.0 * (mixer.heads + mixer.kv_heads) * mixer.key_dim / tp
        kernels += 1
    elif isinstance(mixer, LatentAttention):
        elements += 2.0 * (mixer.heads / tp + 1) * mixer.rope_dim + 2.0 * mixer.latent_rank
        kernels += 1
    for block in layer.feed_forward:
        elements += 4.0 * hidden
        kernels += 1
        dense = block.shared if isinstance(block, MoE) else block.projections
        if dense:
            first = sum(matrix.outputs for matrix in dense[0].matrices)
            elements += 1.5 * first / tp
            kernels += 1
    return Operation(
        name="norms and activations",
        group="activations",
        kind="elementwise",
        dtype=dtypes.activations,
        flops=np.zeros_like(tokens),
        traffic=tokens * elements * dtypes.activation_bytes,
        kernels=float(kernels),
        repeats=count,
    )


def _communication(name: str, kind: str, moved: FloatArray, repeats: int, dtypes: DTypes) -> Operation:
    return Operation(
        name=name,
        group="communication",
        kind=kind,
        dtype=dtypes.activations,
        flops=np.zeros_like(moved),
        traffic=moved,
        repeats=repeats,
    )


def rank_weight_bytes(model: ModelArchitecture, parallelism: Parallelism) -> float:
    """Bytes of weights on the fullest device: matrices in their shares, norms on every rank [B].

    Pipeline stages hold neighbouring layers, as equal in number as can be; the first also holds the embedding, the
    last the LM head.
    """
    per_layer = {layer: _rank_layer_bytes(layer, parallelism) for layer, _ in model.layer_kinds}
    stages = np.array_split(np.array([per_layer[layer] for layer in model.layers]), parallelism.pp)
    held = [float(stage.sum()) for stage in stages]
    held[0] += model.embedding.bytes / parallelism.tp
    if parallelism.pp > 1 or not model.tied:
        held[-1] += model.head.bytes / parallelism.tp
    return max(held)


def rank_draft_bytes(network: ModelArchitecture, parallelism: Parallelism, own_head: bool) -> float:
    """Bytes a head adds on one device: its layers and, where it has one of its own, its LM head [B]."""
    layers = sum(count * _rank_layer_bytes(layer, parallelism) for layer, count in network.layer_kinds)
    return layers + (network.head.bytes / parallelism.tp if own_head else 0.0)


def _rank_layer_bytes(layer: Layer, parallelism: Parallelism) -> float:
    kv_heads = layer.mixer.kv_heads if isinstance(layer.mixer, Attention) else None
    experts = {id(p) for block in layer.feed_forward if isinstance(block, MoE) for p in block.expert}
    held = VECTOR_BYTES * layer.all_vectors
    if layer.embedding is not None:
        held += layer.embedding.bytes / parallelism.tp
    for projection, copies in layer.projections():
        routed = id(projection) in experts
        ranks = parallelism.expert_tp if routed else parallelism.tp
        shares = (_rank_bytes(matrix, ranks, kv_heads) for matrix in projection.matrices)
        held += sum(shares) * (_share(copies, parallelism.ep) if routed else copies)
    return held


def _rank_bytes(matrix: Matrix, tp: int, kv_heads: int | None) -> float:
    inputs, outputs = _rank_shape(matrix, tp, kv_heads)
    return matrix.format.matrix_bytes(inputs, outputs) + VECTOR_BYTES * matrix.bias


def expert_operations(
    model: ModelArchitecture,
    *,
    batch: FloatArray,
    tokens_per_sequence: FloatArray,
    routing: Routing,
    parallelism: Parallelism,
    dtypes: DTypes,
) -> Iterator[Operation]:
    """Routed experts: what the step's sequences load and multiply, with dispatch and combine across replicas.

    M = U·(bytes of one expert) + activations, F = 2·t·k·(weights of one expert); U distinct experts follow from
    ``routing``.  With expert parallelism all wait for the rank that holds most of them.
    """
    ep = parallelism.ep
    for block, count in model.moe_kinds:
        touched = routing.distinct_experts(block.num_experts, block.top_k, tokens_per_sequence, batch)
        visits = batch * tokens_per_sequence * block.top_k / ep
        if ep > 1:
            touched = busiest_rank_experts(touched, block.num_experts, ep)
            visits = visits * np.minimum(rank_imbalance(routing.popularity_cv, block.num_experts, ep, visits), ep)
        shares = [_rank_projection(projection, parallelism.expert_tp, None) for projection in block.expert]
        weights, products, read, written = (sum(column) for column in zip(*shares, strict=True))
        stored = block.expert[0].matrices[0].format
        yield Operation(
            name="routed experts",
            group="experts",
            kind=WEIGHT_ONLY.get(stored.name, "moe"),
            dtype=dtypes.arithmetic(stored),
            flops=2.0 * visits * products,
            traffic=touched * weights + visits * (read + written) * dtypes.activation_bytes,
            repeats=count,
        )
        if parallelism.dp > 1:
            # With EP a token travels to each rank that holds one of its experts; without, to every replica.
            copies = min(block.top_k, ep) * (1.0 - 1.0 / ep) if ep > 1 else parallelism.dp - 1.0
            sent = batch * tokens_per_sequence / parallelism.dp * model.hidden_size * copies
            yield _communication(
                "dispatch and combine", "all_to_all", sent * dtypes.activation_bytes, 2 * count, dtypes
            )
