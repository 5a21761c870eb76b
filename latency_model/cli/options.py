"""Options shared by the commands, the lists they accept, and how serving engines spell them.

Each ``..._options`` decorator adds options to a command and hands it finished objects instead of their text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import click
from click.shell_completion import CompletionItem

from latency_model.errors import InputError, shorten

__all__ = [
    "Command",
    "Named",
    "Numbers",
    "batch_option",
    "check_pairs",
    "draft_options",
    "format_option",
    "load_options",
    "price_option",
    "setting_options",
]

Function = Callable[..., Any]

#: What runs when neither a model nor a machine is given.
EXAMPLE = {"model": "Qwen3-30B-A3B", "hardware": "h100-sxm", "draft": "eagle3", "acceptance": ".70,.62,.60,.58"}

#: Engines whose settings can be written, and what they are called.
ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}
#: Engines of earlier years, and bare kernels: named here so that help needs no file.
OTHER_ENGINES = ("vllm-v0", "vllm-0.9", "sglang-0.4", "gpt-fast", "none")

#: How vLLM, SGLang and TensorRT-LLM spell our options; the first that a command has is meant.
DIALECTS = {
    "--num-speculative-tokens": ("--draft-length", "--max-draft-length"),
    "--speculative-num-steps": ("--draft-length", "--max-draft-length"),
    "--nextn": ("--draft-length", "--max-draft-length"),
    "--speculative-algorithm": ("--draft",),
    "--speculative-draft-model-path": ("--draft-model",),
    "--tensor-parallel-size": ("--tp",),
    "--tp-size": ("--tp",),
    "-tp": ("--tp",),
    "--expert-parallel-size": ("--ep",),
    "--ep-size": ("--ep",),
    "--pipeline-parallel-size": ("--pp",),
    "--pp-size": ("--pp",),
    "--data-parallel-size": ("--dp",),
    "--dp-size": ("--dp",),
    "--batch-size": ("--batch",),
    "--max-num-seqs": ("--batch", "--max-batch"),
    "--kv-cache-dtype": ("--kv-dtype",),
    "--quantization": ("--weights",),
}

MOST_POINTS = 100_000
CONTEXT = 4096  # cached tokens where nothing is asked


class Command(click.Command):
    """A command that also understands how serving engines spell its options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put our spelling in the place of an engine's, then parse as usual."""
        own = {spelling for parameter in self.params for spelling in parameter.opts}
        return super().parse_args(ctx, [_translated(argument, own) for argument in args])


def _translated(argument: str, own: set[str]) -> str:
    spelling, equals, value = argument.partition("=")
    meant = next((option for option in DIALECTS.get(spelling, ()) if option in own), spelling)
    return meant + equals + value


class Numbers(click.ParamType):  # type: ignore[type-arg]  # generic only in newer releases of click
    """Whole numbers: ``8``, a list ``1,2,4``, a range ``1:128`` or ``0:16:2`` with both ends, or a mixture."""

    name = "numbers"

    def __init__(self, *, most: int = MOST_POINTS) -> None:
        self.most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Read the text; every number stays in the order given, once."""
        if isinstance(value, tuple):
            return value
        where = "numbers" if param is None else param.opts[-1]
        numbers: dict[int, None] = {}
        for piece in str(value).split(","):
            numbers |= dict.fromkeys(_range(piece.strip(), where))
            if len(numbers) > self.most:
                raise InputError(
                    f"{where}: at most {self.most:,} value{'s' if self.most > 1 else ''}, got {shorten(value)}"
                )
        return tuple(numbers)


def _range(text: str, where: str) -> range:
    """The numbers that ``8``, ``1:128`` or ``0:16:2`` stands for, both ends included."""
    try:
        first, last, step = _ends([int(part) for part in text.split(":")])
    except ValueError:
        raise InputError(
            f"{where}: {shorten(text)} is not a whole number; write 8, a list 1,2,4 or a range 1:128 or 0:16:2"
        ) from None
    if step < 1 or last < first:
        raise InputError(f"{where}: the range {shorten(text)} is empty; write first:last or first:last:step")
    if (last - first) // step >= MOST_POINTS:
        raise InputError(f"{where}: the range {shorten(text)} has more than {MOST_POINTS:,} values")
    return range(first, last + 1, step)


def _ends(numbers: list[int]) -> tuple[int, int, int]:
    """First, last and step of one to three numbers."""
    match numbers:
        case [first]:
            return first, first, 1
        case [first, last]:
            return first, last, 1
        case [first, last, step]:
            return first, last, step
    raise ValueError(numbers)


class Decimals(click.ParamType):  # type: ignore[type-arg]
    """Numbers between commas, or ``first:last:step`` with both ends."""

    name = "decimals"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the text."""
        where = "numbers" if param is None else param.opts[-1]
        if not isinstance(value, str):
            return value
        return tuple(number for piece in value.split(",") for number in decimals(piece, where))


