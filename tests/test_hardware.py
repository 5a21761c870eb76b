"""Hardware profiles as objects and files: lookup, provenance, fallbacks, round trips, bad input."""

from __future__ import annotations

import copy
import math
import os
import pickle
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latency_model.cli.options import ENGINES, OTHER_ENGINES
from latency_model.errors import InputError
from latency_model.specs.dtypes import DTYPES
from latency_model.specs.engine import engine_names, load_engine
from latency_model.specs.frozen_map import FrozenMap
from latency_model.specs.hardware import (
    OPERATIONS,
    PriceRange,
    Quantity,
    hardware_names,
    load_hardware,
    profiles_directory,
)
from latency_model.specs.hardware_text import diff_profiles, profile_rows, write_hardware
from latency_model.specs.profile import HOST_TIMES

FIVE_NUMBERS = """
title = "My accelerator"
compute.bf16 = "400 TFLOP/s"
memory.bandwidth = "2 TB/s"
memory.capacity = "64 GB"
link.bandwidth = "200 GB/s"
"""


def written(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


# --- finding a profile ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["h100-sxm", "H100-SXM", "h100 sxm", "H100_SXM5", " h100 ", "H100-SXM5-80GB"])
def test_names_forgive_case_spaces_and_underscores(name):
    assert load_hardware(name).name == "h100-sxm"


def test_a_profile_is_returned_as_it_is():
    profile = load_hardware("l4")
    assert load_hardware(profile) is profile


def test_a_path_loads_the_same_profile_as_its_name():
    path = profiles_directory() / "h100-sxm.toml"
    assert load_hardware(path) == load_hardware(str(path)) == load_hardware("h100-sxm")


@pytest.mark.parametrize(
    ("name", "hint"),
    [("h100-smx", "h100-sxm"), ("mi300", "mi300x"), ("tpu v5", "tpu-v5"), ("geforce 4090", "rtx-4090")],
)
def test_unknown_names_suggest_near_ones(name, hint):
    with pytest.raises(InputError, match=f"no hardware profile is named .*{hint}"):
        load_hardware(name)


@pytest.mark.parametrize("name", ["", "..", "engines", "efficiency_sets", "..\\secret", "a\0b", "x" * 10_000, "ℎ100"])
def test_names_never_leave_the_folder(name):
    with pytest.raises(InputError, match="no hardware profile is named"):
        load_hardware(name)


@pytest.mark.parametrize(
    "path", ["no/such.toml", "../../../etc/passwd", "/", "/dev/null", "a/\0.toml", "x" * 5000 + ".toml"]
)
def test_paths_must_be_regular_files(path):
    with pytest.raises(InputError):
        load_hardware(path)


def test_a_pipe_is_refused_rather_than_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(InputError, match="not a regular file"):
        load_hardware(tmp_path / "pipe.toml")


@pytest.mark.parametrize("other", [None, 3, ["h100-sxm"], b"h100-sxm"])
def test_other_types_are_refused(other):
    with pytest.raises(InputError, match="must be a name or a path"):
        load_hardware(other)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"\xff\xfe", "not UTF-8"),
        (b"a = ", "not valid TOML"),
        (b"a = " + b"[\n" * 100_000, "not valid TOML"),
        (b"a = " + b"1" * 990, "a is not a known field"),
        (b"a." * 50_000 + b"a = 1", "a line of more than 1000 characters"),
        (b"#" * ((1 << 20) + 1), "at most 1048576 are read"),
        (b"{}", "not valid TOML"),
    ],
)
def test_files_that_are_not_profiles_are_refused(tmp_path, content, sentence):
    (tmp_path / "bad.toml").write_bytes(content)
    with pytest.raises(InputError, match=sentence):
        load_hardware(tmp_path / "bad.toml")


# --- what a profile is ------------------------------------------------------------------------------------


def test_profiles_are_values():
    first, second = load_hardware("gb200"), load_hardware("gb200")
    assert first is not second
    assert first == second
    assert len({first, second}) == 1
    assert pickle.loads(pickle.dumps(first)) == first
    assert copy.deepcopy(first) == first
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        first.name = "other"
    with pytest.raises(TypeError):
        first.peaks["bf16"] = None


