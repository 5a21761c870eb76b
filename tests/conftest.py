"""Settings shared by all tests: how hypothesis searches, and which tests need what is not installed."""

from __future__ import annotations

import importlib.util
import os

import pytest
from hypothesis import HealthCheck, settings

# Neither profile has a deadline: a slow machine is not a broken law. CI repeats the same examples every time;
# at a desk each run looks somewhere new.
settings.register_profile("desk", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("desk"), max_examples=100, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "desk")

# Oracle tests (`make oracle`) import torch and transformers, silicon tests (`make silicon`) read a package of tables,
# browser tests (`make browser`) serve a page with Dash; without these they are not even collected.
NEEDED = {"oracle": ("torch", "transformers"), "silicon": ("aiconfigurator_core",), "browser": ("dash", "selenium")}
collect_ignore = [folder for folder, needed in NEEDED.items() if not all(map(importlib.util.find_spec, needed))]

REPORT = pytest.StashKey[list[str]]()


@pytest.fixture
def report(request: pytest.FixtureRequest) -> list[str]:
    """Lines to print after the tests, passed or not: predictions beside measurements."""
    return request.config.stash.setdefault(REPORT, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(REPORT, []):
        terminalreporter.write_line(line)
