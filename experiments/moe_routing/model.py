"""A byte-level mixture-of-experts language model, small enough to train on one CPU core (torch)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from moe_routing.runs import Architecture

WIDTH = 128
HEADS = 4
CONTEXT = 128
ACTIVE_HIDDEN = 256  # hidden units a token passes, shared by its top-k experts


class Experts(nn.Module):
    """Top-k of E two-layer networks, mixed by their renormalised probabilities; no capacity limit, no dropping."""

    def __init__(self, experts: int, top_k: int) -> None:
        super().__init__()
        hidden = ACTIVE_HIDDEN // top_k
        self.top_k = top_k
        self.router = nn.Linear(WIDTH, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, WIDTH, hidden) * WIDTH**-0.5)
        self.down = nn.Parameter(torch.randn(experts, hidden, WIDTH) * hidden**-0.5 * 0.5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Output, ids of the experts used, and the balance loss (1 when perfectly balanced)."""
        probability = self.router(x).softmax(-1)
        gate, chosen = probability.topk(self.top_k)
        gate = gate / gate.sum(-1, keepdim=True)

        experts = probability.shape[-1]
        counts = torch.bincount(chosen.flatten(), minlength=experts)
        order = chosen.flatten().argsort()  # tokens of one expert side by side
        token = order // self.top_k
        parts = x[token].split(counts.tolist())
        weights = zip(parts, self.up.unbind(), self.down.unbind(), strict=True)
        outputs = torch.cat([functional.gelu(part @ up) @ down for part, up, down in weights])
        mixed = torch.zeros_like(x).index_add(0, token, outputs * gate.flatten()[order, None])

        share = counts / chosen.numel()
        return mixed, chosen, experts * (share * probability.mean(0)).sum()


class Block(nn.Module):
    """Causal attention, then experts, each on the normalised residual stream."""

    def __init__(self, experts: int, top_k: int) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.before_experts = nn.LayerNorm(WIDTH)
        self.experts = Experts(experts, top_k)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Residual stream, expert ids [sequence, token, k], balance loss."""
        batch, length, _ = x.shape
        heads = self.qkv(self.before_attention(x)).view(batch, length, 3 * HEADS, -1).transpose(1, 2)
        attended = functional.scaled_dot_product_attention(*heads.chunk(3, dim=1), is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
        mixed, chosen, balance = self.experts(self.before_experts(x).view(-1, WIDTH))
        return x + mixed.view(x.shape), chosen.view(batch, length, -1), balance


class LanguageModel(nn.Module):
    """Predicts the next byte."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.byte = nn.Embedding(256, WIDTH)
        self.position = nn.Parameter(torch.randn(CONTEXT, WIDTH) * 0.02)
        blocks = (Block(architecture.experts, architecture.top_k) for _ in range(architecture.layers))
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 256)

    def forward(self, text: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, expert ids [layer, sequence, token, k], mean balance loss."""
        x = self.byte(text) + self.position[: text.shape[1]]
        chosen, balance = [], []
        for block in self.blocks:
            x, ids, loss = block(x)
            chosen.append(ids)
            balance.append(loss)
        return self.head(self.norm(x)), torch.stack(chosen), torch.stack(balance).mean()