def test_a_price_is_changed_with_evolve():
    assert attrs.evolve(load_hardware("l4"), price_per_hour=0.5).price_per_hour == 0.5


def test_a_frozen_map_is_a_mapping():
    assert FrozenMap({"a": 1}) == {"a": 1}
    assert hash(FrozenMap({"a": 1, "b": 2})) == hash(FrozenMap({"b": 2, "a": 1}))
    assert FrozenMap({"a": 1}) != {"a": 2}


def test_exact_peaks_carry_no_note():
    h100 = load_hardware("h100-sxm")
    for dtype in h100.peaks:
        peak = h100.peak_flops(dtype, allow_fallback=True)
        assert (peak.dtype, peak.note, peak.quantity) == (dtype, "", h100.peaks[dtype])


@pytest.mark.parametrize(
    ("device", "asked", "used"),
    [
        ("a100-sxm-80gb", "fp8", "bf16"),
        ("h100-sxm", "nvfp4", "bf16"),
        ("v100-sxm2", "bfloat16", "fp16"),
        ("tpu-v4", "half", "bf16"),
        ("m2-ultra", "fp8", "fp16"),
        ("h100-sxm", "int4", "int8"),
    ],
)
def test_a_missing_format_falls_back_only_when_allowed_and_says_so(device, asked, used):
    profile = load_hardware(device)
    with pytest.raises(InputError, match=f"{device}.* has no .* peak; it has .* {used} rate with allow_fallback"):
        profile.peak_flops(asked)
    peak = profile.peak_flops(asked, allow_fallback=True)
    assert peak.dtype == used
    assert f"runs at the {used} rate" in peak.note


@pytest.mark.parametrize("device", ["m3-ultra", "xeon-8480"])
def test_devices_without_a_peak_say_so(device):
    with pytest.raises(InputError, match="states no compute peak at all"):
        load_hardware(device).peak_flops("bf16", allow_fallback=True)


def test_a_block_of_another_format_is_wider_and_says_so():
    h100 = load_hardware("h100-sxm")
    own, same_size, other_size = (h100.efficiency("gemm", dtype) for dtype in ("bf16", "fp16", "int4"))
    assert own.kind == "measured"
    assert "block used for" not in own.note
    assert own.memory_uncertainty < same_size.memory_uncertainty < other_size.memory_uncertainty
    assert same_size.kind == other_size.kind == "transferred"
    assert "bf16 block used for fp16" in same_size.note
    assert "fp8 block used for int4" in other_size.note
    assert same_size.compute == own.compute


def test_errors_of_transfer_add_in_quadrature_along_the_chain():
    h100, sxm, pcie = (
        load_hardware(name).efficiency("gemm", "fp8") for name in ("h100-sxm", "a100-sxm-80gb", "a100-pcie-80gb")
    )
    assert sxm.compute_uncertainty == pytest.approx(math.hypot(h100.compute_uncertainty, 0.16))
    assert pcie.compute_uncertainty == pytest.approx(math.hypot(sxm.compute_uncertainty, 0.06))
    assert (h100.kind, sxm.kind, pcie.kind) == ("measured", "transferred", "transferred")
    assert pcie.note.startswith("taken from a100-sxm-80gb; taken from h100-sxm")
    assert h100.fit is not None
    assert sxm.fit is None  # those errors were not measured here


def test_generic_constants_stay_assumed():
    block = load_hardware("rtx-4090").efficiency("gemm", "bf16")
    assert block.kind == "assumed"
    assert "generic set 'untuned'" in block.note


@pytest.mark.parametrize("operation", ["gem", "", None])
def test_unknown_operations_are_refused(operation):
    with pytest.raises(InputError, match="is not an operation"):
        load_hardware("h100-sxm").efficiency(operation, "bf16")


# --- writing one's own ------------------------------------------------------------------------------------


