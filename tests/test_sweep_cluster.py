"""Sweeps in blocks: lazily, by workers of a cluster, into a Zarr store; always the numbers of one process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pytest
import xarray
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import latency_model as lm
from latency_model.cli import main
from latency_model.views import chunked, cluster, save
from latency_model.views import sweep as sweep_module
from latency_model.views.axes import Grid
from latency_model.views.sweep import QUANTITIES, evaluated

MODEL, MACHINE = "Qwen3-30B-A3B", "h100-sxm"
VECTOR = lm.Acceptance.conditional([0.7, 0.6, 0.5])
SOME: dict[str, Any] = {
    "model": MODEL,
    "hardware": [MACHINE, "h200-sxm"],
    "tp": [1, 3],
    "batch": range(1, 30),
    "context": [0, 5000],
    "draft_length": range(6),
    "acceptance": [0.5, VECTOR],
    "quantity": "all",
}
GRID = Grid.of({name: value for name, value in SOME.items() if name != "quantity"} | {"draft": None})


@pytest.fixture(scope="module")
def whole() -> xarray.Dataset:
    return lm.sweep(**SOME)


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[distributed.Client]:
    own = str(tmp_path_factory.mktemp("workers"))
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50, local_directory=own
        ) as workers,
        distributed.Client(workers, set_as_default=False) as client,
    ):
        yield client


def kill_one(client: distributed.Client) -> None:
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)


@pytest.mark.parametrize("chunks", [{}, {"batch": 7}, {"hardware": 1, "acceptance": 1, "context": 1, "batch": 100}])
def test_a_lazy_dataset_has_the_same_numbers_and_notes(whole: xarray.Dataset, chunks: dict[str, int]) -> None:
    lazy = lm.sweep(**SOME, chunks=chunks)
    assert lazy.chunks["batch"] == ((7, 7, 7, 7, 1) if chunks == {"batch": 7} else (29,))
    xarray.testing.assert_identical(lazy.compute(scheduler="synchronous"), whole)


AXES_IN_ANY_ORDER = st.fixed_dictionaries(
    {
        "hardware": st.lists(st.sampled_from([MACHINE, "h200-sxm", "l40s"]), min_size=1, max_size=2, unique=True),
        "tp": st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=2, unique=True),
        "acceptance": st.lists(st.floats(0, 1), min_size=1, max_size=2, unique=True),
        "batch": st.lists(st.integers(1, 700), min_size=1, max_size=9, unique=True),
        "context": st.lists(st.integers(0, 200_000), min_size=1, max_size=9, unique=True),
        "draft_length": st.lists(st.integers(0, 20), min_size=1, max_size=5, unique=True),
    }
).flatmap(lambda axes: st.permutations(list(axes.items())).map(dict))


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(axes=AXES_IN_ANY_ORDER, block=st.integers(1, 200), data=st.data())
def test_however_it_is_cut_every_point_is_speculate(
    axes: dict[str, list[Any]], block: int, data: st.DataObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    if axes["tp"] == [3]:  # impossible, which a sweep of nothing else refuses
        axes = axes | {"tp": [3, 1]}
    chunks = {name: data.draw(st.integers(1, len(values)), name) for name, values in axes.items()}
    unblocked = lm.sweep(MODEL, **axes)
    with monkeypatch.context() as patch:
        patch.setattr(sweep_module, "BLOCK", block)
        xarray.testing.assert_identical(lm.sweep(MODEL, **axes), unblocked)
        lazy = lm.sweep(MODEL, **axes, chunks=chunks)
    xarray.testing.assert_identical(lazy.compute(scheduler="synchronous"), unblocked)

    choice = {name: data.draw(st.sampled_from(values), name) for name, values in axes.items()}
    here = unblocked.sel(choice)
    if choice["tp"] == 3:
        assert np.isnan(here.speedup)
        return
    layout = lm.Parallelism(tp=choice.pop("tp"))
    point = lm.speculate(MODEL, choice.pop("hardware"), parallelism=layout, **choice)
    for name, value in {"speedup": point.speedup, "tpot": point.tpot, "verify_time": point.verify_time}.items():
        assert float(here[name]) == pytest.approx(float(value), rel=1e-12), name


@pytest.mark.parametrize(
    ("chunks", "sentence"),
    [
        ({"bacth": 2}, "'bacth' is no list of values here; did you mean 'batch'"),
        ({"batch": 0}, "batch must be a whole number of values from 1, got 0"),
        ({"batch": True}, "batch must be a whole number of values from 1, got True"),
        ({"price": 1}, "'price' is no list of values here"),
        ("auto", "chunks must map axes to numbers of values, as in {'batch': 64}, got 'auto'"),
        (64, "chunks must map axes to numbers of values, .*, got 64"),
    ],
)
def test_chunks_that_make_no_sense(chunks: Any, sentence: str) -> None:
    with pytest.raises(lm.InputError, match=sentence):
        lm.sweep(**SOME, chunks=chunks)


def test_chunks_of_a_single_point_are_refused() -> None:
    with pytest.raises(lm.InputError, match="nothing to cut"):
        lm.sweep(MODEL, MACHINE, draft_length=3, chunks={})


@pytest.mark.parametrize("chunks", [None, {"batch": 4, "hardware": 1}])
def test_a_cluster_gives_the_same_numbers(
    two_workers: distributed.Client, whole: xarray.Dataset, chunks: dict[str, int] | None
) -> None:
    told: list[tuple[int, int]] = []
    both = lm.sweep(**SOME, chunks=chunks, cluster=two_workers, progress=lambda *now: told.append(now))
    xarray.testing.assert_identical(both, whole)
    assert told[-1] == (GRID.size, GRID.size)
    assert len(told) == (1 if chunks is None else 2 * 8)


def test_a_cluster_is_found_by_its_address(two_workers: distributed.Client) -> None:
    address = two_workers.scheduler.address
    xarray.testing.assert_identical(lm.sweep(MODEL, MACHINE, cluster=address), lm.sweep(MODEL, MACHINE))
    printed = CliRunner().invoke(main, ["sweep", "-b", "1,4", "--cluster", address, "--format", "csv"])
    assert printed.exit_code == 0, printed.output
    assert printed.stdout == CliRunner().invoke(main, ["sweep", "-b", "1,4", "--format", "csv"]).stdout


def test_a_point_and_an_impossible_sweep_go_through_a_cluster(two_workers: distributed.Client) -> None:
    point = {"batch": 8, "draft_length": 3}
    xarray.testing.assert_identical(
        lm.sweep(MODEL, MACHINE, **point, cluster=two_workers), lm.sweep(MODEL, MACHINE, **point)
    )
    with pytest.raises(lm.InputError, match="tp must divide"):
        lm.sweep(MODEL, MACHINE, tp=3, cluster=two_workers)


def test_a_worker_that_dies_loses_nothing(
    two_workers: distributed.Client, whole: xarray.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []

    def kill_once(done: int, total: int) -> None:
        if not killed and done < total / 2:
            killed.append(done)
            kill_one(two_workers)

    both = lm.sweep(**SOME, chunks={"batch": 2, "tp": 1, "hardware": 1}, cluster=two_workers, progress=kill_once)
    assert killed
    xarray.testing.assert_identical(both, whole)

    killed.clear()
    monkeypatch.setattr(chunked, "CHUNK", 60)
    chunked.save_zarr(GRID, QUANTITIES, tmp_path / "sweep.zarr", client=two_workers, progress=kill_once)
    assert killed
    with xarray.open_zarr(tmp_path / "sweep.zarr") as read:
        xarray.testing.assert_identical(read.load(), stored(whole))


def stored(dataset: xarray.Dataset) -> xarray.Dataset:
    """What comes back from a store: text has a fixed width there."""
    return dataset.assign(held_back_by=dataset.held_back_by.astype(chunked.TEXT))


@pytest.mark.parametrize("most", [1, 7, 50, 10**6])
def test_a_store_holds_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(chunked, "CHUNK", most)
    grid = Grid.of({"model": MODEL, "hardware": MACHINE, "tp": [3, 1], "batch": [8, 1, 3], "draft_length": [2, 0, 5]})
    told: list[tuple[int, int]] = []
    path = tmp_path / "sweep.zarr"
    chunked.save_zarr(grid, QUANTITIES, path, progress=lambda *now: told.append(now))
    with xarray.open_zarr(path) as read:
        xarray.testing.assert_identical(read.load(), stored(evaluated(grid, QUANTITIES)))
    assert told[-1] == (18, 18)
    assert [entry.name for entry in tmp_path.iterdir()] == ["sweep.zarr"]


def test_the_command_writes_a_store_once(tmp_path: Path, two_workers: distributed.Client) -> None:
    path = tmp_path / "sweep.zarr"

    def run(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(main, ["sweep", "-b", "1:4", "-o", str(path), *arguments])
        return result.exit_code, result.output

    code, printed = run()
    assert code == 0, printed
    assert "36 points" in printed
    code, printed = run()
    assert code == 1
    assert "exists; take another name, or --force" in printed
    with xarray.open_zarr(path) as read:
        before = read.load()
    code, printed = run("--force", "--cluster", two_workers.scheduler.address)
    assert code == 0, printed
    with xarray.open_zarr(path) as read:
        xarray.testing.assert_identical(read.load(), before)
    assert [entry.name for entry in tmp_path.iterdir()] == ["sweep.zarr"]


def test_no_directory_but_a_store_is_replaced(tmp_path: Path) -> None:
    precious = tmp_path / "mine.zarr" / "thesis.tex"
    precious.parent.mkdir()
    precious.write_text("years of work")
    with pytest.raises(lm.InputError, match="is a directory"):
        chunked.save_zarr(GRID, ["speedup"], precious.parent, force=True)
    aside = tmp_path / "other.partial.zarr"
    precious.parent.rename(aside)
    with pytest.raises(lm.InputError, match="is a directory"):
        chunked.save_zarr(GRID, ["speedup"], tmp_path / "other.zarr", force=True)
    assert (aside / "thesis.tex").read_text() == "years of work"


def test_an_error_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = Grid.of({"model": MODEL, "hardware": MACHINE, "batch": [1, 2]})
    path = tmp_path / "sweep.zarr"
    chunked.save_zarr(grid, ["speedup"], path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(chunked._Work, "write", full)
    with pytest.raises(lm.InputError, match="No space left"):
        chunked.save_zarr(grid, ["tpot"], path, force=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["sweep.zarr"]
    with xarray.open_zarr(path) as read:
        assert set(read) == {"speedup"}


@pytest.mark.parametrize(("suffix", "enough"), [("csv", 5e7), ("zarr", 2e6)])  # bytes of more than one piece
def test_control_c_leaves_what_is_complete(tmp_path: Path, suffix: str, enough: float) -> None:
    path = tmp_path / f"sweep.{suffix}"
    command = [sys.executable, "-m", "latency_model", "sweep", "-b", "1:50000", "-c", "0:60000:2", "-k", "0:8"]
    partial = save.partial_path(path)
    with subprocess.Popen(
        [*command, "--quantity", "speedup", "--yes", "-o", str(path)], stderr=subprocess.PIPE, text=True
    ) as sweeping:
        give_up = time.monotonic() + 60
        while size_of(tmp_path) < enough and time.monotonic() < give_up:
            time.sleep(0.05)
        sweeping.send_signal(signal.SIGINT)
        _, printed = sweeping.communicate(timeout=60)
    assert sweeping.returncode == 1
    assert partial.name in printed
    assert "Traceback" not in printed
    assert [entry.name for entry in tmp_path.iterdir()] == [partial.name]
    if suffix == "zarr":
        with xarray.open_zarr(partial) as read:
            first = read.speedup[0, :3].values.ravel()
            assert np.isnan(read.speedup[-1]).all()
    else:
        first = [float(line.split(",")[-1]) for line in partial.read_text().splitlines()[1:28]]
    example = {"draft": "eagle3", "acceptance": lm.Acceptance.parse(".70,.62,.60,.58")}
    expected = lm.sweep(MODEL, MACHINE, **example, batch=1, context=[0, 2, 4])
    np.testing.assert_allclose(first, expected.speedup.values.ravel(), rtol=1e-12)


def size_of(folder: Path) -> int:
    """Bytes of the files below a folder that another process writes to."""
    total = 0
    for file in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a draft that was renamed meanwhile
            total += file.stat().st_size
    return total


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ("tcp://127.0.0.1:9", "no scheduler answers at 'tcp://127.0.0.1:9'"),
        ("nonsense://x", "no scheduler answers at 'nonsense://x'"),
        (7, "no scheduler answers at 7"),
    ],
)
def test_a_cluster_that_is_not_there(monkeypatch: pytest.MonkeyPatch, where: object, sentence: str) -> None:
    monkeypatch.setattr(cluster, "PATIENCE", 1)
    with pytest.raises(lm.InputError, match=sentence):
        lm.sweep(MODEL, MACHINE, cluster=where)


def test_a_cluster_without_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "PATIENCE", 1)
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0", silence_logs=50) as empty,
        pytest.raises(lm.InputError, match="has no workers"),
    ):
        lm.sweep(MODEL, MACHINE, cluster=empty.scheduler_address)


@pytest.mark.parametrize("name", ["sweep.csv", "sweep.html"])
def test_what_a_cluster_does_not_write(tmp_path: Path, name: str) -> None:
    result = CliRunner().invoke(main, ["sweep", "--cluster", "local", "-o", str(tmp_path / name)])
    assert result.exit_code == 1
    assert "a cluster does not write" in result.output
