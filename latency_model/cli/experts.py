"""``latency-model experts``: what a step loads, and when more tokens stop loading more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from latency_model.cli.options import Command, Numbers, batch_option, check_pairs, format_option, setting_options

if TYPE_CHECKING:
    from latency_model.cli.render import Column, Result
    from latency_model.decisions.loading import ExpertLoading


@click.command(cls=Command, short_help="What n tokens load, and when it stops mattering.")
@setting_options
@batch_option(default="1,4,16,64,256")
@click.option(
    "-n", "--tokens", type=Numbers(), default="1,2,4,8", show_default=True, help="Tokens each sequence feeds."
)
@format_option
def experts(*, setting: dict[str, Any], batch: tuple[int, ...], tokens: tuple[int, ...], format: str) -> None:
    """Show how many experts a step touches, what they weigh, and when more tokens load no more.

    A plain step feeds 1 token of each sequence, the verification of a draft one more than was drafted.

    \b
    Examples:
      latency-model experts -m Qwen3-30B-A3B -H h100-sxm
      latency-model experts -m DeepSeek-V3 -H h200 --tp 8 --ep 8 -b 1:16 -n 1,4
      latency-model experts -m Mixtral-8x7B-v0.1 -H h100 --persistence 0 --stickiness 0
    """  # noqa: D301 - \b keeps click from joining the lines
    from latency_model.cli.render import show
    from latency_model.decisions.loading import expert_loading

    check_pairs("--batch and --tokens", batch, tokens)
    where = {name: setting[name] for name in ("model", "hardware", "parallelism", "routing", "dtypes")}
    show(result(expert_loading(**where, batch=batch, tokens_per_sequence=tokens)), format)


def result(loading: ExpertLoading) -> Result:
    """Expert loading as the command prints it."""
    from latency_model.cli import describe
    from latency_model.cli.render import Result, number
    from latency_model.units import format_quantity

    setting, block = loading.setting, loading.block
    total = block.num_experts * block.expert_bytes
    free = {
        int(tokens): None if at != at else int(at)  # NaN where no batch is large enough
        for tokens, at in zip(loading.tokens_per_sequence, loading.free_batch, strict=True)
        if tokens > 1
    }
    return Result(
        inputs=describe.setting_inputs(setting)
        | {"batch": loading.batch.ravel().astype(int), "tokens_per_sequence": loading.tokens_per_sequence.astype(int)},
        rows=loading.rows(),
        columns=columns(),
        heading=(
            describe.model_line(setting),
            f"on {setting.parallelism.devices} x {setting.hardware.title}; one of {loading.layers} layers: "
            f"{block.num_experts} experts of {format_quantity(block.expert_bytes, 'size')}, "
            f"{format_quantity(total, 'size')} together",
            f"routing persistence {setting.routing.persistence:.3f}, stickiness {setting.routing.stickiness:.3f}",
        ),
        remarks=(
            f"Above {number(loading.crossover_tokens)} tokens per touched expert, work takes longer than loading.",
            *(
                f"Feeding {n} tokens touches less than 5 % more than 1 from batch {at} on."
                for n, at in free.items()
                if at
            ),
        ),
        assumptions=loading.assumptions,
        not_modelled=loading.not_modelled,
        sources=setting.hardware.sources,
        extra={
            "crossover_tokens_per_expert": loading.crossover_tokens,
            "layers": loading.layers,
            "expert_bytes": block.expert_bytes,
            "free_batch_by_tokens": free,
        },
    )


def columns() -> list[Column]:
    """What the table shows of a row."""
    from latency_model.cli.render import Column, fixed, number, percent
    from latency_model.units import format_quantity

    return [
        Column("batch", lambda row: str(row["batch"])),
        Column("tokens\neach", lambda row: str(row["tokens_per_sequence"])),
        Column("experts\ntouched", lambda row: number(row["distinct_experts"])),
        Column("if\nuniform", lambda row: number(row["distinct_experts_uniform"])),
        Column("share\nof all", lambda row: percent(row["share_of_experts"])),
        Column("against\nplain", lambda row: fixed(row["experts_against_plain"]), optional=1),
        Column("loaded\nper layer", lambda row: format_quantity(row["loaded_bytes"], "size")),
        Column("tokens\n/expert", lambda row: number(row["tokens_per_expert"])),
        Column("time\nper layer", lambda row: format_quantity(row["time_s"], "time")),
        Column("bound by", lambda row: row["bound"], left=True),
    ]
