"""Served runs predicted end to end, as well as promised."""

from __future__ import annotations

import numpy as np
import pytest

from latency_model.evidence.served import (
    fit_hosts,
    kernel_times,
    leave_one_model_out,
    predict_tpot,
    prediction_errors,
    read_runs,
    usable,
)

pytestmark = pytest.mark.silicon


@pytest.fixture(scope="module")
def kernels():
    runs, _ = read_runs()
    every = kernel_times(runs)
    return every.where(usable(every)[0])


def test_errors_of_served_runs(kernels):
    predicted = predict_tpot(kernels, fit_hosts(kernels))
    few = kernels.column("batch") <= 8
    for chosen, median, p90 in (
        (~kernels.moe & few, 0.09, 0.25),
        (~kernels.moe, 0.10, 0.28),
        (kernels.moe, 0.16, 0.39),
    ):
        errors = prediction_errors(predicted[chosen], kernels.measured[chosen])
        assert errors.median <= median
        assert errors.p90 <= p90


def test_a_model_left_out_is_predicted_nearly_as_well(kernels):
    predicted = leave_one_model_out(kernels, fit_hosts(kernels)["vllm"].launch_share)
    for chosen, median in ((~kernels.moe, 0.15), (kernels.moe, 0.18)):
        assert prediction_errors(predicted[chosen], kernels.measured[chosen]).median <= median


def test_every_run_is_read_once(kernels):
    assert len(kernels.runs) > 2500
    assert len({(run.device, run.ttft, run.tpot) for run in kernels.runs}) == len(kernels.runs)
    assert np.all(kernels.decode > kernels.decode_launch)
