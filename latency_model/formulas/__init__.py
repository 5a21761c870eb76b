"""The closed forms: pure functions of floats and arrays, one equation each, numpy and nothing else.

Arguments are SI floats and broadcast; scalars in, one ``np.float64`` out; NaN in, NaN out; a number outside a
formula's domain raises :class:`latency_model.errors.InputError`.
"""

from __future__ import annotations

from latency_model.formulas.acceptance import (
    acceptance_from_divergence,
    acceptance_from_mean_length,
    break_even_tokens,
    conditional_from_survival,
    draft_acceptance_rate,
    expected_tokens,
    expected_tokens_from_conditional,
    operations_increase,
    oracle_tokens,
    speedup,
    survival_from_conditional,
    target_efficiency,
    walltime_improvement,
)
from latency_model.formulas.draft_length import (
    best_draft_length,
    break_even_acceptance,
    optimal_draft_length,
)
from latency_model.formulas.load import (
    batch_probabilities,
    expected_rounds,
    first_token_latency,
    inflection_context,
    queueing_delay,
    request_latency,
    speculation_break_even_load,
)
from latency_model.formulas.parallel import (
    all_reduce_time,
    all_to_all_time,
    busiest_rank_experts,
    hot_expert_imbalance,
    rank_imbalance,
)
from latency_model.formulas.roofline import crossover_tokens, p_norm, ridge_point, roofline_time
from latency_model.formulas.routing import (
    distinct_experts,
    expert_miss_probability,
    persistence_from_overlap,
    routing_overlap,
    stickiness_from_overlap,
)
from latency_model.formulas.uncertainty import exceedance_probability

__all__ = [
    "acceptance_from_divergence",
    "acceptance_from_mean_length",
    "all_reduce_time",
    "all_to_all_time",
    "batch_probabilities",
    "best_draft_length",
    "break_even_acceptance",
    "break_even_tokens",
    "busiest_rank_experts",
    "conditional_from_survival",
    "crossover_tokens",
    "distinct_experts",
    "draft_acceptance_rate",
    "exceedance_probability",
    "expected_rounds",
    "expected_tokens",
    "expected_tokens_from_conditional",
    "expert_miss_probability",
    "first_token_latency",
    "hot_expert_imbalance",
    "inflection_context",
    "operations_increase",
    "optimal_draft_length",
    "oracle_tokens",
    "p_norm",
    "persistence_from_overlap",
    "queueing_delay",
    "rank_imbalance",
    "request_latency",
    "ridge_point",
    "roofline_time",
    "routing_overlap",
    "speculation_break_even_load",
    "speedup",
    "stickiness_from_overlap",
    "survival_from_conditional",
    "target_efficiency",
    "walltime_improvement",
]
