"""Directives that write into a page what the package says at build time, so that no page holds a stale copy.

``{hardware-table}``, ``{model-table}``, ``{name-table}`` and ``{command-table}`` list what ships, ``{symbol-table}``
one section of the glossary, ``{profile-table}`` the fields of a profile and ``{interval-table}`` how sure predictions
on some devices are; ``{command}`` runs a command line and shows its output, and ``{command-help}`` shows what every
command says about itself.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import click
from click.testing import CliRunner
from docutils import nodes
from docutils.statemachine import StringList
from profile_fields import profile_fields
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import latency_model as lm
from latency_model.cli import main
from latency_model.specs.model import MoE
from latency_model.specs.quantity import KIND_ERRORS, Quantity
from latency_model.views.symbols import symbols

COLUMNS = 100  # of the terminal whose output is shown


def markdown_table(header: list[str], rows: list[list[str]]) -> list[str]:
    """Lines of a Markdown table; columns whose header states a unit hold numbers and align right."""
    rules = ["---:" if "[" in title else "---" for title in header]
    return ["| " + " | ".join(row) + " |" for row in (header, rules, *rows)]


def shown(quantity: Quantity | None, unit: float) -> str:
    """A number of a profile in the unit of its column, or a dash where the profile does not state it."""
    return "-" if quantity is None else f"{float(f'{quantity.value / unit:.3g}'):,g}"


def hardware_table() -> list[str]:
    """One row per profile: peaks, memory, link and where the efficiencies come from."""
    header = [
        "name",
        "device",
        "bf16 [TFLOP/s]",
        "fp8 [TFLOP/s]",
        "memory [TB/s]",
        "capacity [GB]",
        "link [GB/s]",
        "GEMM constants",
    ]
    rows = []
    for name in lm.hardware_names():
        device = lm.load_hardware(name)
        peaks = [shown(device.peaks.get(dtype), 1e12) for dtype in ("bf16", "fp8")]
        memory = [shown(device.memory_bandwidth, 1e12), shown(device.memory_capacity, 1e9)]
        kinds = {block.kind for (operation, _), block in device.efficiencies.items() if operation == "gemm"}
        best = min(kinds, key=("measured", "transferred", "assumed").index, default="-")
        rows.append([f"`{name}`", device.title, *peaks, *memory, shown(device.link_bandwidth, 1e9), best])
    return markdown_table(header, rows)


def model_table() -> list[str]:
    """One row per bundled model: parameters, layers, experts, cache."""
    header = ["name", "parameters [10⁹]", "active [10⁹]", "layers [1]", "experts", "weights [GB]", "KV [kB/token]"]
    rows = []
    for name in lm.model_names():
        model = lm.load_model(name)
        mixtures = {
            (block.num_experts, block.top_k)
            for layer in model.layers
            for block in layer.feed_forward
            if isinstance(block, MoE)
        }
        parameters = [f"{count / 1e9:,.2f}" for count in (model.total_parameters, model.active_parameters)]
        experts = ", ".join(f"{total}, top-{chosen}" for total, chosen in sorted(mixtures)) or "-"
        sizes = [f"{model.weight_bytes / 1e9:,.1f}", f"{model.kv_bytes_per_token() / 1e3:,.1f}"]
        rows.append([f"`{name}`", *parameters, str(len(model.layers)), experts, *sizes])
    return markdown_table(header, rows)


def name_table() -> list[str]:
    """One row per public name: what its documentation begins with."""
    rows = []
    for name in lm.__all__:
        summary = " ".join((inspect.getdoc(getattr(lm, name)) or "").split("\n\n")[0].split())
        plain = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", summary).replace("``", "`")
        link = f"`{name}`" if inspect.ismodule(getattr(lm, name)) else f"{{py:obj}}`~latency_model.{name}`"
        rows.append([link, plain])
    return markdown_table(["name", "what it is"], rows)


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command with the words that call it, in the order a newcomer meets them; groups before their members."""
    waiting: list[tuple[str, click.Command]] = [("latency-model", main)]
    while waiting:
        words, command = waiting.pop(0)
        yield words, command
        if isinstance(command, click.Group):
            context = click.Context(command)
            found = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
            waiting[:0] = [(f"{words} {name}", member) for name, member in found if member is not None]


def command_table() -> list[str]:
    """One row per command that does something: what its help begins with."""
    rows = [
        [
            f"[`{words.partition(' ')[2]}`](/reference/commands.md#{nodes.make_id(words)})",
            command.get_short_help_str(200),
        ]
        for words, command in commands()
        if not isinstance(command, click.Group)
    ]
    return markdown_table(["command", "what it does"], rows)


