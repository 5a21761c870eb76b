"""The whole chain on one machine: small models with random weights, timed step by step and predicted from a profile.

Weights are random and expert choices forced: what a step costs does not depend on what it says.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import define, field, frozen
from numpy.typing import NDArray

from latency_model.costs.round import speculate
from latency_model.costs.step import step_cost
from latency_model.evidence.measure import layers
from latency_model.evidence.measure.machine import Case, Machine
from latency_model.specs.acceptance import Acceptance
from latency_model.specs.draft import Draft
from latency_model.specs.hardware import HardwareProfile
from latency_model.specs.loader import load_model
from latency_model.specs.model import ModelArchitecture
from latency_model.specs.precision import DTypes
from latency_model.specs.routing import Routing

__all__ = ["DENSE", "DRAFTER", "MIXTURE", "ChainPoint", "Network", "RoundCases", "RoundPoint", "StepCases"]

FloatArray = NDArray[np.floating[Any]]

_COMMON: dict[str, Any] = {
    "hidden_size": 768,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "vocab_size": 8192,
    "tie_word_embeddings": False,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 4096,
}
#: A dense target, a drafter of a fifth of its weights, a mixture of experts: Hugging Face configs.
DENSE: dict[str, Any] = _COMMON | {"model_type": "llama", "num_hidden_layers": 8, "intermediate_size": 2048}
DRAFTER: dict[str, Any] = DENSE | {"num_hidden_layers": 1}
MIXTURE: dict[str, Any] = _COMMON | {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 4,
    "intermediate_size": 2048,
    "moe_intermediate_size": 512,
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 1,
    "norm_topk_prob": True,
    "mlp_only_layers": [],
}
MODELS = {"dense": DENSE, "mixture": MIXTURE}
BATCHES, TOKENS, CONTEXTS = (1, 4, 16), (1, 2, 4, 7), (128, 1024)
REACHES = {"dense": (0,), "mixture": (4, 16)}  # experts among which a step's tokens choose
LONGEST_ROUND = 16  # tokens a cache has room for beyond its context
DRAFT_LENGTHS = tuple(range(7))
FORCED_ACCEPTANCE = 0.7
ROUND_CONTEXT = 512
ROUNDS = 10  # drawn once and replayed in every pass


@frozen(kw_only=True)
class ChainPoint:
    """One step: measured and predicted seconds."""

    model: str
    batch: int
    tokens_per_sequence: int
    context: int
    experts: int  # the step's tokens choose among so many; 0 for a dense model
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Relative error [1]."""
        return self.predicted / self.measured - 1.0


@frozen(kw_only=True)
class RoundPoint:
    """Speculation with so many drafts: measured and predicted speedup over plain decoding."""

    draft_length: int
    tokens_per_round: float  # of the rounds drawn
    measured: float
    predicted: float


