"""Served runs predicted end to end, as well as promised."""

from __future__ import annotations

import numpy as np
import pytest

from latency_model.evidence.served import (
    fit_hosts,
    leave_one_model_out,
    predict_tpot,
    prediction_errors,
    usable_runs,
)
from latency_model.specs.engine import load_engine
from latency_model.specs.profile import STEP_TIMES

pytestmark = pytest.mark.silicon


@pytest.fixture(scope="module")
def kernels():
    return usable_runs()[0]


@pytest.fixture(scope="module")
def hosts(kernels):
    return fit_hosts(kernels)


def test_the_committed_engines_are_reproduced(kernels, hosts):
    for name, host in hosts.items():
        engine = load_engine(name)
        assert (host.launch_share, host.runs) == (engine.launch_share.value, engine.fit.rows)
        for part in STEP_TIMES:
            assert getattr(host, part) == getattr(engine, part).value


def test_errors_of_served_runs(kernels, hosts):
    predicted = predict_tpot(kernels, hosts)
    few = kernels.column("batch") <= 8
    for chosen, median, p90 in (
        (~kernels.moe & few, 0.09, 0.20),
        (~kernels.moe, 0.095, 0.28),
        (kernels.moe, 0.15, 0.39),
    ):
        errors = prediction_errors(predicted[chosen], kernels.measured[chosen])
        assert errors.median <= median
        assert errors.p90 <= p90


def test_a_model_left_out_is_predicted_nearly_as_well(kernels, hosts):
    predicted = leave_one_model_out(kernels, hosts)
    for chosen, median in ((~kernels.moe, 0.15), (kernels.moe, 0.18)):
        assert prediction_errors(predicted[chosen], kernels.measured[chosen]).median <= median


def test_every_run_is_read_once(kernels):
    assert len(kernels.runs) > 2500
    assert len({(run.device, run.ttft, run.tpot) for run in kernels.runs}) == len(kernels.runs)
    assert np.all(kernels.decode > kernels.decode_launch)
