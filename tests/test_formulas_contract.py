"""What every public formula promises alike: documented, total on its domain, broadcasting, NaN in NaN out."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys

import numpy as np
import pytest

from latency_model import formulas
from latency_model.errors import InputError

# One valid call of each formula, and a value outside the domain of its first argument.
EXAMPLES: dict[str, tuple[dict[str, float], float]] = {
    "acceptance_from_divergence": ({"kl": 0.1}, -0.1),
    "acceptance_from_mean_length": ({"mean_length": 2.5, "draft_length": 3.0}, 5.0),
    "all_reduce_time": (
        {"message_bytes": 1e6, "ranks": 4.0, "link_bandwidth": 4.5e11, "latency": 5e-6, "sharpness": 0.6},
        -1.0,
    ),
    "all_to_all_time": (
        {"bytes_per_rank": 1e6, "ranks": 16.0, "link_bandwidth": 5e10, "latency": 4e-5, "local": 8.0},
        -1.0,
    ),
    "busiest_rank_experts": ({"distinct": 40.0, "num_experts": 256.0, "ranks": 8.0}, 300.0),
    "batch_probabilities": ({"demand": 0.1, "rate": 3.0}, 0.0),
    "best_draft_length": (
        {
            "acceptance": 0.8,
            "cost_ratio": 0.05,
            "verify_base": 1.1,
            "verify_slope": 0.02,
            "max_draft_length": 9.0,
        },
        1.2,
    ),
    "break_even_acceptance": ({"cost_ratio": 0.1, "verify_base": 1.1, "verify_slope": 0.02}, -0.1),
    "break_even_tokens": ({"baseline_time": 0.01, "round_time": 0.013}, 0.0),
    "conditional_from_survival": ({"survival": 0.8}, 1.1),
    "crossover_tokens": ({"peak_flops": 1e15, "bandwidth": 3e12, "bytes_per_weight": 2.0}, -1.0),
    "distinct_experts": (
        {
            "num_experts": 128.0,
            "top_k": 8.0,
            "tokens_per_sequence": 4.0,
            "sequences": 3.0,
            "persistence": 0.2,
            "stickiness": 0.1,
            "popularity_cv": 0.4,
        },
        0.0,
    ),
    "draft_acceptance_rate": ({"acceptance": 0.8, "draft_length": 3.0}, 1.2),
    "exceedance_probability": ({"best": 1.1, "deviation": 0.1, "threshold": 1.05}, -0.1),
    "expected_rounds": ({"survival": 0.7, "tokens": 20.0}, 1.2),
    "expected_tokens": ({"acceptance": 0.8, "draft_length": 3.0}, 1.2),
    "expected_tokens_from_conditional": ({"conditional": 0.8}, -0.1),
    "expert_miss_probability": (
        {"activation": 0.06, "tokens": 4.0, "persistence": 0.2, "stickiness": 0.1},
        1.2,
    ),
    "first_token_latency": ({"round_time": 0.01, "prefill_time": 0.02, "rate": 10.0}, -0.1),
    "hot_expert_imbalance": ({"share": 0.2, "num_experts": 128.0, "ranks": 8.0}, 0.001),
    "inflection_context": (
        {"kv_budget": 512.0, "time_per_token": 2e-5, "time_per_cached_token": 4e-8},
        -1.0,
    ),
    "operations_increase": ({"acceptance": 0.8, "draft_length": 3.0, "operations_ratio": 0.05}, -0.1),
    "optimal_draft_length": (
        {"acceptance": 0.8, "cost_ratio": 0.05, "verify_base": 1.1, "verify_slope": 0.02},
        1.2,
    ),
    "oracle_tokens": ({"acceptance": 0.8}, 1.2),
    "p_norm": ({"first": 1.0, "second": 2.0, "sharpness": 2.7}, -1.0),
    "persistence_from_overlap": ({"activation": 0.06, "distant_overlap": 0.3}, 1.2),
    "queueing_delay": ({"service_time": 0.1, "rate": 3.0, "service_cv": 0.5}, -0.1),
    "rank_imbalance": ({"expert_cv": 0.5, "num_experts": 256.0, "ranks": 32.0, "tokens_per_rank": 1e3}, -1.0),
    "request_latency": ({"fixed_demand": 2.0, "load_demand": 0.1, "rate": 3.0}, -0.1),
    "ridge_point": ({"peak_flops": 1e15, "bandwidth": 3e12}, -1.0),
    "roofline_time": (
        {
            "flops": 1e12,
            "traffic": 1e9,
            "peak_flops": 1e15,
            "bandwidth": 3e12,
            "overhead": 4e-6,
            "sharpness": 2.7,
        },
        -1.0,
    ),
    "routing_overlap": ({"activation": 0.06, "lag": 2.0, "persistence": 0.2, "stickiness": 0.1}, 1.2),
    "speculation_break_even_load": ({"fixed_ratio": 0.6, "load_ratio": 1.3}, -0.1),
    "speedup": ({"tokens_per_round": 2.7, "baseline_time": 0.01, "round_time": 0.013}, -1.0),
    "stickiness_from_overlap": ({"adjacent_overlap": 0.38, "distant_overlap": 0.3}, 0.2),
    "survival_from_conditional": ({"conditional": 0.8}, 1.2),
    "target_efficiency": ({"plain_time": 0.01, "verify_time": 0.013}, -1.0),
    "walltime_improvement": ({"acceptance": 0.8, "draft_length": 3.0, "cost_ratio": 0.05}, 1.2),
}

# The argument of these whose last axis is positions or batches, which the others broadcast without.
POSITIONAL = {
    "batch_probabilities": "demand",
    "conditional_from_survival": "survival",
    "expected_rounds": "survival",
    "expected_tokens_from_conditional": "conditional",
    "survival_from_conditional": "conditional",
}

EACH = pytest.mark.parametrize("name", sorted(EXAMPLES))


def test_every_public_formula_is_exported_and_has_an_example():
    modules = [
        importlib.import_module(f"latency_model.formulas.{info.name}")
        for info in pkgutil.iter_modules(formulas.__path__)
        if info.name != "domain"
    ]
    defined = {name for module in modules for name in module.__all__}
    assert set(formulas.__all__) == defined
    assert formulas.__all__ == sorted(formulas.__all__)
    assert set(EXAMPLES) == defined


def documented(name: str, section: str) -> str:
    """Text of one section of a formula's docstring."""
    text = inspect.cleandoc(getattr(formulas, name).__doc__ or "")
    found = re.search(rf"^{section}\n-+\n(.*?)(?=^\w+\n-+\n|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"{name} has no section {section}"
    return found[1]


@EACH
def test_docstring_lists_the_parameters_in_order_with_units(name):
    section = documented(name, "Parameters")
    parameters = re.findall(r"^(\w+) : .*\n((?:    .*\n?)+)", section, re.MULTILINE)
    assert [each[0] for each in parameters] == list(inspect.signature(getattr(formulas, name)).parameters)
    for parameter, description in parameters:
        assert re.search(r"\[[\w/]+\]", description), f"{name}: {parameter} has no [unit]"
    assert re.search(r"\[[\w/]+\]", documented(name, "Returns")), f"{name} returns no [unit]"


@EACH
def test_docstring_gives_mathematics_source_and_example(name):
    text = getattr(formulas, name).__doc__
    assert ".. math::" in text
    assert "Source: " in text
    assert ">>> " in documented(name, "Examples")


@EACH
def test_a_scalar_gives_a_scalar_and_an_array_what_the_loop_gives(name):
    formula, (arguments, _) = getattr(formulas, name), EXAMPLES[name]
    alone = formula(**arguments)
    if name in POSITIONAL:
        axis = POSITIONAL[name]
        stacked = formula(
            **{key: [[value], [value]] if key == axis else [value] * 2 for key, value in arguments.items()}
        )
        np.testing.assert_array_equal(np.ravel(stacked), np.ravel([alone, alone]))
        return
    assert isinstance(alone, np.float64)
    for key, value in arguments.items():
        several = np.array([[value], [value]])
        result = formula(**{**arguments, key: several})
        assert result.shape == (2, 1)
        assert result.dtype == np.float64
        np.testing.assert_allclose(result, alone, rtol=1e-14)
    together = formula(**{key: [value] * 3 for key, value in arguments.items()})
    np.testing.assert_allclose(together, [alone] * 3, rtol=1e-14)


@EACH
def test_nan_goes_in_and_comes_out_of_its_own_cell_only(name):
    formula, (arguments, _) = getattr(formulas, name), EXAMPLES[name]
    for key, value in arguments.items():
        assert np.all(np.isnan(formula(**{**arguments, key: np.nan})))
        if name not in POSITIONAL:
            mixed = formula(**{**arguments, key: np.array([np.nan, value])})
            np.testing.assert_allclose(mixed, [np.nan, formula(**arguments)], rtol=1e-14)


@EACH
def test_outside_the_domain_is_a_sentence_about_the_argument(name):
    formula, (arguments, outside) = getattr(formulas, name), EXAMPLES[name]
    first = next(iter(arguments))
    with pytest.raises(InputError, match=rf"{first} must"):
        formula(**{**arguments, first: outside})
    for junk in (None, "plenty", 1j, object()):
        with pytest.raises(InputError, match=rf"{first} must be a number"):
            formula(**{**arguments, first: junk})


def test_importing_formulas_imports_numpy_and_nothing_heavy():
    code = (
        "import sys, latency_model.formulas as f;"
        "f.distinct_experts(8, 2, 3, persistence=.1, popularity_cv=.2);"
        "f.best_draft_length(.8, .05); f.acceptance_from_mean_length(2, 3);"
        "print(sorted({'scipy', 'sympy', 'pandas', 'xarray', 'plotly', 'attrs'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
