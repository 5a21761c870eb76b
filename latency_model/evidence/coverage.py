"""How often a measurement lies in the 80 % interval of its prediction, and what the intervals must hold for that.

Three sets of rows that no constant was fitted to: kernels kept aside (their scores are in the profiles), served runs
of models left out of the fit of host times (extra ``silicon``), and published measurements (``published/``).
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from latency_model.costs.step import Scales, step_cost
from latency_model.costs.uncertainty import INTERVAL_80, ModelErrors, log_deviation, uncertain_constants
from latency_model.evidence.served import Host, Kernels, Run, kernel_times, leave_one_model_out, predict_tpot
from latency_model.evidence.served_page import served_groups
from latency_model.specs.hardware import hardware_names, load_hardware
from latency_model.specs.profile import OPERATIONS

__all__ = [
    "Coverage",
    "Served",
    "constant_deviations",
    "coverage_lines",
    "covered_text",
    "hits",
    "kernel_coverage",
    "recorded_coverage",
    "scatter",
    "served_coverage",
    "served_kind_errors",
    "step_kind_errors",
]

FloatArray = NDArray[np.floating[Any]]

RECORD = Path(__file__).parent / "served_coverage.csv"
RECORD_HEAD = "# share of served runs inside the 80 % interval of their prediction; written by evidence/refit.py"

#: Configurations with fewer runs say nothing about how their runs differ.
FEWEST_RUNS = 5
#: Where the constants of a device come from when its own are replaced, and the kind that stands for.
REPLACEMENTS = {"transferred": "h100-sxm", "assumed": "untuned"}
#: Models whose decode steps are predicted with replaced constants.
DECODED = ("Qwen3-8B", "Qwen3-30B-A3B", "Meta-Llama-3.1-70B")
_REPLACED = 'extends = "{device}"\n[efficiency]\nfrom = "{source}"\ntransfer_error = 0.0\n'


class Coverage(NamedTuple):
    """Measurements of one kind, and the share of them inside the 80 % intervals of their predictions [1]."""

    name: str
    rows: int
    share: float


def kernel_coverage() -> list[Coverage]:
    """Kernels kept aside when the constants of profiles were fitted, by operation.

    >>> kernel_coverage()[0].name
    'gemm'
    """
    profiles = [load_hardware(name) for name in hardware_names()]
    blocks = [
        (key[-2], block)
        for profile in profiles
        for key, block in itertools.chain(profile.efficiencies.items(), profile.engine_efficiencies.items())
    ]
    found = []
    for operation in OPERATIONS:
        fits = [block.fit for kind, block in blocks if kind == operation and block.fit is not None]
        if rows := sum(fit.held_out for fit in fits):
            inside = sum(fit.held_out * fit.coverage for fit in fits)
            found.append(Coverage(operation.replace("_", " "), rows, inside / rows))
    return found


def constant_deviations(kernels: Kernels, hosts: Mapping[str, Host]) -> FloatArray:
    """Standard deviation of ln(time per token) from the constants of profile and engine, shape [runs] [1]."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, run in enumerate(kernels.runs):
        groups.setdefault((run.model, run.device, run.weights, run.layout, run.engine), []).append(index)
    deviations = np.empty(len(kernels.runs))
    for indices in groups.values():
        runs = [kernels.runs[index] for index in indices]
        deviations[indices] = _group_deviations(runs, kernels.prompts[indices], hosts[runs[0].engine].spread)
    return deviations


