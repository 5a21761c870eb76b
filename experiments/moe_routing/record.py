"""Train a model on one kind of text, then record which experts it routes held-out text to (torch)."""

from __future__ import annotations

import math
import platform
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from moe_routing.model import CONTEXT, LanguageModel
from moe_routing.runs import Run
from moe_routing.texts import TEXTS, split

STEPS = 2000
BATCH = 12
LEARNING_RATE = 3e-3
WARM_UP = 100
BALANCE = 0.01

RECORDED = 1024
"""Sequences of held-out text, none overlapping."""

RECORDED_TOKENS = 48
"""Last tokens of each, so that all have a context to attend to."""


def train_and_record(run: Run, *, seed: int = 0, steps: int = STEPS) -> dict[str, Any]:
    """Losses [nat/byte] and the experts of held-out text [layer, sequence, token, k] of one trained model."""
    torch.set_num_threads(1)  # results then depend less on the machine
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    train_text, held_out, fingerprint = split(TEXTS[run.text]())
    model = LanguageModel(run.architecture)
    train_loss = _train(model, np.frombuffer(train_text, dtype=np.uint8), random, steps)
    text = torch.from_numpy(_pieces(held_out, random).astype(np.int64))
    with torch.no_grad():
        logits, ids, balance = model(text[:, :-1])
    return {
        "expert_ids": ids[:, :, -RECORDED_TOKENS:].sort(dim=-1).values.numpy().astype(np.uint8),
        "num_experts": run.architecture.experts,
        "steps": steps,
        "seed": seed,
        "train_bytes": len(train_text),
        "train_loss": train_loss,
        "held_out_loss": float(_loss(logits, text)),
        "balance": float(balance),
        "text_sha256": fingerprint,
        "software": f"Python {platform.python_version()}, "
        + ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy", "scipy", "sympy")),
    }


def _train(model: LanguageModel, data: NDArray[np.uint8], random: np.random.Generator, steps: int) -> float:
    """Train in place; mean loss of the last hundred steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))
    losses = []
    for _ in range(steps):
        starts = random.integers(0, len(data) - CONTEXT - 1, BATCH)
        text = torch.from_numpy(data[starts[:, None] + np.arange(CONTEXT + 1)].astype(np.int64))
        logits, _, balance = model(text[:, :-1])
        loss = _loss(logits, text)
        optimizer.zero_grad(set_to_none=True)
        (loss + BALANCE * balance).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
    return float(np.mean(losses[-100:]))


def _rate(step: int, steps: int) -> float:
    """Linear warm-up, then half a cosine down to a tenth."""
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    return 0.55 + 0.45 * math.cos(math.pi * (step - WARM_UP) / (steps - WARM_UP))


def _loss(logits: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())


def _pieces(documents: list[bytes], random: np.random.Generator) -> NDArray[np.uint8]:
    """Random pieces of the documents, one token longer than the context and without overlap."""
    length = CONTEXT + 1
    pieces = [
        np.frombuffer(document, dtype=np.uint8)[: len(document) // length * length].reshape(-1, length)
        for document in documents
    ]
    return random.permutation(np.concatenate(pieces))[:RECORDED]
