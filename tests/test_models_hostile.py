"""Configs nobody should write: one clear sentence each, never a traceback, never a silent wrong family."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latency_model.errors import InputError
from latency_model.specs.loader import BUNDLED, load_model, model_names
from latency_model.specs.model import ModelArchitecture

RAW: dict[str, dict[str, Any]] = {name: json.loads((BUNDLED / f"{name}.json").read_text()) for name in model_names()}


def sentence(model: Any) -> str:
    with pytest.raises(InputError) as caught:
        load_model(model)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 4000
    return text


def written(folder: Path, content: bytes | str) -> Path:
    path = folder / "config.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not valid JSON"),
        ("", "not valid JSON"),
        ("[" * 1_000_000 + "]" * 1_000_000, "nested too deeply"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested too deeply"),
        ('{"hidden_size": NaN}', "NaN is not a JSON value"),
        ('{"hidden_size": -Infinity}', "-Infinity is not a JSON value"),
        ('{"hidden_size": 1, "hidden_size": 2}', "'hidden_size' occurs twice"),
        ("[1, 2]", "must hold a JSON object"),
        ("null", "must hold a JSON object"),
        (b"\xff\xfe{\x00}\x00", "not UTF-8"),
        ('{"hidden_size": ' + "9" * 5000 + "}", "not valid JSON"),
        ('{"a": "' + "x" * (5 << 20) + '"}', "more than the"),
        ("{}", "hidden_size is missing"),
        ('{"model_type": ["llama"]}', "model_type must be a string"),
        ('{"architectures": "LlamaForCausalLM"}', "architectures must be a list of strings"),
    ],
)
def test_bad_files(tmp_path: Path, content: bytes | str, words: str) -> None:
    text = sentence(written(tmp_path, content))
    assert words in text
    assert "config.json" in text


def test_missing_things(tmp_path: Path) -> None:
    assert "neither a bundled model nor a file" in sentence(tmp_path / "missing.json")
    assert "holds no config.json" in sentence(tmp_path)
    assert "did you mean 'Qwen3-30B-A3B'" in sentence("qwen3-30b")
    for odd in ("\0", "a" * 100_000, "~nobody-here/x", "/", "https://huggingface.co/x/y"):
        assert sentence(odd)


def test_links_that_loop(tmp_path: Path) -> None:
    (tmp_path / "config.json").symlink_to(tmp_path / "other.json")
    (tmp_path / "other.json").symlink_to(tmp_path / "config.json")
    assert sentence(tmp_path)
    assert sentence(tmp_path / "config.json")


def test_directory_named_config_json(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    assert sentence(tmp_path)


@pytest.mark.parametrize("model", [None, 3, 2.5, b"Qwen3-8B", ["Qwen3-8B"], object()])
def test_things_that_are_no_model(model: Any) -> None:
    assert "a model" in sentence(model)


def test_names_forgive() -> None:
    expected = load_model("Qwen3-30B-A3B")
    for name in ("Qwen/Qwen3-30B-A3B", "qwen3_30b_a3b", " QWEN3-30B-A3B ", expected):
        assert load_model(name) is expected
    assert load_model("meta-llama/Llama-3.1-8B-Instruct").name == "Meta-Llama-3.1-8B"
    assert load_model("deepseek-ai/DeepSeek-R1").name == "DeepSeek-V3"


def test_other_versions_are_not_taken_for_a_bundled_model() -> None:
    # v0.3 has another vocabulary and no window; 2507 has another context
    assert "did you mean" in sentence("Mistral-7B-Instruct-v0.3")
    assert "did you mean" in sentence("Qwen3-30B-A3B-Instruct-2507")


def test_path_directory_and_mapping_agree(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(RAW["DeepSeek-V3"]))
    readings = [load_model(path), load_model(str(tmp_path)), load_model(RAW["DeepSeek-V3"])]
    assert len({reading.layers for reading in readings}) == 1
    assert readings[0].source == str(path)


def test_a_local_directory_wins_over_a_bundled_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Qwen3-8B").mkdir()
    written(tmp_path / "Qwen3-8B", json.dumps({**RAW["Qwen3-8B"], "num_hidden_layers": 2}))
    monkeypatch.chdir(tmp_path)
    assert len(load_model("Qwen3-8B").layers) == 2


def test_the_largest_allowed_config_does_not_exhaust_memory() -> None:
    sizes = {"num_hidden_layers": 2000, "hidden_size": 100_000_000, "vocab_size": 100_000_000}
    model = load_model({**RAW["Qwen3-8B"], **sizes, "intermediate_size": 100_000_000})
    assert model.total_parameters > 1e19


# Values a mutated field may take; huge lists are there for fields that hold one entry per layer.
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 1, 2, 3, 7, 10**6, 10**9, 10**30, -(10**30), 0.5, float("nan"), float("inf"), 1e300]),
    st.integers(-5, 300),
    st.text(max_size=8),
    st.sampled_from(["full_attention", "re:(((", "M*-E", "bfloat16", "qwen3_moe", "llama", "fp8", "FP8"]),
    st.lists(st.one_of(st.integers(-2, 60), st.text(max_size=5), st.none()), max_size=70),
    st.dictionaries(st.text(max_size=6), st.integers(-2, 9), max_size=3),
)


def fields(values: dict[str, Any], path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Paths of all fields, nested ones included."""
    found = []
    for key, value in values.items():
        found.append((*path, key))
        if isinstance(value, dict):
            found += fields(value, (*path, key))
    return found


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    """A real config with one to four fields dropped, replaced, renamed or swapped."""
    values = copy.deepcopy(RAW[draw(st.sampled_from(sorted(RAW)))])
    for _ in range(draw(st.integers(1, 4))):
        *path, last = draw(st.sampled_from(fields(values)))
        holder = values
        for key in path:
            holder = holder[key]
        action = draw(st.sampled_from(["drop", "set", "set", "set", "rename", "swap", "scale"]))
        if action == "set":
            holder[last] = draw(ODD)
        elif action == "scale" and isinstance(holder[last], int):
            holder[last] = holder[last] * draw(st.sampled_from([-1, 0, 2, 3, 1000]))
        elif action == "swap":
            other = draw(st.sampled_from(sorted(holder)))
            holder[last], holder[other] = holder[other], holder[last]
        else:
            value = holder.pop(last)
            if action == "rename":
                holder[draw(st.sampled_from([f"{last}_x", "num_experts", "kv_lora_rank", last.upper()]))] = value
    return values


