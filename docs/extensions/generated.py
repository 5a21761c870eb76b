"""Directives that write into a page what the package says at build time, so that no page holds a stale copy.

``{hardware-table}``, ``{model-table}`` and ``{name-table}`` list what ships; ``{command}`` runs a command line and
shows its output.
"""

from __future__ import annotations

import inspect
import os
import re
import shlex

from click.testing import CliRunner
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import latency_model as lm
from latency_model.cli import main
from latency_model.specs.model import MoE
from latency_model.specs.quantity import Quantity

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
        rows.append([f"{{py:obj}}`~latency_model.{name}`", plain])
    return markdown_table(["name", "what it is"], rows)


class Table(SphinxDirective):
    """A directive whose content is lines of Markdown from a function."""

    lines = staticmethod(hardware_table)

    def run(self) -> list[nodes.Node]:
        """Parse the lines as if they stood on the page."""
        holder = nodes.container(classes=["generated"])
        self.state.nested_parse(StringList(self.lines(), source=self.name), self.content_offset, holder)
        return [holder]


class ModelTable(Table):
    """The bundled models."""

    lines = staticmethod(model_table)


class NameTable(Table):
    """The public names."""

    lines = staticmethod(name_table)


class Command(SphinxDirective):
    """Run ``latency-model ...`` and show the command with what it prints."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Run it in this process; an exit status other than 0 fails the build."""
        written = "\n".join(self.content)
        words = shlex.split(written.replace("\\\n", " "))[1:]
        result = CliRunner(env={"COLUMNS": str(COLUMNS), "NO_COLOR": "1"}).invoke(main, words)
        if result.exit_code:
            raise self.error(f"{written!r} ended with {result.exit_code}: {result.output}")
        text = f"$ {written}\n{result.stdout.rstrip()}"
        block = nodes.literal_block(text, text, language="console")
        return [block]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    os.environ["COLUMNS"] = str(COLUMNS)
    app.add_directive("hardware-table", Table)
    app.add_directive("model-table", ModelTable)
    app.add_directive("name-table", NameTable)
    app.add_directive("command", Command)
    return {"parallel_read_safe": True}
