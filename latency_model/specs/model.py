"""What a model is made of, layer by layer: matrices, caches, experts.  Counts only, never a time.

A :class:`ModelArchitecture` is a tuple of :class:`Layer`; a layer is at most one mixer (attention of some kind,
or a recurrent mixer) and any number of feed-forward blocks.  Every weight is either in a :class:`Matrix`, which
is multiplied and may be quantised, or counted in ``vectors`` (norms, biases of convolutions, sinks...).
Equal layers compare equal, so costs are computed once per kind (:attr:`ModelArchitecture.layer_kinds`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import attrs
import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from latency_model.specs.dtypes import dtype_bytes
from latency_model.specs.quantization import FORMATS, WeightFormat

__all__ = [
    "Attention",
    "DenseMLP",
    "FeedForward",
    "Indexer",
    "LatentAttention",
    "Layer",
    "Matrix",
    "Mixer",
    "MoE",
    "ModelArchitecture",
    "Projection",
    "RecurrentMixer",
    "cache_bytes",
]

FloatArray = NDArray[np.floating[Any]]

VECTOR_BYTES = 2.0  # norms, biases and the like stay in 16 bits in every published checkpoint we read


@frozen(kw_only=True, cache_hash=True)
class Matrix:
    """A linear map y = x W with W of shape [inputs, outputs].

    Parameters
    ----------
    name : str
        Module path inside its layer, e.g. ``self_attn.q_proj``; quantisation rules match on it.
    inputs, outputs : int
        Shape [1].
    bias : int
        Bias parameters [1].
    format : WeightFormat
        How the weights are stored.
    split : str
        How tensor parallelism divides it: ``outputs`` (column-parallel), ``inputs`` (row-parallel, an
        all-reduce follows), ``kv_heads`` (by outputs, replicated once ranks outnumber KV heads) or ``none``.
    """

    name: str
    inputs: int
    outputs: int
    bias: int = 0
    format: WeightFormat = FORMATS["bf16"]
    split: str = "none"

    @property
    def parameters(self) -> int:
        """Weights and biases [1]."""
        return self.inputs * self.outputs + self.bias

    @property
    def bytes(self) -> float:
        """Bytes of weights, scales and biases [B]."""
        return self.format.matrix_bytes(self.inputs, self.outputs) + VECTOR_BYTES * self.bias


@frozen(kw_only=True, cache_hash=True)
class Projection:
    """Matrices that read the same input, which engines run as one kernel (QKV, gate and up)."""

    name: str
    matrices: tuple[Matrix, ...]

    @property
    def parameters(self) -> int:
        """Weights and biases [1]."""
        return sum(matrix.parameters for matrix in self.matrices)

    @property
    def bytes(self) -> float:
        """Bytes of all its matrices [B]."""
        return sum(matrix.bytes for matrix in self.matrices)


@frozen(kw_only=True, cache_hash=True)
class Attention:
    """Softmax attention with a key-value cache: MHA, GQA, MQA; full, windowed or chunked.

    Parameters
    ----------
    projections : tuple of Projection
        Usually ``qkv`` and ``output``.
    heads, kv_heads : int
        Query heads and key-value heads [1].
    key_dim, value_dim : int
        Elements per head [1].
    window : int or None
        Most cached tokens one query can see [token]; None sees all.  Chunked attention sees at most its chunk.
    shares_cache : bool
        True where the layer reads the cache of an earlier layer and stores none of its own.
    vectors : int
        Parameters outside matrices: query and key norms, sinks [1].
    """

    projections: tuple[Projection, ...]
    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None = None
    shares_cache: bool = False
    vectors: int = 0

    @property
    def cache_elements_per_token(self) -> int:
        """Elements one cached token adds [1/token]."""
        return 0 if self.shares_cache else self.kv_heads * (self.key_dim + self.value_dim)


@frozen(kw_only=True, cache_hash=True)
class Indexer:
    """The small scorer of sparse attention that chooses which cached tokens the layer reads (DeepSeek-V3.2).

    It keeps one key of ``dim`` elements per token (stored as fp8 with an fp32 scale by engines).
    """

    projections: tuple[Projection, ...]
    heads: int
    dim: int
    top_k: int
    vectors: int = 0

    @property
    def cache_bytes_per_token(self) -> float:
        """Bytes of one index key with its scale [B/token]."""
        return self.dim + 4.0 * math.ceil(self.dim / 128)


@frozen(kw_only=True, cache_hash=True)
class LatentAttention:
    """Multi-head latent attention (MLA): all heads share one cached latent and one rotary key per token.

    ``projections`` holds every matrix, the per-head up-projection of the latent included: absorbed into the
    queries it costs the same FLOPs and bytes per new token.
    """

    projections: tuple[Projection, ...]
    heads: int
    latent_rank: int
    rope_dim: int
    nope_dim: int
    value_dim: int
    indexer: Indexer | None = None
    vectors: int = 0

    @property
    def cache_elements_per_token(self) -> int:
        """Elements one cached token adds, the indexer's key not included [1/token]."""
        return self.latent_rank + self.rope_dim


