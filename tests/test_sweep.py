"""A sweep is speculate on every combination: same numbers, named axes, one sentence for every mistake."""

from __future__ import annotations

import csv
import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import latency_model as lm
from latency_model.cli import main
from latency_model.costs import round as round_module
from latency_model.costs.memory import memory_use
from latency_model.views import save
from latency_model.views import sweep as sweep_module
from latency_model.views.axes import AXES, Grid
from latency_model.views.sweep import QUANTITIES, evaluated

MODEL, MACHINE = "Qwen3-30B-A3B", "h100-sxm"
VECTOR = lm.Acceptance.conditional([0.7, 0.6, 0.5])


def run(*arguments: str, code: int = 0) -> str:
    """What a command prints, both streams; it must end with ``code``."""
    result = CliRunner().invoke(main, ["sweep", *arguments])
    assert result.exit_code == code, result.output
    return result.output


@settings(max_examples=20)
@given(
    model=st.sampled_from(["Qwen3-30B-A3B", "Qwen3-8B"]),
    machine=st.sampled_from(["h100-sxm", "h200-sxm"]),
    tp=st.sampled_from([1, 2]),
    persistence=st.sampled_from([0.0, 0.5]),
    acceptance=st.sampled_from([0.2, 0.9]),
    batch=st.sampled_from([1, 48]),
    context=st.sampled_from([0, 9000]),
    length=st.sampled_from([0, 1, 5]),
)
def test_every_point_is_speculate(
    grid: xarray.Dataset,
    model: str,
    machine: str,
    tp: int,
    persistence: float,
    acceptance: float,
    batch: int,
    context: int,
    length: int,
) -> None:
    load = {"batch": batch, "context": context, "draft_length": length}
    point = lm.speculate(
        model,
        machine,
        acceptance=acceptance,
        parallelism=lm.Parallelism(tp=tp),
        routing=lm.Routing(persistence=persistence),
        **load,
    )
    labels = {"model": model, "hardware": machine, "tp": tp, "persistence": persistence, "acceptance": acceptance}
    here = grid.sel(labels | load)
    expected = {
        "speedup": point.speedup,
        "tokens_per_round": point.tokens_per_round,
        "round_time": point.time,
        "baseline_time": point.baseline_time,
        "draft_time": point.draft_time,
        "verify_time": point.verify_time,
        "overhead_time": point.overhead_time,
        "tpot": point.tpot,
        "sequence_rate": point.tokens_per_second_per_sequence,
        "device_rate": point.tokens_per_second_per_device,
        "dollars_per_million_tokens": point.dollars_per_million_tokens,
    }
    for name, value in expected.items():
        assert float(here[name]) == pytest.approx(float(value), rel=1e-12), name
    terms = point.cost.terms()
    assert str(here.held_back_by.values) == max(terms, key=lambda term: float(terms[term]))
    assert float(here.held_back_share) == pytest.approx(max(map(float, terms.values())) / float(point.time))
    assert float(here.term_time.sum()) == pytest.approx(float(point.time))
    memory = memory_use(
        point.setting, point.draft, batch=point.batch, context=point.context, draft_length=point.draft_length
    )
    assert float(here.memory) == float(memory.total)
    assert bool(here.fits) == bool(memory.fits)


@pytest.fixture(scope="module")
def grid() -> xarray.Dataset:
    return lm.sweep(
        ["Qwen3-30B-A3B", "Qwen3-8B"],
        ["h100-sxm", "h200-sxm"],
        quantity="all",
        tp=[1, 2],
        persistence=[0.0, 0.5],
        acceptance=[0.2, 0.9],
        batch=[1, 48],
        context=[0, 9000],
        draft_length=[0, 1, 5],
    )


def test_intervals_are_those_of_a_plan(grid: xarray.Dataset) -> None:
    load: dict[str, Any] = {"acceptance": 0.9, "batch": 8, "context": 9000}
    plan = lm.optimize(MODEL, MACHINE, max_draft_length=5, **load)
    point = lm.sweep(MODEL, MACHINE, quantity="all", draft_length=plan.draft_length, **load)
    for name in ("speedup_low", "speedup_high", "tpot_low", "tpot_high"):
        assert float(point[name]) == pytest.approx(float(getattr(plan, name))), name
    assert (grid.speedup_low <= grid.speedup).all()
    assert (grid.speedup <= grid.speedup_high).all()


