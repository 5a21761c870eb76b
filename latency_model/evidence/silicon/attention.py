"""Softmax attention over a paged cache: one new token per sequence (decode), or a whole prompt (prefill).

Traps of these tables.  ``step`` is what is cached, ``num_key_value_heads`` 0 means as many as query heads, and
``window_size`` 0 means no window.  A kernel is repeated on one cache, which the L2 serves where it fits; in a served
step the layers between two uses evict it.  So decode rows count only where the cache is twice the L2, or so small that
the time is all launch.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from latency_model.costs.counts import TILE
from latency_model.evidence.silicon.rows import FloatArray, Rows, most_used_kernel
from latency_model.evidence.silicon.tables import DEVICES, Table, read_table
from latency_model.specs.hardware import load_hardware

__all__ = ["decode_rows", "latent_rows", "prefill_rows"]

COLUMNS = (
    "kernel_source",
    "batch_size",
    "isl",
    "num_heads",
    "num_key_value_heads",
    "head_dim",
    "attn_dtype",
    "kv_cache_dtype",
    "step",
    "window_size",
    "latency",
)
CACHE_BYTES = {"bfloat16": 2.0, "fp8": 1.0}
ACTIVATION_BYTES = 2.0
SHORTEST_CONTEXT = 256  # below it a decode kernel is all overhead
LATENT_RANK, LATENT_ROPE = 512, 64  # of every model in the tables
COLD, NEGLIGIBLE = 2.0, 1.0 / 32.0  # bytes moved over the size of the L2
SMALLEST_PREFILL = 1e9  # [FLOP]
SHORTEST_PROMPT = 128  # one tile of queries
HEAD_SIZES, COMMON_HEAD_SIZE = (64, 128, 256), 128


def decode_rows(device: str, engine: str) -> Iterator[Rows]:
    """Decode kernels with at least 256 cached tokens; the rows with a bf16 cache are stored."""
    on_chip = load_hardware(DEVICES[device]).on_chip
    for cache, table in _by_cache(device, engine, "generation_attention_perf"):
        long = table["step"] >= SHORTEST_CONTEXT
        chosen, kernel, other = most_used_kernel(table.where(long))
        flops, traffic = _counts(chosen, CACHE_BYTES[cache])
        share = traffic / on_chip.value if on_chip else np.full(len(chosen), np.inf)
        told = (share >= COLD) | (share < NEGLIGIBLE)
        yield Rows.of(
            chosen,
            operation="attention_decode",
            exponentials=1.0 / (4.0 * chosen["head_dim"]),
            dtype="bf16",
            table_format=f"{cache} cache",
            kernel=kernel,
            flops=flops,
            traffic=traffic,
            milliseconds=chosen["latency"],
            stored=cache == "bfloat16",
            subsets={"cold": share >= COLD, "launch": share < NEGLIGIBLE},
            dropped={
                "context < 256": int((~long).sum()),
                "another kernel": other,
                "cache may stay in the L2": int((~told).sum()),
            },
        ).where(told)


def prefill_rows(device: str, engine: str) -> Iterator[Rows]:
    """Prefill kernels without a window, one set per size of head; heads of 128 with a bf16 cache are stored."""
    for cache, table in _by_cache(device, engine, "context_attention_perf"):
        whole = table["window_size"] == 0
        flops, _ = _counts(table, CACHE_BYTES[cache])
        large = (flops >= SMALLEST_PREFILL) & (table["isl"] >= SHORTEST_PROMPT)
        for size in HEAD_SIZES:
            chosen = table.where(whole & large & (table["head_dim"] == size))
            if len(chosen) == 0:
                continue
            chosen, kernel, other = most_used_kernel(chosen)
            flops, traffic = _counts(chosen, CACHE_BYTES[cache])
            yield Rows.of(
                chosen,
                exponentials=1.0 / (4.0 * size),
                piece=4.0 * TILE * size * chosen["isl"],
                operation="attention_prefill",
                dtype="bf16",
                table_format=f"{cache} cache, heads of {size}",
                kernel=kernel,
                flops=flops,
                traffic=traffic,
                milliseconds=chosen["latency"],
                stored=cache == "bfloat16" and size == COMMON_HEAD_SIZE,
                subsets={"prompts >= 1024": chosen["isl"] >= 1024},
                dropped={
                    "window": int((~whole).sum()),
                    "below 1 GFLOP, or prompt < 128": int((whole & ~large).sum()),
                    "another kernel": other,
                },
            )


def latent_rows(device: str, engine: str) -> Iterator[Rows]:
    """Absorbed latent decode attention with at least 256 cached tokens; reported, not stored."""
    names = ("kernel_source", "mla_dtype", "kv_cache_dtype", "num_heads", "batch_size", "step", "latency")
    table = read_table(device, engine, "mla", "generation_mla_perf", names)
    on_chip = load_hardware(DEVICES[device]).on_chip
    if table is None:
        return
    table = table.where((table["mla_dtype"] == "bfloat16") & (table["kv_cache_dtype"] == "bfloat16"))
    long = table["step"] >= SHORTEST_CONTEXT
    chosen, kernel, other = most_used_kernel(table.where(long))
    batch, heads, cached = chosen["batch_size"], chosen["num_heads"], chosen["step"]
    pair = 2.0 * LATENT_RANK + LATENT_ROPE  # multiplications per query, key and head
    stored = (LATENT_RANK + LATENT_ROPE) * CACHE_BYTES["bfloat16"]
    traffic = batch * (cached * stored + stored + heads * pair * ACTIVATION_BYTES)
    share = traffic / on_chip.value if on_chip else np.full(len(chosen), np.inf)
    told = (share >= COLD) | (share < NEGLIGIBLE)
    yield Rows.of(
        chosen,
        operation="latent_decode",
        exponentials=1.0 / (2.0 * pair),
        dtype="bf16",
        table_format="bfloat16 cache",
        kernel=kernel,
        flops=2.0 * batch * heads * pair * (cached + 1.0),
        traffic=traffic,
        milliseconds=chosen["latency"],
        stored=False,
        subsets={"cold": share >= COLD, "launch": share < NEGLIGIBLE, "128 heads": heads == 128},
        dropped={
            "context < 256": int((~long).sum()),
            "another kernel": other,
            "cache may stay in the L2": int((~told).sum()),
        },
    ).where(told)


def _by_cache(device: str, engine: str, name: str) -> Iterator[tuple[str, Table]]:
    table = read_table(device, engine, "attention", name, COLUMNS, window_size=0.0)
    if table is None:
        return
    for cache in CACHE_BYTES:
        rows = table.where((table["attn_dtype"] == "bfloat16") & (table["kv_cache_dtype"] == cache))
        if len(rows):
            yield cache, rows


def _counts(table: Table, cache_bytes: float) -> tuple[FloatArray, FloatArray]:
    """FLOPs and bytes of grouped-query attention, as ``costs.counts`` counts them for one device."""
    batch, tokens, heads, width = (table[name] for name in ("batch_size", "isl", "num_heads", "head_dim"))
    cached = np.where(table["isl"] > 1, 0.0, table["step"])
    window = np.where(table["window_size"] == 0, np.inf, table["window_size"])
    kv_heads = np.where(table["num_key_value_heads"] == 0, heads, table["num_key_value_heads"])
    seen = np.minimum(window - cached, tokens).clip(0.0)  # new tokens before the window is full
    pairs = seen * (cached + (seen + 1.0) / 2.0) + np.where(
        seen < tokens, (tokens - seen) * np.minimum(window, 1e9), 0.0
    )
    stored = 2.0 * kv_heads * width * cache_bytes
    read = np.minimum(cached, window) * stored
    moved = tokens * (stored + 2.0 * heads * width * ACTIVATION_BYTES)
    return 4.0 * batch * heads * width * pairs, batch * (read + moved)
