"""Served runs, end to end: time per output token predicted from config and profile, and the host time that is left.

Reads ``systems/silicon_sample.csv`` of the installed aiconfigurator-core package (extra ``silicon``): benchmark runs
of whole models under vLLM, SGLang and TensorRT-LLM.  In aggregated mode the prompts of the other B - 1 sequences are
computed between a sequence's N tokens:

    TPOT = T_decode(B, S + N/2) + host + kappa (B - 1)/N [T_prefill(S) + host]
    host = t_step + log2(ranks) t_doubling + layers t_layer + moe_layers t_moe

kappa lies between 1/2, when all sequences start together, and 1, when they start evenly.  Of the fixed time that a
kernel takes when it is timed alone a share phi is left where kernels follow each other in a CUDA graph: one number
for all engines, since they use the same graphs.  The step model gives the kernels; the rest is fitted per engine,
nothing per model.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from attrs import evolve, fields, frozen
from numpy.typing import NDArray

from latency_model.costs.step import StepCost, step_cost
from latency_model.errors import InputError
from latency_model.evidence.fit import INTERVAL_80, Errors
from latency_model.evidence.silicon.tables import DEVICES, ENGINES, systems_directory
from latency_model.specs.hardware import load_hardware
from latency_model.specs.loader import load_model
from latency_model.specs.parallelism import Parallelism
from latency_model.specs.profile import EXPERTS

__all__ = [
    "Host",
    "Kernels",
    "Run",
    "coverage",
    "fit_hosts",
    "kernel_times",
    "leave_one_model_out",
    "predict_tpot",
    "prediction_errors",
    "read_runs",
    "usable",
    "usable_runs",
]

FloatArray = NDArray[np.floating[Any]]
BoolArray = NDArray[np.bool_]

#: Model of the table: bundled model with its shape.
MODELS = {
    "MiniMaxAI/MiniMax-M2.5": "MiniMax-M2.5",
    "Qwen/Qwen3-235B-A22B-FP8": "Qwen3-235B-A22B-FP8",
    "Qwen/Qwen3-32B": "Qwen3-32B",
    "nvidia/Qwen3-32B-NVFP4": "Qwen3-32B",
    "Qwen/Qwen3.5-397B-A17B": "Qwen3.5-397B-A17B",
    "deepseek-ai/DeepSeek-R1": "DeepSeek-V3",
    "deepseek-ai/DeepSeek-V3": "DeepSeek-V3",
    "nvidia/DeepSeek-R1-NVFP4": "DeepSeek-V3",
    "nvidia/DeepSeek-V3.1-NVFP4": "DeepSeek-V3",
    "meta-llama/Llama-3.1-70B": "Meta-Llama-3.1-70B",
    "meta-llama/Llama-3.1-8B-Instruct": "Meta-Llama-3.1-8B",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "Meta-Llama-3.1-8B",
    "moonshotai/Kimi-K2.5": "Kimi-K2-Instruct",
    "openai/gpt-oss-120b": "gpt-oss-120b",
    "zhipuai/GLM-5": "GLM-5",
}
#: Format of the table: weight format; gpt-oss keeps the mxfp4 of its checkpoint whatever the table says.
FORMATS = {"fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4", "int4_wo": "int4", "": "bf16"}
OWN_FORMAT = {"gpt-oss-120b"}
MOST_DEVICES = 8  # one node
LOSS_SCALE = 0.1
#: Runs of the same configuration that differ by more than this factor differ in something the table does not say.
LARGEST_DISAGREEMENT = 1.5
#: (engine, version, model, or any) of runs that cannot be used, and why.
UNUSABLE = {
    ("trtllm", "1.2.0rc6.post3", "DeepSeek-V3"): "speculation the table does not record (two to three times faster)",
    ("trtllm", "1.3.0rc1", ""): "not reproducible (8 and 42 ms for one configuration)",
}
#: Candidates for the share of launches left, and their distance.
GRID = 0.05
LAUNCH_SHARES = np.round(np.arange(1.0, 0.0, -GRID), 2)
#: Decimals of the constants in their unit; scores are those of the rounded ones.
DECIMALS = 2
#: Kinds of operations whose fixed time is a launch.
LAUNCHED = ("gemm", *EXPERTS, "attention_decode", "attention_prefill", "elementwise")


@frozen(kw_only=True)
class Run:
    """One benchmark run."""

    engine: str
    version: str
    model: str  # bundled name
    device: str  # profile
    weights: str | None  # None keeps the checkpoint's
    layout: Parallelism
    prompt: int  # [token]
    output: int  # [token]
    batch: int  # sequences in flight over all replicas
    ttft: float  # [s]
    tpot: float  # [s]


@frozen(kw_only=True, eq=False)
class Kernels:
    """What the step model says about runs before any host time."""

    runs: Sequence[Run]
    decode: FloatArray  # one step [s], kernels timed alone
    decode_launch: FloatArray  # fixed time of its kernels [s]
    prompt: FloatArray  # one prefill on a replica [s]
    prompt_launch: FloatArray
    prompts: FloatArray  # of other sequences per step, (B - 1)/N [1]
    layers: FloatArray  # [1]
    moe_layers: FloatArray  # of them with experts [1]
    doublings: FloatArray  # log2 of the ranks [1]

    @property
    def moe(self) -> BoolArray:
        """Whether a run's model has experts."""
        return self.moe_layers > 0

    @property
    def measured(self) -> FloatArray:
        """Measured time per output token [s]."""
        return np.array([run.tpot for run in self.runs])

    def column(self, name: str) -> NDArray[Any]:
        """One attribute of every run."""
        return np.array([getattr(run, name) for run in self.runs])

    def where(self, mask: BoolArray) -> Kernels:
        """Keep some runs."""
        return evolve(
            self,
            runs=[run for run, kept in zip(self.runs, mask, strict=True) if kept],
            **{name: getattr(self, name)[mask] for name in _ARRAYS},
        )


