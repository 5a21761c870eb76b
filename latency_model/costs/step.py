"""The cost of one engine step: every operation with its FLOPs, bytes, time and bound, and the engine around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, reduce
from typing import Any, Literal

import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

from latency_model.costs.counts import Operation, expert_operations, token_operations
from latency_model.costs.grid import distinct
from latency_model.costs.mixers import context_operations
from latency_model.costs.setting import Setting
from latency_model.costs.uncertainty import Estimate, step_estimate
from latency_model.errors import InputError
from latency_model.formulas.roofline import roofline_time
from latency_model.specs.engine import EngineOverheads
from latency_model.specs.hardware import HardwareProfile
from latency_model.specs.model import ModelArchitecture
from latency_model.specs.parallelism import Parallelism
from latency_model.specs.precision import DTypes
from latency_model.specs.routing import Routing
from latency_model.specs.workload import checked_flag, checked_numbers, checked_shape

__all__ = [
    "COMMUNICATION",
    "Component",
    "Part",
    "Scales",
    "Share",
    "StepCost",
    "evaluate",
    "host_row",
    "scaled_host_time",
    "step_cost",
    "timed",
]

FloatArray = NDArray[np.floating[Any]]
IndexArray = NDArray[np.intp]

#: Factors on times, keyed by (operation kind or group, part): ``("gemm", "memory"): 1.1`` makes the memory term
#: of every GEMM 10 % slower.  Parts are ``compute``, ``memory`` and ``overhead``; those of ``engine`` are the host
#: times and the launch share of specs.engine.
Scales = Mapping[tuple[str, str], float]

#: Which part of a cost is meant.
Share = Literal["all", "context", "rest"]

COMMUNICATION = ("all_reduce", "all_to_all", "p2p")
NO_SCALES: Scales = {}
HostTimes = Mapping[str, float]

#: What the memory and compute terms of each group are called when a time is explained.
MEMORY_TERMS = {
    "weights": "weight bytes",
    "experts": "expert bytes",
    "KV": "KV bytes",
    "state": "state bytes",
    "activations": "activation bytes",
    "communication": "link bytes",
}
COMPUTE_TERMS = {
    "weights": "matrix compute",
    "experts": "expert compute",
    "KV": "attention compute",
    "state": "state compute",
    "activations": "activation compute",
    "communication": "link latency",
}


@frozen(kw_only=True, eq=False)
class Component:
    """An operation with the rates it reaches on the machine: enough to time it, scaled or not.

    ``work`` is what the roofline divides by ``peak_flops``: the FLOPs, and those at the end that cannot be shared.
    ``peak_flops`` and ``bandwidth`` are achieved rates [FLOP/s], [B/s]; ``overhead`` [s] is what the engine leaves of
    the fixed time of all its kernels.
    For communication the latency takes the place of the compute term (the smooth maximum of equations.md
    section 10), ``bandwidth`` is the link's.
    """

    operation: Operation
    work: FloatArray
    peak_flops: float
    bandwidth: float
    overhead: float
    sharpness: float

    @property
    def repeats(self) -> int:
        """Executions in the step [1]."""
        return self.operation.repeats

    def _factor(self, scales: Scales, part: str) -> float:
        return scales.get((self.operation.kind, part), 1.0) * scales.get((self.operation.group, part), 1.0)

    def _touched(self, scales: Scales) -> bool:
        own = (self.operation.kind, self.operation.group)
        return any(name in own or part == "launch_share" for name, part in scales)

    @cached_property
    def _plain_time(self) -> FloatArray:
        return self.time()

    def time(self, scales: Scales = NO_SCALES) -> FloatArray:
        """Seconds of all executions in the step [s]; those that ``scales`` leave alone are worked out once."""
        if scales and not self._touched(scales):
            return self._plain_time
        once = roofline_time(
            self.work,
            self.operation.traffic,
            peak_flops=self.peak_flops / self._factor(scales, "compute"),
            bandwidth=self.bandwidth / self._factor(scales, "memory"),
            overhead=self.overhead * self._factor(scales, "overhead") * scales.get(("engine", "launch_share"), 1.0),
            sharpness=self.sharpness,
        )
        return self.repeats * once

    def terms(self) -> dict[str, FloatArray]:
        """The time split by what it is spent on [s]; the parts add up to :meth:`time`.

        The p-norm's share of each term is its p-th power, so the split is smooth in every argument.
        """
        compute = np.asarray(self.work / self.peak_flops)
        memory = np.asarray(self.operation.traffic / self.bandwidth)
        total = self.time()
        launches = self.repeats * self.overhead
        share = _power_share(compute, memory, self.sharpness)
        group = self.operation.group
        return {
            COMPUTE_TERMS[group]: (total - launches) * share,
            MEMORY_TERMS[group]: (total - launches) * (1.0 - share),
            "kernel launches": np.full_like(total, launches),
        }

    @property
    def bound(self) -> NDArray[np.str_]:
        """Which of compute, memory, overhead or communication takes most of the time."""
        if self.operation.group == "communication":
            return np.full(np.shape(self.time()), "communication")
        compute, memory, overhead = self.terms().values()
        largest = np.argmax(np.stack(np.broadcast_arrays(compute, memory, overhead)), axis=0)
        names: NDArray[np.str_] = np.array(["compute", "memory", "overhead"])[largest]
        return names


def _power_share(compute: FloatArray, memory: FloatArray, sharpness: float) -> FloatArray:
    """compute^p / (compute^p + memory^p), the limit p → ∞ and the case 0/0 included [1]."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = memory / compute
        share = 1.0 / (1.0 + ratio**sharpness)
    return np.where(np.isnan(share), 0.0 if not np.isinf(sharpness) else 0.5, share)