@frozen(kw_only=True, cache_hash=True)
class RecurrentMixer:
    """Linear attention or a state-space layer: a constant state per sequence, updated token by token.

    Parameters
    ----------
    kind : str
        ``gated_deltanet`` or ``mamba2``.
    projections : tuple of Projection
        Input and output maps.
    state_elements, convolution_elements : int
        Elements of the recurrent state and of the convolution window per sequence [1].
    flops_per_token : int
        FLOPs to update and read the state for one token [FLOP/token].
    state_dtype : str
        How the state is kept, usually fp32.
    heads : int
        State heads, which tensor parallelism divides [1].
    vectors : int
        Parameters outside matrices: convolution kernels, decays, norms [1].
    """

    kind: str
    projections: tuple[Projection, ...]
    state_elements: int
    convolution_elements: int
    flops_per_token: int
    heads: int
    state_dtype: str = "fp32"
    vectors: int = 0

    @property
    def state_bytes(self) -> float:
        """Bytes one sequence keeps, however long [B]; the convolution window is kept in 16 bits."""
        return self.state_elements * dtype_bytes(self.state_dtype) + 2.0 * self.convolution_elements


@frozen(kw_only=True, cache_hash=True)
class DenseMLP:
    """A feed-forward block every token passes through."""

    projections: tuple[Projection, ...]
    vectors: int = 0


@frozen(kw_only=True, cache_hash=True)
class MoE:
    """A mixture-of-experts block: a router, routed experts, and shared experts every token passes through.

    ``expert`` are the projections of ONE routed expert; there are ``num_experts`` of them.
    ``shared`` are the projections of all shared experts together (their gate included).
    """

    num_experts: int
    top_k: int
    router: Projection
    expert: tuple[Projection, ...]
    shared: tuple[Projection, ...] = ()
    vectors: int = 0

    @property
    def expert_parameters(self) -> int:
        """Parameters of one routed expert [1]."""
        return sum(projection.parameters for projection in self.expert)

    @property
    def expert_bytes(self) -> float:
        """Bytes of one routed expert [B]."""
        return sum(projection.bytes for projection in self.expert)


Mixer = Attention | LatentAttention | RecurrentMixer
FeedForward = DenseMLP | MoE


@frozen(kw_only=True, cache_hash=True)
class Layer:
    """One layer: at most one mixer, any number of feed-forward blocks, and the norms around them.

    ``embedding`` is a table of the layer's own, gathered by token and never multiplied (Gemma's per-layer inputs).
    """

    mixer: Mixer | None = None
    feed_forward: tuple[FeedForward, ...] = ()
    vectors: int = 0
    embedding: Matrix | None = None

    def projections(self) -> Iterator[tuple[Projection, int]]:
        """Every projection with the number of copies the layer holds (routed experts many, all others one)."""
        if self.mixer is not None:
            yield from ((projection, 1) for projection in self.mixer.projections)
            if isinstance(self.mixer, LatentAttention) and self.mixer.indexer is not None:
                yield from ((projection, 1) for projection in self.mixer.indexer.projections)
        for block in self.feed_forward:
            if isinstance(block, MoE):
                yield block.router, 1
                yield from ((projection, 1) for projection in block.shared)
                yield from ((projection, block.num_experts) for projection in block.expert)
            else:
                yield from ((projection, 1) for projection in block.projections)

    @property
    def all_vectors(self) -> int:
        """Parameters outside matrices, those of mixer and feed-forward blocks included [1]."""
        parts = [self.vectors, *(block.vectors for block in self.feed_forward)]
        if self.mixer is not None:
            parts.append(self.mixer.vectors)
            if isinstance(self.mixer, LatentAttention) and self.mixer.indexer is not None:
                parts.append(self.mixer.indexer.vectors)
        return sum(parts)

    @property
    def parameters(self) -> int:
        """All parameters of the layer [1]."""
        own = 0 if self.embedding is None else self.embedding.parameters
        return own + self.all_vectors + sum(p.parameters * copies for p, copies in self.projections())

    @property
    def weight_bytes(self) -> float:
        """Bytes of the whole layer [B]."""
        own = 0.0 if self.embedding is None else self.embedding.bytes
        return own + VECTOR_BYTES * self.all_vectors + sum(p.bytes * copies for p, copies in self.projections())


def cache_bytes(mixer: Mixer | None, tokens: FloatArray, element_bytes: float) -> FloatArray:
    """Bytes the cache of one layer keeps of a sequence of ``tokens``, its window respected, state not included [B]."""
    window = mixer.window if isinstance(mixer, Attention) else None
    kept = tokens if window is None else np.minimum(tokens, window)
    return kept * _cache_bytes_per_token(mixer, element_bytes)


def _cache_bytes_per_token(mixer: Mixer | None, element_bytes: float) -> float:
    """Bytes one token takes in the cache of one layer [B/token]."""
    if isinstance(mixer, Attention):
        return mixer.cache_elements_per_token * element_bytes
    if isinstance(mixer, LatentAttention):
        index = 0 if mixer.indexer is None else mixer.indexer.cache_bytes_per_token
        return mixer.cache_elements_per_token * element_bytes + index
    return 0.0