_ARRAYS = tuple(field.name for field in fields(Kernels) if field.name != "runs")


@frozen(kw_only=True)
class Host:
    """What one engine adds to its kernels."""

    per_step: float  # [s]
    per_step_doubling: float  # [s]
    per_layer: float  # [s]
    per_moe_layer: float  # [s]
    spread: float  # kappa: share of the other sequences' prompts that falls between one's tokens [1]
    launch_share: float  # phi: share of a kernel's fixed time left inside a CUDA graph [1]
    uncertainty: float = 0.0  # of the time per token, relative, one sigma
    host_error: float = 0.0  # of the host times together, relative, one sigma
    launch_share_error: float = 0.0  # relative, one sigma
    runs: int = 0

    def host(self, kernels: Kernels) -> FloatArray:
        """Host time of a step of every run [s]."""
        return np.asarray(
            self.per_step
            + self.per_step_doubling * kernels.doublings
            + self.per_layer * kernels.layers
            + self.per_moe_layer * kernels.moe_layers
        )

    def tpot(self, kernels: Kernels) -> FloatArray:
        """Time per output token [s]."""
        hidden = 1.0 - self.launch_share
        host = self.host(kernels)
        decode = kernels.decode - hidden * kernels.decode_launch
        prompt = kernels.prompt - hidden * kernels.prompt_launch
        return np.asarray(decode + host + self.spread * kernels.prompts * (prompt + host))

    def ttft(self, kernels: Kernels) -> FloatArray:
        """Time to the first token of a sequence that does not wait for others [s]."""
        return np.asarray(kernels.prompt - (1.0 - self.launch_share) * kernels.prompt_launch + self.host(kernels))