@frozen(kw_only=True, eq=False)
class Part:
    """Components that depend on the same coordinates, on distinct values of them where that pays.

    ``index`` says for each point of the result which of the distinct values it has; None: values are in place.
    """

    components: tuple[Component, ...]
    index: IndexArray | None = None

    def spread(self, values: FloatArray) -> FloatArray:
        """Bring values on distinct coordinates to the points of the result."""
        return values if self.index is None else values[self.index]

    def time(self, scales: Scales = NO_SCALES) -> FloatArray:
        """Seconds of all components at every point [s]."""
        return self.spread(_total(component.time(scales) for component in self.components))


@frozen(kw_only=True, eq=False, slots=False)
class StepCost:
    """What one step of the engine costs on one device of the layout.

    Attributes
    ----------
    parts : tuple of Part
        Operations grouped by what they depend on.
    host_times : mapping of str to float
        Host seconds of the step by what they are paid for, the engine's ``STEP_TIMES`` [s].
    shape : tuple of int
        Broadcast shape of batch, tokens and context.
    setting : Setting
        What runs on what.
    assumptions : tuple of str
        What was taken for granted.

    Examples
    --------
    >>> cost = step_cost("Qwen3-8B", "h100-sxm", batch=[1, 64], context=4096)
    >>> cost.time.shape
    (2,)
    >>> cost.table[0]["name"]
    'qkv'
    """

    parts: tuple[Part, ...]
    host_times: HostTimes
    shape: tuple[int, ...]
    setting: Setting = field(repr=False)
    assumptions: tuple[str, ...] = field(default=(), repr=False)

    def scaled_time(self, scales: Scales = NO_SCALES) -> FloatArray:
        """Seconds of the step with some terms made slower or faster, broadcast shape of the arguments [s]."""
        # The host first, and what depends on the context last: then shares of a cost add up to it, to the last digit.
        host = scaled_host_time(self.host_times, scales)
        total = _total([*([np.asarray(host)] if np.any(host) else []), *(part.time(scales) for part in self.parts)])
        return total if total.shape == self.shape else np.broadcast_to(total, self.shape)

    @property
    def engine_time(self) -> float:
        """Host seconds of the step [s]."""
        return float(scaled_host_time(self.host_times))

    @cached_property
    def time(self) -> FloatArray:
        """Seconds of the step, broadcast shape of the arguments [s]."""
        return self.scaled_time()

    @cached_property
    def estimate(self) -> Estimate:
        """The time with its 80 % interval: ``.low``, ``.best``, ``.high`` [s]."""
        return step_estimate(self, self.setting)

    def operations(self) -> Iterator[tuple[Part, Component]]:
        """Every component with the part it belongs to."""
        for part in self.parts:
            for component in part.components:
                yield part, component

    @property
    def flops(self) -> FloatArray:
        """FLOPs of the step on one device [FLOP]."""
        return self._total(lambda operation: operation.flops)

    @property
    def traffic(self) -> FloatArray:
        """Bytes the step moves through the memory of one device [B]."""
        return self._total(lambda operation: operation.traffic)

    def _total(self, count: Callable[[Operation], FloatArray]) -> FloatArray:
        total: FloatArray = np.zeros(self.shape)
        for part, component in self.operations():
            if component.operation.group != "communication":
                total = total + part.spread(component.repeats * count(component.operation))
        return total

    def terms(self) -> dict[str, FloatArray]:
        """Seconds by what they are spent on, each of the broadcast shape; they add up to :attr:`time` [s]."""
        totals: dict[str, FloatArray] = {"engine overhead": np.full(self.shape, self.engine_time)}
        for part, component in self.operations():
            for name, seconds in component.terms().items():
                totals[name] = totals.get(name, np.zeros(self.shape)) + part.spread(seconds)
        return totals

    @property
    def table(self) -> list[dict[str, Any]]:
        """One row per kind of operation: executions, kernels, FLOPs, bytes, time, bound and share of the step.

        Operations of one name and group are added up over the kinds of layers.  Values have the broadcast shape.
        """
        rows: dict[tuple[str, str, str], dict[str, Any]] = {}
        for part, component in self.operations():
            operation = component.operation
            key = (operation.name, operation.group, operation.dtype)
            row = rows.setdefault(
                key,
                {
                    "name": operation.name,
                    "group": operation.group,
                    "dtype": operation.dtype,
                    "executions": 0,
                    "kernels": 0.0,
                    "flops": np.zeros(self.shape),
                    "traffic_bytes": np.zeros(self.shape),
                    "time_s": np.zeros(self.shape),
                    "terms": {},
                },
            )
            row["executions"] += component.repeats
            row["kernels"] += component.repeats * operation.kernels
            row["flops"] = row["flops"] + part.spread(component.repeats * operation.flops)
            row["traffic_bytes"] = row["traffic_bytes"] + part.spread(component.repeats * operation.traffic)
            row["time_s"] = row["time_s"] + part.spread(component.time())
            for term, seconds in component.terms().items():
                row["terms"][term] = row["terms"].get(term, 0.0) + part.spread(seconds)
        for row in rows.values():
            row["bound"] = _bound(row.pop("terms"), self.shape)
            row["share"] = row["time_s"] / self.time
        return [*rows.values(), host_row("engine", np.full(self.shape, self.engine_time), self.time)]


