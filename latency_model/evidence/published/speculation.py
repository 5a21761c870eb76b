"""Published speedups of speculative decoding, predicted from the models' configs and the machines' profiles."""

from __future__ import annotations

import attrs
import numpy as np

from latency_model.costs.round import Round, speculate
from latency_model.costs.uncertainty import Estimate, drafting_estimate
from latency_model.evidence.published.record import Group, Row, published_model, read_table
from latency_model.formulas.acceptance import walltime_improvement
from latency_model.specs.acceptance import Acceptance
from latency_model.specs.draft import Draft
from latency_model.specs.engine import EngineOverheads
from latency_model.specs.parallelism import Parallelism

__all__ = [
    "eagle3_round",
    "eagle3_sglang",
    "eagle_depths",
    "leviathan",
    "magicdec",
    "magicdec_rounds",
    "magicdec_times",
    "moesd",
    "moesd_round",
]

#: Engines of the year in which these rounds were measured.
VLLM_OF_2025, SGLANG_OF_2025 = "vllm-0.9", "sglang-0.4"

#: The paper's checklist names 2x A800, 2x H800, 4x A800 and 4x L40, which is the order of its tables.
MOESD_DEVICES = {"GPU-A": "a100-sxm-80gb", "GPU-B": "h800-sxm", "GPU-C": "l40s"}
MOESD_BATCHES = 2.0 ** np.arange(0, 9)
MOESD_CONTEXT = 300  # prompts of 5 to 391 tokens (section 4), plus half of a short reply


def moesd_round(row: dict[str, str]) -> Round:
    """The rounds behind a row of MoESD's tables, over batches."""
    drafts = {"Qwen2-57B-A14B": Draft.model(published_model("Qwen2-0.5B")), "Mixtral-8x7B": Draft.eagle(version=1)}
    devices, device = row["hardware"].split("x")
    gamma = int(row["gamma"])
    return speculate(
        row["model"],
        MOESD_DEVICES[device],
        draft=drafts[row["model"]],
        acceptance=Acceptance.mean_length(float(row["sigma"]) * (gamma + 1), draft_length=gamma),
        draft_length=gamma,
        batch=MOESD_BATCHES,
        context=MOESD_CONTEXT,
        engine="vllm-v0",
        parallelism=Parallelism(tp=int(devices)),
    )


def moesd() -> Group:
    """Peak speedup of mixture-of-experts targets over batch sizes (MoESD)."""
    table = read_table("moesd_peak_speedup")
    rows = []
    for row in table.rows:
        speedup = moesd_round(row).estimates.speedup
        peak = np.argmax(speedup.best)
        predicted = Estimate(best=speedup.best[peak], deviation=speedup.deviation[peak])
        name = f"{row['model']} {row['hardware']} {row['dataset']} T={float(row['temperature']):g} γ={row['gamma']}"
        rows.append(Row.of(predicted, case=name, measured=row["speedup_x"]))
    return Group(
        name="moesd",
        quantity="peak speedup over batch, MoE targets",
        rows=tuple(rows),
        sources=table.sources,
        assumptions=(
            "GPU-A is A800 (as A100 SXM 80 GB), GPU-B H800, GPU-C L40 (as L40S): the order in the paper's checklist",
            "peak over batches 1, 2, 4 ... 256; context 300 tokens; target tensor-parallel, draft on one device",
            "host times of vLLM before V1, the engine of that year",
        ),
        gain=True,
    )


EAGLE_RATES = (
    "tokens per round of the same heads at the same depth on MT-Bench: github.com/vllm-project/vllm/issues/20780"
)


def eagle_tokens(drafts: int, method: str) -> Acceptance:
    """Acceptance of the public EAGLE heads of Llama-3.1-8B-Instruct on MT-Bench: :data:`EAGLE_RATES`."""
    column = {"EAGLE": "eagle_tokens_per_round", "EAGLE-3": "eagle3_tokens_per_round"}[method]
    table = read_table("vllm_eagle_llama8b_mtbench")
    tokens = next(float(row[column]) for row in table.rows if int(row["drafts"]) == drafts)
    return Acceptance.mean_length(tokens, draft_length=drafts)


EAGLE_VERSIONS = {"EAGLE": 1, "EAGLE-3": 3}


def eagle3_round(row: dict[str, str], engine: EngineOverheads | str = SGLANG_OF_2025) -> Round:
    """The round behind a row of the EAGLE-3 paper's table of throughputs."""
    gamma = int(row["chain_length"])
    return speculate(
        "Llama-3.1-8B",
        "h100-sxm",
        draft=Draft.eagle(version=EAGLE_VERSIONS[row["method"]]),
        acceptance=eagle_tokens(gamma, row["method"]),
        draft_length=gamma,
        batch=int(row["batch_size"]),
        context=1024,
        engine=engine,
    )


def eagle3_sglang() -> Group:
    """Throughput of Llama-3.1-8B with EAGLE and EAGLE-3 heads in SGLang against batch (EAGLE-3 paper)."""
    table = read_table("eagle3_batch_throughput")
    rows = [
        Row.of(
            eagle3_round(row).estimates.speedup,
            case=f"{row['method']} batch {row['batch_size']}",
            measured=row["throughput_ratio"],
        )
        for row in table.rows
    ]
    return Group(
        name="eagle3-sglang",
        quantity="throughput ratio against batch, dense 8B on H100",
        rows=tuple(rows),
        sources=table.sources,
        assumptions=(EAGLE_RATES, "context 1024 tokens; host times of SGLang 0.4, fitted to every second row"),
        gain=True,
    )


