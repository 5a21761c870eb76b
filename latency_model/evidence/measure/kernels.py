"""Microbenchmarks: matrix products, memory, attention, experts, small operations; with the counts of the step model."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from attrs import frozen

from latency_model.costs.mixers import visible_pairs
from latency_model.evidence.measure import layers
from latency_model.evidence.measure.machine import Case, Machine
from latency_model.specs.dtypes import dtype_bytes

__all__ = ["Sizes", "cases"]

ROOM = 16  # tokens a cache has room for behind its context


@frozen(kw_only=True)
class Sizes:
    """Shapes measured: those of small models on a CPU, of large ones on a GPU."""

    matrices: tuple[tuple[int, int], ...]  # inputs, outputs
    rows: tuple[int, ...]
    largest: int  # of the square product that gives the peak
    copied: int  # bytes moved to find the bandwidth
    heads: int
    kv_heads: int
    head_dim: int
    batches: tuple[int, ...]
    tokens: tuple[int, ...]
    contexts: tuple[int, ...]
    prompts: tuple[int, ...]
    hidden: int
    expert_width: int
    experts: int
    top_k: int
    expert_tokens: tuple[int, ...]

    @classmethod
    def of(cls, machine: Machine) -> Sizes:
        """Shapes that keep a step within milliseconds on the kind of machine."""
        if machine.is_gpu:
            return cls(
                matrices=((4096, 4096), (4096, 14336), (14336, 4096), (2048, 8192)),
                rows=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096),
                largest=8192,
                copied=1 << 28,
                heads=32,
                kv_heads=8,
                head_dim=128,
                batches=(1, 8, 32),
                tokens=(1, 4, 8),
                contexts=(512, 2048, 4096),
                prompts=(512, 2048, 8192),
                hidden=2048,
                expert_width=768,
                experts=64,
                top_k=8,
                expert_tokens=(1, 4, 16, 64, 256),
            )
        return cls(
            matrices=((768, 1280), (768, 4096), (2048, 768), (768, 8192), (1536, 1536)),
            rows=(1, 2, 4, 7, 8, 16, 28, 64, 112),
            largest=1024,
            copied=1 << 27,
            heads=12,
            kv_heads=4,
            head_dim=64,
            batches=(1, 4, 16),
            tokens=(1, 2, 4, 7),
            contexts=(128, 512, 1024),
            prompts=(64, 128, 256, 512, 1024),
            hidden=768,
            expert_width=512,
            experts=16,
            top_k=2,
            expert_tokens=(1, 2, 4, 8, 16, 32, 64),
        )


def cases(machine: Machine, sizes: Sizes) -> Iterator[Case]:
    """All microbenchmarks."""
    yield from _memory(machine, sizes)
    yield from _products(machine, sizes)
    yield from _attention(machine, sizes)
    yield from _prompts(machine, sizes)
    yield from _experts(machine, sizes)
    yield from _small(machine, sizes)


def _memory(machine: Machine, sizes: Sizes) -> Iterator[Case]:
    """Copy (reads and writes) and sum (reads) of memory larger than the caches."""
    torch = machine.torch
    source = torch.ones(sizes.copied // 4, device=machine.device)
    target = torch.empty_like(source)
    yield Case(name="copy", operation="memory", run=lambda: target.copy_(source), traffic=2.0 * sizes.copied)
    yield Case(name="read", operation="memory", run=lambda: source.sum(), traffic=float(sizes.copied))
    one = torch.ones(1, device=machine.device)
    yield Case(name="launch", operation="launch", run=lambda: one.add_(1.0))


def _products(machine: Machine, sizes: Sizes) -> Iterator[Case]:
    """Matrix products of m rows with weights that come from memory; a large square one for the peak."""
    width = dtype_bytes(machine.dtype)
    linear = machine.torch.nn.functional.linear
    shapes = [(rows, *matrix) for matrix in sizes.matrices for rows in sizes.rows]
    shapes.append((sizes.largest,) * 3)
    for rows, inputs, outputs in shapes:
        x = machine.random(rows, inputs)
        yield Case(
            name=f"{rows} x [{inputs}, {outputs}]",
            operation="gemm",
            run=lambda x=x, shape=(outputs, inputs): linear(x, machine.take(*shape)),  # type: ignore[misc]
            flops=2.0 * rows * inputs * outputs,
            traffic=width * (inputs * outputs + rows * (inputs + outputs)),
        )


def _attention(machine: Machine, sizes: Sizes) -> Iterator[Case]:
    """Decode and verification attention over a cache, new tokens written to it."""
    width, dim = dtype_bytes(machine.dtype), sizes.head_dim
    stored = 2.0 * sizes.kv_heads * dim * width
    for batch in sizes.batches:
        for tokens in sizes.tokens:
            for context in sizes.contexts:
                query = machine.random(batch, sizes.heads, tokens, dim)
                new = machine.random(batch, sizes.kv_heads, tokens, dim)

                def run(batch: int = batch, context: int = context, query: object = query, new: object = new) -> None:
                    shape = (batch, sizes.kv_heads, context + ROOM, dim)
                    keys, values = machine.take(*shape), machine.take(*shape)
                    layers.attend(machine.torch, query, new, new, keys, values, context)

                pairs = float(visible_pairs(np.asarray(float(tokens)), np.asarray(float(context)), None))
                activations = tokens * sizes.heads * 2 * dim * width
                yield Case(
                    name=f"{batch} x {tokens} tokens after {context}",
                    operation="attention_decode",
                    run=run,
                    flops=batch * 4.0 * sizes.heads * dim * pairs,
                    traffic=batch * ((context + tokens) * stored + activations),
                )


def _prompts(machine: Machine, sizes: Sizes) -> Iterator[Case]:
    """Causal attention among the tokens of one prompt."""
    width, dim = dtype_bytes(machine.dtype), sizes.head_dim
    attention = machine.torch.nn.functional.scaled_dot_product_attention
    for tokens in sizes.prompts:
        query = machine.random(1, sizes.heads, tokens, dim)
        new = machine.random(1, sizes.kv_heads, tokens, dim).repeat_interleave(sizes.heads // sizes.kv_heads, dim=1)
        pairs = float(visible_pairs(np.asarray(float(tokens)), np.zeros(()), None))
        yield Case(
            name=f"prompt of {tokens} tokens",
            operation="attention_prefill",
            run=partial(attention, query, new, new, is_causal=True),
            flops=4.0 * sizes.heads * dim * pairs,
            traffic=2.0 * tokens * dim * width * (sizes.kv_heads + sizes.heads),
        )


def _experts(machine: Machine, sizes: Sizes) -> Iterator[Case]:
    """A layer of routed experts with its router: t tokens that choose evenly among the first r experts."""
    torch, width = machine.torch, dtype_bytes(machine.dtype)
    hidden, inner = sizes.hidden, sizes.expert_width
    rng = np.random.default_rng(0)
    router = machine.random(sizes.experts, hidden)
    for tokens in sizes.expert_tokens:
        for reach in sorted({sizes.top_k, sizes.experts // 4, sizes.experts}):
            chosen = rng.random((tokens, reach)).argsort(axis=1)[:, : sizes.top_k]
            distinct = np.unique(chosen).size
            ids = torch.from_numpy(chosen).to(machine.device)
            x = machine.random(tokens, hidden)

            def run(x: object = x, ids: object = ids) -> None:
                scores = torch.softmax(torch.nn.functional.linear(x, router), dim=-1)
                shares, _ = torch.topk(scores, sizes.top_k)
                first = machine.take(sizes.experts, 2 * inner, hidden)
                second = machine.take(sizes.experts, hidden, inner)
                layers.experts(torch, x, ids, shares, first, second)

            visits = tokens * sizes.top_k
            yield Case(
                name=f"{tokens} tokens on {distinct} experts",
                operation="moe",
                run=run,
                flops=6.0 * visits * hidden * inner,
                traffic=width * (3.0 * distinct * hidden * inner + visits * (2.0 * hidden + 3.0 * inner)),
            )


def _small(machine: Machine, sizes: Sizes) -> Iterator[Case]:
    """Norm with residual, gated activation, rotary embedding: traffic as the step model counts it."""
    torch, width = machine.torch, dtype_bytes(machine.dtype)
    weight = machine.random(sizes.hidden)
    inner = sizes.matrices[1][1]
    heads = sizes.heads + sizes.kv_heads
    for tokens in sizes.rows[:: 2 if machine.is_gpu else 1]:
        x, residual = machine.random(tokens, sizes.hidden), machine.random(tokens, sizes.hidden)
        yield Case(
            name=f"norm of {tokens} tokens",
            operation="elementwise",
            run=partial(layers.add_norm, torch, x, residual, weight),
            traffic=4.0 * width * tokens * sizes.hidden,
        )
        both = machine.random(tokens, inner)
        yield Case(
            name=f"gated activation of {tokens} tokens",
            operation="elementwise",
            run=partial(layers.gate, torch, both),
            traffic=1.5 * width * tokens * inner,
        )
        turned = machine.random(1, heads, tokens, sizes.head_dim)
        angle = machine.random(tokens, sizes.head_dim // 2)
        yield Case(
            name=f"rotary embedding of {tokens} tokens",
            operation="elementwise",
            run=partial(layers.rotate, torch, turned, angle, angle),
            traffic=2.0 * width * tokens * heads * sizes.head_dim,
        )
