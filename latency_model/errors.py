"""Errors as sentences: where, which rule, what was given, what to try.

Everything a user can get wrong raises :class:`InputError` (the command line turns it into exit code 1 and
its one sentence).  A loader gathers everything wrong with a file in a :class:`Problems` and raises once.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["InputError", "Problems", "nearest", "shorten"]


class InputError(ValueError):
    """A model, profile or argument that cannot be used; the message is a sentence for its reader."""


def shorten(value: object, limit: int = 60) -> str:
    """Show a value in an error: its ``repr`` on one line, cut to ``limit`` characters.

    >>> shorten("a" * 100, limit=12)
    "'aaaaaaaa..."
    """
    try:
        text = repr(value)
    except Exception:  # a hostile __repr__ must not hide the error being reported
        text = f"<{type(value).__name__}>"
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


def nearest(name: object, choices: Iterable[str]) -> str:
    """Say which known names come closest to a wrong one, or list a few.

    >>> nearest("h100-smx", ["h100-sxm", "tpu-v5e"])
    "did you mean 'h100-sxm'?"
    """
    known = sorted(choices)
    folded = {choice.casefold(): choice for choice in known}
    given = name[:200].casefold() if isinstance(name, str) else ""
    matches = difflib.get_close_matches(given, folded, n=3, cutoff=0.5)
    if matches:
        return f"did you mean {' or '.join(repr(folded[match]) for match in matches)}?"
    shown = ", ".join(known[:8])
    return f"known: {shown}{', ...' if len(known) > 8 else ''}"


class Problems:
    """Everything wrong with one file or call, raised together.

    >>> problems = Problems("my.toml")
    >>> problems.add("memory.capacity", "must be bytes", "80 GB/s", "write '80 GB'")
    >>> problems.raise_if_any()
    Traceback (most recent call last):
    latency_model.errors.InputError: my.toml: memory.capacity must be bytes, got '80 GB/s'; write '80 GB'
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.sentences: list[str] = []

    def add(self, field: str, rule: str, value: object = ..., hint: str = "") -> None:
        """Note that ``field`` breaks ``rule``; ``value`` is what was given, ``hint`` what to try."""
        sentence = f"{field} {rule}"
        if value is not ...:
            sentence += f", got {shorten(value)}"
        if hint:
            sentence += f"; {hint}"
        self.sentences.append(sentence)

    def raise_if_any(self) -> None:
        """Raise :class:`InputError` naming the file once and every problem in it."""
        if len(self.sentences) == 1:
            raise InputError(f"{self.where}: {self.sentences[0]}")
        if self.sentences:
            raise InputError(f"{self.where}: {len(self.sentences)} problems: " + " | ".join(self.sentences))