def test_variables_have_the_dimensions_they_depend_on(grid: xarray.Dataset) -> None:
    cell = ("model", "hardware", "tp", "persistence")
    assert grid.speedup.dims == (*cell, "acceptance", "batch", "context", "draft_length")
    assert grid.verify_time.dims == (*cell, "batch", "context", "draft_length")
    assert grid.baseline_time.dims == (*cell, "batch", "context")
    assert grid.tokens_per_round.dims == (*cell, "acceptance", "draft_length")
    assert set(grid.data_vars) == set(QUANTITIES)


def test_everything_has_a_name_a_unit_and_a_source(grid: xarray.Dataset) -> None:
    for name in (*grid.data_vars, *grid.dims):
        assert grid[name].attrs["long_name"]
        assert grid[name].dtype.kind != "f" or grid[name].attrs["units"], name
    assert f"h100-sxm {lm.load_hardware('h100-sxm').digest}" in grid.attrs["profiles"]
    assert grid.attrs["latency_model_version"] == lm.__version__
    for name in ("assumptions", "not_modelled", "sources"):
        assert grid.attrs[name]


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    axes: dict[str, Any] = {"batch": range(1, 30), "context": [0, 5000], "draft_length": range(4)}
    axes["acceptance"] = [0.5, VECTOR]
    whole = lm.sweep(MODEL, MACHINE, quantity="all", **axes)
    monkeypatch.setattr(sweep_module, "BLOCK", 7)
    xarray.testing.assert_allclose(lm.sweep(MODEL, MACHINE, quantity="all", **axes), whole, rtol=1e-13)
    monkeypatch.setattr(round_module, "MOST_PAIRS", 20)
    xarray.testing.assert_allclose(lm.sweep(MODEL, MACHINE, quantity="all", **axes), whole, rtol=1e-13)


def test_a_number_makes_no_dimension_and_a_list_of_one_does() -> None:
    assert lm.sweep(MODEL, MACHINE, batch=8, draft_length=3).speedup.dims == ()
    assert lm.sweep(MODEL, MACHINE, batch=[8], draft_length=3).speedup.dims == ("batch",)


def test_objects_are_labelled_by_name_or_by_their_mapping() -> None:
    drafts = {"thin": lm.Draft.eagle(), "thick": lm.Draft.eagle(layers=4)}
    grid = lm.sweep(MODEL, MACHINE, draft=drafts, acceptance={"code": 0.8, "chat": VECTOR}, draft_length=3)
    assert grid.draft.values.tolist() == ["thin", "thick"]
    assert (grid.speedup.sel(draft="thin") > grid.speedup.sel(draft="thick")).all()
    named = lm.sweep(MODEL, MACHINE, draft=["mtp", lm.Draft.model(lm.load_model("Qwen3-0.6B"))], draft_length=3)
    assert named.draft.values.tolist() == ["mtp", "Qwen3-0.6B"]


def test_what_cannot_be_is_empty_and_says_why() -> None:
    grid = lm.sweep("Qwen3-8B", MACHINE, tp=[1, 3], draft_length=2)
    assert np.isfinite(grid.speedup.sel(tp=1))
    assert np.isnan(grid.speedup.sel(tp=3))
    assert "tp=3" in grid.attrs["impossible"]
    with pytest.raises(lm.InputError, match="tp=3"):
        lm.sweep("Qwen3-8B", MACHINE, tp=3)


def test_weights_that_do_not_fit_are_no_error() -> None:
    grid = lm.sweep("DeepSeek-V3", MACHINE, tp=[1, 16], draft_length=2)
    assert not grid.fits.sel(tp=1)
    assert np.isnan(grid.memory.sel(tp=1))