def test_five_numbers_are_a_profile(tmp_path):
    mine = load_hardware(written(tmp_path, FIVE_NUMBERS))
    assert (mine.name, mine.title, mine.memory_bandwidth.value) == ("mine", "My accelerator", 2e12)
    assert mine.peak_flops("bf16").value == 400e12
    assert mine.peak_flops("bf16").quantity.kind == "assumed"
    assert all(mine.efficiency(operation, "fp8").kind == "assumed" for operation in OPERATIONS)


def test_a_file_name_with_spaces_gives_a_name_without(tmp_path):
    assert load_hardware(written(tmp_path, FIVE_NUMBERS, "Our Cluster (new).toml")).name == "our-cluster-new"


def test_one_price_with_a_source_is_a_range_of_one(tmp_path):
    mine = load_hardware(written(tmp_path, FIVE_NUMBERS + 'price = { typical = "2 $/h", source = "our contract" }'))
    assert (mine.price.low, mine.price.high, mine.price_per_hour) == (2.0, 2.0, 2.0)
    assert mine.price.source == "our contract"


def test_extending_changes_what_is_stated_and_keeps_the_rest(tmp_path):
    path = written(
        tmp_path,
        """
        extends = "h100-sxm"
        title = "Ours"
        price.typical = "2 $/h"
        [efficiency.gemm.bf16]
        compute = 0.7
        memory = 0.8
        overhead = "4 us"
        sharpness = inf
        uncertainty = 0.05
        kind = "measured"
        source = "our sweep"
        """,
    )
    ours, h100 = load_hardware(path), load_hardware("h100-sxm")
    assert ours.efficiency("gemm", "bf16").sharpness == math.inf
    assert ours.efficiency("gemm", "fp8") == h100.efficiency("gemm", "fp8")
    assert ours.memory_bandwidth == h100.memory_bandwidth
    assert (ours.name, ours.title, ours.price_per_hour) == ("mine", "Ours", 2.0)
    assert [row[0] for row in diff_profiles(h100, ours)] == [
        "title",
        "price.range",
        "price.typical",
        "efficiency.gemm.bf16",
    ]
    assert ours.digest.endswith(h100.digest)


def test_a_profile_may_extend_a_neighbour_file(tmp_path):
    written(tmp_path, FIVE_NUMBERS, "base.toml")
    path = written(tmp_path, 'extends = "base.toml"\nmemory.bandwidth = "3 TB/s"')
    assert load_hardware(path).memory_bandwidth.value == 3e12
    assert load_hardware(path).peaks == load_hardware(tmp_path / "base.toml").peaks


@pytest.mark.parametrize(
    "line",
    ['extends = "b.toml"', '[efficiency]\nfrom = "b.toml"\ntransfer_error = 0.1', 'extends = "a.toml"'],
)
def test_cycles_are_errors(tmp_path, line):
    written(tmp_path, line, "a.toml")
    written(tmp_path, 'extends = "a.toml"', "b.toml")
    with pytest.raises(InputError, match="extends or takes its efficiency from itself"):
        load_hardware(tmp_path / "a.toml")


def test_constants_of_another_device_need_an_error_of_transfer(tmp_path):
    path = written(tmp_path, FIVE_NUMBERS + '[efficiency]\nfrom = "h100-sxm"')
    with pytest.raises(InputError, match=r"efficiency\.transfer_error is missing"):
        load_hardware(path)


def test_nothing_is_taken_over_on_request(tmp_path):
    mine = load_hardware(written(tmp_path, FIVE_NUMBERS + "[efficiency]\nfrom = []"))
    with pytest.raises(InputError, match=r"mine has no efficiency for gemm; add an \[efficiency.gemm\] table"):
        mine.efficiency("gemm", "bf16")


