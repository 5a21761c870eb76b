"""The errors that intervals hold are those the served runs show."""

from __future__ import annotations

import pytest

from latency_model.costs.uncertainty import MODEL_ERRORS
from latency_model.evidence.coverage import RECORD, covered_text, served_coverage, step_kind_errors
from latency_model.evidence.served import fit_hosts, usable_runs
from latency_model.specs.quantity import KIND_ERRORS

pytestmark = pytest.mark.silicon


@pytest.fixture(scope="module")
def covered():
    kernels, _ = usable_runs()
    return served_coverage(kernels, fit_hosts(kernels))


def test_the_committed_errors_are_reproduced(covered):
    assert tuple(covered.errors) == pytest.approx(tuple(MODEL_ERRORS), abs=0.01)
    steps = step_kind_errors()
    for kind, served in covered.kinds.items():
        assert KIND_ERRORS[kind] == pytest.approx(max(served, steps[kind]), abs=0.01), kind


def test_the_committed_coverage_is_reproduced(covered):
    assert covered_text(covered.groups) == RECORD.read_text(encoding="utf-8")