@pytest.mark.parametrize(
    ("axes", "sentence"),
    [
        ({"batch": []}, "batch must be .* got an empty list"),
        ({"batch": [1, 4, 4.0]}, "batch: the values of an axis must differ, got 4.0 twice"),
        ({"batch": [1, float("nan")]}, "batch must be at least 1 sequence, got nan"),
        ({"batch": [[1, 2], [3, 4]]}, r"batch must be a number or a flat list, got an array of shape \(2, 2\)"),
        ({"context": "long"}, "context must be at least 0 cached tokens, got 'long'"),
        ({"draft_length": [1.5]}, "draft_length must be an integer from 0 to 1024, got 1.5"),
        ({"acceptance": [0.5, 1.5]}, "from 0 to 1, got 1.5"),
        ({"acceptance": [0.5, float("nan")]}, "from 0 to 1, got nan"),
        ({"acceptance": [[0.5]]}, "acceptance must be a number, text or an Acceptance"),
        ({"acceptance": []}, "acceptance: an axis needs at least one value"),
        ({"persistence": [0.1, 2]}, "persistence must be a number from 0 to 1, got 2"),
        ({"tp": [1, 0]}, "tp must be an integer from 1 to 65536, got 0"),
        ({"tp": [2, 2]}, "tp: the values of an axis must differ, got 2 twice"),
        ({"draft": [lm.Draft.eagle(), lm.Draft.eagle(layers=2)]}, "'eagle3' twice; give a mapping from labels"),
        ({"engine": "vlm"}, "did you mean 'vllm'"),
        ({"batches": [1]}, "no axis is named 'batches'; did you mean 'batch'"),
        ({"quantity": "speed"}, "no quantity is named 'speed'; did you mean 'speedup'"),
        ({"quantity": ()}, "at least one quantity"),
        ({"batch": range(1, 100_001), "context": range(100_000)}, "are 90,000,000,000 points"),
    ],
)
def test_a_mistake_is_one_sentence(axes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(lm.InputError, match=sentence) as caught:
        lm.sweep(MODEL, MACHINE, **axes)
    assert "\n" not in str(caught.value)


def test_model_and_machine_must_be_given() -> None:
    with pytest.raises(lm.InputError, match="hardware must be given"):
        lm.sweep(MODEL)


@given(st.lists(st.integers(1, 6), min_size=4, max_size=4), st.integers(1, 40))
@settings(max_examples=25)
def test_pieces_walk_through_the_grid_in_order(lengths: list[int], size: int) -> None:
    models, batch, context, length = lengths
    grid = Grid.of(
        {
            "model": list(lm.model_names()[:models]),
            "hardware": MACHINE,
            "batch": np.arange(1, batch + 1),
            "context": np.arange(context),
            "draft_length": np.arange(length),
        }
    )
    walked = [
        (model.name, batch, context, length)
        for piece in map(grid.part, grid.places(grid.lengths(size)))
        for model in piece.axes["model"].values
        for batch in piece.axes["batch"].values
        for context in piece.axes["context"].values
        for length in piece.axes["draft_length"].values
    ]
    names = [model.name for model in grid.axes["model"].values]
    assert walked == [
        (name, b + 1, c, k) for name in names for b in range(batch) for c in range(context) for k in range(length)
    ]


def test_csv_in_pieces_has_every_point_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(save, "PIECE", 5)
    grid = Grid.of({"model": MODEL, "hardware": MACHINE, "tp": [1, 3], "batch": [1, 2, 3], "draft_length": [0, 2]})
    told: list[tuple[int, int]] = []
    path = tmp_path / "sweep.csv"
    save.save_csv(grid, QUANTITIES, path, progress=lambda *now: told.append(now))
    with path.open(newline="") as file:
        read = list(csv.DictReader(file))
    assert [(row["tp"], row["batch"], row["draft_length"]) for row in read] == [
        (tp, batch, length) for tp in "13" for batch in "123" for length in "02"
    ]
    whole = save.columns(evaluated(grid, QUANTITIES))
    speedups = [float(row["speedup"] or "nan") for row in read]
    np.testing.assert_array_equal(speedups, whole["speedup"])
    assert told[-1] == (12, 12)
    assert [entry.name for entry in tmp_path.iterdir()] == ["sweep.csv"]


def test_an_interrupted_csv_keeps_complete_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(save, "PIECE", 4)
    grid = Grid.of({"model": MODEL, "hardware": MACHINE, "batch": range(1, 10), "draft_length": [0, 2]})

    def interrupt(done: int, _: int) -> None:
        if done > 6:
            raise KeyboardInterrupt

    path = tmp_path / "sweep.csv"
    with pytest.raises(KeyboardInterrupt):
        save.save_csv(grid, ["speedup"], path, progress=interrupt)
    assert [entry.name for entry in tmp_path.iterdir()] == ["sweep.csv.partial"]
    assert len(save.partial_path(path).read_text().splitlines()) == 1 + 8


def test_netcdf_reads_back(tmp_path: Path) -> None:
    grid = lm.sweep(MODEL, [MACHINE, "h200-sxm"], quantity="all", batch=[1, 64], acceptance=[0.5, 0.9])
    path = tmp_path / "sweep.nc"
    save.save_netcdf(grid, path)
    with xarray.open_dataset(path) as read:
        read.load()
    np.testing.assert_array_equal(read.speedup, grid.speedup)
    assert read.held_back_by.astype(str).values.tolist() == grid.held_back_by.values.tolist()
    assert read.speedup.attrs == grid.speedup.attrs
    assert read.attrs["assumptions"] == grid.attrs["assumptions"]


@pytest.mark.silicon  # the environment that has pyarrow
def test_parquet_reads_back(tmp_path: Path) -> None:
    pandas = import_module("pandas")
    grid = lm.sweep(MODEL, [MACHINE, "h200-sxm"], quantity="all", batch=[1, 64], acceptance=[0.5, 0.9])
    path = tmp_path / "sweep.parquet"
    save.save_parquet(grid, path)
    read = pandas.read_parquet(path)
    for name, values in save.columns(grid).items():
        np.testing.assert_array_equal(read[name].to_numpy(), values, err_msg=name)


def test_parquet_without_pyarrow_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(lm.InputError, match="Parquet needs pyarrow"):
        save.save_parquet(lm.sweep(MODEL, MACHINE), tmp_path / "sweep.parquet")
    assert not list(tmp_path.iterdir())


def test_the_command_prints_what_python_gives() -> None:
    printed = run(
        *("-m", MODEL, "-H", MACHINE, "--tp", "1,2", "-b", "1:3", "-k", "2", "--acceptance", ".5:.7:.1"),
        *("--format", "json"),
    )
    document = json.loads(printed)
    grid = lm.sweep(MODEL, MACHINE, tp=[1, 2], batch=[1, 2, 3], draft_length=2, acceptance=[0.5, 0.6, 0.7])
    assert [row["speedup"] for row in document["rows"]] == grid.speedup.values.ravel().tolist()
    assert document["inputs"]["acceptance"] == [0.5, 0.6, 0.7]
    assert document["schema_version"] == 1


@pytest.mark.parametrize("suffix", ["csv", "json", "nc"])
def test_the_command_writes_a_file_once(tmp_path: Path, suffix: str) -> None:
    path = str(tmp_path / f"sweep.{suffix}")
    assert "36 points" in run("-b", "1:4", "-o", path)
    before = Path(path).read_bytes()
    assert "exists; take another name, or --force" in run("-b", "1", "-o", path, code=1)
    assert Path(path).read_bytes() == before
    run("-b", "1", "-o", path, "--force")
    assert len(Path(path).read_bytes()) < len(before)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("-o", "sweep.xls"), "must end in .csv or .json"),
        (("-o", "/nowhere/sweep.csv"), "there is no directory /nowhere"),
        (("-b", "1:100000", "-c", "0:99999", "-k", "0:99"), "are 1,000,000,000,000 points"),
        (("-b", "1:100000", "-k", "0:9"), "too many to print"),
        (("--persistence", "0:1"), "write .5, a list .5,.7 or a range"),
        (("--persistence", "1:0:.1"), "empty or too long"),
        (("--acceptance", ".5:.9:0"), "empty or too long"),
        (("--quantity", "speed"), "did you mean 'speedup'"),
        (("--draft", "eagel"), "did you mean 'eagle'"),
    ],
)
def test_a_wrong_command_is_one_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    printed = run(*arguments, code=1)
    assert sentence in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize("suffix", ["csv", "nc", "zarr"])
def test_a_directory_that_may_not_be_written(tmp_path: Path, suffix: str) -> None:
    tmp_path.chmod(0o500)
    closed = Path("/proc") if os.access(tmp_path, os.W_OK) else tmp_path  # where not even root may write
    printed = run("-o", str(closed / f"sweep.{suffix}"), code=1)
    assert "cannot be written" in printed
    assert "Traceback" not in printed


def test_every_axis_is_an_option() -> None:
    options = {parameter.name for parameter in main.get_command(None, "sweep").params}  # type: ignore[arg-type,union-attr]
    assert set(AXES) <= options