@frozen(kw_only=True)
class ModelArchitecture:
    """A decoder-only language model as the step-cost model sees it.

    Parameters
    ----------
    name : str
        Display name.
    family : str
        The layout it was read with (``llama``, ``deepseek_v3``...).
    hidden_size, vocab_size : int
        Width of the residual stream and rows of the vocabulary [1].
    layers : tuple of Layer
        First to last.
    embedding : Matrix
        Token embedding; gathered, never multiplied.
    head : Matrix
        LM head; with ``tied`` its weights are the embedding's and are counted once.
    vectors : int
        Parameters outside layers and matrices (the final norm) [1].
    kv_dtype : str
        Number format of the cache unless told otherwise.
    max_context : int or None
        Longest context the authors state [token].
    mtp_layers : int
        Multi-token-prediction layers the checkpoint brings for drafting (not part of the counts) [1].
    source : str
        Where the facts come from.
    assumptions : tuple of str
        What the reader of the config had to assume.
    """

    name: str
    family: str
    hidden_size: int
    vocab_size: int
    layers: tuple[Layer, ...]
    embedding: Matrix
    head: Matrix
    tied: bool = False
    vectors: int = 0
    kv_dtype: str = "bf16"
    max_context: int | None = None
    mtp_layers: int = 0
    source: str = ""
    assumptions: tuple[str, ...] = ()

    @cached_property
    def layer_kinds(self) -> tuple[tuple[Layer, int], ...]:
        """Distinct layers and how many there are of each, in order of first appearance."""
        return tuple(Counter(self.layers).items())

    @cached_property
    def mixer_kinds(self) -> tuple[tuple[Mixer, int], ...]:
        """Distinct mixers and how many layers have each, in order of first appearance."""
        return tuple(Counter(layer.mixer for layer in self.layers if layer.mixer is not None).items())

    @cached_property
    def moe_kinds(self) -> tuple[tuple[MoE, int], ...]:
        """Distinct mixture-of-experts blocks and how many layers have each, in order of first appearance."""
        blocks = (block for layer in self.layers for block in layer.feed_forward)
        return tuple(Counter(block for block in blocks if isinstance(block, MoE)).items())

    @property
    def total_parameters(self) -> int:
        """Parameters of the text model, tied embeddings once, MTP layers not included [1]."""
        ends = self.embedding.parameters + (0 if self.tied else self.head.parameters) + self.vectors
        return ends + sum(layer.parameters * count for layer, count in self.layer_kinds)

    @property
    def routed_expert_parameters(self) -> int:
        """Parameters of all routed experts [1]."""
        return sum(count * block.num_experts * block.expert_parameters for block, count in self.moe_kinds)

    @property
    def active_parameters(self) -> int:
        """Parameters one token meets: all of them less the routed experts it does not visit [1]."""
        idle = sum(count * (moe.num_experts - moe.top_k) * moe.expert_parameters for moe, count in self.moe_kinds)
        return self.total_parameters - idle

    @property
    def is_moe(self) -> bool:
        """True when any layer has routed experts."""
        return bool(self.moe_kinds)

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights as stored, scales included [B]; see ``specs.precision`` to re-quantise."""
        ends = self.embedding.bytes + (0.0 if self.tied else self.head.bytes) + VECTOR_BYTES * self.vectors
        return ends + sum(layer.weight_bytes * count for layer, count in self.layer_kinds)

    def kv_bytes_per_token(self, kv_dtype: str | None = None) -> float:
        """Bytes one more cached token adds while every layer still keeps it [B/token].

        Past a window its layers stop growing: see :meth:`kv_bytes`.
        """
        return sum(self.kv_bytes_per_token_by_layer(kv_dtype))

    def kv_bytes_per_token_by_layer(self, kv_dtype: str | None = None) -> tuple[float, ...]:
        """Bytes one cached token takes in each layer, first to last [B/token]; recurrent layers take none."""
        element = dtype_bytes(kv_dtype or self.kv_dtype)
        return tuple(_cache_bytes_per_token(layer.mixer, element) for layer in self.layers)

    def kv_bytes(self, context: FloatArray, kv_dtype: str | None = None) -> FloatArray:
        """Bytes of cache one sequence of ``context`` tokens keeps, windows respected, state not included [B]."""
        element = dtype_bytes(kv_dtype or self.kv_dtype)
        total: FloatArray = np.zeros_like(np.asarray(context, dtype=float))
        for layer, count in self.layer_kinds:
            total = total + count * cache_bytes(layer.mixer, context, element)
        return total

    @property
    def linear_state_bytes(self) -> float:
        """Bytes of recurrent state one sequence keeps, however long it is [B]."""
        return sum(count * mixer.state_bytes for mixer, count in self.mixer_kinds if isinstance(mixer, RecurrentMixer))

    def replace(self, **changes: object) -> ModelArchitecture:
        """A copy with some fields changed."""
        return attrs.evolve(self, **changes)  # type: ignore[arg-type]