def eagle_depths() -> Group:
    """Speedup of EAGLE and EAGLE-3 heads in vLLM against draft length, batch 1."""
    table = read_table("vllm_eagle_llama8b_mtbench")
    rows = []
    for method, version in EAGLE_VERSIONS.items():
        for row in table.rows:
            gamma = int(row["drafts"])
            predicted = speculate(
                "Llama-3.1-8B",
                "h100-sxm",
                draft=Draft.eagle(version=version),
                acceptance=eagle_tokens(gamma, method),
                draft_length=gamma,
                context=1024,
                engine=VLLM_OF_2025,
            ).estimates.speedup
            prefix = "eagle" if version == 1 else "eagle3"
            measured = float(row["vanilla_tpot_ms"]) / float(row[f"{prefix}_tpot_ms"])
            case = f"{method} γ={gamma}"
            rows.append(Row.of(predicted, case=case, measured=measured, series=method, depth=gamma))
    return Group(
        name="eagle-depths",
        quantity="speedup against draft length, dense 8B, batch 1",
        rows=tuple(rows),
        sources=table.sources,
        assumptions=("tokens per round as reported beside each time", "H100 SXM; context 1024 tokens; vLLM of 2025"),
        gain=True,
    )


#: Llama-2-7B-32K differs from Llama-2-7B in its rotary embedding only.
MAGICDEC_MODELS = {"LLaMA-2-7B-32K": "Llama-2-7B", "LLaMA-3.1-8B": "Llama-3.1-8B"}
MAGICDEC_LAYOUT = Parallelism(tp=8)
MAGICDEC_ASSUMPTIONS = (
    "A100 SXM 80 GB; target and draft tensor-parallel over 8; host times of their PyTorch engine from every second row",
    "verification reads the KV cache once",
)


def _magicdec_draft(name: str) -> Draft:
    if name.startswith("self"):
        return Draft.self_speculation(kv_budget=512)
    return attrs.evolve(Draft.model(published_model("TinyLlama-1.1B"), parallelism=MAGICDEC_LAYOUT), kv_budget=512)


def magicdec_rounds(engine: EngineOverheads | str = "gpt-fast") -> list[tuple[dict[str, str], str, Round]]:
    """Each row of the table with its name and the round predicted for it."""
    rounds = []
    for row in read_table("magicdec_a100").rows:
        predicted = speculate(
            MAGICDEC_MODELS[row["target"]],
            "a100-sxm-80gb",
            draft=_magicdec_draft(row["draft"]),
            acceptance=Acceptance.mean_length(float(row["Omega"]), draft_length=2),
            draft_length=2,
            batch=int(row["B"]),
            context=int(row["S"]),
            parallelism=MAGICDEC_LAYOUT,
            engine=engine,
        )
        name = f"{row['target']}, {row['draft'].split()[0]} draft, S={row['S']} B={row['B']}"
        rounds.append((row, name, predicted))
    return rounds


def magicdec() -> Group:
    """Speedup at long context and large batch (MagicDec)."""
    rows = [
        Row.of(predicted.estimates.speedup, case=name, measured=row["speedup_x"])
        for row, name, predicted in magicdec_rounds()
    ]
    return Group(
        name="magicdec",
        quantity="speedup at long context, 8x A100",
        rows=tuple(rows),
        sources=read_table("magicdec_a100").sources,
        assumptions=MAGICDEC_ASSUMPTIONS,
        gain=True,
    )


def magicdec_times() -> Group:
    """The times behind MagicDec's speedups: a plain step, two draft steps, one verification."""
    rows = []
    for row, name, predicted in magicdec_rounds():
        times = {
            "plain": (predicted.estimates.baseline_time, row["TAR_ms"]),
            "draft": (drafting_estimate(predicted.cost, predicted.setting), row["gammaTD_ms"]),
            "verify": (predicted.cost.verify.estimate, row["TV_ms"]),
        }
        rows += [Row.of(time, unit=1e-3, case=f"{part}: {name}", measured=ms) for part, (time, ms) in times.items()]
    return Group(
        name="magicdec-times",
        quantity="time of a step, of 2 draft steps, of a verification [ms]",
        rows=tuple(rows),
        sources=read_table("magicdec_a100").sources,
        assumptions=MAGICDEC_ASSUMPTIONS,
    )


#: Parameters of the drafts of Leviathan's table over the target's 11 billion.
T5_XXL = 11e9
T5_DRAFTS = {"T5-small-77M": 77e6, "T5-base-250M": 250e6, "T5-large-800M": 800e6}


def leviathan() -> Group:
    """Wall-time improvement of T5-XXL from acceptance, draft length and a cost ratio (Leviathan et al.)."""
    table = read_table("leviathan_t5xxl_speedup")
    rows = [
        Row(
            case=f"{row['task']} {row['draft']} T={row['temperature']} γ={row['gamma']}",
            predicted=walltime_improvement(float(row["alpha"]), int(row["gamma"]), T5_DRAFTS[row["draft"]] / T5_XXL),
            measured=row["speedup_x"],
        )
        for row in table.rows
    ]
    return Group(
        name="leviathan",
        quantity="wall-time improvement, T5-XXL",
        rows=tuple(rows),
        sources=table.sources,
        assumptions=("cost ratio c = parameters of the draft over the target's: one decoding step reads all weights",),
        gain=True,
    )
