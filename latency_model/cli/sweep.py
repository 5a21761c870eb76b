"""``latency-model sweep``: every quantity of a round wherever any of its inputs varies, on screen or in a file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from latency_model.cli.options import CONTEXT, EXAMPLE, Command, Decimals, Named, Numbers, decimals, format_option
from latency_model.errors import InputError

if TYPE_CHECKING:
    from latency_model.cli.render import Column, Result
    from latency_model.views.axes import Grid
    from latency_model.views.cluster import Client
    from latency_model.views.sweep import Dataset, Progress

#: What the name of a file may end in.
SUFFIXES = (".csv", ".json", ".nc", ".zarr", ".parquet", ".html")
#: Those that a single process writes row by row or point by point.
OWN = (".csv", ".html")
#: Points shown on a terminal at most.
MOST_SHOWN = 100_000
PATIENCE = 2.0  # seconds before a progress bar appears


class Texts(click.ParamType):  # type: ignore[type-arg]  # generic only in newer releases of click
    """Words between commas; the option may also be given several times."""

    name = "texts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Split at commas."""
        return tuple(value.split(",")) if isinstance(value, str) else value


def axis_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for every axis; the command gets what was given by name."""
    texts, numbers, fractions = Texts(), Numbers(), Decimals()
    options = (
        click.option("-m", "--model", type=Named("model"), multiple=True, help="Bundled name or config; repeatable."),
        click.option("-H", "--hardware", type=Named("hardware"), multiple=True, help="Name or TOML file; repeatable."),
        click.option("-b", "--batch", type=numbers, default="1,4,16,64,256", show_default=True, help="Sequences."),
        click.option("-c", "--context", type=numbers, default=str(CONTEXT), show_default=True, help="Cached tokens."),
        click.option("-k", "--draft-length", type=numbers, default="0:8", show_default=True, help="Drafted tokens."),
        click.option("--draft", type=texts, metavar="KIND", help="eagle, eagle3, mtp, ngram, parallel, self."),
        click.option("--draft-model", type=Named("model"), multiple=True, help="A separate draft model; repeatable."),
        click.option(
            "--acceptance",
            multiple=True,
            metavar="A",
            help=".5:.9:.1 or several times .7 | .7,.62 (per position) | survival:.7,.43 | len:2.73@3.",
        ),
        click.option("--tp", type=numbers, help="Tensor-parallel ranks."),
        click.option("--ep", type=numbers, help="Expert-parallel ranks."),
        click.option("--pp", type=numbers, help="Pipeline stages."),
        click.option("--dp", type=numbers, help="Data-parallel replicas."),
        click.option("--weights", type=texts, metavar="FORMAT", help="Weights as fp8, int4, nvfp4, ..."),
        click.option("--kv-dtype", type=texts, metavar="FORMAT", help="KV cache as fp8, bf16, ..."),
        click.option("--activations", type=texts, metavar="FORMAT", help="Compute in.  [default: bf16]"),
        click.option("--allow-dtype-fallback", is_flag=True, default=None, help="Use the next format the device has."),
        click.option("--engine", type=texts, help="Whose host times, as for optimize.  [default: vllm]"),
        click.option("--persistence", type=fractions, help="How alike expert choices of one request are, 0 to 1."),
        click.option("--stickiness", type=fractions, help="How often a token keeps its experts, 0 to 1."),
        click.option("--popularity-cv", type=fractions, help="How uneven expert popularity is."),
        click.option("--kv-reread", type=fractions, help="0: KV read once to verify; 1: once per token."),
        click.option("--speculation-tax", type=fractions, help="Slow-down for merely enabling speculation."),
        click.option("--price", type=fractions, metavar="$/h", help="Price of one device."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.command(cls=Command)
@axis_options
@click.option("--quantity", type=Texts(), help="Only these, e.g. speedup,tpot; all: intervals and terms too.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help=f"File to write: {', '.join(SUFFIXES)}.")
@click.option("--html", type=click.Path(path_type=Path), help="Write a page with interactive figures.")
@click.option("--cluster", metavar="ADDRESS", help="Evaluate on this Dask scheduler; local: on all cores here.")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@click.option("--yes", is_flag=True, help="Evaluate more than 1,000,000,000 points.")
@format_option
def sweep(
    *,
    quantity: tuple[str, ...] | None,
    output: Path | None,
    html: Path | None,
    cluster: str | None,
    force: bool,
    yes: bool,
    format: str,
    **axes: Any,
) -> None:
    """Evaluate every combination of models, machines, batches, contexts, draft lengths, acceptances and more.

    Every axis takes a list 1,2,4 or a range first:last or first:last:step.  Without -m and -H it runs a bundled
    example.

    \b
    Examples:
      latency-model sweep -b 1:64 -k 0:8 --format csv > sweep.csv
      latency-model sweep -m Qwen3-8B -H h100-sxm -H h200-sxm -b 1:512:8 -c 0:131072:4096 -o sweep.nc
      latency-model sweep -m DeepSeek-V3 -H h200 --tp 8 --ep 1,8 --draft mtp -k 0:3 --acceptance .6:.9:.1
      latency-model sweep -m Qwen3-30B-A3B -H h100 -b 1:256 -c 1024,8192,65536 --html sweep.html
      latency-model sweep -m Qwen3-8B -H h100 -b 1:512 -c 0:131072:8 --cluster tcp://host:8786 -o sweep.zarr
    """  # noqa: D301 - \b keeps click from joining the lines
    from latency_model.views.axes import Grid
    from latency_model.views.save import check_target
    from latency_model.views.sweep import wanted

    names = wanted(quantity)
    targets = [target for target in (output, html) if target is not None]
    for target in targets:
        known = SUFFIXES if target is output else (".html",)
        if target.suffix not in known:
            raise InputError(f"{target}: the name must end in {' or '.join(known)}, which says what to write")
        if cluster is not None and target.suffix in OWN:
            raise InputError(f"{target}: a cluster does not write {target.suffix}; take .zarr or .nc, or no --cluster")
        check_target(target, force=force)
    grid = Grid.of(asked(axes), allow_large=yes)
    if not targets and grid.size > MOST_SHOWN:
        raise InputError(f"{grid.size:,} points are too many to print, the most is {MOST_SHOWN:,}; add -o FILE.csv")
    with workers(cluster) as client, progress_bar() as progress:
        for target in targets:
            write(grid, names, target, client=client, force=force, progress=progress)
        if not targets:
            dataset = in_memory(grid, names, client, progress)
    if not targets:
        from latency_model.cli.render import show

        show(result(grid, dataset), format)


def asked(axes: dict[str, Any]) -> dict[str, Any]:
    """What the options say, as :func:`latency_model.sweep` takes it: one value where one was given."""
    import latency_model as lm

    given = {name: value for name, value in axes.items() if value not in (None, ())}
    if ("model" in given) != ("hardware" in given):
        raise click.UsageError("Give both -m MODEL and -H HARDWARE, or neither for the bundled example.")
    if "model" not in given:
        click.echo(f"An example, {EXAMPLE['model']} on {EXAMPLE['hardware']}: give -m and -H for yours.", err=True)
        given |= {"model": (EXAMPLE["model"],), "hardware": (EXAMPLE["hardware"],)}
        if "acceptance" not in given and "draft" not in given and "draft_model" not in given:
            given |= {"draft": (EXAMPLE["draft"],), "acceptance": (EXAMPLE["acceptance"],)}
    models = (lm.Draft.model(lm.load_model(name)) for name in given.pop("draft_model", ()))
    drafters = [*given.pop("draft", ()), *models]
    if drafters:
        given["draft"] = drafters
    if "acceptance" in given:
        given["acceptance"] = [value for text in given["acceptance"] for value in acceptances(text)]
    return {name: _one_or_all(value) for name, value in given.items()}


def acceptances(text: str) -> list[Any]:
    """A range of constant acceptances, or one acceptance in any form."""
    import latency_model as lm

    constants = text.count(":") == 2
    return list(decimals(text, "--acceptance")) if constants else [lm.Acceptance.parse(text)]


def _one_or_all(value: Any) -> Any:
    several = isinstance(value, tuple | list)
    return value[0] if several and len(value) == 1 else value


def workers(cluster: str | None) -> AbstractContextManager[Client | None]:
    """A client of the cluster asked for, if one is."""
    if cluster is None:
        return nullcontext()
    from latency_model.views.cluster import connected

    return connected(cluster)


def in_memory(grid: Grid, names: tuple[str, ...], client: Client | None, progress: Progress) -> Dataset:
    """Evaluate in memory, here or on a cluster."""
    if client is None:
        from latency_model.views.sweep import evaluated

        return evaluated(grid, names, progress=progress)
    from latency_model.views.chunked import evaluated_on

    return evaluated_on(client, grid, names, progress=progress)


def write(
    grid: Grid, names: tuple[str, ...], path: Path, *, client: Client | None, force: bool, progress: Progress
) -> None:
    """Evaluate and write one file."""
    from latency_model.cli.render import note
    from latency_model.views import save

    try:
        if path.suffix == ".csv":
            save.save_csv(grid, names, path, force=force, progress=progress)
        elif path.suffix == ".html":
            from latency_model.views.report import save_page

            save_page(grid, path, force=force, progress=progress)
        elif path.suffix == ".zarr":
            from latency_model.views.chunked import save_zarr

            save_zarr(grid, names, path, client=client, force=force, progress=progress)
        else:
            dataset = in_memory(grid, names, client, progress)
            if path.suffix == ".json":
                save_json(result(grid, dataset), path, force=force)
            else:
                (save.save_netcdf if path.suffix == ".nc" else save.save_parquet)(dataset, path, force=force)
    except KeyboardInterrupt:
        kept = save.partial_path(path)
        note(f"interrupted; what is complete is in {kept}" if kept.exists() else "interrupted; nothing was written")
        raise
    note(f"{path}: {grid.size:,} points")


def save_json(result: Result, path: Path, *, force: bool) -> None:
    """Write the document that ``--format json`` prints."""
    import json

    from latency_model.views.save import whole_file

    with whole_file(path, force=force) as beside:
        beside.write_text(
            json.dumps(result.document(), ensure_ascii=False, allow_nan=False, indent=2) + "\n", encoding="utf-8"
        )


def result(grid: Grid, dataset: Dataset) -> Result:
    """A sweep as the command prints it."""
    from latency_model.cli.render import Result
    from latency_model.views.save import COLUMNS, rows

    inputs = {COLUMNS.get(name, name): axis.labels for name, axis in grid.axes.items() if axis.asked}
    kinds = ("assumptions", "not_modelled", "sources", "impossible")
    notes = {kind: dataset.attrs[kind].splitlines() for kind in kinds}
    return Result(
        inputs=inputs,
        rows=rows(dataset),
        columns=table_columns(grid, dataset),
        remarks=[f"Left empty: {sentence}." for sentence in notes["impossible"]],
        assumptions=notes["assumptions"],
        not_modelled=notes["not_modelled"],
        sources=notes["sources"],
        extra={"impossible": notes["impossible"]},
    )


def table_columns(grid: Grid, dataset: Dataset) -> list[Column]:
    """What the table shows of a row: the axes that vary, and the quantities people ask for first."""
    from latency_model.cli.render import Column, fixed, number, percent
    from latency_model.views.save import COLUMNS

    def axis(name: str) -> Column:
        key = COLUMNS.get(name, name)
        text = grid.axes[name].labels[0].__class__ is str
        return Column(name.replace("_", "\n"), lambda row: f"{row[key]}", left=text)

    quantities = {
        "speedup": Column("speed-\nup", lambda row: fixed(row["speedup"])),
        "tokens_per_round": Column("tokens\n/round", lambda row: fixed(row["tokens_per_round"])),
        "round_time": Column("round\nms", lambda row: number(1e3 * row["time_per_round_s"]), optional=2),
        "tpot": Column("TPOT\nms", lambda row: number(1e3 * row["tpot_s"])),
        "device_rate": Column("tokens/s\n/device", lambda row: number(row["tokens_per_second_per_device"]), optional=2),
        "held_back_by": Column("held back by", lambda row: row["held_back_by"], left=True, optional=1),
        "held_back_share": Column("share", lambda row: percent(row["held_back_share"]), optional=2),
        "fits": Column("fits", lambda row: "yes" if row["fits"] else "no"),
    }
    return [axis(name) for name in grid.swept] + [column for name, column in quantities.items() if name in dataset]


@contextmanager
def progress_bar() -> Iterator[Callable[[int, int], None]]:
    """Give a function to tell how far a sweep is; a bar appears once that has taken two seconds."""
    begun = time.monotonic()
    with ExitStack() as stack:
        bars: list[Callable[[int, int], None]] = []

        def told(done: int, total: int) -> None:
            if not bars and time.monotonic() - begun > PATIENCE:
                bars.append(_started(stack))
            for bar in bars:
                bar(done, total)

        yield told


def _started(stack: ExitStack) -> Callable[[int, int], None]:
    """Show a bar on standard error until the stack closes."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), "points", TimeRemainingColumn())
    bar = stack.enter_context(Progress(*columns, console=Console(stderr=True), transient=True))
    task = bar.add_task("sweep")
    return lambda done, total: bar.update(task, completed=done, total=total)