def test_every_problem_of_a_file_is_reported_at_once(tmp_path):
    path = written(
        tmp_path,
        """
        devicekind = "gpu"
        vendor = 3
        [compute]
        bf16 = "400 GB"
        fp9 = "1 TFLOP/s"
        fp8 = { value = "800 TFLOP/s", kind = "guess", uncertainty = 3, source = "missing-id" }
        [memory]
        bandwidth = 2000
        [price]
        low = "3 $/h"
        high = "2 $/h"
        [efficiency]
        transfer_error = nan
        [efficiency.gemm.bf16]
        compute = 0
        memory = true
        overhead = 4e-6
        """,
    )
    with pytest.raises(InputError) as caught:
        load_hardware(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: 14 problems: ")
    for sentence in (
        "devicekind is not a known field; did you mean 'device_kind'",
        "vendor must be text, got 3",
        "compute.bf16: '400 GB' is a size; expected operations per second, e.g. '989 TFLOP/s'",
        "compute.fp9 is not a known field",
        "compute.fp8.kind must be one of datasheet, measured, transferred, assumed, got 'guess'",
        "compute.fp8.uncertainty must be between 0 and 2, got 3",
        "compute.fp8.source is not in [sources], got 'missing-id'",
        "memory.bandwidth must be text with a number and its unit, got 2000; e.g. '3350 GB/s'",
        "memory.capacity is missing",
        "price.low must not exceed price.high, got 3.0",
        "efficiency.transfer_error must be between 0 and 2, got nan",
        "efficiency.gemm.bf16.compute must be between 1e-06 and 2, got 0",
        "efficiency.gemm.bf16.memory must be a number, got True",
        "efficiency.gemm.bf16.overhead must be text with a number and its unit",
    ):
        assert sentence in message


# --- files written by the package -------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
SOURCES = TEXTS.map(lambda text: f"a {text}")
POSITIVE = st.floats(1e-6, 1e18)
QUANTITIES = st.builds(
    Quantity,
    value=POSITIVE,
    source=SOURCES,
    kind=st.sampled_from(["datasheet", "assumed"]),
    uncertainty=st.floats(0, 2),
    note=TEXTS,
    exception=TEXTS,
)
PRICES = st.tuples(st.floats(0.01, 10), st.floats(1, 10), SOURCES, TEXTS).map(
    lambda t: PriceRange(low=t[0], high=t[0] * t[1], source=t[2], kind="assumed", note=t[3])
)
PROFILES = st.builds(
    lambda **changes: attrs.evolve(load_hardware("h100-sxm"), **changes),
    title=TEXTS,
    note=TEXTS,
    aliases=st.lists(TEXTS, max_size=2).map(tuple),
    peaks=st.dictionaries(st.sampled_from(sorted(DTYPES)), QUANTITIES),
    memory_bandwidth=QUANTITIES,
    memory_capacity=QUANTITIES,
    on_chip=st.none() | QUANTITIES,
    link_name=TEXTS,
    link_bandwidth=st.none() | QUANTITIES,
    pcie=st.none() | QUANTITIES,
    tdp=st.none() | QUANTITIES,
    cores=st.none() | st.integers(1, 10**6),
    price=st.none() | PRICES,
    price_per_hour=st.floats(0.01, 100),
)


@given(profile=PROFILES)
def test_write_then_load_gives_an_equal_profile(profile, tmp_path_factory):
    path = tmp_path_factory.mktemp("written") / "profile.toml"
    write_hardware(profile, path)
    assert load_hardware(path) == profile


@pytest.mark.parametrize("name", hardware_names())
def test_every_shipped_profile_survives_writing(name, tmp_path):
    path = tmp_path / "copy.toml"
    write_hardware(load_hardware(name), path)
    assert load_hardware(path) == load_hardware(name)


def test_writing_replaces_whole_files_and_leaves_no_drafts(tmp_path):
    path = written(tmp_path, "old")
    write_hardware(load_hardware("l4"), path)
    write_hardware(load_hardware("t4"), path)
    assert load_hardware(path) == load_hardware("t4")
    assert list(tmp_path.iterdir()) == [path]


def test_writing_where_one_cannot_is_a_sentence(tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        write_hardware(load_hardware("l4"), tmp_path / "no" / "such" / "folder.toml")
    with pytest.raises(InputError, match="cannot be written: File name too long"):
        write_hardware(load_hardware("l4"), tmp_path / f"{'a' * 300}.toml")


def test_a_profile_does_not_differ_from_itself():
    h100 = load_hardware("h100-sxm")
    assert diff_profiles(h100, h100) == []


def test_diff_marks_what_one_profile_lacks():
    assert ("compute.fp4", "-", "9 PFLOP/s") in diff_profiles(load_hardware("h100-sxm"), load_hardware("b200-sxm"))


def test_rows_show_uncertainty_and_kind():
    rows = profile_rows(load_hardware("dgx-spark"))
    assert rows["compute.bf16"] == "125 TFLOP/s ± 40% (assumed)"


# --- anything a file may contain --------------------------------------------------------------------------

SHIPPED_TEXT = {
    name: (profiles_directory() / f"{name}.toml").read_text(encoding="utf-8") for name in ("h100-sxm", "b300-sxm")
}
VALUES = st.sampled_from(
    [
        "0",
        "-1",
        "1e309",
        "nan",
        "inf",
        "true",
        '""',
        "[]",
        "{}",
        "[[1]]",
        "2026-12-01",
        "10:00:00",
        '"3 GB/s"',
        '"-3 us"',
        "{ value = 3 }",
        '{ value = "1 TB/s", source = [] }',
        '{ value = "1 TB/s", source = [1] }',
        "0x" + "f" * 400,
    ]
) | st.text(max_size=12).map(repr)


@given(name=st.sampled_from(sorted(SHIPPED_TEXT)), data=st.data())
def test_changing_any_line_gives_a_profile_or_a_sentence(name, data, tmp_path_factory):
    lines = SHIPPED_TEXT[name].splitlines()
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(lines) - 1))
        key, equals, _value = lines[position].partition(" = ")
        lines[position] = data.draw(
            st.sampled_from(["", lines[position] * 2, f"x{lines[position]}", f"[{key}]", f"[[{key}]]", key])
            | (VALUES.map(lambda new, key=key: f"{key} = {new}") if equals else st.just(""))
            | st.text(max_size=20)
        )
    path = tmp_path_factory.mktemp("mutated") / f"{name}.toml"
    path.write_text("\n".join(lines), encoding="utf-8", errors="ignore")
    try:
        profile = load_hardware(path)
    except InputError as error:
        sentence = str(error)
    else:
        sentence = str(path)
        assert profile.memory_bandwidth.value > 0
    assert sentence.startswith(str(path))


