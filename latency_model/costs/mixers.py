"""FLOPs and bytes of the mixers: softmax attention over a cache, latent attention, recurrent state.  Never a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from latency_model.costs.counts import TILE, Operation
from latency_model.specs.dtypes import dtype_bytes
from latency_model.specs.model import Attention, Indexer, LatentAttention, ModelArchitecture, RecurrentMixer
from latency_model.specs.parallelism import Parallelism
from latency_model.specs.precision import DTypes

__all__ = ["context_operations", "visible_pairs"]

FloatArray = NDArray[np.floating[Any]]


@frozen(kw_only=True, eq=False)
class _Fed:
    """What every mixer of the step is fed: n tokens of each of B sequences (one replica's) after S cached ones."""

    batch: FloatArray
    tokens: FloatArray
    context: FloatArray
    rereads: FloatArray  # ρ_kv, how often the cache is read
    prefill: bool
    tp: int
    dtypes: DTypes
    cache_bytes: float  # of one cached element

    @property
    def kernel(self) -> str:
        return "attention_prefill" if self.prefill else "attention_decode"


def visible_pairs(tokens: FloatArray, context: FloatArray, window: float | None) -> FloatArray:
    """Pairs (query, key) that causal attention computes for ``tokens`` new tokens after ``context`` cached ones.

    Σ_{i=1..n} min(S + i, w) [1]: a rectangle n·S and a triangle n(n + 1)/2 while nothing leaves the window.

    >>> float(visible_pairs(3.0, 10.0, None)), float(visible_pairs(3.0, 10.0, 12))
    (36.0, 35.0)
    """
    if window is None:
        return tokens * (context + (tokens + 1) / 2)
    growing: FloatArray = np.clip(window - context, 0.0, tokens)
    return growing * context + growing * (growing + 1) / 2 + (tokens - growing) * window


def context_operations(
    model: ModelArchitecture,
    *,
    batch: FloatArray,
    tokens_per_sequence: FloatArray,
    context: FloatArray,
    kv_reread: float,
    prefill: bool,
    parallelism: Parallelism,
    dtypes: DTypes,
) -> Iterator[Operation]:
    """Mixers of all layers: everything that depends on what is cached.  ``batch`` is one replica's."""
    fed = _Fed(
        batch=batch,
        tokens=tokens_per_sequence,
        context=context,
        rereads=np.ones(()) if kv_reread == 0.0 else 1.0 + kv_reread * (tokens_per_sequence - 1.0),
        prefill=prefill,
        tp=parallelism.tp,
        dtypes=dtypes,
        cache_bytes=dtype_bytes(dtypes.kv or model.kv_dtype),
    )
    for mixer, count in model.mixer_kinds:
        if isinstance(mixer, RecurrentMixer):
            yield _recurrence(mixer, count, fed)
        elif isinstance(mixer, LatentAttention):
            yield from _latent_attention(mixer, count, fed)
        else:
            yield _attention(mixer, count, fed)


def _attention(mixer: Attention, count: int, fed: _Fed) -> Operation:
    """GQA: F = 2·pairs·H·(d_k + d_v), M = ρ·S·H_kv·(d_k + d_v)·b_kv read, new tokens written; per sequence."""
    heads = mixer.heads / fed.tp
    kv_heads = max(mixer.kv_heads / fed.tp, 1.0)
    width = mixer.key_dim + mixer.value_dim
    stored = kv_heads * width * fed.cache_bytes
    seen = fed.context if mixer.window is None else np.minimum(fed.context, mixer.window)
    written = 0.0 if mixer.shares_cache else stored * fed.tokens
    activations = fed.tokens * heads * width * fed.dtypes.activation_bytes
    return Operation(
        name="attention" if mixer.window is None else "windowed attention",
        group="KV",
        kind=fed.kernel,
        dtype=fed.dtypes.activations,
        flops=fed.batch * (2.0 * heads * width) * visible_pairs(fed.tokens, fed.context, mixer.window),
        traffic=fed.batch * (fed.rereads * (seen * stored) + (written + activations)),
        exponentials=1.0 / (2.0 * width),
        piece=_longest_piece(width, mixer.window, fed),
        repeats=count,
    )


def _longest_piece(width: int, window: float | None, fed: _Fed) -> FloatArray | float:
    """FLOPs of the last tile of queries of one head over all keys it sees; decoding splits the keys instead."""
    if not fed.prefill:
        return 0.0
    keys = fed.context + fed.tokens
    return 2.0 * TILE * width * (keys if window is None else np.minimum(keys, window))


def _latent_attention(mixer: LatentAttention, count: int, fed: _Fed) -> Iterator[Operation]:
    """MLA: absorbed, F = 2·pairs·H·(2r + r_p), M = ρ·S·(r + r_p)·b_kv, the cache on every rank.

    A prefill multiplies unabsorbed heads instead: F = 2·pairs·H·(d_nope + r_p + d_v).  With an indexer every query
    gathers its own choice of cached tokens: n·min(S, top_k) are read, whatever the re-read factor.
    """
    heads, indexer = mixer.heads / fed.tp, mixer.indexer
    stored = mixer.cache_elements_per_token * fed.cache_bytes
    chosen = None if indexer is None else indexer.top_k
    reads = fed.rereads * fed.context if chosen is None else fed.tokens * np.minimum(fed.context, chosen)
    plain, absorbed = mixer.nope_dim + mixer.value_dim, 2 * mixer.latent_rank
    width = mixer.rope_dim + (plain if fed.prefill else absorbed)
    activations = fed.tokens * heads * width * fed.dtypes.activation_bytes
    yield Operation(
        name="latent attention",
        group="KV",
        kind=fed.kernel,
        dtype=fed.dtypes.activations,
        flops=fed.batch * (2.0 * heads * width) * visible_pairs(fed.tokens, fed.context, chosen),
        traffic=fed.batch * (reads * stored + (fed.tokens * stored + activations)),
        exponentials=1.0 / (2.0 * width),
        piece=_longest_piece(width, chosen, fed),
        repeats=count,
    )
    if indexer is not None and indexer.heads:  # one that reuses an earlier choice scores nothing
        yield _indexer(indexer, count, fed)


def _indexer(indexer: Indexer, count: int, fed: _Fed) -> Operation:
    """Scores of every cached token: F = 2·pairs·H_i·d_i, M = ρ·S·(bytes of one index key); on every rank."""
    return Operation(
        name="sparse-attention indexer",
        group="KV",
        kind=fed.kernel,
        dtype=fed.dtypes.activations,
        flops=fed.batch * (2.0 * indexer.heads * indexer.dim) * visible_pairs(fed.tokens, fed.context, None),
        traffic=fed.batch * (fed.rereads * fed.context + fed.tokens) * indexer.cache_bytes_per_token,
        repeats=count,
    )


def _recurrence(mixer: RecurrentMixer, count: int, fed: _Fed) -> Operation:
    """Recurrent state: read once, updated for each token in turn; no growth with context.

    Verification writes the state after every token, since any of them may be the last accepted one; a prefill
    writes it once.
    """
    writes = 1.0 if fed.prefill else fed.tokens
    return Operation(
        name="recurrent state",
        group="state",
        kind="elementwise",
        dtype=fed.dtypes.activations,
        flops=fed.batch * fed.tokens * mixer.flops_per_token / fed.tp,
        traffic=fed.batch * (1.0 + writes) * mixer.state_bytes / fed.tp,
        kernels=2.0,  # convolution and recurrence
        repeats=count,
    )
