"""Units: text and SI floats are two spellings of one value."""

from __future__ import annotations

import math
from itertools import pairwise

import pint
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latency_model import units
from latency_model.errors import InputError
from latency_model.specs.dtypes import COMPUTE_FALLBACK, DTYPES, canonical_dtype, dtype_bytes

UNIT_OF = {
    "size": ["B", "kB", "MB", "GB", "TB", "PB", "KiB", "MiB", "GiB", "TiB"],
    "bandwidth": ["B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s", "KiB/s", "MiB/s", "GiB/s", "TiB/s"],
    "flops": ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"],
    "compute": ["FLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s", "EFLOP/s"],
    "time": ["s", "ms", "µs", "us", "ns", "ps"],
    "power": ["W", "kW", "MW"],
    "price": ["USD/h"],
}
EVERY_UNIT = [(dimension, unit) for dimension, listed in UNIT_OF.items() for unit in listed]
PINT = pint.UnitRegistry()
PINT.define("FLOP = [operation]")
PINT.define("USD = [money]")
SHOWN = [dimension for dimension in units.DIMENSIONS if dimension != "count"]


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("80 GB", "size", 80e9),
        ("80GiB", "size", 80 * 2**30),
        ("1 KiB", "size", 1024),
        ("3350 GB/s", "bandwidth", 3.35e12),
        ("21 PB/s", "bandwidth", 2.1e16),
        ("989.4 TFLOP/s", "compute", 989.4e12),
        ("838 TOP/s", "compute", 838e12),
        ("1.2 PFLOPS", "compute", 1.2e15),
        ("2 GFLOP", "flops", 2e9),
        ("3.8 us", "time", 3.8e-6),
        ("3.8 µs", "time", 3.8e-6),  # micro sign
        ("3.8 \u03bcs", "time", 3.8e-6),  # Greek mu
        ("1e-3 s", "time", 1e-3),
        ("700 W", "power", 700.0),
        ("2.95 $/h", "price", 2.95),
        ("132", "count", 132.0),
        ("0.88", "ratio", 0.88),
    ],
)
def test_reads_what_profiles_say(text, dimension, value):
    assert units.parse(text, dimension) == value


@pytest.mark.parametrize(("dimension", "unit"), EVERY_UNIT)
@given(number=st.floats(1e-3, 1e6))
def test_agrees_with_pint(dimension, unit, number):
    si_unit = units.SI_UNITS[dimension].replace("$", "USD")
    expected = PINT.Quantity(number, unit).to(si_unit).magnitude
    assert units.parse(f"{number!r} {unit}", dimension) == pytest.approx(expected, rel=1e-12)


@given(st.sampled_from(SHOWN), st.floats(1e-12, 1e20), st.integers(2, 15))
def test_format_then_parse_keeps_the_digits_shown(dimension, value, digits):
    text = units.format_quantity(value, dimension, digits=digits)
    assert units.parse(text, dimension) == pytest.approx(value, rel=0.5001 * 10.0 ** (1 - digits))


@given(st.floats(1e-3, 1e15))
def test_every_prefix_is_a_thousand_of_the_one_below(value):
    for listed in (["B", "kB", "MB", "GB", "TB"], ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"]):
        dimension = "size" if listed[0] == "B" else "flops"
        for small, large in pairwise(listed):
            expected = units.parse(f"{value * 1000!r} {small}", dimension)
            assert units.parse(f"{value!r} {large}", dimension) == pytest.approx(expected, rel=1e-14)


@given(st.floats(1e-3, 1e3))
def test_binary_and_decimal_gigabytes_differ(value):
    ratio = units.parse(f"{value!r} GiB", "size") / units.parse(f"{value!r} GB", "size")
    assert ratio == pytest.approx(2**30 / 1e9)


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (999.9e9, "size", "1 TB"),
        (0.0, "bandwidth", "0 B/s"),
        (-3.2e-6, "time", "-3.2 µs"),
        (math.inf, "time", "inf s"),
        (4.2e-10, "time", "0.42 ns"),
        (123456.0, "count", "123456"),
        (2.954, "price", "2.95 $/h"),
    ],
)
def test_shows(value, dimension, text):
    assert units.format_quantity(value, dimension) == text


@pytest.mark.parametrize(
    ("text", "dimension", "sentence"),
    [
        ("3350 GB", "bandwidth", "'3350 GB' is a size; expected bytes per second, e.g. '3350 GB/s'"),
        ("3350", "bandwidth", "'3350' has no unit; expected bytes per second, e.g. '3350 GB/s'"),
        ("400 Gb/s", "bandwidth", "(bits: divide by 8 and write 'GB/s')"),
        ("80 gb", "size", "did you mean 'GB'?"),
        ("3 parsec", "size", "unknown unit 'parsec'"),
        ("-80 GB", "size", "not a number with a unit"),
        ("nan GB", "size", "not a number with a unit"),
        ("inf GB", "size", "not a number with a unit"),
        ("", "size", "not a number with a unit"),
        ("1e400 GB", "size", "too large"),
        ("1" * 10_000 + " GB", "size", "not a number with a unit"),
        ("٣ GB", "size", "not a number with a unit"),
        ("3 GB", "count", "is a size; expected a number without unit"),
    ],
)
def test_refuses_with_a_sentence(text, dimension, sentence):
    with pytest.raises(InputError) as caught:
        units.parse(text, dimension)
    assert sentence in str(caught.value)


@given(st.text(max_size=80), st.sampled_from(sorted(units.DIMENSIONS)))
def test_any_text_gives_a_finite_value_or_a_sentence(text, dimension):
    try:
        value = units.parse(text, dimension)
    except InputError:
        return
    assert 0.0 <= value < math.inf


@pytest.mark.parametrize(
    ("name", "short", "size"),
    [("torch.bfloat16", "bf16", 2.0), ("HALF", "fp16", 2.0), ("e4m3", "fp8", 1.0), ("mxfp4", "fp4", 0.5)],
)
def test_number_formats_have_one_short_name(name, short, size):
    assert canonical_dtype(name) == short
    assert dtype_bytes(name) == size


def test_short_names_are_their_own():
    assert [canonical_dtype(name) for name in DTYPES] == list(DTYPES)


def test_fallback_never_loses_bits():
    for wanted, others in COMPUTE_FALLBACK.items():
        assert all(DTYPES[other] >= DTYPES[wanted] for other in others)


@pytest.mark.parametrize("name", ["fp7", "", None, 8, ["bf16"]])
def test_unknown_number_formats_are_refused(name):
    with pytest.raises(InputError, match="is not a number format"):
        canonical_dtype(name)