def read_runs() -> tuple[list[Run], dict[str, int]]:
    """Read the runs in aggregated mode, each once, and how many are left out for which reason."""
    path = systems_directory() / "silicon_sample.csv"
    runs: dict[tuple[object, ...], Run] = {}
    dropped: dict[str, int] = {}

    def drop(reason: str) -> None:
        dropped[reason] = dropped.get(reason, 0) + 1

    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["mode"] != "agg":
                drop("prefill and decode on different devices")
                continue
            reason, run = _run(row)
            if run is None:
                drop(reason)
            elif because := UNUSABLE.get((run.engine, run.version, run.model)) or UNUSABLE.get(
                (run.engine, run.version, "")
            ):
                drop(because)
            elif (run.device, run.ttft, run.tpot) in runs:
                drop("the same run under a second name")
            else:
                runs[run.device, run.ttft, run.tpot] = run
    return list(runs.values()), dropped


def _run(row: dict[str, str]) -> tuple[str, Run | None]:
    """Read one row; without a run, the reason."""
    if row["model_path"] not in MODELS or row["system"] not in DEVICES:
        return "no bundled model or device", None
    model = MODELS[row["model_path"]]
    architecture = load_model(model)
    tp, dp = int(float(row["tp_size"])), max(1, int(float(row["attention_dp_size"] or 1)))
    moe_tp, moe_ep = int(float(row["moe_tp_size"] or 1)), int(float(row["moe_ep_size"] or 1))
    if architecture.is_moe and moe_tp * moe_ep != tp * dp:
        return "layout of experts and attention disagree", None
    if tp * dp > MOST_DEVICES:
        return "more than one node", None
    try:
        layout = Parallelism(tp=tp, dp=dp, ep=moe_ep if architecture.is_moe else 1)
        layout.check(architecture)
    except InputError:
        return "layout does not fit the model", None
    weights = None if model in OWN_FORMAT else FORMATS[row["gemm_quant_mode"] or ""]
    return "", Run(
        engine=row["backend"],
        version=row["backend_version"],
        model=model,
        device=DEVICES[row["system"]],
        weights=weights,
        layout=layout,
        prompt=int(row["isl"]),
        output=int(row["osl"]),
        batch=int(float(row["batch_size"])) * dp,
        ttft=float(row["silicon_ttft_ms"]) * 1e-3,
        tpot=float(row["silicon_tpot_ms"]) * 1e-3,
    )


def kernel_times(runs: Iterable[Run]) -> Kernels:
    """Predict the kernels of every run, with one call of the step model for all that share everything but lengths."""
    groups: dict[tuple[object, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.model, run.device, run.weights, run.layout, run.engine), []).append(run)
    parts = [_group_times(group) for group in groups.values()]
    return Kernels(
        runs=[run for part in parts for run in part.runs],
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS},
    )


def _group_times(runs: Sequence[Run]) -> Kernels:
    first = runs[0]
    batch, prompt, output = (np.array([getattr(run, name) for run in runs], dtype=float) for name in _LENGTHS)
    model = load_model(first.model)
    machine = load_hardware(first.device).for_engine(first.engine)
    common: dict[str, Any] = {
        "parallelism": first.layout,
        "dtypes": {"weights": first.weights, "allow_fallback": True},
        "engine": "none",
    }
    replicas = first.layout.dp
    decode = step_cost(model, machine, batch=batch, context=prompt + output / 2.0, **common)
    prefill = step_cost(model, machine, batch=replicas, context=0, tokens_per_sequence=prompt, prefill=True, **common)
    return Kernels(
        runs=runs,
        decode=decode.time,
        decode_launch=_launch(decode),
        prompt=prefill.time,
        prompt_launch=_launch(prefill),
        prompts=(batch / replicas - 1.0) / output,
        layers=np.full(len(runs), float(len(model.layers))),
        moe_layers=np.full(len(runs), float(sum(count for _, count in model.moe_kinds))),
        doublings=np.full(len(runs), first.layout.doublings(model.is_moe)),
    )


_LENGTHS = ("batch", "prompt", "output")


