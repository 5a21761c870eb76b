"""Acceptance in every form, converted without loss."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import latency_model as lm

probabilities = st.floats(0, 1)
vectors = st.lists(probabilities, min_size=1, max_size=12)


@given(vectors)
def test_survival_and_conditional_describe_the_same_drafter(values: list[float]) -> None:
    given_ = lm.Acceptance.conditional(values)
    again = lm.Acceptance.survival(given_.survivals(len(values)).tolist())
    for length in range(len(values) + 1):
        assert again.tokens_per_round(length) == pytest.approx(float(given_.tokens_per_round(length)))


@given(st.integers(1, 16), st.floats(0, 1))
def test_mean_length_comes_back(length: int, fraction: float) -> None:
    mean = 1 + fraction * length
    assert lm.Acceptance.mean_length(mean, draft_length=length).tokens_per_round(length) == pytest.approx(mean)


@given(vectors, st.integers(0, 40))
def test_last_conditional_continues(values: list[float], length: int) -> None:
    longer = [*values, *[values[-1]] * 40]
    short, long = lm.Acceptance.conditional(values), lm.Acceptance.conditional(longer)
    assert short.tokens_per_round(length) == long.tokens_per_round(length)
    assert bool(short.extrapolation_note(length)) == (len(values) > 1 and length > len(values))


def test_llama_cpp_log_is_one_plus_the_survivals() -> None:
    # A published llama.cpp log: 87 rounds, 259 drafted, 167 accepted, mean length 2.92, survivals .805 .632 .483.
    acceptance = lm.Acceptance.survival([0.805, 0.632, 0.483])
    assert acceptance.tokens_per_round(3) == pytest.approx(2.92, abs=0.005)
    assert pytest.approx(2.92, abs=0.005) == 1 + 167 / 87


def test_mixture_averages_tokens_not_acceptance() -> None:
    parts = [(3.0, lm.Acceptance.constant(0.9)), (1.0, lm.Acceptance.constant(0.2))]
    mixed = lm.Acceptance.mixture(parts)
    for length in (1, 4, 16):
        each = [weight * float(part.tokens_per_round(length)) for weight, part in parts]
        assert mixed.tokens_per_round(length) == pytest.approx(sum(each) / 4)
    of_the_mean = lm.Acceptance.constant((3 * 0.9 + 0.2) / 4)
    assert mixed.tokens_per_round(8) > of_the_mean.tokens_per_round(8)


@pytest.mark.parametrize(
    ("text", "conditionals"),
    [
        (".8", (0.8,)),
        ("0.8, 0.7", (0.8, 0.7)),
        ("survival:.8,.6", (0.8, 0.75)),
        ("cond:.8,.7", (0.8, 0.7)),
    ],
)
def test_command_line_forms(text: str, conditionals: tuple[float, ...]) -> None:
    np.testing.assert_allclose(lm.Acceptance.parse(text).conditionals, conditionals)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1.2", "must be from 0 to 1"),
        ("80", "write 0.8 for 80 %"),
        ("-.1", "must be from 0 to 1"),
        ("nan", "must be from 0 to 1"),
        ("", "is not understood"),
        (".8,,.7", "is not understood"),
        ("len:2.73", "is not understood"),
        ("len:5@3", "draft_length \\+ 1 = 4"),
        ("len:.5@3", "must be from 1"),
        ("len:2@0", "integer from 1"),
        ("survival:.5,.6", "must not rise"),
        ("rate:.5", "form 'rate' is not known"),
    ],
)
def test_wrong_forms_are_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(lm.InputError, match=sentence):
        lm.Acceptance.parse(text)