def _group_deviations(runs: Sequence[Run], prompts: FloatArray, spread: float) -> FloatArray:
    """The same for runs that differ in their lengths only."""
    first = runs[0]
    batch, prompt, output = (np.array([getattr(r, n) for r in runs], float) for n in ("batch", "prompt", "output"))
    common: dict[str, Any] = {
        "parallelism": first.layout,
        "dtypes": {"weights": first.weights, "allow_fallback": True},
        "engine": first.engine,
    }
    decode = step_cost(first.model, first.device, batch=batch, context=prompt + output / 2.0, **common)
    prefill = step_cost(
        first.model,
        first.device,
        batch=first.layout.dp,
        context=0,
        tokens_per_sequence=prompt,
        prefill=True,
        **common,
    )

    def tpot(scales: Scales) -> FloatArray:
        return decode.scaled_time(scales) + spread * prompts * prefill.scaled_time(scales)

    return log_deviation(tpot, uncertain_constants((decode, prefill), decode.setting))


def scatter(kernels: Kernels, predicted: FloatArray, deviations: FloatArray) -> ModelErrors:
    """What intervals need beside the constants so that 80 % of the runs lie inside.

    A configuration is one model in one number format on one layout, device and engine.  How its runs scatter about
    their median is what one step errs against another; what is missing beside that is shared by the configuration.
    """
    known = np.isfinite(predicted)
    residuals = np.log(predicted / kernels.measured)
    configurations: dict[tuple[object, ...], list[int]] = {}
    for index in map(int, np.flatnonzero(known)):
        run = kernels.runs[index]
        configurations.setdefault((run.model, run.device, run.weights, run.layout, run.engine), []).append(index)
    apart = [
        residuals[runs] - np.median(residuals[runs]) for runs in configurations.values() if len(runs) >= FEWEST_RUNS
    ]
    own = float(np.quantile(np.abs(np.concatenate(apart)), 0.8)) / INTERVAL_80
    missing = (residuals[known] / INTERVAL_80) ** 2 - deviations[known] ** 2 - own**2
    return ModelErrors(common=float(np.sqrt(max(np.quantile(missing, 0.8), 0.0))), own=own)


def hits(kernels: Kernels, predicted: FloatArray, deviations: FloatArray) -> FloatArray:
    """1 where a run lies in its 80 % interval, 0 where not, NaN without a prediction, shape [runs].

    Nothing of the prediction or its width has seen the run's model: host times and the errors of the step model come
    from the other models.
    """
    models, known = kernels.column("model"), np.isfinite(predicted)
    found = np.full(len(kernels.runs), np.nan)
    for model in np.unique(models):
        mine = models == model
        errors = scatter(kernels.where(~mine), predicted[~mine], deviations[~mine])
        width = INTERVAL_80 * np.sqrt(deviations[mine] ** 2 + errors.common**2 + errors.own**2)
        found[mine] = np.abs(np.log(predicted[mine] / kernels.measured[mine])) <= width
    return np.where(known, found, np.nan)


def step_kind_errors() -> dict[str, float]:
    """How far decode steps move when the constants of a device are replaced, by the kind that stands for [1].

    Root mean square of ln(replaced / own) over the devices whose constants were measured, one vote each, three models,
    batches 1 to 256 and two contexts.
    """
    measured = [name for name in hardware_names() if load_hardware(name).efficiency("gemm", "bf16").kind == "measured"]
    errors = {}
    with TemporaryDirectory() as folder:
        for kind, source in REPLACEMENTS.items():
            moved = [
                np.log(_decode(model, _replaced(device, source, Path(folder))) / _decode(model, device))
                for device in measured
                if device != source
                for model in DECODED
            ]
            errors[kind] = float(np.sqrt(np.mean(np.square(moved))))
    return errors


def _decode(model: str, device: str) -> FloatArray:
    return step_cost(model, device, batch=np.array([1, 8, 64, 256])[:, None], context=[1024, 8192]).time


def served_kind_errors(kernels: Kernels, hosts: dict[str, Host]) -> dict[str, float]:
    """The same for the time per token of served runs, one vote a run: more number formats, and links [1]."""
    own = predict_tpot(kernels, hosts)
    errors = {}
    with TemporaryDirectory() as folder:
        for kind, source in REPLACEMENTS.items():
            chosen = kernels.column("device") != source
            here = kernels.where(chosen)
            runs = [evolve(run, device=_replaced(run.device, source, Path(folder))) for run in here.runs]
            replaced = kernel_times(runs)
            # kernel_times groups runs as it did for these, so their order is the same.
            moved = predict_tpot(replaced, hosts) / own[chosen]
            errors[kind] = float(np.sqrt(np.mean(np.log(moved) ** 2)))
    return errors


