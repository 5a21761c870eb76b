"""``latency-model models``: the architectures that ship, one of them layer by layer, two side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from latency_model.cli.options import Named, format_option

if TYPE_CHECKING:
    from latency_model.specs.model import FeedForward, Layer, Mixer, ModelArchitecture

MODEL = Named("model")


@click.group()
def models() -> None:
    """List, show and compare model architectures."""


@models.command("list")
@format_option
def list_models(*, format: str) -> None:
    """List the models that ship; any other Hugging Face config.json works by its path.

    \b
    Example:
      latency-model models list --format md
    """  # noqa: D301 - \b keeps click from joining the lines
    from latency_model import load_model, model_names
    from latency_model.cli.render import Column, Result, show
    from latency_model.units import format_quantity

    columns = [
        Column("name", lambda row: row["name"], left=True),
        Column("parameters", lambda row: f"{row['total_parameters'] / 1e9:.1f} B"),
        Column("active", lambda row: f"{row['active_parameters'] / 1e9:.1f} B"),
        Column("layers", lambda row: str(row["layers"]), optional=2),
        Column("experts", lambda row: (row["experts"] or "-").replace(" experts", "")),
        Column("weights", lambda row: format_quantity(row["weight_bytes"], "size"), optional=1),
        Column("format", lambda row: "+".join(row["weight_formats"]), left=True, optional=3),
        Column("KV/token", lambda row: format_quantity(row["kv_bytes_per_token"], "size")),
    ]
    rows = [facts(load_model(name)) for name in model_names()]
    show(Result(inputs={}, rows=rows, columns=columns), format)


@models.command("show")
@click.argument("model", type=MODEL)
@format_option
def show_model(*, model: str, format: str) -> None:
    """Show what a model is made of: sizes, formats, each kind of layer, and what had to be assumed.

    \b
    Examples:
      latency-model models show DeepSeek-V3
      latency-model models show path/to/config.json --format json
    """  # noqa: D301 - \b keeps click from joining the lines
    from latency_model import load_model
    from latency_model.cli.render import Column, Result, show
    from latency_model.units import format_quantity

    def size(key: str) -> Any:
        return lambda row: format_quantity(row[key], "size") if row[key] else "-"

    columns = [
        Column("layers", lambda row: str(row["layers"])),
        Column("mixer", lambda row: row["mixer"], left=True, fold=True),
        Column("feed-forward", lambda row: row["feed_forward"], left=True, fold=True),
        Column("parameters", lambda row: f"{row['parameters'] / 1e6:.0f} M"),
        Column("weights", size("weight_bytes")),
        Column("KV/token", size("kv_bytes_per_token")),
        Column("state", size("state_bytes"), optional=1),
    ]
    architecture = load_model(model)
    known = facts(architecture)
    show(
        Result(
            inputs={"model": model},
            rows=[_layer_row(architecture, layer, count) for layer, count in architecture.layer_kinds],
            columns=columns,
            heading=[f"{name.replace('_', ' ')}: {_text(name, value)}" for name, value in known.items() if value],
            assumptions=architecture.assumptions,
            sources=(architecture.source,),
            extra={"model": known},
        ),
        format,
    )


@models.command("diff")
@click.argument("first", type=MODEL)
@click.argument("second", type=MODEL)
@format_option
def diff(*, first: str, second: str, format: str) -> None:
    """Show what differs between two models.

    \b
    Example:
      latency-model models diff Qwen3-30B-A3B gpt-oss-20b
    """  # noqa: D301 - \b keeps click from joining the lines
    from latency_model import load_model
    from latency_model.cli.render import Column, Result, show

    one, other = facts(load_model(first)), facts(load_model(second))
    rows = [{"field": name, "first": one[name], "second": other[name]} for name in one if one[name] != other[name]]
    columns = [
        Column("field", lambda row: row["field"].replace("_", " "), left=True),
        Column(one["name"], lambda row: _text(row["field"], row["first"]), left=True, fold=True),
        Column(other["name"], lambda row: _text(row["field"], row["second"]), left=True, fold=True),
    ]
    show(Result(inputs={"first": first, "second": second}, rows=rows, columns=columns), format)


def facts(model: ModelArchitecture) -> dict[str, Any]:
    """A model in numbers, SI units."""
    from latency_model.cli.describe import experts_text, weight_formats

    return {
        "name": model.name,
        "family": model.family,
        "total_parameters": model.total_parameters,
        "active_parameters": model.active_parameters,
        "layers": len(model.layers),
        "hidden_size": model.hidden_size,
        "vocab_size": model.vocab_size,
        "experts": experts_text(model) if model.is_moe else None,
        "weight_bytes": model.weight_bytes,
        "weight_formats": list(weight_formats(model)),
        "kv_dtype": model.kv_dtype,
        "kv_bytes_per_token": model.kv_bytes_per_token(),
        "state_bytes": model.linear_state_bytes,
        "tied_embeddings": model.tied,
        "max_context_tokens": model.max_context,
        "mtp_layers": model.mtp_layers,
    }


def _text(name: str, value: Any) -> str:
    """A fact for people."""
    from latency_model.units import format_quantity

    if value is None:
        return "-"
    if "bytes" in name:
        return format_quantity(value, "size")
    if isinstance(value, list):
        return ", ".join(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _layer_row(model: ModelArchitecture, layer: Layer, count: int) -> dict[str, Any]:
    """One kind of layer, SI units; sizes are those of one layer."""
    from latency_model.specs.model import RecurrentMixer

    by_layer = model.kv_bytes_per_token_by_layer()
    return {
        "layers": count,
        "mixer": _mixer_text(layer.mixer),
        "feed_forward": " + ".join(_block_text(block) for block in layer.feed_forward) or "-",
        "parameters": layer.parameters,
        "weight_bytes": layer.weight_bytes,
        "kv_bytes_per_token": by_layer[model.layers.index(layer)],
        "state_bytes": layer.mixer.state_bytes if isinstance(layer.mixer, RecurrentMixer) else 0.0,
    }


def _mixer_text(mixer: Mixer | None) -> str:
    from latency_model.specs.model import Attention, LatentAttention

    if mixer is None:
        return "-"
    if isinstance(mixer, LatentAttention):
        sparse = "" if mixer.indexer is None else f", top {mixer.indexer.top_k} tokens"
        return f"MLA {mixer.heads} heads, latent {mixer.latent_rank}+{mixer.rope_dim}{sparse}"
    if isinstance(mixer, Attention):
        window = "" if mixer.window is None else f", window {mixer.window}"
        return f"{mixer.heads} heads, {mixer.kv_heads} KV x {mixer.key_dim}{window}"
    return f"{mixer.kind} {mixer.heads} heads"


def _block_text(block: FeedForward) -> str:
    from latency_model.specs.model import MoE

    if isinstance(block, MoE):
        shared = " + shared" if block.shared else ""
        return f"{block.num_experts} experts top-{block.top_k}{shared}"
    return f"dense {block.projections[-1].matrices[0].inputs}"