def _total(seconds: Iterable[FloatArray]) -> FloatArray:
    """Add arrays up, without a pass over the first; nothing at all is 0."""
    first, *others = [*seconds] or [np.zeros(())]
    return np.asarray(reduce(np.add, others, first))


def step_host_times(setting: Setting) -> HostTimes:
    """Host seconds of a step by what they are paid for: once, for ranks that wait, for layers, for routing [s]."""
    counts = {
        "per_step": 1.0,
        "per_step_doubling": setting.parallelism.doublings(setting.model.is_moe),
        "per_layer": len(setting.model.layers),
        "per_moe_layer": sum(count for _, count in setting.model.moe_kinds),
    }
    return {part: count * getattr(setting.engine, part).value for part, count in counts.items()}


def scaled_host_time(times: HostTimes, scales: Scales = NO_SCALES) -> float:
    """Add up host seconds, each made longer or shorter by its factor [s]."""
    return sum(seconds * scales.get(("engine", part), 1.0) for part, seconds in times.items())


def host_row(name: str, seconds: FloatArray, total: FloatArray) -> dict[str, Any]:
    """A row of :attr:`StepCost.table` for time the host takes: nothing computed, nothing moved."""
    nothing = np.zeros(np.shape(seconds))
    return {
        "name": name,
        "group": "engine",
        "dtype": "",
        "executions": 1,
        "kernels": 0.0,
        "flops": nothing,
        "traffic_bytes": nothing,
        "time_s": np.asarray(seconds),
        "bound": np.full(np.shape(seconds), "overhead"),
        "share": seconds / total,
    }


