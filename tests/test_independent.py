"""A second calculator, written from the equations alone, against the package.

Plain loops and ``math``: nothing here comes from ``latency_model.costs`` or ``latency_model.formulas``.  Shapes
are those of the published configs; machine constants and host times are read from the loaded profiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import pytest
from attrs import frozen

import latency_model as lm

H100 = "h100-sxm"
BYTES = 2.0  # of a bf16 number

# (batch, tokens per sequence, context): plain decoding and verification, little and much of everything, a window that
# fills while its tokens are fed.
POINTS = [
    (1, 1, 0),
    (1, 1, 4096),
    (1, 4, 1000),
    (2, 6, 125),
    (4, 3, 32768),
    (8, 8, 100),
    (32, 5, 4096),
    (256, 1, 2048),
    (200, 4, 512),
]

FLOPS_TOLERANCE = 0.005
TRAFFIC_TOLERANCE = 0.02
TIME_TOLERANCE = 0.03


@frozen
class Work:
    """One operation: how it runs, kernels it launches, FLOPs, bytes, arithmetic, and what runs beside the products."""

    kind: str
    kernels: float
    flops: float
    traffic: float
    dtype: str = "bf16"
    exponentials: float = 0.0
    alone: float = 0.0  # FLOPs of the piece one core does last


@frozen
class Total:
    flops: float
    traffic: float
    time: float


@cache
def machine() -> lm.HardwareProfile:
    return lm.load_hardware(H100)


@cache
def rates(kind: str, dtype: str) -> tuple[float, float, float, float, float, float]:
    """FLOP/s, exp/s and B/s a kernel reaches, seconds a launch, sharpness of the corner, cores that wait at the end."""
    block = machine().efficiency(kind, dtype)
    compute = block.compute * machine().peak_flops(dtype).value
    launch = block.overhead * host("launch_share")
    exponentials = block.compute * machine().exponentials.value
    waiting = block.tail * machine().cores
    return compute, exponentials, block.memory * machine().memory_bandwidth.value, launch, block.sharpness, waiting


@cache
def host(part: str) -> float:
    return getattr(lm.load_engine("vllm", machine()), part).value


def seconds(work: Work) -> float:
    """Launches plus the p-norm of the two roofline terms."""
    flop_rate, exponential_rate, byte_rate, launch, sharpness, waiting = rates(work.kind, work.dtype)
    compute = (work.flops + waiting * work.alone) / flop_rate + work.exponentials / exponential_rate
    memory = work.traffic / byte_rate
    slow, fast = max(compute, memory), min(compute, memory)
    if math.isinf(sharpness):
        return work.kernels * launch + slow
    return work.kernels * launch + slow * (1.0 + (fast / slow) ** sharpness) ** (1.0 / sharpness)


def total(works: list[Work], host_time: float) -> Total:
    return Total(
        flops=sum(work.flops for work in works),
        traffic=sum(work.traffic for work in works),
        time=sum(seconds(work) for work in works) + host_time,
    )


def target(works: list[Work], layers: int) -> Total:
    experts = layers if any(work.kind.startswith("moe") for work in works) else 0
    return total(works, host("per_step") + layers * host("per_layer") + experts * host("per_moe_layer"))


# ---------------------------------------------------------------------------------------------------------------
# Pieces of a transformer


def matrix(
    rows: float, inputs: int, outputs: int, *, kernels: float = 1.0, bits: float = 16.0, dtype: str = "bf16"
) -> Work:
    """A GEMM in tiles of 128: weights read once, inputs read, outputs written."""
    flops = 2.0 * rows * inputs * outputs
    width = 1.0 if dtype == "fp8" else BYTES
    traffic = inputs * outputs * bits / 8.0 + rows * (inputs * width + outputs * BYTES)
    return Work("gemm", kernels, flops, traffic, dtype, alone=2.0 * 128 * 128 * inputs)


def eight_bits(rows: float, inputs: int, outputs: int, **stored: Any) -> list[Work]:
    """A GEMM in fp8: before it inputs are read for their scale, read again, and written in one byte."""
    return [matrix(rows, inputs, outputs, **stored), Work("quantise", 0, 0.0, rows * inputs * (2 * BYTES + 1), "fp8")]


def moved(rows: float, elements: int, kernels: int) -> Work:
    """Norms, rotary embedding, activation functions: bytes only."""
    return Work("elementwise", kernels, 0.0, rows * elements * BYTES)


def attended(tokens: int, context: int, window: int | None) -> int:
    """Pairs (query, key) of one sequence, one by one: a new token sees the cache, those before it, itself."""
    pairs = 0
    for position in range(1, tokens + 1):
        seen = context + position
        pairs += seen if window is None else min(seen, window)
    return pairs


def grouped_attention(
    batch: int, tokens: int, context: int, heads: int, kv_heads: int, dim: int, window: int | None = None
) -> Work:
    """Scores and values for every pair; the cache read once for all new tokens of a sequence; new entries written."""
    pairs = attended(tokens, context, window)
    cached = context if window is None else min(context, window)
    cache = batch * cached * 2 * kv_heads * dim * BYTES
    new = batch * tokens * 2 * kv_heads * dim * BYTES
    queries = 2 * batch * tokens * heads * dim * BYTES
    flops = 4.0 * batch * pairs * heads * dim
    return Work("attention_decode", 1, flops, cache + new + queries, exponentials=batch * pairs * heads)


def latent_attention(batch: int, tokens: int, context: int, heads: int, rank: int, rope: int) -> Work:
    """Absorbed MLA: scores over the latent and the rotary key, values over the latent, one cache for all heads."""
    pairs = attended(tokens, context, None)
    cache = batch * (context + tokens) * (rank + rope) * BYTES
    queries = batch * tokens * heads * (rank + rope + rank) * BYTES
    flops = 2.0 * batch * pairs * heads * (2 * rank + rope)
    return Work("attention_decode", 1, flops, cache + queries, exponentials=batch * pairs * heads)


def missed(tokens: int, experts: int, top_k: int, persistence: float, stickiness: float) -> float:
    """P(one request leaves an expert untouched), summed over every pattern of kept and redrawn states.

    With D draws from one θ ~ Beta(a, b) nobody picks the expert with E[(1 − θ)^D] = Π_{i<D} (b + i)/(a + b + i).
    """
    pi, rho, keep = Fraction(top_k, experts), Fraction(persistence), Fraction(stickiness)
    probability = Fraction(0)
    for pattern in product((True, False), repeat=tokens - 1):
        draws = 1 + sum(redrawn for redrawn in pattern)
        chance = (1 - keep) ** (draws - 1) * keep ** (tokens - draws)
        silent = Fraction(1)
        for i in range(draws):
            # (b + i)/(a + b + i) times ρ/ρ, so that ρ = 0 needs no case of its own
            silent *= ((1 - pi) * (1 - rho) + i * rho) / ((1 - rho) + i * rho)
        probability += chance * silent
    return float(probability)


def routed_experts(
    batch: int,
    tokens: int,
    experts: int,
    top_k: int,
    hidden: int,
    width: int,
    routing: tuple[float, float],
    bits: float = 16.0,
    dtype: str = "bf16",
    kind: str = "moe",
) -> Work:
    """Gate, up and down of the experts touched, in one fused kernel; each routed row is read, widened and narrowed."""
    rows = batch * tokens * top_k
    touched = experts * (1.0 - missed(tokens, experts, top_k, *routing) ** batch)
    weights = touched * 3 * hidden * width * bits / 8.0
    activations = rows * (hidden + 2 * width + width + hidden) * BYTES
    return Work(kind, 1, 6.0 * rows * hidden * width, weights + activations, dtype)


def router(rows: float, hidden: int, experts: int) -> Work:
    """Small, and launched within the fused expert layer."""
    return matrix(rows, hidden, experts, kernels=0.0)


def dense_block(rows: float, hidden: int, width: int, bits: float = 16.0, dtype: str = "bf16") -> list[Work]:
    if dtype == "fp8":
        first, second = (
            eight_bits(rows, *shape, bits=bits, dtype=dtype) for shape in ((hidden, 2 * width), (width, hidden))
        )
    else:
        first, second = ([matrix(rows, *shape, bits=bits)] for shape in ((hidden, 2 * width), (width, hidden)))
    return [*first, moved(rows, 3 * width, kernels=1), *second]


def grouped_block(
    batch: int, tokens: int, context: int, hidden: int, heads: int, kv_heads: int, dim: int, window: int | None = None
) -> list[Work]:
    """Two fused residual-and-norm kernels, QKV, rotary embedding, attention, output."""
    rows = batch * tokens
    return [
        moved(rows, 2 * 4 * hidden, kernels=2),
        matrix(rows, hidden, (heads + 2 * kv_heads) * dim),
        moved(rows, 2 * (heads + kv_heads) * dim, kernels=1),
        grouped_attention(batch, tokens, context, heads, kv_heads, dim, window),
        matrix(rows, heads * dim, hidden),
    ]


def ends(rows: float, hidden: int, vocabulary: int) -> list[Work]:
    """Embedding gather and the LM head over every token fed (all are sampled when verifying)."""
    return [moved(rows, 2 * hidden, kernels=1), matrix(rows, hidden, vocabulary)]


# ---------------------------------------------------------------------------------------------------------------
# The four models


def llama_8b(batch: int, tokens: int, context: int) -> Total:
    rows = batch * tokens
    works = ends(rows, 4096, 128256)
    for _ in range(32):
        works += grouped_block(batch, tokens, context, 4096, 32, 8, 128) + dense_block(rows, 4096, 14336)
    return target(works, 32)


def qwen3_30b(batch: int, tokens: int, context: int, routing: tuple[float, float]) -> Total:
    rows = batch * tokens
    experts = routed_experts(batch, tokens, 128, 8, 2048, 768, routing)
    works = ends(rows, 2048, 151936)
    for _ in range(48):
        works += grouped_block(batch, tokens, context, 2048, 32, 4, 128)
        works += [router(rows, 2048, 128), experts]
    return target(works, 48)


def deepseek_v3(batch: int, tokens: int, context: int, routing: tuple[float, float]) -> Total:
    rows, heads, rank, rope, nope, query = batch * tokens, 128, 512, 64, 128, 1536
    stored = {"bits": 8.0 + 32.0 / 128**2, "dtype": "fp8"}  # one fp32 scale per 128 x 128 weights
    attention = [
        moved(rows, 2 * 4 * 7168, kernels=2),
        *eight_bits(rows, 7168, query + rank + rope, **stored),
        *eight_bits(rows, query, heads * (nope + rope), **stored),
        matrix(rows, rank, heads * (nope + 128), kernels=2),  # absorbed into queries and outputs, in 16 bits
        moved(rows, 2 * (heads * rope + rope), kernels=1),
        latent_attention(batch, tokens, context, heads, rank, rope),
        *eight_bits(rows, heads * 128, 7168, **stored),
    ]
    experts = routed_experts(batch, tokens, 256, 8, 7168, 2048, routing, **stored)
    works = ends(rows, 7168, 129280)
    for layer in range(61):
        works += attention
        if layer < 3:
            works += dense_block(rows, 7168, 18432, **stored)
        else:
            works += [router(rows, 7168, 256), experts, *dense_block(rows, 7168, 2048, **stored)]
    return target(works, 61)


def gpt_oss_20b(batch: int, tokens: int, context: int, routing: tuple[float, float]) -> Total:
    rows = batch * tokens
    # MXFP4, bf16 arithmetic
    experts = routed_experts(batch, tokens, 32, 4, 2880, 2880, routing, bits=4.0 + 8.0 / 32, kind="moe_mxfp4")
    works = ends(rows, 2880, 201088)
    for layer in range(24):
        works += grouped_block(batch, tokens, context, 2880, 64, 8, 64, window=128 if layer % 2 == 0 else None)
        works += [router(rows, 2880, 32), experts]
    return target(works, 24)


STICKY = (0.2, 0.3)
MODELS: dict[str, tuple[str, Callable[..., Total], tuple[float, float] | None]] = {
    "dense": ("Meta-Llama-3.1-8B", llama_8b, None),
    "uniform experts": ("Qwen3-30B-A3B", qwen3_30b, (0.0, 0.0)),
    "sticky experts": ("Qwen3-30B-A3B", qwen3_30b, STICKY),
    "latent attention": ("DeepSeek-V3", deepseek_v3, STICKY),
    "windows": ("gpt-oss-20b", gpt_oss_20b, STICKY),
}


@pytest.mark.parametrize("point", POINTS, ids=str)
@pytest.mark.parametrize("case", MODELS)
def test_step_agrees_with_a_second_calculator(case: str, point: tuple[int, int, int]) -> None:
    name, calculate, routing = MODELS[case]
    batch, tokens, context = point
    options: dict[str, Any] = {"batch": batch, "tokens_per_sequence": tokens, "context": context}
    expected = calculate(batch, tokens, context) if routing is None else calculate(batch, tokens, context, routing)
    if routing is not None:
        options["routing"] = lm.Routing(persistence=routing[0], stickiness=routing[1])
    step = lm.step_cost(name, H100, **options)
    assert float(step.flops) == pytest.approx(expected.flops, rel=FLOPS_TOLERANCE)
    assert float(step.traffic) == pytest.approx(expected.traffic, rel=TRAFFIC_TOLERANCE)
    assert float(step.time) == pytest.approx(expected.time, rel=TIME_TOLERANCE)


# ---------------------------------------------------------------------------------------------------------------
# Rounds with an EAGLE-3 head


def eagle3_pass(batch: int, context: int, hidden: int, heads: int, kv_heads: int, dim: int, width: int) -> float:
    """Seconds of one token through the head: a layer that reads embedding and feature together, 32,000 rows of head."""
    works = [
        *ends(batch, hidden, 32000),
        moved(batch, 2 * 4 * hidden, kernels=2),
        matrix(batch, 2 * hidden, (heads + 2 * kv_heads) * dim),
        moved(batch, 2 * (heads + kv_heads) * dim, kernels=1),
        grouped_attention(batch, 1, context, heads, kv_heads, dim),
        matrix(batch, heads * dim, hidden),
        *dense_block(batch, hidden, width),
    ]
    return total(works, host("per_draft_step")).time


def tokens_a_round(conditionals: tuple[float, ...], drafts: int) -> float:
    """One bonus token and each draft with the chance that it and all before it are accepted; the last α goes on."""
    tokens, survival = 1.0, 1.0
    for position in range(drafts):
        survival *= conditionals[min(position, len(conditionals) - 1)]
        tokens += survival
    return tokens


def dense_round(batch: int, context: int, drafts: int) -> float:
    one_pass = eagle3_pass(batch, context, 4096, 32, 8, 128, 14336)
    fusion = seconds(matrix(batch * (drafts + 1), 3 * 4096, 4096))
    return drafts * one_pass + fusion + llama_8b(batch, drafts + 1, context).time + host("per_round")


def sparse_round(batch: int, context: int, drafts: int) -> float:
    one_pass = eagle3_pass(batch, context, 2048, 32, 4, 128, 8 * 768)  # as wide as the experts of one token
    fusion = seconds(matrix(batch * (drafts + 1), 3 * 2048, 2048))
    return drafts * one_pass + fusion + qwen3_30b(batch, drafts + 1, context, STICKY).time + host("per_round")


LONGEST = 10


@pytest.mark.parametrize("conditionals", [(0.75,), (0.7, 0.62, 0.6, 0.58), (0.3,), (0.95, 0.9)], ids=str)
@pytest.mark.parametrize(("batch", "context"), [(1, 4096), (4, 512), (16, 4096), (96, 256)])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_round_and_best_draft_length_agree(
    kind: str, batch: int, context: int, conditionals: tuple[float, ...]
) -> None:
    options: dict[str, Any] = {"batch": batch, "context": context, "draft": lm.Draft.eagle()}
    if kind == "dense":
        name, plain, round_time = "Meta-Llama-3.1-8B", llama_8b(batch, 1, context).time, dense_round
    else:
        name, plain, round_time = "Qwen3-30B-A3B", qwen3_30b(batch, 1, context, STICKY).time, sparse_round
        options["routing"] = lm.Routing(persistence=STICKY[0], stickiness=STICKY[1])
    curve = [1.0]
    for drafts in range(1, LONGEST + 1):
        curve.append(tokens_a_round(conditionals, drafts) * plain / round_time(batch, context, drafts))

    options["acceptance"] = lm.Acceptance.conditional(conditionals)
    told = lm.speculate(name, H100, draft_length=list(range(LONGEST + 1)), **options)
    assert told.speedup.tolist() == pytest.approx(curve, rel=TIME_TOLERANCE)
    plan = lm.optimize(name, H100, max_draft_length=LONGEST, **options)
    assert curve[int(plan.draft_length)] == pytest.approx(max(curve), rel=TIME_TOLERANCE)


# ---------------------------------------------------------------------------------------------------------------
# Laws between settings that need no numbers of their own


@pytest.mark.parametrize(
    "drafter", [lm.Draft.eagle(), lm.Draft.model(lm.load_model("Llama-3.2-1B"))], ids=lambda d: d.kind
)
def test_replicas_of_a_dense_model_are_independent(drafter: lm.Draft) -> None:
    """16 replicas that share 256 sequences speculate exactly as one with 16 sequences."""
    options: dict[str, Any] = {"draft": drafter, "acceptance": 0.7, "draft_length": [1, 4], "context": 4096}
    one = lm.speculate("Meta-Llama-3.1-8B", H100, batch=16, **options)
    many = lm.speculate("Meta-Llama-3.1-8B", H100, batch=256, parallelism=lm.Parallelism(dp=16), **options)
    assert many.speedup.tolist() == pytest.approx(one.speedup.tolist())


def test_largest_batch_counts_like_batch() -> None:
    """A row that fits never says that fewer sequences fit than it has."""
    plan = lm.optimize("Meta-Llama-3.1-8B", H100, batch=[400, 600], parallelism=lm.Parallelism(dp=8))
    for row in plan.rows():
        assert row["fits"] == (row["batch"] <= row["largest_batch"])
