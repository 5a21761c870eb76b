"""What a fresh process loads: heavy libraries wait until something needs them."""

from __future__ import annotations

import subprocess
import sys

# Each costs 0.15-0.7 s to import, and no closed form needs any of them.
HEAVY = {"pandas", "plotly", "scipy", "sympy", "xarray"}


def libraries_loaded_by(code: str) -> set[str]:
    """Top-level names in ``sys.modules`` after a fresh interpreter has run ``code``."""
    report = "import sys; sys.stderr.write(' '.join(sys.modules))"
    process = subprocess.run([sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in process.stderr.split()}


def test_the_probe_sees_what_is_loaded():
    assert {"json", "decimal"} <= libraries_loaded_by("import json, decimal")


def test_importing_the_package_loads_nothing_heavy():
    loaded = libraries_loaded_by("import latency_model")
    assert "latency_model" in loaded
    assert not loaded & (HEAVY | {"click", "rich"})
