"""The one list of symbols and names: what each means, its unit, and what other tools call it.

It is read from ``glossary.toml``, which the glossary of the documentation and the tooltips of pages are written from.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from attrs import field, frozen

from latency_model.errors import InputError, nearest, shorten

__all__ = ["Symbol", "find_symbol", "symbols"]


@frozen(kw_only=True)
class Symbol:
    """One quantity: how formulas, Python, the command line and other tools write it, and what it means.

    Attributes
    ----------
    section : str
        Heading of the glossary it stands under.
    meaning, unit : str
        Plain text; the unit as docstrings write it.
    latex, text : str
        The symbol for formulas and for plain text; empty where the quantity only has a name.
    names, options : tuple of str
        In Python, and on the command line.
    elsewhere : str
        What other tools call it, in Markdown.
    """

    section: str
    meaning: str
    unit: str
    latex: str = ""
    text: str = ""
    names: tuple[str, ...] = field(default=(), converter=tuple)
    options: tuple[str, ...] = field(default=(), converter=tuple)
    elsewhere: str = ""

    @property
    def tooltip(self) -> str:
        """One line of plain text.

        >>> find_symbol("persistence").tooltip
        'ρ [1]: how alike the expert choices of one request are, near or far: their correlation'
        """
        return f"{self.text or self.names[0]} [{self.unit}]: {self.meaning}"


@cache
def symbols() -> tuple[Symbol, ...]:
    """Every symbol, in the order of the glossary.

    >>> symbols()[0].text, symbols()[0].names
    ('B', ('batch', 'sequences'))
    """
    rows = tomllib.loads((Path(__file__).parent / "glossary.toml").read_text(encoding="utf-8"))["symbol"]
    return tuple(Symbol(**row) for row in rows)


def find_symbol(name: str) -> Symbol:
    """The symbol that a name in Python or an option stands for.

    >>> find_symbol("--kv-reread").names
    ('kv_reread',)
    >>> find_symbol("bacth")
    Traceback (most recent call last):
    latency_model.errors.InputError: 'bacth' is not in the glossary; did you mean 'batch' or '--batch' or 'max_batch'?
    """
    named = {known: symbol for symbol in reversed(symbols()) for known in (*symbol.names, *symbol.options)}
    if name not in named:
        raise InputError(f"{shorten(name)} is not in the glossary; {nearest(name, named)}")
    return named[name]