@define(kw_only=True, eq=False)
class Network:
    """A decoder with random weights that runs as :mod:`layers` says, and its architecture for predictions."""

    machine: Machine
    config: Mapping[str, Any]
    architecture: ModelArchitecture = field(init=False)
    _weights: list[dict[str, Any]] = field(init=False, repr=False)
    _embedding: Any = field(init=False, repr=False)
    _head: Any = field(init=False, repr=False)
    _angles: tuple[Any, Any] = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        config, random = self.config, self.machine.random
        self.architecture = load_model(config)
        hidden, dim = config["hidden_size"], config["head_dim"]
        heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self._weights = []
        for _ in range(config["num_hidden_layers"]):
            layer = {
                "norm": random(hidden),
                "qkv": random((heads + 2 * kv_heads) * dim, hidden),
                "output": random(hidden, heads * dim),
            }
            if "num_experts" in config:
                inner, experts = config["moe_intermediate_size"], config["num_experts"]
                layer |= {
                    "router": random(experts, hidden),
                    "first": random(experts, 2 * inner, hidden),
                    "second": random(experts, hidden, inner),
                }
            else:
                inner = config["intermediate_size"]
                layer |= {"first": random(2 * inner, hidden), "second": random(hidden, inner)}
            self._weights.append(layer)
        self._embedding = random(config["vocab_size"], hidden)
        self._head = random(config["vocab_size"], hidden)
        angles = random(config["max_position_embeddings"], dim // 2)
        self._angles = (angles.cos(), angles.sin())

    def cache(self, batch: int, context: int) -> list[tuple[Any, Any]]:
        """Keys and values of every layer, with room for a round behind ``context`` tokens."""
        shape = (batch, self.config["num_key_value_heads"], context + LONGEST_ROUND, self.config["head_dim"])
        return [(self.machine.random(*shape), self.machine.random(*shape)) for _ in self._weights]

    def step(self, ids: Any, cache: Sequence[tuple[Any, Any]], cached: int, chosen: Any = None) -> Any:
        """Logits of ids [B, n] behind ``cached`` tokens; ``chosen`` [layers, B·n, k] forces the experts."""
        torch, config = self.machine.torch, self.config
        linear = torch.nn.functional.linear
        batch, tokens = ids.shape
        heads, kv_heads, dim = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
        cosine, sine = (angles[cached : cached + tokens] for angles in self._angles)
        x = torch.nn.functional.embedding(ids.reshape(-1), self._embedding)
        residual = torch.zeros_like(x)
        for place, (layer, (keys, values)) in enumerate(zip(self._weights, cache, strict=True)):
            x, residual = layers.add_norm(torch, x, residual, layer["norm"])
            mixed = linear(x, layer["qkv"]).view(batch, tokens, heads + 2 * kv_heads, dim).transpose(1, 2)
            turned = layers.rotate(torch, mixed[:, : heads + kv_heads], cosine, sine)
            query, new_keys = turned[:, :heads], turned[:, heads:]
            found = layers.attend(
                torch, query.contiguous(), new_keys, mixed[:, heads + kv_heads :], keys, values, cached
            )
            x = linear(found.transpose(1, 2).reshape(batch * tokens, heads * dim), layer["output"])
            x, residual = layers.add_norm(torch, x, residual, layer["norm"])
            if chosen is None:
                x = linear(layers.gate(torch, linear(x, layer["first"])), layer["second"])
            else:
                scores = torch.softmax(linear(x, layer["router"]), dim=-1)
                shares, _ = torch.topk(scores, config["num_experts_per_tok"])
                x = layers.experts(torch, x, chosen[place], shares, layer["first"], layer["second"])
        x, _ = layers.add_norm(torch, x, residual, self._weights[0]["norm"])
        return linear(x, self._head).view(batch, tokens, -1)


@frozen(kw_only=True, eq=False)
class StepCases:
    """Decode and verification steps of small models: what to time, and the points they are."""

    cases: tuple[Case, ...]
    points: tuple[tuple[str, int, int, int, int], ...]  # model, batch, tokens, context, experts in reach

    @classmethod
    def of(cls, machine: Machine, models: Iterable[str] = tuple(MODELS)) -> StepCases:
        """All steps of ``models``, ``dense`` and ``mixture``."""
        rng = np.random.default_rng(0)
        cases, points = [], []
        for name in models:
            network = Network(machine=machine, config=MODELS[name])
            for batch, context in itertools.product(BATCHES, CONTEXTS):
                cache = network.cache(batch, context)
                for tokens, reach in itertools.product(TOKENS, REACHES[name]):
                    run = _step(network, cache, batch, tokens, context, reach, rng)
                    cases.append(Case(name=name, operation="step", run=run))
                    points.append((name, batch, tokens, context, reach))
        return cls(cases=tuple(cases), points=tuple(points))

    def against(self, profile: HardwareProfile, machine: Machine, measured: FloatArray) -> tuple[ChainPoint, ...]:
        """Measured seconds of each case beside those predicted from the profile alone."""
        return tuple(
            ChainPoint(
                model=name,
                batch=batch,
                tokens_per_sequence=tokens,
                context=context,
                experts=reach,
                measured=float(time),
                predicted=_predicted(machine, profile, name, batch, tokens, context, reach),
            )
            for (name, batch, tokens, context, reach), time in zip(self.points, measured, strict=True)
        )


def _step(
    network: Network,
    cache: Sequence[tuple[Any, Any]],
    batch: int,
    tokens: int,
    context: int,
    reach: int,
    rng: np.random.Generator,
) -> Callable[[], object]:
    torch, device = network.machine.torch, network.machine.device
    config = network.config
    ids = torch.from_numpy(rng.integers(0, config["vocab_size"], size=(batch, tokens))).to(device)
    chosen = None
    if reach:
        scores = rng.random((config["num_hidden_layers"], batch * tokens, reach))
        chosen = torch.from_numpy(scores.argsort(axis=-1)[..., : config["num_experts_per_tok"]]).to(device)
    return lambda: network.step(ids, cache, context, chosen)


def _predicted(
    machine: Machine, profile: HardwareProfile, name: str, batch: int, tokens: int, context: int, reach: int
) -> float:
    """Seconds of the step with uniform routing among the experts in reach."""
    config = MODELS[name] | ({"num_experts": reach} if reach else {})
    return float(
        step_cost(
            config,
            profile,
            batch=batch,
            tokens_per_sequence=tokens,
            context=context,
            routing=Routing.uniform(),
            dtypes=_formats(machine),
            engine="none",
        ).time
    )


def _formats(machine: Machine) -> DTypes:
    return DTypes(weights=machine.dtype, kv=machine.dtype, activations=machine.dtype)


@frozen(kw_only=True, eq=False)
class RoundCases:
    """Speculative decoding with forced acceptance, for 0 to 6 drafts.

    A run drafts with a small model, verifies with the target, samples, and keeps what was accepted: drawn once from
    the forced acceptance and the same in every pass.
    """

    cases: tuple[Case, ...]
    tokens_per_round: tuple[float, ...]  # of the rounds drawn
    drafter: ModelArchitecture

    @classmethod
    def of(cls, machine: Machine) -> RoundCases:
        """All draft lengths at batch 1."""
        target, drafter = Network(machine=machine, config=DENSE), Network(machine=machine, config=DRAFTER)
        caches = target.cache(1, ROUND_CONTEXT), drafter.cache(1, ROUND_CONTEXT)
        accepts = np.random.default_rng(1).random((ROUNDS, max(DRAFT_LENGTHS))) < FORCED_ACCEPTANCE
        streaks = np.cumprod(accepts, axis=1).sum(axis=1)  # drafts before the first failure
        cases, gained = [], []
        for length in DRAFT_LENGTHS:
            accepted = np.minimum(streaks, length)
            gained.append(float(1.0 + accepted.mean()))
            run = _rounds(target, drafter, caches, length, accepted.tolist())
            cases.append(Case(name=f"{length} drafts", operation="rounds", run=run))
        return cls(cases=tuple(cases), tokens_per_round=tuple(gained), drafter=drafter.architecture)

    def against(self, profile: HardwareProfile, machine: Machine, measured: FloatArray) -> tuple[RoundPoint, ...]:
        """Measured speedup of each draft length beside the one predicted from the profile alone."""
        predicted = speculate(
            DENSE,
            profile,
            draft=Draft.model(self.drafter),
            acceptance=Acceptance.constant(FORCED_ACCEPTANCE),
            draft_length=np.array(DRAFT_LENGTHS),
            batch=1,
            context=ROUND_CONTEXT,
            dtypes=_formats(machine),
            engine="none",
        )
        # The rounds drawn gave so many tokens.  What is predicted is time, so both sides get the same tokens.
        tokens = np.array(self.tokens_per_round)
        seen, foreseen = tokens * measured[0] / measured, tokens * predicted.baseline_time / predicted.time
        return tuple(
            RoundPoint(draft_length=length, tokens_per_round=gain, measured=float(own), predicted=float(other))
            for length, gain, own, other in zip(DRAFT_LENGTHS, self.tokens_per_round, seen, foreseen, strict=True)
        )


def _rounds(
    target: Network,
    drafter: Network,
    caches: tuple[Sequence[tuple[Any, Any]], Sequence[tuple[Any, Any]]],
    length: int,
    accepted: Sequence[int],
) -> Callable[[], object]:
    """A run of rounds; caches end where they began, since their room is for one round."""
    torch = target.machine.torch

    def run() -> object:
        last = torch.zeros(1, 1, dtype=torch.long, device=target.machine.device)
        for kept in accepted:
            drafts = [last]
            for place in range(length):
                logits = drafter.step(drafts[-1], caches[1], ROUND_CONTEXT + place)
                drafts.append(logits[:, -1:].argmax(dim=-1))
            verified = target.step(torch.cat(drafts, dim=1), caches[0], ROUND_CONTEXT).argmax(dim=-1)
            # What rejection sampling would decide is forced; the comparison is made all the same.
            _ = (verified[:, :-1] == torch.cat(drafts[1:], dim=1)).cumprod(dim=1).sum() if length else None
            last = verified[:, kept : kept + 1]
        return last

    return run
