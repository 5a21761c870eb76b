"""Refit the measured constants of every profile: ``python -m latency_model.evidence.refit`` (extra ``silicon``).

Reads the kernel tables of aiconfigurator-core, fits each (device, engine, operation, number format), then host times
and launch shares of engines with the profiles just written, and writes the marked parts of ``hardware_profiles/*.toml``
and the page ``docs/silicon.md``.  The same package gives the same files; ``--check`` writes nothing and says whether
they are up to date.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from latency_model.evidence.coverage import RECORD, coverage_lines, covered_text, served_coverage
from latency_model.evidence.fit import COLLECTIVES, Bounds, Errors, Fit, fit_rows, work_of
from latency_model.evidence.served import (
    Host,
    Kernels,
    coverage,
    fit_hosts,
    leave_one_model_out,
    prediction_errors,
    usable_runs,
)
from latency_model.evidence.served_page import served_lines
from latency_model.evidence.silicon import DEVICES, ENGINES, READERS, Rows, package_version
from latency_model.evidence.silicon_page import IRREGULAR, silicon_page
from latency_model.specs.engine import forget_engines
from latency_model.specs.hardware import Efficiency, load_hardware, profiles_directory
from latency_model.specs.hardware_text import efficiency_text, quantity_text, record_text
from latency_model.specs.profile import ANY_DTYPE, STEP_TIMES, FitRecord
from latency_model.specs.quantity import Quantity

__all__ = ["bounds_of", "efficiency_of", "fit_everything", "main", "stored_fits", "with_blocks"]

#: Day of the fit that is committed; it is part of every block.
DATE = "2026-12-01"
#: Fewer rows fit nothing.
FEWEST_ROWS = 40
BEGIN = "# Measured blocks, written by `python -m latency_model.evidence.refit`: change them there."
END = "# End of the measured blocks."
ENGINE_NAMES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}
PACKAGE = "aiconfigurator-core {version} (Apache-2.0), https://github.com/ai-dynamo/aiconfigurator"
#: One sigma of a constant that the rows push to a bound: they do not tell it.
UNTOLD = 0.5
#: An engine gets a block of its own where the common one's median error is this much above that of its own [1].
CLEARLY_WORSE = 0.02
#: Largest fraction of the 16-bit peak of kernels that multiply in 8 bits where they can.
MOST_OF_16_BITS = 2.0
#: Largest fraction of the peak where products and exponentials partly run at once.
MOST_HIDDEN = 1.3


def bounds_of(rows: Rows) -> Bounds:
    """Limits of the constants of an operation.

    Grouped-query decode kernels hardly compute, so their fraction of the peak is kept where latent attention, which
    tells it, lies on Hopper and Blackwell; prefill kernels hide part of the softmax behind products, and may reach more
    than the peak of both in turn; mxfp4 is counted in 16 bits and multiplied in 8 on Blackwell; collectives pass slowly
    from latency to bandwidth, with a sharpness below 1.
    """
    if rows.operation == "attention_decode":
        return Bounds(compute=(0.7, 0.9))
    if rows.operation == "attention_prefill":
        return Bounds(compute=(0.02, MOST_HIDDEN))
    if rows.operation == "moe_mxfp4":
        return Bounds(compute=(0.02, MOST_OF_16_BITS))
    if rows.operation in COLLECTIVES:
        return Bounds(sharpness=(0.3, 3.0))
    return Bounds()


def fit_everything(devices: Iterable[str] = DEVICES) -> Iterator[Fit]:
    """Fit every set of rows with enough of them."""
    for device in devices:
        for engine in ENGINES:
            for reader in READERS:
                for rows in reader(device, engine):
                    if len(rows) >= FEWEST_ROWS:
                        yield fit_rows(rows, bounds_of(rows))


def stored_fits(fits: Iterable[Fit]) -> dict[tuple[str, str, str], Fit]:
    """The common fit of each (device, operation, format): vLLM's where it was measured, else the next engine's."""
    chosen: dict[tuple[str, str, str], Fit] = {}
    for fit in fits:
        if fit.rows.stored and (fit.rows.dtype == ANY_DTYPE or fit.rows.dtype in load_hardware(fit.rows.device).peaks):
            chosen.setdefault((fit.rows.device, fit.rows.operation, fit.rows.dtype), fit)
    return chosen


def engine_fits(fits: Iterable[Fit]) -> dict[tuple[str, str, str, str], Fit]:
    """The fits of other engines that common constants serve clearly worse: (device, engine, operation, format)."""
    fits = list(fits)
    common = stored_fits(fits)
    found: dict[tuple[str, str, str, str], Fit] = {}
    for fit in fits:
        rows = fit.rows
        base = common.get((rows.device, rows.operation, rows.dtype))
        if rows.stored and base is not None and base.rows.engine != rows.engine:
            crossed = Errors.of(work_of(rows), base.constants)
            if crossed.median > fit.errors.median + CLEARLY_WORSE:
                found.setdefault((rows.device, rows.engine, rows.operation, rows.dtype), fit)
    return found


def efficiency_of(fit: Fit) -> Efficiency:
    """Turn a fit into the block of a profile."""
    rows, constants = fit.rows, fit.constants
    sigma = dict(zip(("compute", "memory", "overhead"), fit.uncertainty, strict=False))
    untold = [name for name in fit.at_bound if name in sigma]
    remarks = [f"{rows.table_format}, kernel {rows.kernel}"]
    if untold:
        remarks.append(f"the rows do not tell {' and '.join(untold)}, kept at a bound")
    if fit.errors.p90 > IRREGULAR:
        remarks.append("irregular kernels: one set of constants misses some shapes by far")
    if rows.operation == "attention_prefill":
        remarks.append("heads of 128 and no window; other sizes are on the page of the documentation")
    return Efficiency(
        compute=constants.compute,
        memory=constants.memory,
        overhead=constants.overhead,
        sharpness=constants.sharpness,
        tail=constants.tail,
        **{f"{name}_uncertainty": max(value, UNTOLD if name in untold else 0.0) for name, value in sigma.items()},
        kind="measured",
        source=_source(rows),
        note="; ".join(remarks),
        fit=_record(fit),
    )


def rounding_of(fit: Fit) -> Efficiency | None:
    """Turn a fit of products that round their inputs into the block of that pass; None where they do not."""
    if not fit.rows.rounded.any():
        return None
    error = fit.uncertainty[-1]
    return Efficiency(
        compute=1.0,
        memory=fit.constants.quantise,
        overhead=0.0,
        sharpness=math.inf,
        compute_uncertainty=error,
        memory_uncertainty=error,
        overhead_uncertainty=error,
        kind="measured",
        source=_source(fit.rows),
        note=f"fitted and timed with products in {fit.rows.table_format}",
        fit=_record(fit),
    )


def _source(rows: Rows) -> str:
    return f"fit to {ENGINE_NAMES[rows.engine]} {rows.version} tables of {_package()}"


def _record(fit: Fit) -> FitRecord:
    return FitRecord(
        rows=fit.fitted_on,
        held_out=fit.errors.rows,
        median_error=round(fit.errors.median, 4),
        p90_error=round(fit.errors.p90, 4),
        coverage=round(fit.coverage, 2),
        date=DATE,
    )


def _package() -> str:
    return PACKAGE.format(version=package_version())


def profile_tables(profile: str, fits: list[Fit]) -> Iterator[str]:
    """Every measured table of a profile, common ones first."""
    common = {key[1:]: fit for key, fit in stored_fits(fits).items() if key[0] == profile}
    single = {key[1:]: fit for key, fit in engine_fits(fits).items() if key[0] == profile}
    both = (*sorted(common.items()), *sorted(single.items()))
    for (*engine, operation, dtype), fit in both:
        yield efficiency_text(f"efficiency.{'.'.join((*engine, operation, dtype))}", efficiency_of(fit))
        rounding = rounding_of(fit)
        if rounding is not None:
            yield efficiency_text(f"efficiency.{'.'.join((*engine, 'quantise', dtype))}", rounding)


def engine_tables(hosts: dict[str, Host], kernels: Kernels) -> Iterator[str]:
    """Every measured table of the engines' file."""
    apart, engines = leave_one_model_out(kernels, hosts), kernels.column("engine")
    for engine, host in hosts.items():
        mine = engines == engine
        errors = prediction_errors(apart[mine], kernels.measured[mine])
        told = {"source": "served", "kind": "measured"}
        joint = f"{host.host_error:.0%} is the error of the host times of a step together"
        for part in STEP_TIMES:
            time = Quantity(value=getattr(host, part), uncertainty=_two(host.host_error), note=joint, **told)
            yield quantity_text(f"{engine}.{part}", time, "time")
        share = Quantity(value=host.launch_share, uncertainty=_two(host.launch_share_error), **told)
        yield quantity_text(f"{engine}.launch_share", share, "ratio")
        record = FitRecord(
            rows=host.runs,
            held_out=errors.rows,
            median_error=round(errors.median, 4),
            p90_error=round(errors.p90, 4),
            coverage=round(coverage(apart[mine], kernels.measured[mine], host.uncertainty), 2),
            date=DATE,
        )
        yield record_text(f"{engine}.fit", record)


