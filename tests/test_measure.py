"""A machine with known constants is measured right; real machines and torch are in ``tests/oracle``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import latency_model.evidence.measure.machine as machine_module
from latency_model.cli import main
from latency_model.errors import InputError
from latency_model.evidence.measure import measure
from latency_model.evidence.measure.machine import Case, Machine, Samples, time_cases
from latency_model.evidence.measure.measure import FITTED, fitted
from latency_model.formulas.roofline import roofline_time
from latency_model.specs.hardware import load_hardware
from latency_model.specs.hardware_text import write_hardware

PEAK, BANDWIDTH = 2e12, 5e10
#: Fraction of the peak, fraction of the bandwidth, overhead [s], sharpness.
TRUE = {
    "gemm": (1.0, 0.7, 2e-5, 1.5),
    "attention_decode": (0.2, 0.5, 5e-5, 1.2),
    "attention_prefill": (0.5, 0.6, 3e-5, 1.1),
    "moe": (0.6, 0.4, 2e-4, 2.0),
    "elementwise": (1.0, 0.6, 1e-5, 1.5),
}


def pretended(**changes: Any) -> Any:
    """What ``fitted`` asks of a machine."""
    known = {
        "dtype": "bf16",
        "is_gpu": False,
        "title": "A Machine (R) v2, 4 threads",
        "software": "torch 9 on Nowhere",
        "memory_capacity": 64e9,
    }
    return SimpleNamespace(**(known | changes))


def cases_and_times() -> tuple[list[Case], np.ndarray]:
    cases, times = [], []
    for operation, (compute, memory, overhead, sharpness) in TRUE.items():
        for work in np.geomspace(1e-6, 1e-2, 9):
            for ratio in (0.03, 1.0, 30.0):
                flops = 0.0 if operation == "elementwise" else PEAK * work * ratio
                cases.append(
                    Case(name="", operation=operation, run=time.time, flops=flops, traffic=BANDWIDTH * work / ratio)
                )
                times.append(
                    roofline_time(
                        flops,
                        BANDWIDTH * work / ratio,
                        peak_flops=compute * PEAK,
                        bandwidth=memory * BANDWIDTH,
                        overhead=overhead,
                        sharpness=sharpness,
                    )
                )
    ends = [("gemm", 1e13, 0.0, 1e13 / PEAK), ("memory", 0.0, 5e9, 5e9 / BANDWIDTH), ("launch", 0.0, 0.0, 4e-6)]
    for operation, flops, traffic, seconds in ends:
        cases.append(Case(name="", operation=operation, run=time.time, flops=flops, traffic=traffic))
        times.append(seconds)
    return cases, np.array(times)


def test_known_constants_come_back() -> None:
    cases, times = cases_and_times()
    noise = np.exp(0.02 * np.random.default_rng(0).standard_normal((15, times.size)))
    found = fitted(pretended(), cases, Samples(seconds=times * noise))
    assert found.passes == 15
    assert found.launch == pytest.approx(4e-6, rel=0.02)
    assert found.profile.peaks["bf16"].value == pytest.approx(PEAK, rel=0.05)
    assert found.profile.memory_bandwidth.value == pytest.approx(BANDWIDTH, rel=0.02)
    assert tuple(fit.operation for fit in found.fits) == FITTED
    for fit in found.fits:
        compute, memory, overhead, sharpness = TRUE[fit.operation]
        block = fit.efficiency
        assert np.median(np.abs(fit.errors)) < 0.02
        assert block.memory == pytest.approx(memory, rel=0.05)
        assert block.overhead == pytest.approx(overhead, rel=0.1)
        if fit.operation != "elementwise":  # has no arithmetic
            assert block.compute == pytest.approx(compute, rel=0.08)
            assert block.sharpness == pytest.approx(sharpness, rel=0.3)


def test_the_profile_survives_its_file_and_says_how_it_was_made(tmp_path: Path) -> None:
    cases, times = cases_and_times()
    profile = fitted(pretended(), cases, Samples(seconds=np.tile(times, (3, 1)))).profile
    write_hardware(profile, tmp_path / "my.toml")
    assert load_hardware(tmp_path / "my.toml") == profile
    assert profile.name == "a-machine-r-v2-4-threads-measured"
    assert {block.kind for block in profile.efficiencies.values()} == {"measured"}
    assert all("torch 9" in source for source in profile.sources)


def test_a_constant_no_case_depends_on_is_wholly_uncertain() -> None:
    cases, times = cases_and_times()
    slow = [case.operation == "moe" and case.flops / PEAK > 0.1 * case.traffic / BANDWIDTH for case in cases]
    kept = [place for place, left_out in enumerate(slow) if not left_out]
    chosen = [cases[place] for place in kept]
    found = fitted(pretended(), chosen, Samples(seconds=np.tile(times[kept], (3, 1))))
    moe = next(fit.efficiency for fit in found.fits if fit.operation == "moe")
    assert moe.compute_uncertainty == 2.0
    assert moe.memory_uncertainty < 0.1


class Metronome:
    """A machine whose every run takes as long as its case says."""

    torch = SimpleNamespace(inference_mode=nullcontext)

    def __init__(self) -> None:
        self.ran: list[str] = []

    def time(self, run: Callable[[], object], times: int) -> float:
        self.ran += [str(run())] * times
        return {"short": 1e-3, "long": 5e-3}[str(run())]


def listed() -> Sequence[Case]:
    return [Case(name=name, operation="", run=lambda name=name: name) for name in ("short", "long")]


def test_cases_take_turns_and_short_ones_run_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    machine: Any = Metronome()
    clock = iter(range(10_000))
    monkeypatch.setattr(machine_module, "time", SimpleNamespace(perf_counter=lambda: 0.01 * next(clock)))
    told: list[float] = []
    samples = time_cases(machine, listed(), seconds=1.0, progress=told.append)
    assert len(samples.seconds) >= 3
    np.testing.assert_allclose(samples.median, [1e-3, 5e-3])
    np.testing.assert_allclose(samples.spread, 0.0)
    assert machine.ran[4:10] == ["short", "short", "long"] * 2  # after a warm-up of two runs each
    assert told == sorted(told)
    assert told[-1] <= 1.0


def test_too_little_time_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(10_000))
    monkeypatch.setattr(machine_module, "time", SimpleNamespace(perf_counter=lambda: 2.0 * next(clock)))
    machine: Any = Metronome()
    with pytest.raises(InputError, match="give more with --seconds"):
        time_cases(machine, listed(), seconds=1.0)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), 1e9])
def test_absurd_times_are_refused(seconds: float) -> None:
    with pytest.raises(InputError, match="seconds must be"):
        measure(seconds=seconds)


def test_without_torch_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(machine_module, "import_module", absent)
    run = CliRunner().invoke(main, ["measure", "--seconds", "1", "-o", str(tmp_path / "my.toml")])
    assert run.exit_code == 1
    assert "pip install 'latency-model[measure]'" in run.output
    assert "Traceback" not in run.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("tpu", "bf16", None), "device must be cpu or cuda"),
        (("cuda", "bf16", None), "no CUDA device"),
        (("cpu", "fp7", None), "is not a number format"),
        (("cpu", "fp8", None), "dtype must be one of"),
        (("cpu", "bf16", 0), "threads must be at least 1"),
    ],
)
def test_what_cannot_be_measured_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, str, int | None], sentence: str
) -> None:
    torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))
    monkeypatch.setattr(machine_module, "import_module", lambda name: torch)
    with pytest.raises(InputError, match=sentence):
        Machine.on(*arguments)