def decimals(text: str, where: str) -> list[float]:
    """The numbers that ``.5`` or ``.5:.9:.1`` stands for."""
    try:
        numbers = [float(part) for part in text.split(":")]
    except ValueError:
        numbers = []
    if len(numbers) == 1:
        return numbers
    if len(numbers) != 3 or not all(abs(number) < float("inf") for number in numbers):
        raise InputError(f"{where}: {shorten(text)} is not a number; write .5, a list .5,.7 or a range .5:.9:.1")
    first, last, step = numbers
    if not step > 0 or last < first or (last - first) / step > MOST_POINTS:
        raise InputError(f"{where}: the range {shorten(text)} is empty or too long; write first:last:step")
    count = int((last - first) / step + 1e-9) + 1
    return [float(f"{first + index * step:.12g}") for index in range(count)]


class Named(click.ParamType):  # type: ignore[type-arg]
    """A bundled name or a path; shells complete both."""

    def __init__(self, what: str) -> None:
        self.name = what

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Names that begin as typed, or else files."""
        import latency_model as lm

        names = lm.model_names() if self.name == "model" else lm.hardware_names()
        begun = [name for name in names if name.casefold().startswith(incomplete.casefold())]
        return [CompletionItem(name) for name in begun] or [CompletionItem(incomplete, type="file")]


def _add(options: Iterable[Function], function: Function) -> Function:
    """Decorate ``function`` so that ``--help`` lists ``options`` in the order given."""
    for option in reversed(list(options)):
        function = option(function)
    return function


def format_option(function: Function) -> Function:
    """Add ``--format``."""
    formats = click.Choice(["table", "json", "csv", "md"])
    return click.option("--format", type=formats, default="table", show_default=True, help="How to print.")(function)


def price_option(function: Function) -> Function:
    """Add ``--price``."""
    return click.option("--price", type=float, metavar="$/h", help="Price of one device; the profile's if not given.")(
        function
    )


def setting_options(function: Function, *, example: bool = True) -> Function:
    """Add model, machine, layout, number formats and routing; the command gets them as ``setting``.

    Without model and machine it is that of the bundled example or, with ``example`` off, None.
    """
    options = (
        click.option("-m", "--model", type=Named("model"), help="Bundled name, config.json or its directory."),
        click.option("-H", "--hardware", type=Named("hardware"), help="Profile name or TOML file."),
        click.option("--tp", type=int, default=1, help="Tensor-parallel ranks."),
        click.option("--ep", type=int, default=1, help="Expert-parallel ranks."),
        click.option("--pp", type=int, default=1, help="Pipeline stages."),
        click.option("--dp", type=int, default=1, help="Data-parallel replicas."),
        click.option("--weights", metavar="FORMAT", help="Store the weights as fp8, int4, nvfp4, ..."),
        click.option("--kv-dtype", metavar="FORMAT", help="Store the KV cache as fp8, bf16, ..."),
        click.option(
            "--activations", metavar="FORMAT", default="bf16", show_default=True, help="Format to compute in."
        ),
        click.option(
            "--allow-dtype-fallback", is_flag=True, help="Where the device lacks a format, use the next one it has."
        ),
        click.option(
            "--engine",
            type=click.Choice([*ENGINES, *OTHER_ENGINES]),
            default="vllm",
            show_default=True,
            help="Whose host times to add; none: bare kernels.",
        ),
        click.option("--persistence", type=float, help="How alike expert choices of one request are, 0 to 1."),
        click.option("--stickiness", type=float, help="How often a token keeps its experts, 0 to 1."),
        click.option("--popularity-cv", type=float, default=0.0, help="How uneven expert popularity is."),
        click.option("--kv-reread", type=float, default=0.0, help="0: KV read once to verify; 1: once per token."),
    )

    @wraps(function)
    def with_setting(
        *,
        model: str | None,
        hardware: str | None,
        tp: int,
        ep: int,
        pp: int,
        dp: int,
        weights: str | None,
        kv_dtype: str | None,
        activations: str,
        allow_dtype_fallback: bool,
        engine: str,
        persistence: float | None,
        stickiness: float | None,
        popularity_cv: float,
        kv_reread: float,
        **others: Any,
    ) -> Any:
        from latency_model import DTypes, Parallelism, Routing

        if (model is None) != (hardware is None):
            otherwise = "neither for the bundled example" if example else "neither"
            raise click.UsageError(f"Give both -m MODEL and -H HARDWARE, or {otherwise}.")
        if model is None and not example:
            return function(setting=None, **others)
        if model is None:
            click.echo(f"An example, {EXAMPLE['model']} on {EXAMPLE['hardware']}: give -m and -H for yours.", err=True)
        setting = {
            "model": EXAMPLE["model"] if model is None else model,
            "hardware": EXAMPLE["hardware"] if hardware is None else hardware,
            "parallelism": Parallelism(tp=tp, ep=ep, pp=pp, dp=dp),
            "routing": Routing(persistence=persistence, stickiness=stickiness, popularity_cv=popularity_cv),
            "dtypes": DTypes(
                weights=weights,
                kv=None if kv_dtype == "auto" else kv_dtype,
                activations=activations,
                allow_fallback=allow_dtype_fallback,
            ),
            "engine": engine,
            "kv_reread": kv_reread,
        }
        return function(setting=setting, **others)

    return _add(options, with_setting)


def draft_options(function: Function) -> Function:
    """Add the drafter and its acceptance; the command gets ``draft`` and ``acceptance``, None where not given."""
    options = (
        click.option("--draft", metavar="KIND", help="eagle, eagle3, mtp, ngram, parallel, self."),
        click.option("--draft-model", type=Named("model"), help="A separate draft model: name or config."),
        click.option("--draft-tp", type=int, help="Tensor-parallel ranks of the drafter."),
        click.option(
            "--acceptance",
            metavar="A",
            help="One number, one per position .7,.62, survival:.7,.43 or len:2.73@3 (mean length at 3 drafts).",
        ),
        click.option("--speculative-eagle-topk", type=int, default=1, hidden=True),
    )

    @wraps(function)
    def with_draft(
        *,
        draft: str | None,
        draft_model: str | None,
        draft_tp: int | None,
        acceptance: str | None,
        speculative_eagle_topk: int,
        **others: Any,
    ) -> Any:
        from latency_model import Acceptance

        if speculative_eagle_topk != 1:
            raise InputError(f"--speculative-eagle-topk must be 1 (a chain of drafts), got {speculative_eagle_topk}")
        parameters = click.get_current_context().params
        if parameters["model"] is None and draft is None and draft_model is None:
            draft, acceptance = EXAMPLE["draft"], EXAMPLE["acceptance"] if acceptance is None else acceptance
        return function(
            draft=drafter(draft, draft_model, draft_tp),
            acceptance=None if acceptance is None else Acceptance.parse(acceptance),
            **others,
        )

    return _add(options, with_draft)


def drafter(kind: str | None, model: str | None, tp: int | None) -> Any:
    """The drafter that ``--draft``, ``--draft-model`` and ``--draft-tp`` describe, or None."""
    import attrs

    from latency_model import Draft, Parallelism, load_model

    if model is not None:
        if kind is not None and kind.casefold() not in ("model", "draft_model", "standalone"):
            raise InputError(f"--draft {shorten(kind)} and --draft-model exclude each other; leave one out")
        built = Draft.model(load_model(model))
    elif kind is not None:
        built = Draft.parse(kind)
    elif tp is not None:
        built = Draft.eagle()
    else:
        return None
    return built if tp is None else attrs.evolve(built, parallelism=Parallelism(tp=tp))


def batch_option(*, default: str, most: int = MOST_POINTS) -> Function:
    """Add ``--batch``; the command gets a tuple of numbers."""
    return click.option(
        "-b", "--batch", type=Numbers(most=most), default=default, show_default=True, help="Sequences in a step."
    )


def check_pairs(options: str, first: tuple[int, ...], second: tuple[int, ...]) -> None:
    """Refuse lists that combine to more rows than anybody reads."""
    pairs = len(first) * len(second)
    if pairs > MOST_POINTS:
        raise InputError(f"{options}: at most {MOST_POINTS:,} pairs, got {pairs:,}")


def load_options(*, batch: str, most: int = MOST_POINTS) -> Callable[[Function], Function]:
    """Add batch and context, at most so many of each; the command gets both as tuples of numbers."""
    options = (
        batch_option(default=batch, most=most),
        click.option(
            "-c", "--context", type=Numbers(most=most), help=f"Cached tokens of each sequence.  [default: {CONTEXT}]"
        ),
        click.option("--isl", type=int, help="Tokens of the prompt, with --osl instead of -c."),
        click.option("--osl", type=int, help="Tokens of the reply; the context is isl + osl/2."),
    )

    def decorate(function: Function) -> Function:
        @wraps(function)
        def with_load(
            *,
            batch: tuple[int, ...],
            context: tuple[int, ...] | None,
            isl: int | None,
            osl: int | None,
            **others: Any,
        ) -> Any:
            assumed: tuple[str, ...] = ()
            if isl is not None or osl is not None:
                if context is not None:
                    raise click.UsageError("Give the context with -c or with --isl and --osl, not both.")
                prompt, reply = isl or 0, osl or 0
                if prompt < 0 or reply < 0:
                    raise InputError(f"--isl and --osl must be at least 0 tokens, got {min(prompt, reply)}")
                context = (prompt + reply // 2,)
                assumed = (f"context {context[0]} = isl {prompt} + half of osl {reply}, the middle of a reply",)
            cached = context or (0 if others.get("prefill") else CONTEXT,)
            check_pairs("--batch and --context", batch, cached)
            return function(batch=batch, context=cached, assumed=assumed, **others)

        return _add(options, with_load)

    return decorate
