"""Two kinds of text that a Python installation brings along: source code and documentation prose."""

from __future__ import annotations

import ast
import doctest
import hashlib
import importlib.util
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

HELD_OUT_EVERY = 8
"""Of the documents in order of their names, every eighth is kept from training."""

NO_CODE = {"pydoc_data", "encodings"}  # a manual in string literals; tables of characters
DOCUMENTED = ("numpy", "scipy", "sympy")


def python_source() -> Iterator[tuple[str, bytes]]:
    """Name and source of every module of the standard library, without tests."""
    library = Path(sysconfig.get_paths()["stdlib"])
    modules = (sys.stdlib_module_names - NO_CODE) | {f"{name}.py" for name in sys.stdlib_module_names}
    for path in _sources(library):
        name = path.relative_to(library)
        if name.parts[0] in modules:
            yield name.as_posix(), path.read_bytes()


def documentation() -> Iterator[tuple[str, bytes]]:
    """Name and docstrings, each text once, of every module of numpy, scipy and sympy, without code examples."""
    seen = set()
    for package in DOCUMENTED:
        root = Path(importlib.util.find_spec(package).origin).parent
        for path in _sources(root):
            prose = [_without_examples(text) for text in _docstrings(path)]
            fresh = [text for text in prose if text not in seen]
            seen.update(fresh)
            if fresh:
                yield path.relative_to(root.parent).as_posix(), "\n\n".join(fresh).encode()


TEXTS: dict[str, Callable[[], Iterator[tuple[str, bytes]]]] = {
    "python": python_source,
    "documentation": documentation,
}


def split(documents: Iterator[tuple[str, bytes]]) -> tuple[bytes, list[bytes], str]:
    """Text to train on, documents held out, and a fingerprint of both."""
    ordered = [text for _, text in sorted(documents)]
    train = b"\n\n".join(text for i, text in enumerate(ordered) if i % HELD_OUT_EVERY)
    return train, ordered[::HELD_OUT_EVERY], hashlib.sha256(b"\0".join(ordered)).hexdigest()[:16]


def _sources(root: Path) -> Iterator[Path]:
    return (path for path in sorted(root.rglob("*.py")) if not {"test", "tests"} & set(path.relative_to(root).parts))


def _docstrings(path: Path) -> Iterator[str]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = (node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, documented))
    return (text for node in nodes if (text := ast.get_docstring(node)))


def _without_examples(docstring: str) -> str:
    pieces = doctest.DocTestParser().parse(docstring)
    return "".join(piece for piece in pieces if isinstance(piece, str))
