"""Calibration gives back what times were made with, says what it cannot tell, and writes whole profiles or none."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import numpy as np
import pytest
from click.testing import CliRunner

from latency_model.cli import main
from latency_model.costs.round import round_cost
from latency_model.costs.setting import Setting
from latency_model.costs.step import Scales, evaluate
from latency_model.costs.uncertainty import INTERVAL_80, log_deviation, uncertain_constants
from latency_model.errors import InputError
from latency_model.evidence.calibrate import Calibration, calibrate
from latency_model.evidence.calibrate.calibrate import KERNELS
from latency_model.evidence.calibrate.fitting import fit_factors
from latency_model.specs.draft import Draft
from latency_model.specs.hardware import load_hardware
from latency_model.specs.parallelism import Parallelism
from latency_model.specs.profile import HOST_TIMES

NOISE = 0.03
DENSE, MIXTURE = "Qwen3-8B", "Qwen3-30B-A3B"
HEADER = "batch,tokens_per_sequence,context,time_ms"
BATCHES, TOKENS, CONTEXTS = (1, 4, 16, 64, 256), (1, 4), (512, 4096, 16384)


def scales(**factors: float) -> Scales:
    """Factors on the terms of all kernels, and of the engine."""
    kernels = {(kind, part): f for part, f in factors.items() if part != "engine" for kind in KERNELS}
    return kernels | {("engine", part): factors.get("engine", 1.0) for part in HOST_TIMES}


def points() -> list[np.ndarray]:
    return [axis.ravel().astype(float) for axis in np.meshgrid(BATCHES, TOKENS, CONTEXTS)]


def write_points(path: Path, setting: Setting, true: Scales, seed: int = 0, noise: float = NOISE) -> Path:
    """Times of the step model with known factors and log-normal noise, as a CSV."""
    batch, tokens, context = points()
    cost = evaluate(setting, batch=batch, tokens_per_sequence=tokens, context=context)
    time = cost.scaled_time(true) * np.exp(noise * np.random.default_rng(seed).standard_normal(batch.size))
    rows = zip(batch, tokens, context, 1e3 * time, strict=True)
    path.write_text("\n".join([HEADER, *(",".join(f"{value:.9g}" for value in row) for row in rows)]))
    return path


def factors_of(calibration: Calibration) -> dict[str, float]:
    assert calibration.timing is not None
    fit = calibration.timing.fit
    return dict(zip(fit.names, fit.factors.tolist(), strict=True))


@pytest.mark.parametrize("model", [DENSE, MIXTURE])
def test_known_factors_come_back_within_their_standard_errors(model: str, tmp_path: Path) -> None:
    true = {"compute": 1.3, "memory": 1.15, "overhead": 1.6}
    setting = Setting.of(model, "h100-sxm", engine="none")
    deviations = []
    for seed in range(12):
        calibration = calibrate([write_points(tmp_path / "p.csv", setting, scales(**true), seed)], setting=setting)
        assert calibration.timing is not None
        fit = calibration.timing.fit
        assert fit.names == tuple(true)
        deviations.append(np.log(fit.factors / list(true.values())) / fit.standard_errors)
    # Root mean square of 12 standard deviates: within .6 and 1.5 in 99 % of cases each.
    spread = np.sqrt(np.mean(np.square(deviations), axis=0))
    assert np.all(spread > 0.5)
    assert np.all(spread < 1.6)


def test_the_error_after_the_fit_is_the_noise_put_in(tmp_path: Path) -> None:
    setting = Setting.of(DENSE, "h100-sxm", engine="none")
    timing = calibrate([write_points(tmp_path / "p.csv", setting, scales(memory=1.3))], setting=setting).timing
    assert timing is not None
    assert timing.held_out is not None
    assert timing.fit.scatter == pytest.approx(NOISE, rel=0.4)
    held, before = np.median(np.abs(timing.held_out)), np.median(np.abs(timing.before))
    assert held < 1.5 * 0.6745 * NOISE < before


def test_one_outlier_moves_a_factor_by_less_than_a_standard_error(tmp_path: Path) -> None:
    setting = Setting.of(DENSE, "h100-sxm", engine="none")
    path = write_points(tmp_path / "p.csv", setting, scales(memory=1.3))
    clean = calibrate([path], setting=setting, terms=["memory"]).timing
    lines = path.read_text().splitlines()
    lines[5] = ",".join([*lines[5].split(",")[:3], str(10 * float(lines[5].split(",")[3]))])
    path.write_text("\n".join(lines))
    spoilt = calibrate([path], setting=setting, terms=["memory"]).timing
    assert clean is not None
    assert spoilt is not None
    assert abs(np.log(spoilt.fit.factors / clean.fit.factors))[0] < clean.fit.standard_errors[0]


def test_kernel_and_engine_overhead_of_one_model_share_a_factor(tmp_path: Path) -> None:
    setting = Setting.of(DENSE, "h100-sxm", engine="vllm")
    true = scales(overhead=1.5, engine=1.5)
    timing = calibrate([write_points(tmp_path / "p.csv", setting, true)], setting=setting).timing
    assert timing is not None
    fit = dict(zip(timing.fit.names, timing.fit.factors.tolist(), strict=True))
    assert fit["overhead"] == fit["engine"] == pytest.approx(1.5, rel=0.1)
    assert sum("cannot be told from" in remark for remark in timing.fit.remarks) == 1
    assert timing.fit.condition > 1e6


def test_a_term_that_does_not_matter_is_left_alone(tmp_path: Path) -> None:
    # Decoding one sequence says nothing about arithmetic; over a long cache its share falls while that of bytes grows.
    setting = Setting.of(DENSE, "h100-sxm", engine="none")
    context = np.array([512.0, 1e5, 4e5, 7e5, 1e6])
    one = np.ones(5)
    time = evaluate(setting, batch=one, tokens_per_sequence=one, context=context).scaled_time(scales(memory=1.2))
    path = tmp_path / "p.csv"
    path.write_text("\n".join([HEADER, *(f"1,1,{s:g},{1e3 * t:.9g}" for s, t in zip(context, time, strict=True))]))
    timing = calibrate([path], setting=setting, terms=["compute", "memory"]).timing
    assert timing is not None
    assert timing.fit.fitted == (False, True)
    assert timing.fit.remarks[0].startswith("left alone")
    base = setting.hardware.efficiency("gemm", "bf16")
    block = timing.profile.efficiency("gemm", "bf16")
    assert (block.compute, block.compute_uncertainty) == (base.compute, base.compute_uncertainty)
    assert block.memory < base.memory


def test_exact_duplicates_and_absent_terms_are_named() -> None:
    def predict(logs: np.ndarray) -> np.ndarray:
        return np.log(np.exp(logs[0]) * np.array([1.0, 2.0, 3.0]) + np.exp(logs[1]) + 0.0 * logs[2])

    fit = fit_factors(["slope", "constant", "absent"], predict, predict(np.log([2.0, 3.0, 1.0])))
    np.testing.assert_allclose(fit.factors, [2.0, 3.0, 1.0], rtol=1e-6)
    assert fit.fitted == (True, True, False)
    assert "plays no part" in fit.remarks[2]


def test_whole_rounds_are_fitted_with_their_drafter(tmp_path: Path) -> None:
    setting = Setting.of(DENSE, "h100-sxm", engine="sglang")
    draft = Draft.eagle()
    batch, length = [axis.ravel().astype(float) for axis in np.meshgrid([1, 4, 16, 64], [0, 1, 3, 5])]
    true = scales(memory=1.2, overhead=1.4, engine=1.4)
    cost = round_cost(setting, draft, batch=batch, context=np.full(batch.size, 512.0), draft_length=length)
    records = [
        {"batch_size": b, "steps": s, "topk": min(s, 1), "num_draft_tokens": s + 1, "acc_length": 1 + 0.6 * s,
         "step_time": t, "speed": 1.0, "completion_tokens": 512}
        for b, s, t in zip(*(v.tolist() for v in (batch.astype(int), length.astype(int), cost.time(true))), strict=True)
    ]  # fmt: skip
    path = tmp_path / "bench.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    with pytest.raises(InputError, match="--context"):
        calibrate([path], setting=setting, draft=draft)
    with pytest.raises(InputError, match="--draft"):
        calibrate([path], setting=setting, context=512)
    calibration = calibrate([path], setting=setting, draft=draft, context=512, terms=["memory", "overhead", "engine"])
    found = factors_of(calibration)
    assert found["memory"] == pytest.approx(1.2, rel=0.02)
    assert found["overhead"] == pytest.approx(1.4, rel=0.02)
    assert calibration.timing is not None
    host = calibration.timing.profile.host_times
    assert {part for _, part in host} == {part for part in HOST_TIMES if getattr(setting.engine, part).value > 0}
    for (_, part), quantity in host.items():
        assert quantity.value == pytest.approx(1.4 * getattr(setting.engine, part).value, rel=0.02)


def test_the_written_profile_predicts_what_was_fitted(tmp_path: Path) -> None:
    setting = Setting.of(MIXTURE, "h100-sxm", engine="vllm")
    true = scales(compute=1.2, memory=1.3, overhead=1.5, engine=1.5)
    path = write_points(tmp_path / "p.csv", setting, true, noise=0.0)
    target = tmp_path / "my.toml"
    arguments = ["calibrate", str(path), "-m", MIXTURE, "-H", "h100-sxm", "-o", str(target)]
    run = CliRunner().invoke(main, arguments)
    assert run.exit_code == 0, run.output
    assert 'extends = "h100-sxm"' in target.read_text()
    profile = load_hardware(str(target))
    assert profile.memory_bandwidth == setting.hardware.memory_bandwidth
    assert profile.efficiency("gemm", "bf16").kind == "measured"
    batch, tokens, context = points()
    where = {"batch": batch, "tokens_per_sequence": tokens, "context": context}
    calibrated = evaluate(Setting.of(MIXTURE, profile, engine="vllm"), **where)
    np.testing.assert_allclose(calibrated.time, evaluate(setting, **where).scaled_time(true), rtol=2e-3)


def test_a_calibrated_block_does_not_claim_the_rows_of_the_shipped_one(tmp_path: Path) -> None:
    setting = Setting.of(DENSE, "h100-sxm")
    profile = calibrate([write_points(tmp_path / "p.csv", setting, scales(memory=1.2))], setting=setting).timing.profile
    fitted = [block for block in profile.efficiencies.values() if block.source.startswith("calibrated")]
    assert fitted
    assert all(block.fit is None for block in fitted)


def test_a_profile_of_ones_own_can_be_calibrated_further(tmp_path: Path) -> None:
    base = tmp_path / "base.toml"
    base.write_text('extends = "h100-sxm"\ntitle = "ours"\nmemory.bandwidth = "3 TB/s"\n')
    setting = Setting.of(DENSE, load_hardware(str(base)), engine="none")
    path = write_points(tmp_path / "p.csv", setting, scales(memory=1.3))
    target = tmp_path / "sub" / "my.toml"
    target.parent.mkdir()
    arguments = ["calibrate", str(path), "-m", DENSE, "-H", str(base), "--engine", "none", "-o", str(target)]
    run = CliRunner().invoke(main, arguments)
    assert run.exit_code == 0, run.output
    assert load_hardware(str(target)).memory_bandwidth.value == 3e12


def test_links_are_fitted_where_there_are_several_devices(tmp_path: Path) -> None:
    setting = Setting.of("Meta-Llama-3.1-70B", "h100-sxm", parallelism=Parallelism(tp=8), engine="none")
    slow = {(kind, part): 1.5 for kind in ("all_reduce", "all_to_all", "p2p") for part in ("compute", "memory")}
    calibration = calibrate([write_points(tmp_path / "p.csv", setting, slow)], setting=setting)
    assert factors_of(calibration)["link"] == pytest.approx(1.5, rel=0.15)
    assert calibration.timing is not None
    base, own = (profile.efficiency("all_reduce", "bf16") for profile in (setting.hardware, calibration.timing.profile))
    assert own.overhead / base.overhead == pytest.approx(base.memory / own.memory, rel=1e-3)


def test_intervals_of_a_calibrated_profile_cover_new_points_as_often_as_they_say(tmp_path: Path) -> None:
    setting = Setting.of(DENSE, "h100-sxm", engine="none")
    true = scales(memory=1.1, overhead=1.3)
    batch, tokens, context = points()
    where = {"batch": batch, "tokens_per_sequence": tokens, "context": context}
    covered = []
    for seed in range(16):
        timing = calibrate([write_points(tmp_path / "p.csv", setting, true, seed)], setting=setting).timing
        assert timing is not None
        own = attrs.evolve(setting, hardware=timing.profile)
        cost = round_cost(own, Draft.ngram(hit_rate=1.0), batch=batch, context=context, draft_length=tokens - 1)
        width = INTERVAL_80 * log_deviation(cost.verify.scaled_time, uncertain_constants([cost.verify], own))
        noise = NOISE * np.random.default_rng(1000 + seed).standard_normal(batch.size)
        seen = np.log(evaluate(setting, **where).scaled_time(true)) + noise
        covered.append(np.mean(np.abs(np.log(cost.verify.time) - seen) <= width))
    assert 0.7 <= np.mean(covered) <= 0.9


@pytest.mark.parametrize(
    ("rows", "options", "sentence"),
    [
        (["1,1,512,6"], [], "1 different point (batch, tokens, context) cannot fix 3 terms"),
        (["1,1,512,6", "1,1,512,6.1", "1,1,512,6.2", "1,1,512,6.3"], [], "1 different point "),
        (["1,1,512,6", "2,1,512,6.1", "4,1,512,6.2"], [], "3 different points"),
        (["1,1,512,6", "2,1,512,6", "4,1,512,6", "8,1,512,6", "16,1,512,6"], [], "all 5 times are 0.006 s"),
        (["1,1,512,.006", "8,1,512,.007", "64,1,512,.01", "64,1,8192,.02", "64,4,8192,.021"], [], "check the unit"),
        (["1,1,512,6", "2,1,512,1e300"], [], "check the unit of the times"),
        (["1,1,512,6", "8,1,512,7"], ["--fit", "memery"], "did you mean 'memory'"),
        (["1,1,512,6", "8,1,512,7"], ["--fit", "engine"], "engine 'none' has no host time"),
        (["1,1,512,6", "8,1,512,7"], ["--fit", "link"], "one device has no link"),
    ],
)
def test_data_that_cannot_be_fitted_are_one_sentence_and_leave_no_file(
    tmp_path: Path, rows: list[str], options: list[str], sentence: str
) -> None:
    path, target = tmp_path / "p.csv", tmp_path / "my.toml"
    path.write_text("\n".join([HEADER, *rows]))
    target.write_text("kept")
    arguments = ["calibrate", str(path), "-m", DENSE, "-H", "h100-sxm", "--engine", "none", "-o", str(target), *options]
    run = CliRunner().invoke(main, arguments)
    assert run.exit_code == 1
    assert sentence in run.output
    assert "Traceback" not in run.output
    assert target.read_text() == "kept"
    assert sorted(item.name for item in tmp_path.iterdir()) == ["my.toml", "p.csv"]


def test_nothing_to_write_is_said(tmp_path: Path) -> None:
    path = tmp_path / "draft.log"
    path.write_text("n_predict = 129\nn_drafted = 132\nn_accept = 47\n")
    run = CliRunner().invoke(main, ["calibrate", str(path), "-o", str(tmp_path / "my.toml")])
    assert run.exit_code == 1
    assert "no times were fitted" in run.output
    run = CliRunner().invoke(main, ["calibrate", str(path), "-m", DENSE])
    assert run.exit_code == 2


def test_two_snapshots_of_running_counters_are_subtracted_whatever_their_order(tmp_path: Path) -> None:
    def snapshot(name: str, drafts: int, accepted: int) -> Path:
        path = tmp_path / name
        path.write_text(
            f"vllm:spec_decode_num_drafts_total {drafts}\nvllm:spec_decode_num_draft_tokens_total {drafts}\n"
            f"vllm:spec_decode_num_accepted_tokens_total {accepted}\n"
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="0"}} {accepted}\n'
        )
        return path

    early, late = snapshot("a.prom", 1000, 900), snapshot("b.prom", 2000, 1400)
    for files in ([early, late], [late, early]):
        (found,) = calibrate(files).acceptances
        assert found.acceptance.conditionals == (0.5,)
    (alone,) = calibrate([late]).acceptances
    assert alone.acceptance.conditionals == (0.7,)


def test_command_output_is_data_for_programs(tmp_path: Path) -> None:
    setting = Setting.of(DENSE, "h100-sxm", engine="none")
    path = write_points(tmp_path / "p.csv", setting, scales(memory=1.3))
    where = ["-m", DENSE, "-H", "h100-sxm", "--engine", "none"]
    run = CliRunner().invoke(main, ["calibrate", str(path), *where, "--format", "json"])
    document = json.loads(run.stdout)
    assert [row["term"] for row in document["rows"]] == ["compute", "memory", "overhead"]
    assert len(document["points"]) == len(BATCHES) * len(TOKENS) * len(CONTEXTS)
    for format in ("table", "csv", "md"):
        run = CliRunner().invoke(main, ["calibrate", str(path), *where, "--format", format])
        assert run.exit_code == 0
        assert "memory" in run.stdout


def test_residuals_can_be_plotted(tmp_path: Path) -> None:
    setting = Setting.of(DENSE, "h100-sxm", engine="none")
    path, page = write_points(tmp_path / "p.csv", setting, scales(memory=1.3)), tmp_path / "r.html"
    arguments = ["calibrate", str(path), "-m", DENSE, "-H", "h100-sxm", "--engine", "none", "--plot", str(page)]
    run = CliRunner().invoke(main, arguments)
    assert run.exit_code == 0, run.output
    assert "B=256 n=4 S=16384" in page.read_text()


def test_host_times_of_a_profile_replace_those_of_the_engine(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text('extends = "h100-sxm"\n[engine.vllm]\nper_step = "0.5 ms"\n')
    own, shipped = Setting.of(DENSE, load_hardware(str(path))), Setting.of(DENSE, "h100-sxm")
    assert own.engine.per_step.value == 0.5e-3
    assert attrs.evolve(own.engine, per_step=shipped.engine.per_step) == shipped.engine
    assert Setting.of(DENSE, load_hardware(str(path)), engine="sglang").engine.per_step.value != 0.5e-3
    path.write_text('extends = "h100-sxm"\n[engine.vlm]\nper_step = "0.5 ms"\n')
    with pytest.raises(InputError, match="vllm"):
        load_hardware(str(path))