def _launch(cost: StepCost) -> FloatArray:
    """Fixed time of all kernels of a step [s]."""
    fixed = sum(
        component.repeats * component.overhead
        for _, component in cost.operations()
        if component.operation.kind in LAUNCHED
    )
    return np.full(cost.shape, float(fixed))


def usable(kernels: Kernels) -> tuple[BoolArray, dict[str, int]]:
    """Runs whose configuration says what was run, and how many do not."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, run in enumerate(kernels.runs):
        key = (run.engine, run.model, run.device, run.weights, run.layout, run.prompt, run.output, run.batch)
        groups.setdefault(key, []).append(index)
    agree = np.ones(len(kernels.runs), dtype=bool)
    for indices in groups.values():
        times = kernels.measured[indices]
        agree[indices] = times.max() <= LARGEST_DISAGREEMENT * times.min()
    replica = kernels.column("batch") / np.array([run.layout.dp for run in kernels.runs])
    cycle = kernels.column("ttft") + kernels.column("output") * kernels.measured
    possible = replica * kernels.prompt <= cycle
    return agree & possible, {
        "runs of one configuration that differ by more than 1.5": int((~agree).sum()),
        "prompts answered faster than they can be computed (cached)": int((agree & ~possible).sum()),
    }


def usable_runs() -> tuple[Kernels, dict[str, int]]:
    """Every run that can be used, with its kernels predicted, and how many cannot for which reason."""
    runs, dropped = read_runs()
    every = kernel_times(runs)
    mask, more = usable(every)
    return every.where(mask), dropped | more


def fit_hosts(kernels: Kernels, launch_share: float | None = None) -> dict[str, Host]:
    """Fit every engine's host times and spread and, where it is not given, the launch share of all.

    The launch share is the one with which runs of a model are predicted best from those of the others of their
    engine: within one model a launch looks like host time per layer, between models with many and with few kernels
    a layer it does not.  Uncertainties of constants are jackknife errors over models, since runs of one model err
    together.
    """
    shares = LAUNCH_SHARES if launch_share is None else np.array([launch_share])
    engines, models = kernels.column("engine"), kernels.column("model")
    losses = np.array([_losses(kernels, share) for share in shares])  # [shares, runs]
    best = float(shares[np.argmin(losses.sum(axis=1))])
    without = [losses[:, models != name].sum(axis=1) for name in np.unique(models)]
    disputed = _jackknife_error([float(shares[np.argmin(loss)]) for loss in without])
    return {
        engine: evolve(
            _fit_engine(kernels.where(engines == engine), best), launch_share_error=max(disputed, GRID) / best
        )
        for engine in ENGINES
        if np.any(engines == engine)
    }


def _fit_engine(kernels: Kernels, launch_share: float) -> Host:
    """Host times of one engine with the spread of its runs and the uncertainty of what was fitted."""
    models = kernels.column("model")
    host = _fit(kernels, launch_share)
    error = np.abs(np.log(host.tpot(kernels) / kernels.measured))
    refitted = [
        _fit(kernels.where(models != name), launch_share) for name in np.unique(models) if np.any(models != name)
    ]
    usual = float(np.median(host.host(kernels)))
    return evolve(
        host,
        uncertainty=float(np.quantile(error, 0.8)) / INTERVAL_80,
        host_error=_jackknife_error([float(np.median(other.host(kernels))) for other in refitted]) / usual,
        runs=len(kernels.runs),
    )


def _losses(kernels: Kernels, launch_share: float) -> FloatArray:
    """Soft-L1 of ln(predicted/measured) of each run, predicted from other models; 0 for an engine with only one."""
    engines = kernels.column("engine")
    residuals = np.zeros(len(kernels.runs))
    for engine in np.unique(engines):
        mine = kernels.where(engines == engine)
        apart = _each_model_from_the_others(mine, launch_share)
        residuals[engines == engine] = np.nan_to_num(np.log(apart / mine.measured)) / LOSS_SCALE
    return np.asarray(2.0 * (np.sqrt(1.0 + residuals**2) - 1.0))


def _jackknife_error(values: Sequence[float]) -> float:
    """Standard error of an estimate from the estimates with one group left out each; 0 with fewer than two."""
    return float(np.sqrt((len(values) - 1) * np.var(values))) if len(values) > 1 else 0.0


#: Host times and spread as they are fitted: unit [s], start and upper bound in that unit.
FITTED = {
    "per_step": (1e-3, 1.0, 20.0),
    "per_step_doubling": (1e-3, 0.3, 5.0),
    "per_layer": (1e-6, 10.0, 200.0),
    "per_moe_layer": (1e-6, 10.0, 200.0),
    "spread": (1.0, 0.8, 1.0),
}
LEAST_SPREAD = 0.5


def _fit(kernels: Kernels, launch_share: float) -> Host:
    """Host times of one engine with the smallest soft-L1 loss of ln(predicted/measured), nothing negative."""
    from scipy.optimize import least_squares

    measured = kernels.measured
    units, start, highest = np.array(list(FITTED.values())).T
    lowest = np.array([LEAST_SPREAD if name == "spread" else 0.0 for name in FITTED])

    def host(values: FloatArray) -> Host:
        return Host(launch_share=launch_share, **dict(zip(FITTED, (values * units).tolist(), strict=True)))

    found = least_squares(
        lambda values: np.log(host(values).tpot(kernels) / measured),
        start,
        bounds=(lowest, highest),
        loss="soft_l1",
        f_scale=LOSS_SCALE,
    )
    values = np.round(found.x, DECIMALS) * units
    clean: dict[str, Any] = {name: float(f"{value:.6g}") for name, value in zip(FITTED, values, strict=True)}
    return Host(launch_share=launch_share, **clean)


def predict_tpot(kernels: Kernels, hosts: dict[str, Host]) -> FloatArray:
    """Time per output token of every run with its engine's host times [s]."""
    engines = kernels.column("engine")
    predicted = np.full(len(kernels.runs), np.nan)
    for engine, host in hosts.items():
        mine = engines == engine
        predicted[mine] = host.tpot(kernels.where(mine))
    return predicted


