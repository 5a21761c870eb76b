"""Grids with named axes: every quantity of a speculative round, wherever any of its inputs varies."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs
import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

from latency_model.costs.memory import MemoryUse, memory_use
from latency_model.costs.round import NOT_MODELLED, Asked, Round, as_acceptance
from latency_model.costs.step import COMPUTE_TERMS, MEMORY_TERMS
from latency_model.costs.uncertainty import Estimate, Estimates, round_estimates
from latency_model.errors import InputError, nearest
from latency_model.views.axes import ACCEPTANCE, ARRAYS, AXES, OBJECTS, Grid
from latency_model.views.version import package_version

if TYPE_CHECKING:
    from xarray import Dataset as Dataset

    from latency_model.specs.acceptance import Acceptance
    from latency_model.specs.draft import Draft

__all__ = ["QUANTITIES", "TERMS", "Progress", "evaluated", "sweep", "wanted"]

FloatArray = NDArray[np.floating[Any]]
#: Told how many of how many points are done.
Progress = Callable[[int, int], object]

#: Points evaluated at once; the arrays in flight stay near the caches.
BLOCK = 1 << 15
#: What the time of a round is spent on.
TERMS = (*MEMORY_TERMS.values(), *COMPUTE_TERMS.values(), "kernel launches", "engine overhead", "drafting")
_TERMS = np.array(TERMS, dtype=object)


@frozen(kw_only=True, eq=False, slots=False)
class Block:
    """A block of batch × context × draft length in one cell, with what several quantities share."""

    round: Round

    def with_acceptance(self, acceptance: Acceptance) -> Round:
        """The same round at another acceptance, which changes no time."""
        tokens = acceptance.tokens_per_round(self.round.draft_length)
        return attrs.evolve(self.round, acceptance=acceptance, tokens_per_round=tokens)

    @cached_property
    def terms(self) -> dict[str, FloatArray]:
        """Seconds by what they are spent on [s]."""
        return self.round.cost.terms()

    @cached_property
    def largest_term(self) -> tuple[NDArray[np.int8], FloatArray]:
        """Index in :data:`TERMS` of the term that takes most of the round, and its seconds [s]."""
        largest: FloatArray = np.zeros(self.round.time.shape)
        index = np.zeros(largest.shape, dtype=np.int8)
        for name, seconds in self.terms.items():
            np.copyto(index, TERMS.index(name), where=seconds > largest)
            np.maximum(seconds, largest, out=largest)
        return index, largest

    @cached_property
    def memory(self) -> MemoryUse | None:
        """Memory needed, None where not even the weights fit."""
        point = self.round
        try:
            return memory_use(
                point.setting,
                point.draft,
                batch=point.batch,
                context=point.context,
                draft_length=point.draft_length,
            )
        except InputError:
            return None

    def estimates(self, point: Round) -> Estimates:
        """Intervals of the block at some acceptance, which leaves the deviations of times alone."""
        return round_estimates(point, self.round.deviations)


def _term_times(block: Block, point: Round) -> FloatArray:
    nothing = np.zeros(point.time.shape)
    return np.stack([np.broadcast_to(block.terms.get(term, nothing), nothing.shape) for term in TERMS], axis=-1)


class Quantity(NamedTuple):
    """One variable of a Dataset: its unit, what it is, the axes it varies with, how a block gives it.

    ``column`` names it in rows, unit included, as the commands do.
    """

    unit: str
    title: str
    column: str
    of: Callable[[Block, Round], Any]
    over: tuple[str, ...] = ARRAYS
    costly: bool = False  # takes longer than all others together: only on request
    dtype: Any = float


EVERY = (ACCEPTANCE, *ARRAYS)


def _interval(
    name: str, unit: str, title: str, column: str, of: Callable[[Estimates], Estimate], over: tuple[str, ...]
) -> dict[str, Quantity]:
    """Both ends of the 80 % interval of a quantity."""
    suffix = "_s" if unit == "s" else ""

    def end(side: str) -> Callable[[Block, Round], Any]:
        return lambda block, point: getattr(of(block.estimates(point)), side)

    return {
        f"{name}_{side}": Quantity(
            unit,
            f"{'lower' if side == 'low' else 'upper'} end of the 80 % interval of the {title}",
            f"{column}_{side}{suffix}",
            end(side),
            over,
            costly=True,
        )
        for side in ("low", "high")
    }


#: Every quantity a sweep can give, by its name in the Dataset.
QUANTITIES: dict[str, Quantity] = {
    "speedup": Quantity("1", "speedup over plain decoding", "speedup", lambda _, r: r.speedup, EVERY),
    "tokens_per_round": Quantity(
        "token", "tokens per round", "tokens_per_round", lambda _, r: r.tokens_per_round, (ACCEPTANCE, "draft_length")
    ),
    "round_time": Quantity("s", "time of a round", "time_per_round_s", lambda _, r: r.time),
    "baseline_time": Quantity(
        "s", "time of a plain step", "baseline_tpot_s", lambda _, r: r.baseline_time, ("batch", "context")
    ),
    "draft_time": Quantity("s", "time spent drafting", "draft_time_s", lambda _, r: r.draft_time),
    "verify_time": Quantity("s", "time of verification", "verify_time_s", lambda _, r: r.verify_time),
    "overhead_time": Quantity("s", "time of rejection and host", "overhead_time_s", lambda _, r: r.overhead_time),
    "tpot": Quantity("s", "time per output token", "tpot_s", lambda _, r: r.tpot, EVERY),
    "sequence_rate": Quantity(
        "token/s",
        "output tokens a second of one sequence",
        "tokens_per_second_per_sequence",
        lambda _, r: r.tokens_per_second_per_sequence,
        EVERY,
    ),
    "device_rate": Quantity(
        "token/s",
        "output tokens a second of one device",
        "tokens_per_second_per_device",
        lambda _, r: r.tokens_per_second_per_device,
        EVERY,
    ),
    "dollars_per_million_tokens": Quantity(
        "USD",
        "price of a million output tokens",
        "dollars_per_million_tokens",
        lambda _, r: r.dollars_per_million_tokens if r.price is not None else np.nan,
        EVERY,
    ),
    "memory": Quantity(
        "B",
        "memory needed on the fullest device",
        "memory_bytes",
        lambda block, _: block.memory.total if block.memory else np.nan,
    ),
    "fits": Quantity(
        "", "whether memory suffices", "fits", lambda block, _: block.memory.fits if block.memory else False, dtype=bool
    ),
    "held_back_by": Quantity(
        "", "what takes most of a round", "held_back_by", lambda block, _: _TERMS[block.largest_term[0]], dtype=object
    ),
    "held_back_share": Quantity(
        "1", "its share of the round", "held_back_share", lambda block, r: block.largest_term[1] / r.time
    ),
    "speedup_probability": Quantity(
        "1",
        "probability that speculation gains: speedup above 1",
        "speedup_probability",
        lambda block, r: block.estimates(r).speedup.probability_above(1.0),
        EVERY,
        costly=True,
    ),
    **_interval("speedup", "1", "speedup", "speedup", lambda estimates: estimates.speedup, EVERY),
    **_interval("tpot", "s", "time per output token", "tpot", lambda estimates: estimates.tpot, EVERY),
    **_interval("round_time", "s", "time of a round", "time_per_round", lambda estimates: estimates.time, ARRAYS),
    **_interval(
        "baseline_time",
        "s",
        "time of a plain step",
        "baseline_tpot",
        lambda estimates: estimates.baseline_time,
        ("batch", "context"),
    ),
    "term_time": Quantity("s", "time of a round by what it is spent on", "time_s", _term_times, costly=True),
}


def sweep(
    model: Any = ...,
    hardware: Any = ...,
    *,
    quantity: str | Iterable[str] | None = None,
    draft: Draft | str | Iterable[Draft | str] | None = None,
    acceptance: Any = None,
    batch: ArrayLike = 1,
    context: ArrayLike = 4096,
    draft_length: ArrayLike = range(9),
    chunks: Mapping[str, int] | None = None,
    cluster: Any = None,
    allow_large: bool = False,
    progress: Progress | None = None,
    **axes: Any,
) -> Dataset:
    """Evaluate a speculative round on every combination of the values of named axes.

    Parameters
    ----------
    model, hardware
        One or a list of what :func:`latency_model.speculate` takes.
    quantity : str or iterable of str, optional
        Names from :data:`QUANTITIES`; ``"all"`` adds intervals and the split of the time to what is given by
        default, which take longer than everything else.
    draft : Draft, str or a list, optional
        Drafters, or a mapping from labels to drafters; an EAGLE-3 head when not given.
    acceptance : float, Acceptance or a list, optional
        Numbers are constant acceptances [1]; a published vector for the kind of drafter when not given.
    batch, context, draft_length : array_like
        One number or a flat list [1], [token], [token].
    chunks : mapping, optional
        Values of an axis in one block, by its name: the Dataset is then backed by Dask and evaluated when computed or
        written.
    cluster : str, distributed.Client or distributed cluster, optional
        Where to evaluate: the address of a scheduler, ``"local"`` for all cores of this machine, or what is connected
        already.  The numbers come back at once; ``chunks`` says in which blocks they are worked on.
    allow_large : bool
        Evaluate more than a thousand million points.
    progress : callable, optional
        Told after each block how many of how many points are done.
    **axes
        Any other axis, one value or a list: ``tp``, ``ep``, ``pp``, ``dp``, ``weights``, ``kv_dtype``,
        ``activations``, ``allow_dtype_fallback``, ``engine``, ``persistence``, ``stickiness``,
        ``popularity_cv``, ``kv_reread``, ``speculation_tax``, ``price``.

    Returns
    -------
    xarray.Dataset
        A dimension for every list given, units and provenance in ``attrs``.  Variables have only the dimensions
        they depend on.  Combinations that cannot be, such as a layout that does not divide the model, are NaN
        and named in ``attrs["impossible"]``.

    Raises
    ------
    InputError
        When an axis breaks its rule, or no combination at all is possible.

    Notes
    -----
    The numbers are those of :func:`latency_model.speculate`; see there for equations and sources.

    Examples
    --------
    >>> grid = sweep("Qwen3-30B-A3B", "h100-sxm", batch=[1, 8, 64], draft_length=range(5), acceptance=[0.6, 0.8])
    >>> grid.speedup.dims, grid.verify_time.dims
    (('acceptance', 'batch', 'draft_length'), ('batch', 'draft_length'))
    >>> grid.speedup.sel(acceptance=0.8).idxmax("draft_length").dims
    ('batch',)
    """
    named = {
        "model": model,
        "hardware": hardware,
        "draft": draft,
        "acceptance": acceptance,
        "batch": batch,
        "context": context,
        "draft_length": draft_length,
    }
    names = wanted(quantity)
    grid = Grid.of(named | axes, allow_large=allow_large)
    if cluster is not None:
        from latency_model.views.chunked import evaluated_on
        from latency_model.views.cluster import connected

        with connected(cluster) as client:
            return evaluated_on(client, grid, names, chunks, progress=progress)
    if chunks is not None:
        from latency_model.views.chunked import chunked

        return chunked(grid, names, chunks)
    return evaluated(grid, names, progress=progress)


def wanted(quantity: str | Iterable[str] | None) -> tuple[str, ...]:
    """Names of the quantities meant, in the order of :data:`QUANTITIES`."""
    if quantity is None:
        return tuple(name for name, what in QUANTITIES.items() if not what.costly)
    names = {quantity} if isinstance(quantity, str) else set(quantity)
    if "all" in names:
        return tuple(QUANTITIES)
    for name in names:
        if name not in QUANTITIES:
            raise InputError(f"sweep: no quantity is named {name!r}; {nearest(name, QUANTITIES)}")
    if not names:
        raise InputError("sweep: at least one quantity must be asked for, got an empty list")
    return tuple(name for name in QUANTITIES if name in names)


def evaluated(
    grid: Grid, names: Iterable[str] | None = None, *, progress: Progress | None = None, strict: bool = True
) -> Dataset:
    """Evaluate quantities on a grid; see :func:`sweep`.  ``strict`` refuses a grid that is impossible everywhere."""
    names = wanted(names)
    store = {name: np.empty(_shape(grid, QUANTITIES[name]), QUANTITIES[name].dtype) for name in names}
    points: dict[str, Any] = dict(
        zip(ARRAYS, np.ix_(*(np.asarray(grid.axes[name].values) for name in ARRAYS)), strict=True)
    )
    notes = _Notes()
    done = 0
    for cell in grid.cells():
        per_cell = math.prod(grid.array_shape) * len(grid.axes[ACCEPTANCE])
        try:
            arguments = cell.arguments()
            accepted = [as_acceptance(value, arguments["draft"]) for value in grid.axes[ACCEPTANCE].values]
            for piece, point in Asked.of(**arguments, acceptance=accepted[0], **points).in_blocks(BLOCK):
                if not any(part.start for part in piece):
                    notes.add(point, accepted)
                done += _fill(store, cell.place, piece, Block(round=point), accepted)
                if progress:
                    progress(done, grid.size)
        except InputError as error:
            notes.impossible.append(str(error))
            for name, values in store.items():
                values[cell.place] = {float: np.nan, object: "", bool: False}[QUANTITIES[name].dtype]
            done += per_cell - done % per_cell
    if strict and len(notes.impossible) == math.prod(grid.loop_shape):
        raise InputError(notes.impossible[0])
    return _dataset(grid, store, notes)


@frozen(kw_only=True, eq=False)
class _Notes:
    """What the cells say beside their numbers, each once and in order."""

    assumptions: dict[str, None] = field(factory=dict)
    profiles: dict[str, None] = field(factory=dict)
    sources: dict[str, None] = field(factory=dict)
    impossible: list[str] = field(factory=list)

    def add(self, point: Round, accepted: Iterable[Acceptance]) -> None:
        """Note what a round of a cell rests on."""
        self.assumptions.update(dict.fromkeys(point.assumptions))
        longest = int(point.draft_length.max())
        for acceptance in accepted:
            self.assumptions.update(dict.fromkeys((*acceptance.assumptions, *acceptance.extrapolation_note(longest))))
        machine = point.setting.hardware
        self.profiles[f"{machine.name} {machine.digest}"] = None
        self.sources.update(dict.fromkeys(machine.sources))


def _fill(
    store: Mapping[str, NDArray[Any]],
    cell: tuple[int, ...],
    piece: tuple[slice, ...],
    block: Block,
    accepted: Iterable[Acceptance],
) -> int:
    """Put one block of one cell into the arrays of the result; return its number of points."""
    parts = dict(zip(ARRAYS, (*piece, *[slice(None)] * len(ARRAYS)), strict=False))
    points = [block.with_acceptance(acceptance) for acceptance in accepted]
    shape = block.round.shape
    for name, target in store.items():
        quantity = QUANTITIES[name]
        # One value stands for all along an axis that the quantity does not depend on.
        kept = tuple(slice(None) if axis in quantity.over else slice(0, 1) for axis in ARRAYS)
        places = tuple(part if axis in quantity.over else slice(None) for axis, part in parts.items())
        for index, point in enumerate(points if ACCEPTANCE in quantity.over else points[:1]):
            values = np.asarray(quantity.of(block, point))
            whole = np.broadcast_to(values, shape + values.shape[len(shape) :])
            place: tuple[Any, ...] = (*cell, index, *places)
            target[place] = whole[kept]
    return math.prod(shape) * len(points)


def _shape(grid: Grid, quantity: Quantity) -> tuple[int, ...]:
    """Lengths of all axes, 1 where the quantity does not depend on one, and the terms it is split in."""
    lengths = (len(axis) if name in OBJECTS or name in quantity.over else 1 for name, axis in grid.axes.items())
    return (*lengths, *((len(TERMS),) if quantity.of is _term_times else ()))


def _dataset(grid: Grid, store: Mapping[str, NDArray[Any]], notes: _Notes) -> Dataset:
    import xarray

    variables = {}
    for name, values in store.items():
        quantity = QUANTITIES[name]
        kept = [axis for axis in grid.swept if axis in OBJECTS or axis in quantity.over]
        split = ("term",) if quantity.of is _term_times else ()
        shape = [len(grid.axes[axis]) for axis in kept] + [len(TERMS)] * len(split)
        variables[name] = ((*kept, *split), values.reshape(shape), _attributes(quantity.unit, quantity.title))
    coordinates: dict[str, Any] = {}
    for name, axis in grid.axes.items():
        if axis.swept or axis.asked:
            attributes = _attributes(AXES[name].unit, AXES[name].title) | _known_range(grid, name)
            labels = np.asarray(axis.labels)
            coordinates[name] = (name, labels, attributes) if axis.swept else ((), labels[0], attributes)
    if "term_time" in store:
        coordinates["term"] = ("term", np.array(TERMS), {"long_name": "what the time is spent on"})
    attributes = {
        "title": "speculative decoding: one round at every point",
        "latency_model_version": package_version(),
        "profiles": "\n".join(notes.profiles),
        "assumptions": "\n".join(notes.assumptions),
        "not_modelled": "\n".join(NOT_MODELLED),
        "sources": "\n".join(notes.sources),
        "impossible": "\n".join(dict.fromkeys(notes.impossible)),
    }
    return xarray.Dataset(variables, coordinates, attributes)


def _known_range(grid: Grid, name: str) -> dict[str, Any]:
    """Up to which value of an axis the inputs say something, and why."""
    if name == "context":
        longest = [model.max_context for model in grid.axes["model"].values if model.max_context]
        return {"known_to": min(longest), "beyond": "longer than the model's context"} if longest else {}
    if name == "draft_length":
        positions = [len(a.conditionals) for a in grid.axes[ACCEPTANCE].values if a and len(a.conditionals) > 1]
        return {"known_to": min(positions), "beyond": "acceptance extrapolated"} if positions else {}
    return {}


def _attributes(unit: str, title: str) -> dict[str, str]:
    return {"long_name": title, **({"units": unit} if unit else {})}
