"""The fields of a hardware profile, as its loader reads them: the table is recorded, not written by hand."""

from __future__ import annotations

import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from latency_model.specs import hardware
from latency_model.specs.dtypes import DTYPES
from latency_model.specs.toml_fields import Fields
from latency_model.units import DIMENSIONS

__all__ = ["MEANINGS", "profile_fields"]

FILE = "specimen"
#: A file that takes every branch of the loader; what it says does not matter, only what is asked for.
SPECIMEN = """
memory = { bandwidth = "1 TB/s", capacity = "1 GB" }
price = { low = "1 $/h", high = "2 $/h", typical = "1 $/h" }
efficiency.from = []
efficiency.gemm.fp8 = { memory = 0.8, overhead = "1 us" }
engine.vllm.per_step = "1 ms"

[efficiency.gemm.bf16]
memory = 0.8
overhead = "1 us"
uncertainty = { compute = 0.1 }
fit = { rows = 1, held_out = 1, median_error = 0.1, p90_error = 0.1, coverage = 0.8, date = "2026-01-01" }
"""

#: What each field is for; the loader knows the rest.
MEANINGS = {
    "id": "name of the device, as `-H` takes it; the name of the file where not given",
    "title": "what people call it",
    "vendor": "who makes it",
    "device_kind": "what it is",
    "aliases": "other names for `-H`, on one line",
    "note": "what a reader should know",
    "extends": "name or path of a profile that fills whatever this one does not state",
    "compute.FORMAT": "dense peak of a number format",
    "compute.exponentials": "exponential functions, of which attention takes one per score",
    "memory.bandwidth": "memory bandwidth",
    "memory.capacity": "memory of one device",
    "memory.on_chip": "memory on the chip",
    "link.name": "name of the link between devices",
    "link.bandwidth": "one direction, all links of a device together",
    "board.pcie": "one direction",
    "board.tdp": "power",
    "board.cores": "multiprocessors, compute units or cores",
    "price.low": "lowest price seen",
    "price.high": "highest price seen",
    "price.typical": "price used; the middle of the two where not given",
    "price.source": "id or ids from `[sources]`, or a sentence",
    "price.kind": "how it is known",
    "price.note": "what a reader should know",
    "efficiency.from": "where blocks that are not given come from: devices, or sets of `efficiency_sets.toml`; "
    "the last wins; `untuned` where neither `from` nor `extends` is given",
    "efficiency.transfer_error": "how far constants of another device may be off here; required with one",
    "efficiency.OPERATION.FORMAT.compute": "fraction of the peak reached",
    "efficiency.OPERATION.FORMAT.memory": "fraction of the memory bandwidth reached, of the link for collectives",
    "efficiency.OPERATION.FORMAT.overhead": "fixed time of one kernel or message",
    "efficiency.OPERATION.FORMAT.sharpness": "exponent that joins compute and memory time; `inf` is the larger of both",
    "efficiency.OPERATION.FORMAT.tail": "pieces of work that a core does alone at the end",
    "efficiency.OPERATION.FORMAT.uncertainty": "of all three, relative, one sigma; a table states them apart",
    "efficiency.OPERATION.FORMAT.uncertainty.compute": "of the fraction of the peak",
    "efficiency.OPERATION.FORMAT.uncertainty.memory": "of the fraction of the bandwidth",
    "efficiency.OPERATION.FORMAT.uncertainty.overhead": "of the fixed time",
    "efficiency.OPERATION.FORMAT.kind": "how it is known",
    "efficiency.OPERATION.FORMAT.source": "id or ids from `[sources]`, or a sentence",
    "efficiency.OPERATION.FORMAT.note": "what a reader should know",
    "efficiency.OPERATION.FORMAT.fit.rows": "measurements fitted",
    "efficiency.OPERATION.FORMAT.fit.held_out": "measurements kept aside",
    "efficiency.OPERATION.FORMAT.fit.median_error": "error on these, median",
    "efficiency.OPERATION.FORMAT.fit.p90_error": "and at the ninetieth percentile",
    "efficiency.OPERATION.FORMAT.fit.coverage": "share of these inside their 80 % interval",
    "efficiency.OPERATION.FORMAT.fit.date": "of the fit, ISO 8601",
    "engine.ENGINE.per_step": "host time of a step",
    "engine.ENGINE.per_step_doubling": "what each doubling of the ranks adds to it",
    "engine.ENGINE.per_layer": "host time of a layer of a step",
    "engine.ENGINE.per_moe_layer": "routing of a layer with experts: choosing, sorting, gathering",
    "engine.ENGINE.per_draft_step": "host time of a drafting step",
    "engine.ENGINE.per_round": "host time of a round",
    "engine.ENGINE.per_round_doubling": "what each doubling of the ranks adds to it",
    "engine.ENGINE.per_host_proposal": "host time of a round whose drafts the host looks up",
    "engine.ENGINE.per_sequence": "host time of a round for each sequence in it",
}


