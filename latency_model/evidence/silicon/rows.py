"""Measured executions of one kind of kernel, with the FLOPs and bytes the cost model counts for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from latency_model.evidence.silicon.tables import DEVICES, Table

__all__ = ["BoolArray", "FloatArray", "Rows", "most_used_kernel"]

FloatArray = NDArray[np.floating[Any]]
BoolArray = NDArray[np.bool_]


@frozen(kw_only=True, eq=False)
class Rows:
    """What was measured, beside what is counted.

    Parameters
    ----------
    device : str
        Profile of the device.
    engine, version : str
        Engine whose kernel ran.
    operation, dtype : str
        Block of the profile these rows calibrate.
    table_format : str
        How the table calls the number format.
    kernel : str
        Kernel the table names.
    flops, traffic : ndarray
        FLOPs [FLOP] and bytes [B] as :mod:`latency_model.costs.counts` counts them; for collectives ``flops`` is 0
        and ``traffic`` crosses the link.
    seconds : ndarray
        Measured time [s].
    exponentials : ndarray
        Exponentials beside each FLOP [1/FLOP].
    piece : ndarray
        FLOPs of the longest piece that one core has to do alone [FLOP].
    rounded : ndarray
        Bytes of a pass before the kernel, timed with it, that rounds its inputs [B].
    stored : bool
        Whether the fit goes into the profile, or is only reported.
    subsets : mapping
        Rows scored on their own as well.
    dropped : mapping
        Reason: rows left out for it.
    """

    device: str
    engine: str
    version: str
    operation: str
    dtype: str
    table_format: str
    kernel: str
    flops: FloatArray
    traffic: FloatArray
    seconds: FloatArray
    exponentials: FloatArray = field(default=0.0, converter=np.asarray)
    piece: FloatArray = field(default=0.0, converter=np.asarray)
    rounded: FloatArray = field(default=0.0, converter=np.asarray)
    stored: bool = True
    subsets: Mapping[str, BoolArray] = field(factory=dict)
    dropped: Mapping[str, int] = field(factory=dict)

    def __len__(self) -> int:
        return len(self.seconds)

    @classmethod
    def of(
        cls, table: Table, *, flops: FloatArray, traffic: FloatArray, milliseconds: FloatArray, **facts: Any
    ) -> Rows:
        """Rows of a table whose times are in milliseconds, as most are."""
        return cls(
            device=DEVICES[table.device],
            engine=table.engine,
            version=table.version,
            flops=flops,
            traffic=traffic,
            seconds=milliseconds * 1e-3,
            **facts,
        )

    def where(self, mask: BoolArray) -> Rows:
        """Keep some rows."""
        arrays = ("flops", "traffic", "seconds", "exponentials", "piece", "rounded")
        kept: dict[str, Any] = {name: np.broadcast_to(getattr(self, name), self.seconds.shape)[mask] for name in arrays}
        return evolve(self, subsets={name: chosen[mask] for name, chosen in self.subsets.items()}, **kept)


def most_used_kernel(table: Table) -> tuple[Table, str, int]:
    """Rows of the kernel with the most rows, its name, and how many rows of other kernels are left out.

    Engines switch kernels by shape; the rarer ones are other programs with other constants.
    """
    if len(table) == 0:
        return table, "", 0
    names, counts = np.unique(table["kernel_source"], return_counts=True)
    kernel = str(names[np.argmax(counts)])
    kept = table.where(table["kernel_source"] == kernel)
    return kept, kernel, len(table) - len(kept)
