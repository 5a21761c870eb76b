"""Every file in hardware_profiles/ is complete, sourced and dense; the rules catch what they are for."""

from __future__ import annotations

import math
import re
import tomllib
from pathlib import Path

import pytest

from latency_model.specs.hardware import OPERATIONS, hardware_names, load_hardware, profiles_directory
from latency_model.specs.lint import check_profile

DEVICES = hardware_names()
FILES = [profiles_directory() / f"{name}.toml" for name in DEVICES]

# The devices this package promises to know.
PROMISED = [
    "a100-sxm-40gb",
    "a100-sxm-80gb",
    "a100-pcie-40gb",
    "a100-pcie-80gb",
    "h100-sxm",
    "h100-pcie",
    "h200-sxm",
    "h20",
    "h800-sxm",
    "b200-sxm",
    "gb200",
    "b300-sxm",
    "gb300",
    "l4",
    "l40s",
    "a10",
    "a10g",
    "a40",
    "t4",
    "v100-sxm2",
    "rtx-3090",
    "rtx-4090",
    "rtx-5090",
    "rtx-pro-6000",
    "dgx-spark",
    "mi250x",
    "mi300x",
    "mi325x",
    "mi355x",
    "tpu-v4",
    "tpu-v5e",
    "tpu-v5p",
    "tpu-v6e",
    "tpu-v7x",
    "gaudi2",
    "gaudi3",
    "trainium2",
    "inferentia2",
    "m2-ultra",
    "m3-ultra",
    "m4-max",
    "groq-lpu-v1",
    "cerebras-wse-3",
    "epyc-9654",
    "xeon-8480",
    "arc-pro-b60",
]


def test_all_promised_devices_are_here():
    assert sorted(PROMISED) == list(DEVICES)
    assert len(PROMISED) == 46


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_profile_keeps_every_rule(path):
    assert check_profile(path) == []


@pytest.mark.parametrize("name", DEVICES)
def test_every_efficiency_is_a_fraction_with_an_error(name):
    profile = load_hardware(name)
    for operation in OPERATIONS:
        for dtype in profile.peaks or ("bf16",):
            block = profile.efficiency(operation, dtype)
            # Prefill kernels hide part of the softmax behind products, and experts in mxfp4 multiply in 8 bits where
            # they can; activations to round may be in the cache.
            assert 0 < block.compute <= {"attention_prefill": 1.3, "moe_mxfp4": 2}.get(operation, 1)
            assert 0 < block.memory <= (2 if operation == "quantise" else 1)
            assert 0 < block.overhead < 1e-3 or operation == "quantise"  # launched with the product
            assert block.memory_uncertainty > 0
            assert block.source


@pytest.mark.parametrize("name", DEVICES)
def test_aliases_lead_home(name):
    for alias in load_hardware(name).aliases:
        assert load_hardware(alias).name == name


@pytest.mark.parametrize("name", DEVICES)
def test_uncertain_numbers_say_why(name):
    profile = load_hardware(name)
    others = (
        profile.memory_bandwidth,
        profile.memory_capacity,
        profile.link_bandwidth,
        profile.tdp,
        profile.on_chip,
    )
    for quantity in [*profile.peaks.values(), *filter(None, others)]:
        assert quantity.note or not quantity.uncertainty
        assert quantity.note or quantity.kind == "datasheet"


FITTED = [
    pytest.param(block, id=f"{name}-{operation}-{dtype}")
    for name in DEVICES
    for (operation, dtype), block in load_hardware(name).efficiencies.items()
    if block.fit
]


@pytest.mark.parametrize("block", FITTED)
def test_fitted_blocks_carry_the_error_on_rows_they_have_not_seen(block):
    assert block.kind == "measured"
    assert "aiconfigurator-core" in block.source
    assert block.fit.rows > 3 * block.fit.held_out > 0
    assert 0 < block.fit.median_error < block.fit.p90_error
    assert min(block.compute_uncertainty, block.memory_uncertainty, block.overhead_uncertainty) > 0


@pytest.mark.parametrize("block", FITTED)
def test_80_percent_intervals_hold_70_to_90_percent_of_the_rows_kept_aside(block):
    noise = 2 * math.sqrt(0.8 * 0.2 / block.fit.held_out)  # two sigma of counting so few rows
    assert 0.70 - noise < block.fit.coverage < 0.90 + noise


@pytest.mark.parametrize("name", ["h100-sxm", "h200-sxm", "b200-sxm", "b300-sxm", "gb200", "gb300", "a100", "l40s"])
def test_devices_with_kernel_tables_are_fitted(name):
    profile = load_hardware(name)
    for operation in ("gemm", "attention_decode", "attention_prefill", "moe", "all_reduce"):
        assert profile.efficiency(operation, "bf16").fit