def check_counts(model: ModelArchitecture) -> None:
    assert 0 < model.active_parameters <= model.total_parameters
    assert 0 < model.weight_bytes < float("inf")
    assert model.kv_bytes_per_token() >= 0
    assert model.linear_state_bytes >= 0
    assert 0 <= model.routed_expert_parameters < model.total_parameters
    assert len(model.layers) >= 1


@settings(max_examples=2000)
@given(mutated())
def test_mutated_configs_give_a_sentence_or_positive_counts(values: dict[str, Any]) -> None:
    try:
        model = load_model(values)
    except InputError:
        return
    check_counts(model)


MOE = sorted(name for name in RAW if load_model(name).is_moe)


@given(
    st.sampled_from(MOE), st.sampled_from(["llama", "mistral", "qwen2", "qwen3", "phi3", "gemma2", "unheard-of", None])
)
def test_a_mixture_is_never_read_as_a_dense_family(name: str, family: str | None) -> None:
    values = {**RAW[name], "model_type": family, "architectures": ["UnheardOfForCausalLM"]}
    if "text_config" in values:
        values["text_config"] = {**values["text_config"], "model_type": family}
    with pytest.raises(InputError):
        load_model(values)


@given(st.dictionaries(st.text(max_size=10), ODD, max_size=8))
def test_any_mapping_gives_a_sentence(values: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        load_model(values)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_sentence(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "config.json"
    path.write_bytes(content)
    with pytest.raises(InputError):
        load_model(path)
