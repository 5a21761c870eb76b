"""Print a result: as a table for people, or as JSON, CSV or Markdown.

Tables are plain text: a terminal table needs column widths and nothing else, and importing a library for it
would take a tenth of the time a command may take.
"""

from __future__ import annotations

import math
import os
import shutil
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import attrs
import click
from attrs import field, frozen

__all__ = ["Column", "Result", "chance", "fixed", "note", "number", "percent", "show"]

SCHEMA_VERSION = 1
#: Widest a line gets where nothing says how wide the terminal is, and wherever prose would get hard to read.
WIDEST = 100
#: Folding stops where columns would get narrower than this.
NARROWEST = 16
GAP = "  "


class Column(NamedTuple):
    """One column of a table: its title (lines) and the text of a row.

    In a narrow terminal columns with the highest ``optional`` leave first, then those with ``fold`` are folded.
    """

    title: str
    text: Callable[[Mapping[str, Any]], str]
    left: bool = False
    fold: bool = False
    optional: int = 0


@frozen(kw_only=True)
class Result:
    """What a command found: data for programs, and how people see it.

    ``heading`` lines stand above the table, ``total`` is its last row, ``legend`` and ``remarks`` follow;
    ``paste`` lines are never wrapped.
    """

    inputs: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    columns: Sequence[Column]
    total: Mapping[str, Any] | None = None
    heading: Sequence[str] = ()
    legend: str = ""
    remarks: Sequence[str] = ()
    paste: Sequence[str] = ()
    assumptions: Sequence[str] = ()
    not_modelled: Sequence[str] = ()
    sources: Sequence[str] = ()
    extra: Mapping[str, Any] = field(factory=dict)

    def document(self) -> dict[str, Any]:
        """The data as plain JSON values; what is not a number becomes null."""
        names = ("inputs", "rows", "assumptions", "not_modelled", "sources")
        parts = {name: getattr(self, name) for name in names} | dict(self.extra)
        document: dict[str, Any] = _plain({"schema_version": SCHEMA_VERSION} | parts)
        return document


def show(result: Result, format: str) -> None:
    """Print a result; with csv and md the notes go to standard error and only data to standard output."""
    if format == "json":
        import json

        click.echo(json.dumps(result.document(), indent=2, ensure_ascii=False, allow_nan=False))
        return
    if format == "table":
        _table(result)
        return
    click.echo(_csv(result.rows) if format == "csv" else _markdown(result), nl=False)
    for kind, sentences in _notes(result).items():
        for sentence in sentences:
            note(f"{kind}: {sentence}")


def note(sentence: str) -> None:
    """Print a sentence for the reader on standard error."""
    click.echo(sentence, err=True)


def _notes(result: Result) -> dict[str, Sequence[str]]:
    return {"Assumed": result.assumptions, "Not modelled": result.not_modelled, "Source": result.sources}


def _table(result: Result) -> None:
    width = min(shutil.get_terminal_size((WIDEST, 24)).columns, WIDEST)
    for line in result.heading:
        _prose(line, width)
    if result.rows:
        if result.heading:
            click.echo()
        titles, lines = _aligned(result.columns, _with_total(result), width)
        for title in titles:
            click.echo(title if os.environ.get("NO_COLOR") else click.style(title, bold=True))
        for line in lines:
            click.echo(line)
        if result.legend:
            _prose(result.legend, width)
    if result.remarks:
        click.echo()
        for line in result.remarks:
            _prose(line, width)
    for title, sentences in (("Assumed", result.assumptions), ("Not modelled", result.not_modelled)):
        if sentences:
            click.echo()
            _prose(f"{title}: {'; '.join(sentences)}.", width)
    if result.paste:
        click.echo()
        for line in result.paste:
            click.echo(line)


def _with_total(result: Result) -> list[Mapping[str, Any]]:
    return [*result.rows, *([result.total] if result.total else [])]


def _prose(text: str, width: int) -> None:
    click.echo(textwrap.fill(text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))


def _aligned(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], width: int) -> tuple[list[str], list[str]]:
    """Lines of titles and of rows, made to fit ``width``."""
    width += len(GAP)
    shown = list(columns)
    while sum(sizes := _sizes(shown, rows)) > width and (least := max(column.optional for column in shown)):
        shown = [column for column in shown if column.optional < least]
    longest = max(sizes)
    while sum(sizes) > width and longest > NARROWEST:
        longest -= 1
        sizes = [min(size, longest) if column.fold else size for size, column in zip(sizes, shown, strict=True)]

    def lines(texts: Iterable[str]) -> list[str]:
        cells = [_folded(text, size - len(GAP)) for text, size in zip(texts, sizes, strict=True)]
        height = max(map(len, cells))
        padded = (
            [
                text.ljust(size) if column.left else text.rjust(size - len(GAP)) + GAP
                for text in cell + [""] * (height - len(cell))
            ]
            for cell, size, column in zip(cells, sizes, shown, strict=True)
        )
        return ["".join(line).rstrip() for line in zip(*padded, strict=True)]

    titles = lines(column.title for column in shown)
    return titles, [line for row in rows for line in lines(column.text(row) for column in shown)]


def _sizes(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Width of each column with the gap after it."""
    return [
        max(len(line) for text in (column.title, *map(column.text, rows)) for line in text.split("\n")) + len(GAP)
        for column in columns
    ]


def _folded(text: str, size: int) -> list[str]:
    """Lines of a cell."""
    return [piece for line in text.split("\n") for piece in textwrap.wrap(line, size) or [""]]


def _markdown(result: Result) -> str:
    def line(texts: Iterable[str]) -> str:
        return f"| {' | '.join(text.replace('|', chr(92) + '|') for text in texts)} |\n"

    head = line(column.title.replace("\n", " ") for column in result.columns)
    rule = line("---" if column.left else "---:" for column in result.columns)
    return head + rule + "".join(line(column.text(row) for column in result.columns) for row in _with_total(result))


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    import csv
    import io

    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(value) for name, value in _plain(row).items()})
    return text.getvalue()


def _cell(value: Any) -> Any:
    """A list becomes numbers between spaces, which a spreadsheet leaves alone."""
    return " ".join(map(str, value)) if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    """Plain JSON values: numpy scalars and arrays unpacked, attrs objects as mappings, NaN and infinity as None."""
    if attrs.has(type(value)):
        return _plain(attrs.asdict(value, recurse=False))
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def number(value: float, digits: int = 3) -> str:
    """Write a number with so many significant digits and no exponent.

    >>> number(3.958), number(10.42), number(1234.5), number(0.0496)
    ('3.96', '10.4', '1234', '0.0496')
    """
    if not math.isfinite(value):
        return "-"
    decimals = digits - 1 - math.floor(math.log10(abs(value))) if value else 0
    return f"{value:.{max(decimals, 0)}f}"


def percent(share: float) -> str:
    """Write a share as whole percent.

    >>> percent(0.579)
    '58 %'
    """
    return f"{share * 100:.0f} %"


def chance(probability: float) -> str:
    """Write a probability in whole percent; what is not certain does not read as if it were.

    >>> chance(0.957), chance(0.9999), chance(1e-6), chance(1.0)
    ('96', '>99', '<1', '100')
    """
    if not 0.01 <= probability <= 0.99 and probability not in (0.0, 1.0):
        return ">99" if probability > 0.5 else "<1"
    return f"{100 * probability:.0f}"


def fixed(value: float | None, decimals: int = 2) -> str:
    """Write a number with so many decimals, or a dash where there is none.

    >>> fixed(0.0496), fixed(None)
    ('0.05', '-')
    """
    return "-" if value is None else f"{value:.{decimals}f}"
