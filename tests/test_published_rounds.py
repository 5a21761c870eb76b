"""Host times of SGLang of 2025 are those that its rounds ask for."""

from __future__ import annotations

import pytest

from latency_model.evidence.published.rounds import fit_host_times
from latency_model.specs.engine import load_engine


def test_the_shipped_host_times_are_the_fitted_ones():
    engine = load_engine("sglang-0.4")
    for part, seconds in fit_host_times().items():
        assert getattr(engine, part).value == pytest.approx(seconds, rel=0.15)
