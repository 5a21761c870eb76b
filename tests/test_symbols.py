"""One list of symbols: it covers what formulas take and options ask for, in the units the docstrings state."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import click
import pytest

from latency_model import formulas
from latency_model.cli import main
from latency_model.views.symbols import find_symbol, symbols

DOCS = Path(__file__).parents[1] / "docs"
PARAMETERS = {
    (function, name): unit
    for function in formulas.__all__
    for names, described in re.findall(
        r"^(\w[\w, ]*) : .*\n((?:    .*\n?)+)",
        (inspect.getdoc(getattr(formulas, function)) or "")
        .partition("Parameters\n----------\n")[2]
        .partition("\n\n")[0],
        re.MULTILINE,
    )
    for name in names.split(", ")
    for unit in re.findall(r"\[([^\]]+)\]", described)[:1]
}


def options(command: click.Command) -> set[str]:
    """Every spelling of every option of a command and of the commands below it."""
    found = {spelling for parameter in command.params for spelling in parameter.opts}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found |= options(command.get_command(context, name))
    return found


@pytest.mark.parametrize("function", formulas.__all__)
def test_each_parameter_of_a_formula_is_in_the_glossary_with_its_unit(function):
    for name in inspect.signature(getattr(formulas, function)).parameters:
        assert PARAMETERS[function, name] == find_symbol(name).unit, name


def test_each_option_in_the_glossary_exists():
    assert {option for symbol in symbols() for option in symbol.options} <= options(main)


def test_each_symbol_and_each_name_stands_once():
    for entries in ([s.latex for s in symbols() if s.latex], [name for s in symbols() for name in s.names]):
        assert sorted(entries) == sorted(set(entries))


def test_each_symbol_can_be_told_in_plain_text():
    for symbol in symbols():
        assert bool(symbol.latex) == bool(symbol.text), symbol
        assert symbol.text or symbol.names, symbol
        assert "$" not in symbol.meaning, symbol
        assert "`" not in symbol.meaning, symbol


def test_no_other_page_lists_symbols():
    for page in {*DOCS.rglob("*.md")} - {DOCS / "glossary.md"}:
        assert not re.search(r"^\| *symbols? *\|", page.read_text(), re.MULTILINE | re.IGNORECASE), page
    sections = re.findall(r"```\{symbol-table\} (.+)", (DOCS / "glossary.md").read_text())
    assert sections == list(dict.fromkeys(symbol.section for symbol in symbols()))