def leave_one_model_out(kernels: Kernels, hosts: dict[str, Host]) -> FloatArray:
    """Predict each model's runs from host times fitted on the other models of the same engine [s]."""
    engines = kernels.column("engine")
    predicted = np.full(len(kernels.runs), np.nan)
    for engine, host in hosts.items():
        mine = engines == engine
        predicted[mine] = _each_model_from_the_others(kernels.where(mine), host.launch_share)
    return predicted


def _each_model_from_the_others(kernels: Kernels, launch_share: float) -> FloatArray:
    """Time per output token of one engine's runs; not a number where there is no other model [s]."""
    models = kernels.column("model")
    predicted = np.full(len(kernels.runs), np.nan)
    for model in np.unique(models):
        mine = models == model
        if not mine.all():
            predicted[mine] = _fit(kernels.where(~mine), launch_share).tpot(kernels.where(mine))
    return predicted


def coverage(predicted: FloatArray, measured: FloatArray, uncertainty: float) -> float:
    """Share of the runs with a prediction whose measured time lies in its 80 % interval [1]."""
    known = np.isfinite(predicted)
    return float(np.mean(np.abs(np.log(predicted[known] / measured[known])) <= INTERVAL_80 * uncertainty))


def prediction_errors(predicted: FloatArray, measured: FloatArray) -> Errors:
    """Median and p90 of |predicted/measured - 1|; runs without a prediction are left out."""
    known = np.isfinite(predicted)
    error = np.abs(predicted[known] / measured[known] - 1.0)
    if len(error) == 0:
        return Errors(rows=0, median=np.nan, p90=np.nan)
    return Errors(rows=len(error), median=float(np.median(error)), p90=float(np.quantile(error, 0.9)))