def _replaced(device: str, source: str, folder: Path) -> str:
    """A profile of a device with the efficiencies of another or of a set."""
    path = folder / f"{device}-as-{source}.toml"
    if not path.exists():
        path.write_text(_REPLACED.format(device=device, source=source), encoding="utf-8")
    return str(path)


@frozen(kw_only=True)
class Served:
    """What served runs say about intervals."""

    errors: ModelErrors
    kinds: Mapping[str, float]  # :func:`served_kind_errors` [1]
    groups: tuple[Coverage, ...]


def served_coverage(kernels: Kernels, hosts: dict[str, Host]) -> Served:
    """Measure the errors of the step model and of kinds, and how often intervals that hold them hold the runs."""
    predicted, deviations = leave_one_model_out(kernels, hosts), constant_deviations(kernels, hosts)
    found = hits(kernels, predicted, deviations)
    known = np.isfinite(found)
    everything = ("every run", np.ones(len(kernels.runs), dtype=bool))
    groups = [
        Coverage(name, int((chosen & known).sum()), float(np.mean(found[chosen & known])))
        for name, chosen in (everything, *served_groups(kernels))
        if (chosen & known).any()
    ]
    return Served(
        errors=scatter(kernels, predicted, deviations), kinds=served_kind_errors(kernels, hosts), groups=tuple(groups)
    )


def recorded_coverage() -> list[Coverage]:
    """The groups of :func:`served_coverage` as the last refit wrote them down.

    >>> recorded_coverage()[0].name
    'every run'
    """
    with RECORD.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return [Coverage(row["group"], int(row["runs"]), float(row["share"])) for row in rows]


def covered_text(groups: Iterable[Coverage]) -> str:
    """Groups as :data:`RECORD` holds them."""
    lines = (f"{group.name!r},{group.rows},{group.share:.4f}".replace("'", '"') for group in groups)
    return "\n".join((RECORD_HEAD, "group,runs,share", *lines)) + "\n"


def coverage_lines(served: Served) -> Iterator[str]:
    """The section on intervals of the page about measured silicon."""
    errors, kinds = served.errors, served.kinds
    yield from ("", "## Intervals", "")
    yield (
        "Share of rows that lie in the 80 % interval of their prediction. Kernels: rows kept aside, with the "
        "uncertainty fitted on the others."
    )
    yield from ("", "| kernels | rows | in 80 % |", "| --- | --- | --- |")
    yield from (_line(each) for each in kernel_coverage())
    yield ""
    yield (
        "Served runs: nothing of a prediction or of its width has seen the model it is for. Beside the uncertain "
        f"constants, the time of a step needs {errors.common:.2f} for what all steps of one model, device and engine "
        f"share and {errors.own:.2f} for one step against another (standard deviations of the logarithm). A speedup "
        "needs the second only."
    )
    yield from ("", "| runs of | rows | in 80 % |", "| --- | --- | --- |")
    yield from (_line(each) for each in served.groups)
    yield ""
    yield (
        "How far predicted times move when the constants of a measured device are replaced (root mean square of the "
        "logarithm). The larger of each row is what profiles are less certain by that take constants over, or assume "
        "them."
    )
    steps = step_kind_errors()
    yield from ("", "| kind | replaced by those of | decode steps | served runs |", "| --- | --- | --- | --- |")
    for kind, source in REPLACEMENTS.items():
        yield f"| {kind} | {source} | {steps[kind]:.2f} | {kinds[kind]:.2f} |"


def _line(coverage: Coverage) -> str:
    return f"| {coverage.name} | {coverage.rows:,} | {coverage.share:.0%} |"
