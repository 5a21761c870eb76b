"""What a replay hands back: predicted beside measured, with the errors and where the numbers come from."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from attrs import field, frozen

from latency_model.costs.uncertainty import INTERVAL_80, Estimate
from latency_model.specs.loader import load_model
from latency_model.specs.model import ModelArchitecture

__all__ = ["Group", "Row", "Table", "published_model", "read_table"]

DATA = Path(__file__).parent / "data"


@frozen(kw_only=True)
class Table:
    """A published table as it lies in ``data/``: its rows, all texts, and the comment lines that name its source."""

    rows: tuple[dict[str, str], ...]
    sources: tuple[str, ...]


def read_table(name: str) -> Table:
    """Read ``data/<name>.csv``.

    >>> read_table("chen_chinchilla").rows[0]["speedup_x"]
    '1.92'
    """
    lines = (DATA / f"{name}.csv").read_text(encoding="utf-8").splitlines()
    notes = tuple(line.lstrip("# ").removeprefix("source: ") for line in lines if line.startswith("#"))
    return Table(rows=tuple(csv.DictReader(line for line in lines if not line.startswith("#"))), sources=notes)


def published_model(name: str) -> ModelArchitecture:
    """A model of these tables: its config beside the data, or a bundled one.

    >>> published_model("Qwen2-0.5B").total_parameters
    494032768
    """
    config = DATA / "models" / f"{name}.json"
    return load_model(config if config.exists() else name)


@frozen(kw_only=True)
class Row:
    """One predicted number beside the measured one.

    Parameters
    ----------
    case : str
        What was measured, short enough for a table.
    predicted, measured : float
        In the unit of the group.
    series, depth : str, int
        Rows of one series differ only in how many tokens are drafted: ``depth``.
    deviation : float
        Standard deviation of the prediction's logarithm [1]; not a number where nothing uncertain goes into it.
    """

    case: str
    predicted: float = field(converter=float)
    measured: float = field(converter=float)
    series: str = ""
    depth: int = 0
    deviation: float = field(default=math.nan, converter=float)

    @classmethod
    def of(
        cls,
        estimate: Estimate,
        *,
        case: str,
        measured: float | str,
        unit: float = 1.0,
        series: str = "",
        depth: int = 0,
    ) -> Row:
        """A row of an estimate, in multiples of ``unit``."""
        return cls(
            case=case,
            predicted=estimate.best / unit,
            measured=measured,
            series=series,
            depth=depth,
            deviation=estimate.deviation,
        )

    @property
    def inside(self) -> bool:
        """Whether the measured value lies in the 80 % interval of the prediction."""
        return abs(math.log(self.predicted / self.measured)) <= INTERVAL_80 * self.deviation

    @property
    def error(self) -> float:
        """Relative error of the prediction [1]; 0.1 is 10 % too high."""
        return self.predicted / self.measured - 1.0


@frozen(kw_only=True)
class Group:
    """Rows of one kind with their errors.

    Parameters
    ----------
    name : str
        Name on the command line.
    quantity : str
        What is compared, unit included.
    rows : tuple of Row
        Predicted beside measured.
    sources, assumptions : tuple of str
        Where the measurements come from, and what was assumed or fitted to replay them.
    skipped : tuple of (str, str)
        Cases left out, each with the reason.
    gain : bool
        Whether the numbers are speedups, so that falling on the right side of 1 counts.
    """

    name: str
    quantity: str
    rows: tuple[Row, ...]
    sources: tuple[str, ...]
    assumptions: tuple[str, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    gain: bool = False

    def _quantile(self, errors: Iterable[float], share: float) -> float:
        return float(np.quantile(np.fromiter(errors, float), share))

    @property
    def median_error(self) -> float:
        """Median of the absolute relative error [1]."""
        return self._quantile((abs(row.error) for row in self.rows), 0.5)

    @property
    def p90_error(self) -> float:
        """90th percentile of the absolute relative error [1]."""
        return self._quantile((abs(row.error) for row in self.rows), 0.9)

    @property
    def bias(self) -> float:
        """Median of the signed relative error: above 0 the model promises too much of the quantity [1]."""
        return self._quantile((row.error for row in self.rows), 0.5)

    @property
    def worst(self) -> Row:
        """The row with the largest absolute relative error."""
        return max(self.rows, key=lambda row: abs(row.error))

    @property
    def coverage(self) -> float:
        """Share of the rows with an interval that lie in it: 80 % if all is well [1]; NaN where no row has one."""
        inside = [row.inside for row in self.rows if not math.isnan(row.deviation)]
        return sum(inside) / len(inside) if inside else math.nan

    @property
    def signs_right(self) -> float:
        """Share of speedups on the right side of 1, those measured at exactly 1 left out [1]; NaN for other groups."""
        decided = [row for row in self.rows if row.measured != 1.0] if self.gain else []
        right = [(row.predicted > 1.0) == (row.measured > 1.0) for row in decided]
        return sum(right) / len(right) if right else math.nan

    @property
    def depths(self) -> dict[str, tuple[int, int]]:
        """Predicted and measured best depth of every series with at least two depths."""
        series: dict[str, list[Row]] = {}
        for row in self.rows:
            if row.series:
                series.setdefault(row.series, []).append(row)
        return {
            name: (
                max(rows, key=lambda row: row.predicted).depth,
                max(rows, key=lambda row: row.measured).depth,
            )
            for name, rows in series.items()
            if len({row.depth for row in rows}) > 1
        }

    @property
    def depths_right(self) -> float:
        """Share of series whose best depth is predicted within one [1]; NaN where there are none."""
        near = [abs(predicted - measured) <= 1 for predicted, measured in self.depths.values()]
        return sum(near) / len(near) if near else math.nan
