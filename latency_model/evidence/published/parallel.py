"""Published imbalance and collectives of expert parallelism."""

from __future__ import annotations

import numpy as np

from latency_model.evidence.published.record import Group, Row, read_table
from latency_model.formulas.parallel import all_to_all_time, hot_expert_imbalance, rank_imbalance

__all__ = ["all_to_all", "balance_losses", "rank_loads"]


def all_to_all() -> Group:
    """DeepEP's dispatch and combine against the number of ranks, from bytes and the network's rate."""
    table = read_table("deepep_low_latency")
    copies = 128 * 8  # tokens of a rank, times experts of each
    sent = {"dispatch": copies * (7168 + 7168 / 128 * 4), "combine": copies * 7168 * 2}
    rows = []
    for row in table.rows:
        ranks = int(row["ep_size"])
        if ranks == 8:
            continue
        for phase, moved in sent.items():
            predicted = 1e6 * all_to_all_time(moved, ranks, link_bandwidth=50e9, latency=44e-6, local=8)
            case = f"{phase}, {ranks} ranks"
            rows.append(Row(case=case, predicted=predicted, measured=float(row[f"{phase}_us"])))
    return Group(
        name="all-to-all",
        quantity="dispatch and combine [µs]",
        rows=tuple(rows),
        sources=table.sources,
        assumptions=("fixed 44 µs fitted once to dispatch; fp8 with one fp32 scale per 128 values out, bf16 back",),
        skipped=(("8 ranks", "one node: nothing crosses the network whose rate is known"),),
    )


def rank_loads() -> Group:
    """Busiest over mean rank of DeepSeek-R1 in TensorRT-LLM, with and without balancing."""
    table = read_table("trtllm_eplb_imbalance_deepseek_r1")
    experts = 256
    rows = []
    for row in table.rows:
        ranks = int(row["config"].split("EP")[-1])
        mean = float(row["rank_mean_tokens"])
        if row["config"].startswith("no EPLB"):
            cv = float(row["slot_std"]) / float(row["slot_mean_tokens"])
            share = (1.0 + float(row["slot_imbalance_ratio"])) / experts
            predicted = max(rank_imbalance(cv, experts, ranks, mean), hot_expert_imbalance(share, experts, ranks))
        else:
            # Balanced on purpose: the spread over ranks is what the balancer left, not what experts give.
            predicted = 1.0 + float(row["rank_std"]) / mean * np.sqrt(2.0 * np.log(ranks))
        case = row["config"]
        rows.append(Row(case=case, predicted=predicted, measured=1.0 + float(row["rank_imbalance_ratio"])))
    return Group(
        name="rank-imbalance",
        quantity="busiest over mean rank",
        rows=tuple(rows),
        sources=table.sources,
        assumptions=(
            "unbalanced: the larger of the Gaussian form (cv of slots) and the hot-expert form (busiest slot)",
            "balanced: from the measured spread over ranks",
        ),
    )


def balance_losses() -> Group:
    """Busiest over mean expert from the coefficient of variation of load (Shazeer et al.)."""
    table = read_table("shazeer_balance_losses")
    experts = 256
    rows = [
        Row(
            case=f"w_importance={row['w_importance']} w_load={row['w_load']}",
            predicted=rank_imbalance(float(row["cv_load"]), experts, experts, np.inf),
            measured=float(row["max_over_mean_load"]),
        )
        for row in table.rows
        if row["cv_load"]
    ]
    return Group(
        name="balance-losses",
        quantity="busiest over mean expert",
        rows=tuple(rows),
        sources=table.sources,
        assumptions=("every expert its own rank, many tokens",),
        skipped=(("w_importance=0.01 w_load=0.01", "its cv of load was not readable"),),
    )
