"""The operations of a transformer as torch runs them one by one: shared by microbenchmarks and the whole chain."""

from __future__ import annotations

from typing import Any

__all__ = ["add_norm", "attend", "experts", "gate", "rotate"]


def add_norm(torch: Any, x: Any, residual: Any, weight: Any) -> tuple[Any, Any]:
    """Add to the residual stream and normalise: RMSNorm(residual + x)."""
    residual = residual + x
    if hasattr(torch.nn.functional, "rms_norm"):  # since torch 2.4
        return torch.nn.functional.rms_norm(residual, weight.shape, weight, 1e-6), residual
    scale = residual.float().pow(2).mean(-1, keepdim=True).add(1e-6).rsqrt().to(residual.dtype)
    return residual * scale * weight, residual


def gate(torch: Any, both: Any) -> Any:
    """Gated activation: SiLU of the first half times the second."""
    first, second = both.chunk(2, dim=-1)
    return torch.nn.functional.silu(first) * second


def rotate(torch: Any, heads: Any, cosine: Any, sine: Any) -> Any:
    """Rotary embedding of heads [..., tokens, dim], halves rotated against each other."""
    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


def attend(torch: Any, query: Any, new_keys: Any, new_values: Any, keys: Any, values: Any, cached: int) -> Any:
    """Write n new tokens behind ``cached`` ones and attend to all: causal among the new.

    Shapes: query [B, H, n, d]; new [B, H_kv, n, d]; caches [B, H_kv, room, d]; the result [B, H, n, d].
    """
    tokens = query.shape[2]
    end = cached + tokens
    keys[:, :, cached:end] = new_keys
    values[:, :, cached:end] = new_values
    mask = None
    if tokens > 1:
        mask = torch.ones(tokens, end, dtype=torch.bool, device=query.device).tril(diagonal=cached)
    # Query heads of one KV head side by side as queries: its cache is then read once for all of them.
    batch, heads, _, dim = query.shape
    kv_heads = keys.shape[1]
    group = heads // kv_heads
    grouped = query.view(batch, kv_heads, group * tokens, dim)
    if mask is not None:
        mask = mask.repeat(group, 1)
    found = torch.nn.functional.scaled_dot_product_attention(
        grouped, keys[:, :, :end], values[:, :, :end], attn_mask=mask
    )
    return found.view(batch, heads, tokens, dim)


def experts(torch: Any, x: Any, ids: Any, shares: Any, first: Any, second: Any) -> Any:
    """Routed experts in a loop over the distinct ones.

    Shapes: x [t, h]; ids and shares [t, k]; first [E, 2m, h]; second [E, h, m].
    """
    out = torch.zeros_like(x)
    for expert in torch.unique(ids).tolist():
        rows, places = torch.where(ids == expert)
        hidden = gate(torch, torch.nn.functional.linear(x[rows], first[expert]))
        found = torch.nn.functional.linear(hidden, second[expert])
        out.index_add_(0, rows, found * shares[rows, places, None])
    return out
