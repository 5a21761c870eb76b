"""Results as CSV files, and the tables of the documentation, made of nothing but those files."""

from __future__ import annotations

import csv
from typing import Any

import numpy as np
from numpy.typing import NDArray

from moe_routing.analyse import LONGEST_FITTED
from moe_routing.runs import RESULTS, RUNS

PREDICTIONS = {
    "uniform": "nothing more",
    "popularity": "popularity",
    "equal": "ρ, s",
    "spread": "ρ, s, cv",
    "overlaps": "ρ, s from overlaps, popularity",
    "unions": "ρ, s, popularity",
}
"""What each prediction knows of the routing beyond E and k."""

EASY = 0.9  # share of the experts from which on nearly any model is right
NATS = np.log(2.0)

Columns = dict[str, NDArray[Any]]


def write_csv(table: str, rows: list[dict[str, Any]]) -> None:
    """Write one table of results."""
    with (RESULTS / f"{table}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _written(value) for name, value in row.items()} for row in rows)


def read_csv(table: str) -> Columns:
    """Columns of one table of results: numbers wherever all cells are."""
    with (RESULTS / f"{table}.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {name: _column([row[name] for row in rows]) for name in rows[0]}


def tables() -> dict[str, str]:
    """Every table of the documentation in Markdown, by its subject."""
    unions, overlaps = read_csv("unions"), read_csv("overlaps")
    several, fitted = unions["sequences"] > 1, unions["tokens"] <= LONGEST_FITTED
    hard = unions["measured"] < EASY * unions["experts"]
    return {
        "models": _models(read_csv("training"), read_csv("fits")),
        "errors": _errors(unions, several & fitted),
        "hard": _errors(unions, several & fitted & hard),
        "halves": _halves(unions, several & fitted),
        "longer": _errors(unions, ~fitted & ~several),
        "overlaps": _overlaps(overlaps),
    }


def _models(training: Columns, fits: Columns) -> str:
    header = ["run", "held-out bits per byte", "balance loss", "ρ", "s", "cv of popularity"]
    rows = []
    for run in RUNS:
        trained, layers = _only(training, training["run"] == run.name), _only(fits, fits["run"] == run.name)
        numbers = (layers[name] for name in ("persistence", "stickiness", "popularity_cv"))
        rows.append(
            [
                f"`{run.name}`",
                f"{trained['held_out_loss'].item() / NATS:.2f}",
                f"{trained['balance'].item():.2f}",
                *(" ".join(f"{value:.3f}".lstrip("0") for value in column) for column in numbers),
            ]
        )
    return _markdown(header, rows)


def _errors(unions: Columns, where: NDArray[np.bool_]) -> str:
    def cells(part: Columns) -> list[str]:
        return [_error(part[name], part["measured"]) for name in PREDICTIONS]

    return _by_run(["run", *PREDICTIONS.values()], unions, where, cells)


def _halves(unions: Columns, where: NDArray[np.bool_]) -> str:
    def cells(part: Columns) -> list[str]:
        first, second = part["first"], part["second"]
        both = np.concatenate([second, first])
        return [
            _error(np.concatenate([part["from_first"], part["from_second"]]), both),
            _error(np.concatenate([first, second]), both),
        ]

    return _by_run(["run", "fit to the other half", "measurement of the other half"], unions, where, cells)


def _overlaps(overlaps: Columns) -> str:
    lags = np.unique(overlaps["lag"])
    rows = []
    for run in RUNS:
        for name, title in (
            ("measured", "measured"),
            ("from_unions", "ρ, s from unions"),
            ("from_overlaps", "ρ, s from overlaps"),
        ):
            here = overlaps["run"] == run.name
            means = [overlaps[name][here & (overlaps["lag"] == lag)].mean() for lag in lags]
            rows.append([f"`{run.name}`", title, *(f"{mean:.3f}".lstrip("0") for mean in means)])
    return _markdown(["run", "overlap", *(f"lag {lag:.0f}" for lag in lags)], rows)


def _by_run(header: list[str], unions: Columns, where: NDArray[np.bool_], cells: Any) -> str:
    parts = ((run.name, _only(unions, where & (unions["run"] == run.name))) for run in RUNS)
    return _markdown(header, [[f"`{name}`", *cells(part)] for name, part in parts])


def _error(predicted: NDArray[np.float64], measured: NDArray[np.float64]) -> str:
    """Median and largest relative error [%]."""
    error = 100.0 * np.abs(predicted / measured - 1.0)
    return f"{np.median(error):.2f} / {error.max():.1f}"


def _only(columns: Columns, where: NDArray[np.bool_]) -> Columns:
    return {name: column[where] for name, column in columns.items()}


def _markdown(header: list[str], rows: list[list[str]]) -> str:
    rules = ["---", *("---:" for _ in header[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, rules, *rows))


def _written(value: Any) -> Any:
    return f"{value:.5f}" if isinstance(value, float) else value


def _column(cells: list[str]) -> NDArray[Any]:
    try:
        return np.array(cells, dtype=float)
    except ValueError:
        return np.array(cells)
