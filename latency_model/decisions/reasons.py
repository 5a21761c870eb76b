"""Sentences that explain a plan: why the speedup moves, where the best draft length changes, what would help."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latency_model.decisions.optimize import SCHEDULE_TOLERANCE, Plan, Switch
from latency_model.specs.model import MoE

__all__ = ["reasons"]

#: Batches whose ranges of context are written out before a sentence gives only their number.
MOST_NAMED = 6
#: Batches (contexts) between which ranges of context (batch) are still looked for: with more, the plan shows them.
MOST_EXPLAINED = 16


def reasons(plan: Plan) -> tuple[str, ...]:
    """Explain a plan in sentences.

    Parameters
    ----------
    plan
        From :func:`latency_model.optimize`; batch and context of any shape.

    Returns
    -------
    tuple of str
        Dips and declines of the speedup, where plain decoding wins, ranges of batch and context with one best
        draft length, the strongest lever, and what does not fit the memory.

    Examples
    --------
    >>> from latency_model.decisions.optimize import optimize
    >>> for sentence in reasons(optimize("Qwen3-8B", "h100-sxm", acceptance=0.7, batch=[1, 64], context=512)):
    ...     print(sentence)  # doctest: +ELLIPSIS
    Speedup falls beyond batch 1: verifying takes ... times a plain step at 64 against ... at 1.
    ...
    """
    several = plan.context.size > 1
    views = [
        _Column(plan, column, f" at context {context}" if several else "")
        for column, context in enumerate(plan.context.ravel().astype(int).tolist()[:MOST_EXPLAINED])
    ]
    few_batches, few_contexts = plan.batch.size <= MOST_EXPLAINED, plan.context.size <= MOST_EXPLAINED
    parts: list[Iterable[str]] = [_dips(views[0]), _decline(views[0])]  # much the same at every context
    parts += [_plain(view) for view in views]
    if few_contexts and plan.batch.size > 1:
        parts += [_by_batch(plan, column, view.where) for column, view in enumerate(views)]
    if few_batches:
        parts.append(_by_context(plan))
    distinct = {tuple(view.lever.tolist()): view for view in reversed(views)}  # the first context of each kind
    parts += [_levers(view) for view in reversed(distinct.values())]
    parts += [_memory(view) for view in views]
    return tuple(sentence for part in parts for sentence in part)


class _Column:
    """One context of a plan: arrays over batch, smallest first."""

    def __init__(self, plan: Plan, column: int, where: str) -> None:
        order = np.argsort(plan.batch.ravel(), kind="stable")

        def take(values: ArrayLike) -> NDArray[Any]:
            grid: NDArray[Any] = np.asarray(values).reshape(plan.batch.size, plan.context.size)
            column_of_grid: NDArray[Any] = grid[order, column]
            return column_of_grid

        self.plan, self.where = plan, where
        self.batch = plan.batch.ravel()[order].astype(int)
        self.speedup, self.draft_length = take(plan.speedup), take(plan.draft_length)
        self.verify_ratio = 1.0 / take(plan.best.target_efficiency)
        self.break_even = take(plan.break_even_acceptance)
        self.lever, self.lever_gain = take(plan.lever), take(plan.lever_gain)
        self.fits, self.largest_batch = (
            take(plan.memory.fits),
            take(plan.memory.largest_batch),
        )


def _dips(view: _Column) -> Iterator[str]:
    """The deepest minimum inside the batches asked, explained by the experts touched."""
    block = _experts(view.plan)
    speedup = view.speedup
    if block is None:
        return
    dips = [i for i in range(1, len(speedup) - 1) if speedup[i] < speedup[i - 1] and speedup[i] < speedup[i + 1]]
    deepest = min(dips, key=lambda i: float(speedup[i]), default=None)
    if deepest is not None and view.draft_length[deepest] > 0:
        peak = deepest + 1 + int(np.argmax(speedup[deepest + 1 :]))
        (here, plain), (later, later_plain) = _touched(view, block, deepest), _touched(view, block, peak)
        yield (
            f"Why it dips at batch {view.batch[deepest]}{view.where}: verifying {view.draft_length[deepest] + 1} "
            f"tokens touches {here:.0f} of {block.num_experts} experts against {plain:.0f} for a plain step; "
            f"at {view.batch[peak]} it is {later:.0f} against {later_plain:.0f}."
        )


def _experts(plan: Plan) -> MoE | None:
    """The routed experts of the model, those of its first sparse layer, or None for a dense one."""
    return next((block for block, _ in plan.best.setting.model.moe_kinds), None)


def _touched(view: _Column, block: MoE, index: int) -> NDArray[np.floating[Any]]:
    """Experts a verification and a plain step touch in one layer."""
    routing = view.plan.best.setting.routing
    fed = [view.draft_length[index] + 1, 1]
    return routing.distinct_experts(block.num_experts, block.top_k, fed, view.batch[index])


def _decline(view: _Column) -> Iterator[str]:
    peak, last = int(np.argmax(view.speedup)), len(view.speedup) - 1
    grows = f"{view.verify_ratio[last]:.2f}" > f"{view.verify_ratio[peak]:.2f}"
    if peak < last and view.draft_length[last] > 0 and view.speedup[last] < view.speedup[peak] and grows:
        yield (
            f"Speedup falls beyond batch {view.batch[peak]}{view.where}: verifying takes {view.verify_ratio[last]:.2f} "
            f"times a plain step at {view.batch[last]} against {view.verify_ratio[peak]:.2f} at {view.batch[peak]}."
        )


def _plain(view: _Column) -> Iterator[str]:
    """Where not speculating is best, and what acceptance would change that."""
    best = view.draft_length == 0
    if best.any() and len(view.plan.lengths) > 1:
        needed = view.break_even[best][0]
        pays = "no acceptance pays" if np.isnan(needed) else f"drafts pay above acceptance {needed:.2f}"
        first = view.batch[best][0]
        yield f"Plain decoding is best at batch {_listed(view.batch, best)}{view.where}: {pays} at {first}."


def _by_batch(plan: Plan, column: int, where: str) -> Iterator[str]:
    """Ranges of batch with one draft length, as few as staying close to the best allows."""
    schedule = plan.schedules[column]
    if len(schedule) > 1:
        yield f"Draft length by batch{where}, within {100 * SCHEDULE_TOLERANCE:g} % of the best: {_ranges(schedule)}."


def _by_context(plan: Plan) -> Iterator[str]:
    """Where the best draft length changes with context, for the batches where it does."""
    changing = [
        f"{_ranges(switches)} at batch {batch}"
        for batch, switches in zip(plan.batch.ravel().astype(int).tolist(), plan.context_switches, strict=True)
        if len(switches) > 1
    ]
    if len(changing) > MOST_NAMED:
        yield f"Best draft length changes with context at {len(changing)} of the batches, e.g. {changing[0]}."
    elif changing:
        yield f"Best draft length by context: {'; '.join(changing)}."


def _ranges(switches: Sequence[Switch]) -> str:
    """Write ranges as ``3 up to 8, then 4``."""
    parts = [f"{switch.draft_length} up to {switch.end}" for switch in switches[:-1]]
    return ", ".join([*parts, f"then {switches[-1].draft_length}"])


def _levers(view: _Column) -> Iterator[str]:
    """The term whose halving lowers TPOT most, with the batches where that is so."""
    parts = []
    for lever in dict.fromkeys(view.lever.tolist()):
        chosen = view.lever == lever
        low, high = (
            round(100 * float(gain)) for gain in (view.lever_gain[chosen].min(), view.lever_gain[chosen].max())
        )
        share = f"{low} %" if low == high else f"{low}-{high} %"
        parts.append(f"{lever} at batch {_listed(view.batch, chosen)} (halved: TPOT {share} lower)")
    yield f"Next best lever{view.where}: {', '.join(parts)}."


def _memory(view: _Column) -> Iterator[str]:
    if not view.fits.all():
        most = int(view.largest_batch[0]) * view.plan.best.setting.parallelism.dp
        yield (
            f"No room in memory{view.where} for batch {_listed(view.batch, ~view.fits)} (marked !): "
            f"beside the weights {most} sequences fit."
        )


def _listed(batches: NDArray[np.int64], chosen: NDArray[np.bool_]) -> str:
    """Write the chosen ones of the batches asked, neighbours as ``1 to 64``."""
    starts = np.flatnonzero(chosen & ~np.r_[False, chosen[:-1]])
    ends = np.flatnonzero(chosen & ~np.r_[chosen[1:], False])
    runs = zip(batches[starts], batches[ends], strict=True)
    texts = [str(first) if first == last else f"{first} to {last}" for first, last in runs]
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))
