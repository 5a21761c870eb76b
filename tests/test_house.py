"""The house: each module lives in one room, and imports run one way (see docs/architecture.md)."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = "latency_model"

# The rooms from the foundation up, and the libraries each may use beyond Python's own. A room may import
# itself and the rooms before it in this table.
ROOMS: dict[str, set[str]] = {
    "errors": set(),
    "units": set(),
    "formulas": {"numpy"},
    "specs": {"attrs", "numpy"},
    "costs": {"attrs", "numpy"},
    "decisions": {"attrs", "numpy", "scipy"},
    "evidence": {"attrs", "numpy", "scipy"},
    "views": {"attrs", "numpy", "plotly", "xarray"},
    "symbolic": {"numpy", "sympy"},
    "__init__": set(),
    "cli": {"attrs", "click", "numpy", "rich"},
    "__main__": set(),
}
# Libraries that one module may use, and its room may not.
GUESTS: dict[str, set[str]] = {
    "views/chunked.py": {"dask"},
    "views/cluster.py": {"distributed"},
    "views/explorer/app.py": {"dash", "flask", "werkzeug"},
    "views/explorer/layout.py": {"dash"},
}
STOREY = {room: storey for storey, room in enumerate(ROOMS)}

MODULES = {path: ast.parse(path.read_text(), path) for path in sorted((ROOT / PACKAGE).rglob("*.py"))}


def room_of(path: Path) -> str:
    """``latency_model/costs/step.py`` is in ``costs``, ``latency_model/units.py`` in ``units``."""
    return path.relative_to(ROOT / PACKAGE).with_suffix("").parts[0]


def imported_names(path: Path, tree: ast.Module) -> Iterator[list[str]]:
    """Each imported name as its dotted parts, relative imports resolved, wherever in the module it stands."""
    here = path.relative_to(ROOT).parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.split(".")
        elif isinstance(node, ast.ImportFrom):
            base = list(here[: len(here) - node.level + 1]) if node.level else []
            base += node.module.split(".") if node.module else []
            for alias in node.names:
                yield [*base, alias.name]


def trespasses(path: Path, tree: ast.Module) -> Iterator[str]:
    """The imports of one module that its room does not allow."""
    room = room_of(path)
    libraries = ROOMS[room] | GUESTS.get(path.relative_to(ROOT / PACKAGE).as_posix(), set())
    for parts in imported_names(path, tree):
        if parts[0] == PACKAGE:
            target = parts[1] if len(parts) > 1 and parts[1] in ROOMS else "__init__"
            allowed = STOREY[target] <= STOREY[room]
        else:
            allowed = parts[0] in libraries or parts[0] in sys.stdlib_module_names
        if not allowed:
            yield f"{path.relative_to(ROOT)} ({room}) imports {'.'.join(parts)}"


def test_every_module_lives_in_a_known_room():
    assert {room_of(path) for path in MODULES} <= set(ROOMS)


def test_imports_run_one_way():
    assert [trespass for path, tree in MODULES.items() for trespass in trespasses(path, tree)] == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("formulas/roofline.py", "from latency_model.specs.hardware import HardwareProfile"),
        ("formulas/roofline.py", "from ..specs import hardware"),
        ("formulas/roofline.py", "def f():\n    import scipy.special"),
        ("specs/hardware.py", "from latency_model import costs"),
        ("costs/step.py", "from latency_model import optimize"),
        ("costs/step.py", "import latency_model"),
        ("decisions/optimize.py", "from rich.table import Table"),
        ("views/chunked.py", "import distributed"),
        ("views/explorer/state.py", "import dash"),
        ("errors.py", "from latency_model.units import parse"),
    ],
)
def test_the_rule_catches_a_trespass(module, line):
    assert list(trespasses(ROOT / PACKAGE / module, ast.parse(line)))


def test_every_module_says_what_it_is_for():
    assert [str(path) for path, tree in MODULES.items() if not ast.get_docstring(tree)] == []


def test_nothing_prints_or_asserts():
    offences = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert) or (isinstance(node, ast.Name) and node.id == "print")
    ]
    assert offences == []


PUBLIC_FORMULAS = [
    pytest.param(node, id=f"{path.stem}.{node.name}")
    for path, tree in MODULES.items()
    if room_of(path) == "formulas" and path.stem != "domain"  # the gate for arguments, not an equation
    for node in tree.body
    if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
]


def documented_parameters(docstring: str) -> list[str]:
    """The names a numpy-style ``Parameters`` section lists, in order."""
    _, _, section = docstring.partition("Parameters\n----------\n")
    section, _, _ = section.partition("\n\n")
    heads = (line for line in section.splitlines() if line and not line.startswith(" "))
    return [name.strip(" *") for head in heads for name in head.partition(" :")[0].split(",")]


@pytest.mark.parametrize("formula", PUBLIC_FORMULAS)
def test_every_formula_documents_its_parameters_and_shows_an_example(formula):
    docstring = ast.get_docstring(formula) or ""
    arguments = formula.args
    signature = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    assert documented_parameters(docstring) == signature
    assert ">>>" in docstring
