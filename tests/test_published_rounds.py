"""Host times that rest on published rounds are those that the rounds ask for."""

from __future__ import annotations

import numpy as np
import pytest

from latency_model.evidence.published.rounds import FITS, _host_times
from latency_model.specs.engine import load_engine


@pytest.mark.parametrize("engine", FITS)
def test_the_shipped_host_times_are_the_fitted_ones(engine):
    for part, seconds in FITS[engine]().items():
        assert getattr(load_engine(engine), part).value == pytest.approx(seconds, rel=0.15)


def test_host_times_that_made_the_rounds_are_found():
    rng = np.random.default_rng(1)
    counts, kernels = rng.uniform(1, 50, (20, 2)), rng.uniform(1e-3, 1e-2, 20)
    true = np.array([1e-4, 2e-5])
    assert _host_times(counts, kernels, kernels + counts @ true) == pytest.approx(true)
    assert _host_times(counts, kernels, 0.9 * kernels) == [0.0, 0.0]