def _bound(terms: Mapping[str, FloatArray], shape: tuple[int, ...]) -> NDArray[np.str_]:
    """Name the resource most of the time goes to: compute, memory, overhead or communication."""
    names = [_resource(term) for term in terms]
    stacked = np.stack([np.broadcast_to(seconds, shape) for seconds in terms.values()])
    largest: NDArray[np.str_] = np.array(names)[np.argmax(stacked, axis=0)]
    return largest


def _resource(term: str) -> str:
    if term.startswith("link"):
        return "communication"
    if term.endswith("bytes"):
        return "memory"
    return "compute" if term.endswith("compute") else "overhead"


def timed(operations: Iterable[Operation], setting: Setting) -> tuple[Component, ...]:
    """Give each operation the rates its kind and number format reach on the machine."""
    return tuple(_component(operation, setting) for operation in operations if _runs(operation, setting))


def _runs(operation: Operation, setting: Setting) -> bool:
    """Nothing is rounded to a format in which the device cannot multiply."""
    return operation.kind != "quantise" or operation.dtype in setting.hardware.peaks


def _component(operation: Operation, setting: Setting) -> Component:
    hardware, kind = setting.hardware, operation.kind
    if kind in COMMUNICATION:
        constants = hardware.efficiency(kind, operation.dtype)
        return Component(
            operation=operation,
            work=np.full_like(operation.traffic, constants.overhead),
            peak_flops=1.0,
            bandwidth=constants.memory * _link_rate(hardware),
            overhead=0.0,
            sharpness=constants.sharpness,
        )
    peak = hardware.peak_flops(operation.dtype, allow_fallback=setting.dtypes.allow_fallback)
    constants = hardware.efficiency(kind, peak.dtype)
    return Component(
        operation=operation,
        work=_work(operation, constants.tail, hardware),
        peak_flops=constants.compute * peak.value / _softmax_factor(operation, peak.value, hardware),
        bandwidth=constants.memory * hardware.memory_bandwidth.value,
        overhead=constants.overhead * operation.kernels * setting.engine.launch_share.value,
        sharpness=constants.sharpness,
    )


def _work(operation: Operation, tail: float, hardware: HardwareProfile) -> FloatArray:
    """FLOPs and those of c last pieces on one of N cores, F + c N F_1: the others have nothing left to do (Graham)."""
    if tail == 0.0 or hardware.cores is None:
        return operation.flops
    return operation.flops + tail * hardware.cores * operation.piece


def _softmax_factor(operation: Operation, peak: float, hardware: HardwareProfile) -> float:
    """How much longer a FLOP takes with its share of exponentials, 1 + x P/X [1].

    Exponentials run at X a second on units of their own, and products wait for them.
    """
    if hardware.exponentials is None:
        return 1.0
    return 1.0 + operation.exponentials * peak / hardware.exponentials.value


def _link_rate(hardware: HardwareProfile) -> float:
    """Bytes per second between devices, one direction: the link's, or PCIe's where there is none [B/s]."""
    link = hardware.link_bandwidth or hardware.pcie
    if link is None:
        raise InputError(
            f"{hardware.title} ({hardware.name}) states no link between devices; "
            "use one device, or a profile that extends this one with [link] bandwidth"
        )
    return link.value


def evaluate(
    setting: Setting,
    *,
    batch: FloatArray,
    tokens_per_sequence: FloatArray,
    context: FloatArray,
    prefill: bool = False,
    share: Share = "all",
) -> StepCost:
    """Cost of a step for checked float arrays; see :func:`step_cost`.

    ``share`` takes only what depends on the context, or only the rest: together they make the step.
    """
    replica = setting.parallelism.sequences_per_replica(batch)
    parts = [] if share == "context" else _context_free_parts(setting, batch, replica, tokens_per_sequence, prefill)
    if share != "rest":
        counted = context_operations(
            setting.model,
            batch=replica,
            tokens_per_sequence=tokens_per_sequence,
            context=context,
            kv_reread=setting.kv_reread,
            prefill=prefill,
            parallelism=setting.parallelism,
            dtypes=setting.dtypes,
        )
        parts.append(Part(components=timed(counted, setting)))
    return StepCost(
        parts=tuple(part for part in parts if part.components),
        host_times={} if share == "context" else step_host_times(setting),
        shape=np.broadcast_shapes(batch.shape, tokens_per_sequence.shape, context.shape),
        setting=setting,
        assumptions=setting.assumptions,
    )


