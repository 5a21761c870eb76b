"""Fits to the measured tables of aiconfigurator-core: they are those committed, with errors as small as promised."""

from __future__ import annotations

import numpy as np
import pytest

from latency_model.evidence.refit import efficiency_of, fit_everything, stored_fits
from latency_model.evidence.silicon import (
    DEVICES,
    all_reduce_rows,
    decode_rows,
    gemm_rows,
    moe_rows,
    prefill_rows,
)
from latency_model.specs.hardware import load_hardware

pytestmark = pytest.mark.silicon

READERS = (gemm_rows, decode_rows, prefill_rows, moe_rows, all_reduce_rows)


@pytest.fixture(scope="module")
def h100_fits():
    return list(fit_everything(["h100_sxm"]))


def test_the_committed_constants_are_reproduced(h100_fits):
    profile = load_hardware("h100-sxm")
    fits = stored_fits(h100_fits)
    assert len(fits) >= 7
    for (_, operation, dtype), fit in fits.items():
        assert profile.efficiencies[operation, dtype] == efficiency_of(fit)


#: Held-out median and p90 error [1] of the vLLM kernels on an H100 and a B200, with a little room.
PROMISED = {
    ("gemm", "bf16"): (0.06, 0.15),
    ("gemm", "fp8"): (0.09, 0.25),
    ("attention_decode", "bf16"): (0.07, 0.25),
    ("attention_prefill", "bf16"): (0.06, 0.20),
    ("moe", "bf16"): (0.08, 0.30),
    ("moe_int4", "bf16"): (0.10, 0.30),
    ("moe_mxfp4", "bf16"): (0.13, 0.30),
    ("all_reduce", "any"): (0.08, 0.25),
}


@pytest.mark.parametrize("device", ["h100_sxm", "b200_sxm"])
def test_errors_on_rows_kept_aside(device, h100_fits):
    fits = stored_fits(h100_fits if device == "h100_sxm" else fit_everything([device]))
    for (operation, dtype), (median, p90) in PROMISED.items():
        errors = fits[DEVICES[device], operation, dtype].errors
        assert errors.median <= median
        assert errors.p90 <= p90


def test_skewed_routing_is_predicted_as_well_as_balanced_routing(h100_fits):
    errors = stored_fits(h100_fits)["h100-sxm", "moe", "bf16"].subsets
    assert errors["power law"].median < errors["balanced"].median + 0.02
    assert errors["power law"].p90 < 0.25


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reader", READERS)
def test_every_row_is_a_positive_time_of_positive_work(device, reader):
    for rows in reader(device, "vllm"):
        assert (rows.seconds > 0).all()
        assert (rows.traffic > 0).all()
        assert np.all((rows.flops > 0) == (rows.operation != "all_reduce"))
        assert (rows.seconds < 60).all()