class Recorder(Fields):
    """Fields that write down what is asked of them: name, kind of value, bounds or choices, default."""

    asked_for: ClassVar[dict[str, tuple[str, str]]] = {}  # one list for all tables of a file

    def note(self, key: str, kind: str, rest: str) -> None:
        """Keep one line, under a name in which formats, operations and engines are placeholders."""
        self.asked_for.setdefault(general(f"{self.prefix}{key}"), (kind, rest))

    def text(self, key: str, *, default: str = "", choices: Collection[str] = ()) -> str:
        """Record a text."""
        kind = "one of " + ", ".join(f"`{choice}`" for choice in choices) if choices else "text"
        self.note(key, kind, "name of the file" if default == FILE else f"`{default}`" if default else "")
        return super().text(key, default=default, choices=choices)

    def texts(self, key: str) -> tuple[str, ...]:
        """Record a list of texts."""
        self.note(key, "list of texts", "")
        return super().texts(key)

    def number(self, key: str, **bounds: Any) -> float:
        """Record a number."""
        low, high = bounds.get("low", 0.0), bounds.get("high")
        span = f"number, {low:g} to {high:g}" if high is not None and high < 1e9 else f"number, at least {low:g}"
        self.note(key, span, f"{bounds['default']:g}" if "default" in bounds else "required")
        return super().number(key, **bounds)

    def measure(self, key: str, dimension: str, *, default: float | None = None) -> float:
        """Record a number with a unit."""
        if key != "value":
            self.note(key, unit_of(dimension), "required" if default is None and key != "typical" else "")
        return super().measure(key, dimension, default=default)

    def child(self, key: str) -> Recorder:
        """Record a table by what is read from it."""
        plain = super().child(key)
        return Recorder(plain.table, plain.problems, plain.prefix, plain.sources)

    def quantity(self, key: str, dimension: str) -> Any:
        """Record a quantity."""
        self.note(key, f"quantity, {unit_of(dimension)}", "")
        return super().quantity(key, dimension)

    def required_quantity(self, key: str, dimension: str) -> Any:
        """Record a quantity that must be there."""
        self.note(key, f"quantity, {unit_of(dimension)}", "required, unless `extends` fills it")
        return super().required_quantity(key, dimension)

    def source(self) -> str:
        """Record a source."""
        self.note("source", "text or list of texts", "")
        return super().source()


def unit_of(dimension: str) -> str:
    """What to write, with an example."""
    _, unit, example = DIMENSIONS[dimension]
    return f"{unit}, as in `{example[1:-1]}`"


def general(name: str) -> str:
    """The name with placeholders: ``compute.bf16`` is ``compute.FORMAT``."""
    parts = name.split(".")
    if parts[0] == "compute" and parts[1] in DTYPES:
        parts[1] = "FORMAT"
    elif parts[0] == "engine":
        parts[1:-1] = ["ENGINE"]  # names of engines may hold dots
    elif parts[0] == "efficiency" and len(parts) > 3:
        parts[1:3] = ["OPERATION", "FORMAT"]
    return ".".join(parts)


def profile_fields() -> list[tuple[str, str, str, str]]:
    """Every field with what to write, its default and its meaning, in the order of ``MEANINGS``."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(hardware, "Fields", Recorder):
        Recorder.asked_for = {}
        (path := Path(folder) / f"{FILE}.toml").write_text(SPECIMEN)
        hardware.load_hardware(path)
    read = Recorder.asked_for
    if read.keys() != MEANINGS.keys():
        raise ValueError(f"the loader and MEANINGS differ in {sorted(read.keys() ^ MEANINGS.keys())}")
    return [(name, *read[name], meaning) for name, meaning in MEANINGS.items()]