def _context_free_parts(
    setting: Setting, batch: FloatArray, replica: FloatArray, tokens_per_sequence: FloatArray, prefill: bool
) -> list[Part]:
    """What depends on the tokens fed alone, and what on the sequences they belong to as well."""
    layout, parts = setting.parallelism, []
    tokens: FloatArray = np.asarray(replica * tokens_per_sequence)
    index, sampled = None, replica
    if not prefill:
        (tokens,), index = distinct(tokens)
        sampled = tokens
    counted = token_operations(setting.model, tokens=tokens, sampled=sampled, parallelism=layout, dtypes=setting.dtypes)
    parts.append(Part(components=timed(counted, setting), index=index))

    if setting.model.is_moe:
        (sequences, each), index = distinct(batch, tokens_per_sequence)
        counted = expert_operations(
            setting.model,
            batch=sequences,
            tokens_per_sequence=each,
            routing=setting.routing,
            parallelism=layout,
            dtypes=setting.dtypes,
        )
        parts.append(Part(components=timed(counted, setting), index=index))
    return parts


def step_cost(
    model: ModelArchitecture | str | Mapping[str, object],
    hardware: HardwareProfile | str,
    *,
    batch: ArrayLike = 1,
    context: ArrayLike = 4096,
    tokens_per_sequence: ArrayLike = 1,
    prefill: bool = False,
    parallelism: Parallelism | None = None,
    routing: Routing | None = None,
    dtypes: DTypes | Mapping[str, object] | str | None = None,
    engine: EngineOverheads | str = "vllm",
    kv_reread: float = 0.0,
) -> StepCost:
    r"""Cost of one engine step: B sequences that each feed n tokens after S cached ones.

    .. math:: T = T_{host} + \sum_i r_i \left(\varphi k_i t_0 + \left[(F_i/a_F P)^p + (M_i/a_B W)^p\right]^{1/p}\right)

    Parameters
    ----------
    model : ModelArchitecture, str or mapping
        The network, its bundled name, the path of its config, or the config itself.
    hardware : HardwareProfile or str
        The machine, its name or the path of its profile.
    batch : array_like
        Sequences in the step over all replicas, B ≥ 1 [1].
    context : array_like
        Tokens already cached per sequence, S ≥ 0 [token].
    tokens_per_sequence : array_like
        Tokens each sequence feeds: 1 to decode, γ + 1 to verify, its prompt to prefill [token].
    prefill : bool
        Use the kernels of a prefill and sample only the last token of each sequence.
    parallelism, routing, dtypes, engine
        Layout, expert choice, number formats and engine; each has a documented default.  The engine says what the
        host adds, and which share φ of a kernel's fixed time is left in its CUDA graphs.
    kv_reread : float
        0 when kernels read the cache once for all tokens of a sequence, 1 when once for each token [1].

    Returns
    -------
    StepCost
        Itemised; ``.time`` has the broadcast shape of the three arrays [s].

    Raises
    ------
    InputError
        When an argument breaks its rule, the layout does not fit the model, or the device lacks a number format.

    Notes
    -----
    Kernels run one after another; communication does not overlap with compute.  Source: equations.md sections 1-3
    (roofline with measured constants), MoESD arXiv 2505.19645 eq. 8 for the uniform limit of the expert count.

    Examples
    --------
    >>> one = step_cost("Qwen3-8B", "h100-sxm", batch=1, context=1024)
    >>> bool(one.time < step_cost("Qwen3-8B", "h100-sxm", batch=1, context=32768).time)
    True
    """
    setting = Setting.of(
        model,
        hardware,
        parallelism=parallelism,
        routing=routing,
        dtypes=dtypes,
        engine=engine,
        kv_reread=kv_reread,
    )
    points: dict[str, Any] = {
        "batch": checked_numbers("batch", batch),
        "tokens_per_sequence": checked_numbers("tokens_per_sequence", tokens_per_sequence),
        "context": checked_numbers("context", context),
    }
    checked_shape(**points)
    return evaluate(
        setting,
        **points,
        prefill=checked_flag("prefill", prefill),
    )
