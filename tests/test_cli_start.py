"""How a fresh process starts: what it loads (how long that takes: benchmarks/cold_start.py)."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Each costs 0.15-0.7 s to import; nothing these commands do needs any of them.
HEAVY = {"pandas", "plotly", "scipy", "sympy", "xarray"}

REPORT = """
import sys
from latency_model.cli import main
try:
    main(sys.argv[1:], prog_name="latency-model")
finally:
    sys.stderr.write("\\n" + " ".join(sys.modules))
"""


def libraries_loaded_by(*arguments: str) -> set[str]:
    process = subprocess.run([sys.executable, "-c", REPORT, *arguments], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in process.stderr.splitlines()[-1].split()}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["optimize", "--help"],
        ["optimize"],
        ["optimize", "--emit", "sglang"],
        ["explain", "--draft-length", "3", "--format", "csv"],
        ["experts", "--format", "json"],
        ["serve", "--rate", "1:5:1", "--slo-tpot", "20ms"],
        ["hardware", "list"],
        ["models", "list"],
    ],
)
def test_no_command_loads_a_heavy_library(arguments):
    loaded = libraries_loaded_by(*arguments)
    assert "click" in loaded
    assert not loaded & HEAVY


@pytest.mark.parametrize("arguments", [["--help"], ["optimize", "--help"], ["hardware", "--help"]])
def test_help_does_not_even_load_numpy(arguments):
    assert "numpy" not in libraries_loaded_by(*arguments)