def symbol_table(section: str) -> list[str]:
    """One row per symbol of a section of the glossary."""
    rows = [
        [
            f"${symbol.latex}$" if symbol.latex else "",
            ", ".join(f"`{name}`" for name in (*symbol.names, *symbol.options)),
            symbol.meaning,
            symbol.unit,
            symbol.elsewhere,
        ]
        for symbol in symbols()
        if symbol.section == section
    ]
    if not rows:
        raise ValueError(f"the glossary has no section {section!r}")
    return markdown_table(["symbol", "name, option", "meaning", "unit", "elsewhere"], rows)


def profile_table(table: str = "") -> list[str]:
    """One row per field of a profile, of the table named or, without one, of the top of the file."""
    rows = [
        [f"`{name.removeprefix(f'{table}.')}`", value, default, meaning]
        for name, value, default, meaning in profile_fields()
        if name.partition(".")[0] == table or (not table and "." not in name)
    ]
    if not rows:
        raise ValueError(f"a profile has no table {table!r}")
    return markdown_table(["field", "what to write", "if not given", "meaning"], rows)


def interval_table(devices: str) -> list[str]:
    """One row per device, in order: where its constants come from, and the intervals of a plain step and a speedup."""
    rows = []
    for name in devices.split():
        device = lm.load_hardware(name)
        point = lm.speculate("Qwen3-8B", device, draft_length=3, batch=64)
        kind = device.efficiency("gemm", "bf16").kind
        plain, gain = point.estimates.baseline_time, point.estimates.speedup
        rows.append(
            [
                f"`{name}`",
                f"{kind} ± {KIND_ERRORS[kind]:.2f}",
                f"{plain.best * 1e3:.3g} ({plain.low * 1e3:.3g}-{plain.high * 1e3:.3g})",
                f"-{1.0 - plain.low / plain.best:.0%} +{plain.high / plain.best - 1.0:.0%}",
                f"{gain.best:.2f} ({gain.low:.2f}-{gain.high:.2f})",
            ]
        )
    header = ["device", "GEMM constants", "plain step [ms]", "width", "speedup [1]"]
    return markdown_table(header, rows)


class Table(SphinxDirective):
    """A directive whose content is lines of Markdown from a function; its argument is passed on."""

    optional_arguments = 1
    final_argument_whitespace = True
    makers: ClassVar[dict[str, Callable[..., list[str]]]] = {
        "hardware-table": hardware_table,
        "model-table": model_table,
        "name-table": name_table,
        "command-table": command_table,
        "symbol-table": symbol_table,
        "profile-table": profile_table,
        "interval-table": interval_table,
    }

    def run(self) -> list[nodes.Node]:
        """Parse the lines as if they stood on the page."""
        holder = nodes.container(classes=["generated", self.name])
        lines = self.makers[self.name](*self.arguments)
        self.state.nested_parse(StringList(lines, source=self.name), self.content_offset, holder)
        return [holder]


class CommandHelp(SphinxDirective):
    """What every command says about itself, a section each."""

    def run(self) -> list[nodes.Node]:
        """Ask each for its help, in this process."""
        sections: list[nodes.Node] = []
        names = main.context_settings["help_option_names"]
        for words, command in commands():
            text = click.Context(command, info_name=words, terminal_width=COLUMNS, help_option_names=names).get_help()
            section = nodes.section(ids=[nodes.make_id(words)], names=[words])
            section += nodes.title(words, words)
            section += nodes.literal_block(text, text, language="text")
            self.state.document.note_explicit_target(section)
            sections.append(section)
        return sections


class FigureFunctions(SphinxDirective):
    """What every function of ``lm.figures`` says about itself."""

    def run(self) -> list[nodes.Node]:
        """Leave it to autodoc."""
        lines = [f".. autofunction:: latency_model.figures.{name}" for name in lm.figures.__all__]
        holder = nodes.container()
        self.state.nested_parse(StringList(["```{eval-rst}", *lines, "```"], source=self.name), 0, holder)
        return [holder]


class Command(SphinxDirective):
    """Run ``latency-model ...`` and show the command with what it prints."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Run it in this process; an exit status other than 0 fails the build."""
        written = "\n".join(self.content)
        words = shlex.split(written.replace("\\\n", " "))[1:]
        here = Path(self.env.doc2path(self.env.docname)).parent
        with contextlib.chdir(here):  # so that files are named as the page sees them
            result = CliRunner(env={"COLUMNS": str(COLUMNS), "NO_COLOR": "1"}).invoke(main, words)
        if result.exit_code:
            raise self.error(f"{written!r} ended with {result.exit_code}: {result.output}")
        text = f"$ {written}\n{result.stdout.rstrip()}"
        block = nodes.literal_block(text, text, language="console")
        return [block]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    os.environ["COLUMNS"] = str(COLUMNS)
    for name in Table.makers:
        app.add_directive(name, Table)
    app.add_directive("figure-functions", FigureFunctions)
    app.add_directive("command", Command)
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True}