@given(content=st.binary(max_size=200))
def test_any_bytes_give_a_sentence(content, tmp_path_factory):
    path = tmp_path_factory.mktemp("bytes") / "any.toml"
    path.write_bytes(content)
    with pytest.raises(InputError):
        load_hardware(path)


# --- engines ----------------------------------------------------------------------------------------------


def test_engines_that_ship():
    assert engine_names() == (
        "vllm",
        "sglang",
        "trtllm",
        "vllm-v0",
        "vllm-0.9",
        "sglang-0.4",
        "gpt-fast",
        "none",
    )
    assert set(engine_names()) == {*ENGINES, *OTHER_ENGINES}  # the choices of --engine
    for name in engine_names():
        engine = load_engine(name)
        assert load_engine(engine) is engine
        assert hash(engine) == hash(load_engine(name.upper()))
        assert engine.kernels in engine_names()
        assert 0.0 < engine.launch_share.value <= 1.0


def test_bare_kernels_have_no_host_time():
    assert all(getattr(load_engine("none"), part).value == 0.0 for part in HOST_TIMES)
    assert load_engine("none").launch_share.value == 1.0


def test_engines_with_served_runs_say_what_they_were_fitted_on():
    for name in ("vllm", "sglang", "trtllm"):
        engine = load_engine(name)
        assert engine.fit.held_out == engine.fit.rows > 500
        assert {engine.per_step.kind, engine.per_moe_layer.kind, engine.launch_share.kind} == {"measured"}


def test_vllm_step_time_is_within_its_error_of_another_source():
    # SpecDecode-Bench simulator (arXiv 2601.11580), vLLM of 2025: overhead_constant_per_step = 1.20683946e-3 s
    step = load_engine("vllm-0.9").per_step
    assert step.kind == "measured"
    assert abs(np.log(1.20683946e-3 / step.value)) < step.uncertainty


def test_engines_of_earlier_years_are_less_certain_than_those_measured():
    for earlier, today in (("vllm-v0", "vllm"), ("sglang-0.4", "sglang")):
        old, new = load_engine(earlier), load_engine(today)
        assert old.kernels == new.name
        assert old.per_step.kind == "transferred"
        assert old.per_step.uncertainty > new.per_step.uncertainty


