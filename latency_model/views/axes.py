"""The axes of a sweep: what may vary, what a caller may write for it, and the grid that axes span."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import attrs
import numpy as np
from attrs import frozen

from latency_model.errors import InputError, nearest, shorten
from latency_model.specs.acceptance import Acceptance
from latency_model.specs.draft import Draft
from latency_model.specs.engine import load_engine
from latency_model.specs.hardware import load_hardware
from latency_model.specs.loader import load_model
from latency_model.specs.parallelism import Parallelism
from latency_model.specs.precision import DTypes
from latency_model.specs.routing import Routing
from latency_model.specs.workload import checked_flag, checked_number, checked_numbers

__all__ = ["ACCEPTANCE", "ARRAYS", "AXES", "MOST_POINTS", "OBJECTS", "Axis", "Cell", "Grid", "Place"]

#: Values of axes by where they stand on them.
Place = Mapping[str, slice]

#: More points than this are evaluated only on request: a round of them takes a minute, their numbers gigabytes.
MOST_POINTS = 10**9
#: Values of one axis, which stay in memory however a sweep is cut.
MOST_VALUES = 10**7


class Kind(NamedTuple):
    """What one axis is: how a value is read, what it is when not given, how it is labelled, its unit and name."""

    read: Callable[[Any], Any]
    default: Any
    label: Callable[[Any], Any]
    unit: str
    title: str


def _number(name: str) -> Callable[[Any], float]:
    return lambda value: checked_number(name, value)


def _draft(value: Draft | str | None) -> Draft:
    if value is None:
        return Draft.eagle()
    return value if isinstance(value, Draft) else Draft.parse(value)


def _acceptance(value: Acceptance | str | float | None) -> Acceptance | None:
    if value is None or isinstance(value, Acceptance):
        return value
    if isinstance(value, str):
        return Acceptance.parse(value)
    try:
        return Acceptance.constant(float(value))
    except TypeError:
        raise InputError(f"acceptance must be a number, text or an Acceptance, got {shorten(value)}") from None


def _acceptance_label(value: Acceptance | None) -> float | str:
    """A number where acceptance is constant, else its numbers as the command line writes them."""
    if value is None:
        return "published"
    first, *more = value.conditionals
    return ",".join(f"{number:.4g}" for number in value.conditionals) if more else first


def _field(build: Callable[..., Any], name: str) -> Callable[[Any], Any]:
    """Read one field of a noun by building the noun, so that its rules are stated in one place."""
    return lambda value: getattr(build(**{name: value}), name)


def _flag(value: Any) -> bool:
    return checked_flag("allow_dtype_fallback", value)


def _price(value: float | None) -> float | None:
    return None if value is None else checked_number("price", value)


def _engine(value: Any) -> Any:
    load_engine(value)
    return value


def _same(value: Any) -> Any:
    return "as stored" if value is None else value


#: Everything that can vary, in the order of the dimensions of a Dataset.
AXES: dict[str, Kind] = {
    "model": Kind(load_model, ..., lambda model: model.name, "", "model"),
    "hardware": Kind(load_hardware, ..., lambda machine: machine.name, "", "device"),
    "draft": Kind(_draft, None, lambda d: d.architecture.name if d.architecture else d.kind, "", "drafter"),
    "engine": Kind(_engine, "vllm", lambda engine: getattr(engine, "name", engine), "", "serving engine"),
    "tp": Kind(_field(Parallelism, "tp"), 1, int, "1", "tensor-parallel ranks"),
    "ep": Kind(lambda ep: Parallelism(tp=ep, ep=ep).ep, 1, int, "1", "expert-parallel ranks"),
    "pp": Kind(_field(Parallelism, "pp"), 1, int, "1", "pipeline stages"),
    "dp": Kind(_field(Parallelism, "dp"), 1, int, "1", "data-parallel replicas"),
    "weights": Kind(_field(DTypes, "weights"), None, _same, "", "weight format"),
    "kv_dtype": Kind(lambda dtype: DTypes(kv=dtype).kv, None, _same, "", "KV-cache format"),
    "activations": Kind(_field(DTypes, "activations"), "bf16", str, "", "activation format"),
    "allow_dtype_fallback": Kind(_flag, False, bool, "", "next wider format allowed"),
    "persistence": Kind(_field(Routing, "persistence"), None, float, "1", "routing persistence ρ"),
    "stickiness": Kind(_field(Routing, "stickiness"), None, float, "1", "routing stickiness s"),
    "popularity_cv": Kind(_field(Routing, "popularity_cv"), 0.0, float, "1", "unevenness of expert popularity"),
    "kv_reread": Kind(_number("kv_reread"), 0.0, float, "1", "share of tokens that re-read the KV cache"),
    "speculation_tax": Kind(_number("speculation_tax"), 0.0, float, "1", "slow-down for enabling speculation"),
    "price": Kind(_price, None, lambda price: math.nan if price is None else price, "USD/h", "device price"),
    "acceptance": Kind(_acceptance, None, _acceptance_label, "1", "acceptance α of a drafted token"),
    "batch": Kind(_number("batch"), 1, float, "1", "sequences in a step"),
    "context": Kind(_number("context"), 4096, float, "token", "cached tokens of each sequence"),
    "draft_length": Kind(_number("draft_length"), range(9), float, "token", "drafted tokens γ of a round"),
}
ACCEPTANCE = "acceptance"
#: Axes evaluated as arrays; the others, acceptance apart, are looped over.
ARRAYS = ("batch", "context", "draft_length")
OBJECTS = tuple(name for name in AXES if name not in (ACCEPTANCE, *ARRAYS))


@frozen(kw_only=True, eq=False)
class Axis:
    """Values of one axis with their labels; ``swept`` when a list was given, ``asked`` when anything was."""

    name: str
    values: Sequence[Any]
    labels: Sequence[Any]
    swept: bool
    asked: bool

    @classmethod
    def of(cls, name: str, given: Any) -> Axis:
        """Read what a caller wrote: one value, a list, or for objects a mapping from labels to values."""
        kind = AXES[name]
        asked = given is not ...
        if not asked:
            given = kind.default
        if given is ...:
            raise InputError(f"sweep: {name} must be given, e.g. {'Qwen3-30B-A3B' if name == 'model' else 'h100-sxm'}")
        if name in ARRAYS:
            return cls._numbers(name, given, asked)
        labels: Sequence[Any] | None = None
        if isinstance(given, Mapping) and name != "model":
            labels, given = [str(label) for label in given], list(given.values())
        swept = _is_list(given)
        values = [kind.read(value) for value in (given if swept else [given])]
        if labels is None:
            labels = _labels([kind.label(value) for value in values])
        _check_values(name, labels)
        return cls(name=name, values=values, labels=labels, swept=swept, asked=asked)

    @classmethod
    def _numbers(cls, name: str, given: Any, asked: bool) -> Axis:
        if isinstance(given, range):
            if len(given) > MOST_VALUES:
                raise InputError(f"{name}: an axis has at most {MOST_VALUES:,} values, got {len(given):,}")
            given = np.arange(given.start, given.stop, given.step)
        values = checked_numbers(name, given)
        if values.ndim > 1:
            raise InputError(f"{name} must be a number or a flat list, got an array of shape {values.shape}")
        flat = values.reshape(-1).tolist()
        _check_values(name, flat)
        whole = all(value.is_integer() for value in flat)
        labels = [int(value) for value in flat] if whole else flat
        return cls(name=name, values=flat, labels=labels, swept=values.ndim == 1, asked=asked)

    def __len__(self) -> int:
        return len(self.values)

    def part(self, piece: slice) -> Axis:
        """The same axis with fewer values."""
        return attrs.evolve(self, values=self.values[piece], labels=self.labels[piece])


def _is_list(given: Any) -> bool:
    return isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping)


def _labels(labels: list[Any]) -> list[Any]:
    """Labels of one type: text as soon as one is."""
    return [str(label) for label in labels] if any(isinstance(label, str) for label in labels) else labels


def _check_values(name: str, labels: Sequence[Any]) -> None:
    if not labels:
        raise InputError(f"{name}: an axis needs at least one value, got an empty list")
    seen = set()
    for label in labels:
        if label in seen:
            hint = "; give a mapping from labels to values" if name in OBJECTS else ""
            raise InputError(f"{name}: the values of an axis must differ, got {shorten(label)} twice{hint}")
        seen.add(label)


class Cell(NamedTuple):
    """One choice on every axis that is looped over: where it stands and the values chosen."""

    place: tuple[int, ...]
    values: dict[str, Any]

    def arguments(self) -> dict[str, Any]:
        """What :func:`latency_model.speculate` takes for these choices.

        Raises
        ------
        InputError
            When they do not go together, such as more expert-parallel ranks than devices.
        """
        value = self.values
        passed = ("model", "hardware", "draft", "kv_reread", "speculation_tax", "price")
        return {name: value[name] for name in passed} | {
            "engine": load_engine(value["engine"], value["hardware"]),
            "parallelism": Parallelism(**{name: value[name] for name in ("tp", "ep", "pp", "dp")}),
            "routing": Routing(**{name: value[name] for name in ("persistence", "stickiness", "popularity_cv")}),
            "dtypes": DTypes(
                weights=value["weights"],
                kv=value["kv_dtype"],
                activations=value["activations"],
                allow_fallback=value["allow_dtype_fallback"],
            ),
        }


@frozen(kw_only=True, eq=False)
class Grid:
    """Every combination of the values of all axes."""

    axes: Mapping[str, Axis]

    @classmethod
    def of(cls, asked: Mapping[str, Any], *, allow_large: bool = False) -> Grid:
        """Read the axes a caller gave by name, and refuse a size nobody means."""
        for name in asked:
            if name not in AXES:
                raise InputError(f"sweep: no axis is named {shorten(name)}; {nearest(name, AXES)}")
        grid = cls(axes={name: Axis.of(name, asked.get(name, ...)) for name in AXES})
        if grid.size > MOST_POINTS and not allow_large:
            lengths = " × ".join(f"{len(axis):,} {name}" for name, axis in grid.axes.items() if axis.swept)
            raise InputError(
                f"sweep: {lengths} are {grid.size:,} points, more than {MOST_POINTS:,}; take fewer values, "
                "or allow_large=True (--yes) if you mean it"
            )
        return grid

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of all axes, in the order of :data:`AXES`."""
        return tuple(len(axis) for axis in self.axes.values())

    @property
    def size(self) -> int:
        """Points in all."""
        return math.prod(self.shape)

    @property
    def swept(self) -> tuple[str, ...]:
        """Names of the axes that were given as lists: the dimensions of a Dataset."""
        return tuple(name for name, axis in self.axes.items() if axis.swept)

    @property
    def loop_shape(self) -> tuple[int, ...]:
        """Lengths of the axes that are looped over, acceptance apart."""
        return self.shape[: len(OBJECTS)]

    @property
    def array_shape(self) -> tuple[int, ...]:
        """Lengths of batch, context and draft length."""
        return self.shape[-len(ARRAYS) :]

    def cells(self) -> Iterator[Cell]:
        """Every choice of the axes that are looped over."""
        for place in np.ndindex(self.loop_shape):
            values = {name: self.axes[name].values[index] for name, index in zip(OBJECTS, place, strict=True)}
            yield Cell(place, values)

    def lengths(self, size: int) -> dict[str, int]:
        """Values of each axis in a block of at most ``size`` points that lie together: the last axes whole."""
        lengths = {}
        for name in reversed(AXES):
            lengths[name] = max(min(len(self.axes[name]), size), 1)
            size //= lengths[name]
        return {name: lengths[name] for name in self.axes}

    def places(self, lengths: Mapping[str, int]) -> Iterator[Place]:
        """Where blocks of these lengths stand, one after the other; axes without a length are not cut."""
        cuts = []
        for name, axis in self.axes.items():
            step = lengths.get(name, len(axis))
            cuts.append([slice(first, min(first + step, len(axis))) for first in range(0, len(axis), step)])
        for cut in itertools.product(*cuts):
            yield dict(zip(self.axes, cut, strict=True))

    def part(self, place: Place) -> Grid:
        """The grid that some values of every axis span."""
        return Grid(axes={name: axis.part(place.get(name, slice(None))) for name, axis in self.axes.items()})
