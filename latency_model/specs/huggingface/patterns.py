"""Which module paths a quantisation config speaks of: names, wildcards, ``re:`` patterns, evaluated as data.

Patterns come from files of strangers, so nothing here can run long: names are looked up in a set, wildcards
go through ``fnmatch`` (which never backtracks exponentially), regular expressions are limited to a subset.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator

from attrs import frozen

from latency_model.specs.huggingface.reader import Config

__all__ = ["ModulePatterns", "read_patterns"]

#: Leading components that differ between tools for one and the same module.
ROOTS = frozenset({"model", "language_model", "backbone", "transformer", "module"})
#: How the path of a layer may start where a pattern spells it out.
PREFIXES = ("model.", "", "model.language_model.", "language_model.model.", "language_model.", "backbone.")
#: Most patterns with wildcards one config may hold; the largest published list we read has 24.
MOST_WILDCARDS = 64

_REGEX = re.compile(
    r"(?: \\[.dw/_-] | [\w/:-] | \. | \[\^?[\w.\\-]+\] | \((?:\?:)? | \) | \| | \^ | \$"
    r" | (?<![(|)^*+?])[*+?](?![*+?]) )*",
    re.VERBOSE,
)


@frozen(kw_only=True)
class ModulePatterns:
    """A set of module patterns.

    Parameters
    ----------
    names : frozenset of tuple of str
        Plain names as components, without their root; one matches a path that holds its components in a row.
    wildcards : tuple of re.Pattern
        Compiled wildcards and regular expressions, matched at the start of a path under any usual root.
    """

    names: frozenset[tuple[str, ...]] = frozenset()
    wildcards: tuple[re.Pattern[str], ...] = ()

    def match(self, path: str) -> bool:
        """Say whether a path such as ``layers.3.mlp.gate_proj`` is meant.

        >>> ModulePatterns(names=frozenset({("mlp", "gate")})).match("layers.0.mlp.gate")
        True
        >>> ModulePatterns(names=frozenset({("mlp", "gate")})).match("layers.0.mlp.gate_proj")
        False
        """
        if self.names:
            parts = path.split(".")
            if any(run in self.names for run in _runs(parts)):
                return True
        return any(pattern.match(prefix + path) for pattern in self.wildcards for prefix in PREFIXES)


def _runs(parts: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield every run of neighbouring components."""
    for start in range(len(parts)):
        for stop in range(start + 1, len(parts) + 1):
            yield tuple(parts[start:stop])


def read_patterns(patterns: Iterable[str], wrong: Callable[[str], None]) -> ModulePatterns:
    """Sort patterns into names and wildcards; ``wrong`` is told of each one that is not understood."""
    names: set[tuple[str, ...]] = set()
    wildcards: list[re.Pattern[str]] = []
    for text in dict.fromkeys(patterns):
        if text.startswith("re:"):
            compiled = compile_subset(text.removeprefix("re:"))
            if compiled is None:
                wrong(text)
            else:
                wildcards.append(compiled)
        elif any(mark in text for mark in "*?["):
            wildcards.append(re.compile(fnmatch.translate(text)[:-2] + r"(?:\..*)?$"))
        else:
            names.add(strip_root(text))
    if len(wildcards) > MOST_WILDCARDS:
        wrong(f"{len(wildcards)} wildcards")
        wildcards = []
    return ModulePatterns(names=frozenset(names - {()}), wildcards=tuple(wildcards))


def strip_root(name: str) -> tuple[str, ...]:
    """Split a module name into components and drop what only names the wrapper.

    >>> strip_root("model.language_model.layers.3.mlp.")
    ('layers', '3', 'mlp')
    """
    parts = [part for part in name.split(".") if part]
    while parts and parts[0] in ROOTS:
        parts.pop(0)
    return tuple(parts)


def compile_subset(pattern: str) -> re.Pattern[str] | None:
    r"""Compile a regular expression of the harmless subset, or return None.

    Allowed are literals, ``.``, ``\d``, ``\w``, sets, anchors, quantified single characters and at most three
    groups of alternatives that are not quantified; at most three quantifiers may run over any characters.

    >>> compile_subset(r".*\.mlp\.(gate|up)_proj$") is not None
    True
    >>> compile_subset("(a+)+$") is None
    True
    """
    if len(pattern) > 256 or not _REGEX.fullmatch(pattern) or re.search(r"\)[*+?]", pattern):
        return None
    lean = re.sub(r"(\.\*)+$", "", pattern)  # a trailing .* changes nothing: only the start must match
    unbounded = len(re.findall(r"[*+]", re.sub(r"(\\d|\[0-9\])[*+]", "", lean)))
    if unbounded > 3 or lean.count("(") > 3:
        return None
    try:
        return re.compile(lean)
    except re.error:
        return None


def read_pattern_fields(config: Config, *names: str) -> ModulePatterns:
    """Read the patterns listed under any of several fields."""
    listed = [pattern for name in names for pattern in config.strings(name) or ()]

    def wrong(text: str) -> None:
        config.wrong(names[0], "holds a pattern that is not understood", text, "write module names or wildcards")

    return read_patterns(listed, wrong)