@pytest.mark.parametrize("name", ["vlm", "sources", "", None, 3])
def test_unknown_engines_are_refused(name):
    with pytest.raises(InputError, match="no engine is named"):
        load_engine(name)


# --- cost of loading --------------------------------------------------------------------------------------


def test_loading_imports_nothing_heavy():
    code = (
        "import sys; from latency_model.specs.hardware import load_hardware; load_hardware('gb200');"
        "heavy = {'numpy', 'scipy', 'sympy', 'plotly', 'xarray', 'pandas', 'rich', 'click'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_readme_examples_load(tmp_path):
    readme = (profiles_directory() / "README.md").read_text(encoding="utf-8")
    examples = re.findall(r"```toml\n(.*?)```", readme, re.DOTALL)
    profiles = [example for example in examples if "title" in example]
    assert len(profiles) == 2
    for example in profiles:
        assert load_hardware(written(tmp_path, example)).title == tomllib.loads(example)["title"]


def test_an_engines_own_blocks_replace_the_common_ones_for_it_alone(tmp_path):
    text = FIVE_NUMBERS + "".join(
        f'\n[efficiency.{name}]\nmemory = {memory}\noverhead = "5 us"\n'
        for name, memory in (("gemm.bf16", 0.8), ("gemm.fp8", 0.7), ("sglang.gemm.bf16", 0.6))
    )
    mine = load_hardware(written(tmp_path, text))
    assert mine.efficiency("gemm", "bf16").memory == mine.for_engine("vllm").efficiency("gemm", "bf16").memory == 0.8
    assert mine.for_engine("sglang").efficiency("gemm", "bf16").memory == 0.6
    assert mine.for_engine("sglang").efficiency("gemm", "fp8").memory == 0.7
    # A file that states the common block anew has measured something else: inherited engine blocks go with the old one.
    path = tmp_path / "child.toml"
    path.write_text(
        'extends = "./mine.toml"\n[efficiency.gemm.bf16]\nmemory = 0.9\noverhead = "5 us"\n', encoding="utf-8"
    )
    assert load_hardware(path).for_engine("sglang").efficiency("gemm", "bf16").memory == 0.9


# --- what runs beside products ----------------------------------------------------------------------------


def test_profiles_with_measured_prefill_state_their_exponentials():
    """Constants of prefill were fitted with the softmax counted apart: without its rate they would be too fast."""
    for name in hardware_names():
        profile = load_hardware(name)
        block = profile.efficiencies.get(("attention_prefill", "bf16"))
        if block is not None and block.tail:
            assert profile.exponentials is not None, name
            assert profile.cores is not None, name


def test_exponentials_are_sixteen_a_clock_and_core():
    """Products a clock and core: 4096 FLOPs on Hopper, 8192 on Blackwell, 2048 on Ampere; Blackwell Ultra has 32."""
    for name, ratio in {"h100-sxm": 256, "b200-sxm": 512, "gb300": 256, "a100-sxm-80gb": 128}.items():
        profile = load_hardware(name)
        assert profile.peak_flops("bf16").value / profile.exponentials.value == pytest.approx(ratio, rel=0.01)


def test_rounding_is_element_wise_work_where_nothing_else_is_known():
    profile = load_hardware("mi300x")
    block = profile.efficiency("quantise", "fp8")
    assert block.memory == profile.efficiency("elementwise", "fp8").memory
    assert block.memory_uncertainty > profile.efficiency("elementwise", "fp8").memory_uncertainty
    assert load_hardware("h100-sxm").efficiency("quantise", "fp8").kind == "measured"


def test_a_tail_and_exponentials_are_written_and_read_back(tmp_path):
    h100 = load_hardware("h100-sxm")
    write_hardware(h100, tmp_path / "copy.toml")
    again = load_hardware(tmp_path / "copy.toml")
    assert again.efficiency("gemm", "fp8").tail == h100.efficiency("gemm", "fp8").tail > 0
    assert again.exponentials == h100.exponentials
