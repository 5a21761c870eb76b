"""A page with the residuals of a calibration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latency_model.views.save import whole_file

__all__ = ["write_residuals"]


def write_residuals(
    path: str | Path,
    *,
    measured: NDArray[np.floating[Any]],
    error: NDArray[np.floating[Any]],
    before: NDArray[np.floating[Any]],
    labels: Sequence[str],
) -> None:
    """Write relative errors against measured times, before and after a fit, as a self-contained page.

    Parameters
    ----------
    path
        HTML file to write.
    measured
        Times, shape [points] [s].
    error, before
        Relative errors after and before the fit, shape [points] [1].
    labels
        What each point is.
    """
    from plotly.graph_objects import Figure, Scatter

    figure = Figure()
    for name, errors in (("base profile", before), ("after the fit", error)):
        figure.add_trace(Scatter(x=1e3 * measured, y=100.0 * errors, text=list(labels), mode="markers", name=name))
    figure.update_xaxes(title="measured [ms]", type="log")
    figure.update_yaxes(title="predicted / measured - 1 [%]", zeroline=True)
    with whole_file(Path(path), force=True) as beside:
        beside.write_text(figure.to_html(include_plotlyjs=True), encoding="utf-8")
