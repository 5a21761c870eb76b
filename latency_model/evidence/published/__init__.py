"""Published measurements replayed: each group predicts what a paper, an engine's log or a user reported.

Nothing in the package is fitted to these rows, except where a group says that it fits and what.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from latency_model.evidence.published import acceptance, cases, kernels, parallel, rounds, routing, speculation
from latency_model.evidence.published.record import Group

__all__ = ["REPLAYS"]

#: Every group by its name, in the order of the report.
REPLAYS: dict[str, Callable[[], Group]] = {
    "moesd": speculation.moesd,
    "eagle3-sglang": speculation.eagle3_sglang,
    "eagle-depths": speculation.eagle_depths,
    "magicdec": speculation.magicdec,
    "leviathan": speculation.leviathan,
    "round-times": rounds.round_times,
    "engine-cases": cases.speedups,
    "engine-cases-assumed": partial(cases.speedups, known=False),
    "engine-depths": cases.depths,
    "engine-rounds": cases.rounds,
    "magicdec-times": speculation.magicdec_times,
    "magicdec-fits": kernels.affine_fits,
    "dense-steps": kernels.dense_steps,
    "moe-layer": kernels.moe_layer,
    "unions-fitted": routing.fitted_unions,
    "unions-overlaps": routing.unions_from_overlaps,
    "unions-batched": routing.small_moe,
    "activated-share": routing.activated_share,
    "acceptance-curves": acceptance.curves,
    "acceptance-traces": acceptance.traces,
    "mtp-acceptance": acceptance.mtp,
    "eagle-chain": acceptance.eagle_trees,
    "all-to-all": parallel.all_to_all,
    "rank-imbalance": parallel.rank_loads,
    "balance-losses": parallel.balance_losses,
}