# Datasheet numbers that tools have got wrong (sparse as dense, both directions, GiB).
@pytest.mark.parametrize(
    ("name", "bf16", "bandwidth", "link"),
    [
        ("h100-sxm", 989.4e12, 3.35e12, 450e9),
        ("a100-sxm-80gb", 312e12, 2.039e12, 300e9),
        ("l40s", 362e12, 864e9, 31e9),
        ("l4", 121e12, 300e9, 31e9),
        ("rtx-5090", 209.5e12, 1792e9, 63e9),
        ("mi300x", 1307.4e12, 5.3e12, 448e9),
        ("b200-sxm", 2250e12, 8e12, 900e9),
    ],
)
def test_well_known_devices(name, bf16, bandwidth, link):
    profile = load_hardware(name)
    assert profile.peak_flops("bf16").value == pytest.approx(bf16)
    assert profile.memory_bandwidth.value == pytest.approx(bandwidth)
    assert profile.link_bandwidth.value == pytest.approx(link)


def changed(folder: Path, name: str, *changes: tuple[str, str]) -> Path:
    """Copy a shipped file with some text replaced."""
    text = (profiles_directory() / f"{name}.toml").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "changes", "sentence"),
    [
        ("h100-sxm", [("1978.9 TFLOP/s", "3958 TFLOP/s")], "compute.fp8 is 4 times compute.bf16"),
        ("h100-sxm", [("989.4 TFLOP/s", "1979 TFLOP/s")], "compute.tf32 is 0.25 of compute.bf16"),
        ("l40s", [("733 TFLOP/s", "1466 TFLOP/s")], "compute.fp8 is 4.05 times compute.bf16"),
        (
            "l40s",
            [("733 TFLOP/s", "1466 TFLOP/s"), ("362 TFLOP/s", "733 TFLOP/s")],
            "the L40S datasheet prints with 2:4",
        ),
        (
            "l4",
            [("121 TFLOP/s", "242 TFLOP/s"), ("60 TFLOP/s", "121 TFLOP/s")],
            "the L4 datasheet prints with 2:4",
        ),
        ("rtx-5090", [("838 TOP/s", "3352 TOP/s")], "compute.int8 is 16 times compute.bf16"),
        ("b300-sxm", [("exception = ", "# exception = ")], "compute.fp4 is 3.11 times compute.fp8"),
        ("h100-sxm", [("450 GB/s", "900 GB/s")], "is it the sum of both directions?"),
        (
            "h100-sxm",
            [('id = "h100-sxm"', 'id = "h100"')],
            "differs from the file name; name the file h100.toml",
        ),
        ("h100-sxm", [('"h100-sxm5"', '"h200"')], "the name 'h200' belongs to 'h200-sxm' already"),
        ("h100-sxm", [('vendor = "NVIDIA"', "")], "title and vendor must be stated"),
        ("h100-sxm", [('"3350 GB/s"', '"3350 PB/s"')], "is not between 1 GB/s and 1e8 GB/s"),
        ("m3-ultra", [(', source = "ars-technica"', "")], "memory.bandwidth has no source"),
        ("m3-ultra", [(', source = "ars-technica"', "")], "sources.ars-technica is used by no number"),
        ("m3-ultra", [('source = "ars-technica"', 'source = "ars"')], "is not in [sources]"),
        ("h100-sxm", [("compute = 0.81", "compute = 81")], "efficiency.gemm.bf16.compute must be between"),
    ],
)
def test_rules_catch_what_they_are_for(tmp_path, name, changes, sentence):
    found = check_profile(changed(tmp_path, name, *changes))
    assert any(sentence in each for each in found), found
    assert all(f"{name}.toml" in each for each in found)


def test_a_reason_lifts_a_ratio_rule(tmp_path):
    path = changed(tmp_path, "l4", ('value = "242 TFLOP/s",', 'value = "400 TFLOP/s", exception = "a new unit",'))
    assert check_profile(path) == []


def test_a_missing_file_is_one_sentence():
    assert check_profile("no-such.toml") == ["'no-such.toml' cannot be read: No such file or directory"]


def test_sources_can_be_opened_or_read():
    for path in FILES:
        for key, text in tomllib.loads(path.read_text(encoding="utf-8"))["sources"].items():
            assert "https://" in text or "arXiv" in text or key == "judgement", f"{path.stem}: {key}"


def test_comments_name_no_private_place():
    for path in profiles_directory().glob("*"):
        assert not re.search(r"/work/|/home/|/tmp/|localhost", path.read_text(encoding="utf-8")), path.name