def _two(value: float) -> float:
    return float(f"{value:.2g}")


def with_blocks(text: str, tables: Iterable[str]) -> str:
    """Replace the marked part of a file's text; a file without one gets it before its sources."""
    written = "\n".join(table.rstrip() for table in tables)
    part = f"{BEGIN}\n{written}\n\n{END}\n"
    marked = re.compile(rf"{re.escape(BEGIN)}\n.*?{re.escape(END)}\n", re.DOTALL)
    if marked.search(text):
        return marked.sub(lambda _: part, text)
    return text.replace("\n[sources]\n", f"\n{part}\n[sources]\n", 1)


def main(arguments: list[str] | None = None) -> int:
    """Write or check the files; 1 when ``--check`` finds one out of date."""
    parser = argparse.ArgumentParser(prog="python -m latency_model.evidence.refit", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is out of date")
    parser.add_argument("--page", type=Path, default=profiles_directory().parent / "docs" / "silicon.md")
    options = parser.parse_args(arguments)
    fits = list(fit_everything())
    stale = []
    for profile in DEVICES.values():
        path = profiles_directory() / f"{profile}.toml"
        text = with_blocks(path.read_text(encoding="utf-8"), profile_tables(profile, fits))
        stale += _settle(path, text, write=not options.check)
    # Served runs are predicted with the profiles just written.
    kernels, dropped = usable_runs()
    hosts = fit_hosts(kernels)
    path = profiles_directory() / "engines.toml"
    text = with_blocks(path.read_text(encoding="utf-8"), engine_tables(hosts, kernels))
    stale += _settle(path, text, write=not options.check)
    forget_engines()  # intervals hold the uncertainties just written
    covered = served_coverage(kernels, hosts)
    stale += _settle(RECORD, covered_text(covered.groups), write=not options.check)
    page = [
        silicon_page(fits, date=DATE, package=_package()),
        *served_lines(kernels, hosts, dropped),
        *coverage_lines(covered),
    ]
    stale += _settle(options.page, "\n".join(page) + "\n", write=not options.check)
    return int(options.check and bool(stale))


def _settle(path: Path, text: str, *, write: bool) -> list[Path]:
    """Write a file that is out of date, or only say so."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return []
    if write:
        _replace(path, text)
    sys.stdout.write(f"{path}: {'written' if write else 'out of date'}\n")
    return [path]


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)


if __name__ == "__main__":
    raise SystemExit(main())
