"""What a device can do: dense peaks, bandwidths, capacity, and how much of them kernels reach.

One device is one TOML file in ``hardware_profiles/`` (its README explains the format).  Every number carries
its source and kind; efficiencies that were not measured on the device say where they were taken from.
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import attrs
from attrs import field, frozen

from latency_model.errors import InputError, Problems, nearest, shorten
from latency_model.specs.dtypes import COMPUTE_FALLBACK, DTYPES, canonical_dtype, dtype_bytes
from latency_model.specs.frozen_map import FrozenMap
from latency_model.specs.quantity import KINDS, Quantity
from latency_model.specs.toml_fields import LARGEST_UNCERTAINTY, Fields, read_toml

__all__ = [
    "ANY_DTYPE",
    "DEVICE_KINDS",
    "OPERATIONS",
    "Efficiency",
    "HardwareProfile",
    "Peak",
    "PriceRange",
    "Quantity",
    "hardware_names",
    "load_hardware",
    "profiles_directory",
]

OPERATIONS = (
    "gemm",
    "attention_decode",
    "attention_prefill",
    "moe",
    "elementwise",  # norms, rotary, activations: traffic only
    "all_reduce",  # memory: fraction of the link reached; overhead: time of an empty message
    "all_to_all",
    "p2p",
)
DEVICE_KINDS = ("gpu", "tpu", "asic", "asic-sram", "soc", "cpu")
ANY_DTYPE = "any"  # for operations whose efficiency does not depend on the number format

# Error added when a block of another number format stands in (assumed).  Kernels for formats of one size run
# alike; across sizes they do not: a fitted H100 GEMM reaches .81 of the bf16 peak and .49 of the fp8 peak.
SAME_SIZE_ERROR = 0.05
OTHER_SIZE_ERROR = 0.30

_EFFICIENCY_SETS = "efficiency_sets.toml"
_UNTUNED = "untuned"
_NOT_DEVICES = {"engines", "efficiency_sets"}
_NAME = re.compile(r"[a-z0-9][a-z0-9.+-]{0,79}", re.ASCII)
_ALIASES_LINE = re.compile(r"^aliases *=.*$", re.MULTILINE)


@frozen(kw_only=True)
class Efficiency:
    """How one operation in one number format uses the device: the four constants of the roofline."""

    compute: float  # fraction of the dense peak reached
    memory: float  # fraction of the memory (or link) bandwidth reached
    overhead: float  # [s] per kernel or message
    sharpness: float  # p of the p-norm; inf is max(), 1 is the sum
    compute_uncertainty: float  # relative, one sigma; so are the next two
    memory_uncertainty: float
    overhead_uncertainty: float
    kind: str
    source: str
    note: str = ""

    def transferred(self, error: float, note: str) -> Efficiency:
        """Return the same constants for use elsewhere: wider by ``error`` (in quadrature) and saying so."""
        return attrs.evolve(
            self,
            compute_uncertainty=math.hypot(self.compute_uncertainty, error),
            memory_uncertainty=math.hypot(self.memory_uncertainty, error),
            overhead_uncertainty=math.hypot(self.overhead_uncertainty, error),
            kind="assumed" if self.kind == "assumed" else "transferred",
            note="; ".join(filter(None, (note, self.note))),
        )


@frozen(kw_only=True)
class Peak:
    """The dense rate used for a number format; ``note`` says so when another format stands in."""

    dtype: str
    quantity: Quantity
    note: str = ""

    @property
    def value(self) -> float:
        """Dense peak [FLOP/s]."""
        return self.quantity.value


@frozen(kw_only=True)
class PriceRange:
    """What renting one device costs [$/h], lowest and highest price seen."""

    low: float
    high: float
    source: str
    kind: str
    note: str = ""


def _frozen_map(items: Mapping[Any, Any]) -> FrozenMap[Any, Any]:
    return items if isinstance(items, FrozenMap) else FrozenMap(items)


@frozen(kw_only=True)
class HardwareProfile:
    """One device: everything the cost model needs to know about it, with provenance.

    >>> h100 = load_hardware("H100 SXM")
    >>> h100.title, h100.memory_bandwidth.value, h100.peak_flops("bf16").value
    ('H100 SXM 80 GB', 3350000000000.0, 989400000000000.0)
    """

    name: str
    title: str
    vendor: str
    device_kind: str
    peaks: Mapping[str, Quantity] = field(converter=_frozen_map)  # dense [FLOP/s] by number format
    memory_bandwidth: Quantity  # [B/s]
    memory_capacity: Quantity  # [B]
    link_name: str = ""
    link_bandwidth: Quantity | None = None  # [B/s] per direction, all links of the device together
    pcie: Quantity | None = None  # [B/s] per direction
    tdp: Quantity | None = None  # [W]
    on_chip: Quantity | None = None  # [B]
    cores: int | None = None
    price: PriceRange | None = None
    price_per_hour: float | None = None  # [$/h]; the typical price, or the middle of the range
    efficiencies: Mapping[tuple[str, str], Efficiency] = field(converter=_frozen_map, repr=False)
    note: str = ""
    aliases: tuple[str, ...] = ()
    digest: str = field(default="", eq=False)  # of the files it was read from

    def peak_flops(self, dtype: str, *, allow_fallback: bool = False) -> Peak:
        """Return the dense peak for a number format.

        Parameters
        ----------
        dtype
            Number format of the operands.
        allow_fallback
            Use the next format the device has (fp4 → fp8 → bf16 → fp16 → fp32) and note it, as engines do
            when they convert operands first.

        Returns
        -------
        Peak
            Format used, rate [FLOP/s] with provenance, and a note when it is not the one asked for.

        Examples
        --------
        >>> load_hardware("v100").peak_flops("bf16")
        Traceback (most recent call last):
        latency_model.errors.InputError: V100 SXM2 32 GB (v100-sxm2) has no bf16 peak; it has fp16, fp32;
        bf16 operands would run at the fp16 rate, if you allow the fallback
        >>> load_hardware("v100").peak_flops("bf16", allow_fallback=True).note
        'bf16 runs at the fp16 rate: V100 SXM2 32 GB has no bf16 peak'
        """
        wanted = canonical_dtype(dtype)
        if wanted in self.peaks:
            return Peak(dtype=wanted, quantity=self.peaks[wanted])
        other = next((name for name in COMPUTE_FALLBACK[wanted] if name in self.peaks), None)
        if other is not None and allow_fallback:
            note = f"{wanted} runs at the {other} rate: {self.title} has no {wanted} peak"
            return Peak(dtype=other, quantity=self.peaks[other], note=note)
        has = (
            f"it has {', '.join(sorted(self.peaks))}"
            if self.peaks
            else "its profile states no compute peak at all"
        )
        hint = (
            f"{wanted} operands would run at the {other} rate, if you allow the fallback"
            if other
            else "state one in a profile of your own that extends this one"
        )
        raise InputError(f"{self.title} ({self.name}) has no {wanted} peak; {has}; {hint}")

    def efficiency(self, operation: str, dtype: str) -> Efficiency:
        """Return how an operation uses the device.

        Looks for the format itself, then a block for any format, then the format nearest in size, which is
        marked in ``kind`` and ``note`` and carries a wider uncertainty.

        Parameters
        ----------
        operation
            One of ``OPERATIONS``.
        dtype
            Number format of the operands.

        Returns
        -------
        Efficiency
            Fractions reached [1], overhead [s], sharpness [1] and their uncertainties [1].

        Examples
        --------
        >>> load_hardware("h100-sxm").efficiency("gemm", "bf16").compute
        0.81
        >>> load_hardware("h100-sxm").efficiency("gemm", "fp16").note
        'bf16 block used for fp16'
        """
        if operation not in OPERATIONS:
            raise InputError(f"{shorten(operation)} is not an operation; {nearest(operation, OPERATIONS)}")
        wanted = canonical_dtype(dtype)
        for exact in (wanted, ANY_DTYPE):
            if (operation, exact) in self.efficiencies:
                return self.efficiencies[operation, exact]
        size = dtype_bytes(wanted)
        for other in sorted(DTYPES, key=lambda name: abs(math.log2(DTYPES[name] / size))):
            if (operation, other) in self.efficiencies:
                error = SAME_SIZE_ERROR if DTYPES[other] == size else OTHER_SIZE_ERROR
                return self.efficiencies[operation, other].transferred(
                    error, f"{other} block used for {wanted}"
                )
        raise InputError(
            f"{self.name} has no efficiency for {operation}; add an [efficiency.{operation}] table"
        )

    @property
    def sources(self) -> tuple[str, ...]:
        """Every source a number of this profile rests on, in order and once each."""
        numbers = [
            *self.peaks.values(),
            *filter(
                None,
                (
                    self.memory_bandwidth,
                    self.memory_capacity,
                    self.on_chip,
                    self.link_bandwidth,
                    self.pcie,
                    self.tdp,
                ),
            ),
        ]
        stated = [number.source for number in numbers]
        stated += [self.price.source] if self.price else []
        stated += [block.source for block in self.efficiencies.values()]
        return tuple(dict.fromkeys(source for joined in stated for source in joined.split("; ")))


@cache
def profiles_directory() -> Path:
    """Find ``hardware_profiles/``: inside the package when installed, beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for directory in (package / "hardware_profiles", package.parent / "hardware_profiles"):
        if (directory / _EFFICIENCY_SETS).is_file():
            return directory
    raise InputError(
        f"hardware_profiles/ was found neither in {package} nor beside it; reinstall latency-model"
    )


def hardware_names() -> tuple[str, ...]:
    """Return the names of the profiles that ship with the package."""
    stems = {path.stem for path in profiles_directory().glob("*.toml")}
    return tuple(sorted(stems - _NOT_DEVICES))


def load_hardware(name_or_path: str | Path | HardwareProfile) -> HardwareProfile:
    """Load a device by name, alias or path.

    Parameters
    ----------
    name_or_path
        A shipped name or alias (case, spaces and underscores do not matter), or the path of a TOML file:
        anything with a ``/`` in it or ending in ``.toml``.  A profile is returned as it is.

    Returns
    -------
    HardwareProfile
        The device.

    Examples
    --------
    >>> load_hardware("H100_SXM") == load_hardware("h100")
    True
    >>> load_hardware("h200-smx")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    latency_model.errors.InputError: no hardware profile is named 'h200-smx'; did you mean ...
    """
    if isinstance(name_or_path, HardwareProfile):
        return name_or_path
    if not isinstance(name_or_path, (str, Path)):
        raise InputError(f"hardware must be a name or a path, got {shorten(name_or_path)}")
    return _load(_locate(name_or_path, Path()), ())


def _locate(reference: str | Path, folder: Path) -> Path:
    """Turn a name into the path of a shipped file, or a path relative to ``folder`` into that path."""
    if isinstance(reference, Path) or "/" in reference or os.sep in reference or reference.endswith(".toml"):
        return folder / Path(reference).expanduser()
    name = _slug(reference)
    if name in _NOT_DEVICES or not _NAME.fullmatch(name):
        name = ""
    path = profiles_directory() / f"{name}.toml"
    if name and path.is_file():
        return path
    aliases = _aliases()
    if name in aliases:
        return profiles_directory() / f"{aliases[name]}.toml"
    known = [*hardware_names(), *aliases]
    raise InputError(f"no hardware profile is named {shorten(reference)}; {nearest(reference, known)}")


def _slug(name: str) -> str:
    return re.sub(r"[\s_]+", "-", name.strip().casefold())


@cache
def _aliases() -> dict[str, str]:
    """Collect the ``aliases`` line of every shipped file, without parsing the rest."""
    found: dict[str, str] = {}
    for name in hardware_names():
        if line := _ALIASES_LINE.search((profiles_directory() / f"{name}.toml").read_text(encoding="utf-8")):
            found |= {_slug(alias): name for alias in tomllib.loads(line[0])["aliases"]}
    return found


def _load(path: Path, ancestors: tuple[str, ...]) -> HardwareProfile:
    document, digest = read_toml(path)
    identity = os.path.realpath(path)
    if identity in ancestors:
        raise InputError(
            f"{path} extends or takes its efficiency from itself, through {len(ancestors)} file(s)"
        )
    lineage = (*ancestors, identity)
    problems = Problems(str(path))
    fields = Fields(document, problems, sources=_read_sources(document, problems))
    fields.asked.add("sources")

    extends = fields.text("extends")
    base = _load_parent(extends, path, lineage, "extends") if extends else None
    own: dict[str, Any] = {
        "name": fields.text("id", default=path.stem),
        "title": fields.text("title", default=base.title if base else path.stem),
        "vendor": fields.text("vendor", default=base.vendor if base else ""),
        "device_kind": fields.text(
            "device_kind", default=base.device_kind if base else "gpu", choices=DEVICE_KINDS
        ),
        "note": fields.text("note", default=base.note if base else ""),
        "aliases": fields.texts("aliases"),
        "peaks": _read_peaks(fields.child("compute"), base),
        **_read_memory(fields.child("memory"), base),
        **_read_link(fields.child("link"), base),
        **_read_board(fields.child("board"), base),
        **_read_price(fields.child("price"), base),
    }
    if not _NAME.fullmatch(own["name"]):
        problems.add("id", "must be lower-case letters, digits, dots and hyphens", own["name"])
    own["efficiencies"] = _read_efficiencies(fields.child("efficiency"), base, path, lineage)
    fields.close()
    problems.raise_if_any()
    return HardwareProfile(**own, digest=f"{digest}+{base.digest}" if base else digest)


def _load_parent(reference: str, path: Path, lineage: tuple[str, ...], key: str) -> HardwareProfile:
    try:
        return _load(_locate(reference, path.parent), lineage)
    except InputError as error:
        raise InputError(f"{path}: {key}: {error}") from None


def _read_sources(document: Mapping[str, Any], problems: Problems) -> dict[str, str]:
    table = document.get("sources", {})
    if not isinstance(table, dict):
        problems.add("sources", "must be a table of ids and texts", table)
        return {}
    for key, text in table.items():
        if not isinstance(text, str):
            problems.add(f"sources.{shorten(key)[1:-1]}", "must be text", text)
    return {key: text for key, text in table.items() if isinstance(text, str)}


def _read_peaks(fields: Fields, base: HardwareProfile | None) -> dict[str, Quantity]:
    stated = {dtype: fields.quantity(dtype, "compute") for dtype in DTYPES}
    fields.close()
    return {**(base.peaks if base else {}), **{dtype: peak for dtype, peak in stated.items() if peak}}


def _read_memory(fields: Fields, base: HardwareProfile | None) -> dict[str, Any]:
    read = {
        "memory_bandwidth": (fields.quantity if base else fields.required_quantity)("bandwidth", "bandwidth"),
        "memory_capacity": (fields.quantity if base else fields.required_quantity)("capacity", "size"),
        "on_chip": fields.quantity("on_chip", "size"),
    }
    fields.close()
    return _inherit(read, base)


def _read_link(fields: Fields, base: HardwareProfile | None) -> dict[str, Any]:
    read = {"link_name": fields.text("name"), "link_bandwidth": fields.quantity("bandwidth", "bandwidth")}
    fields.close()
    return _inherit(read, base)


def _read_board(fields: Fields, base: HardwareProfile | None) -> dict[str, Any]:
    read = {
        "pcie": fields.quantity("pcie", "bandwidth"),
        "tdp": fields.quantity("tdp", "power"),
        "cores": int(fields.number("cores", default=0.0, high=1e9)) or None,
    }
    fields.close()
    return _inherit(read, base)


def _inherit(read: dict[str, Any], base: HardwareProfile | None) -> dict[str, Any]:
    """Fill what a file does not state from the profile it extends."""
    return {name: value or (getattr(base, name) if base else value) for name, value in read.items()}


def _read_price(fields: Fields, base: HardwareProfile | None) -> dict[str, Any]:
    if not fields.table:
        return {
            "price": base.price if base else None,
            "price_per_hour": base.price_per_hour if base else None,
        }
    typical = fields.measure("typical", "price") if "typical" in fields else None
    price = None
    if "low" in fields or "high" in fields or typical is None:
        price = PriceRange(
            low=fields.measure("low", "price"),
            high=fields.measure("high", "price"),
            source=fields.source(),
            kind=fields.text("kind", default="assumed", choices=KINDS),
            note=fields.text("note"),
        )
        if price.low > price.high:
            fields.problems.add(fields.name("low"), "must not exceed price.high", price.low)
        if typical is None:
            typical = (price.low + price.high) / 2
    fields.close()
    return {"price": price, "price_per_hour": typical}


def _read_efficiencies(
    fields: Fields, base: HardwareProfile | None, path: Path, lineage: tuple[str, ...]
) -> dict[tuple[str, str], Efficiency]:
    """Read the blocks of this file over those of ``from``, last first, over those of the extended profile."""
    parents = fields.texts("from") if "from" in fields or base else (_UNTUNED,)
    error = fields.number("transfer_error", default=0.0, high=LARGEST_UNCERTAINTY)
    blocks = dict(base.efficiencies) if base else {}
    for parent in parents:
        blocks |= _taken_from(parent, error, fields, path, lineage)
    blocks |= _read_blocks(fields)
    fields.close()
    return blocks


def _taken_from(
    parent: str, error: float, fields: Fields, path: Path, lineage: tuple[str, ...]
) -> dict[tuple[str, str], Efficiency]:
    """Take efficiency blocks from a generic set or, with an error of transfer, from another device."""
    document, _ = read_toml(profiles_directory() / _EFFICIENCY_SETS)
    if parent in document and parent != "sources":
        problems = Problems(_EFFICIENCY_SETS)
        generic = Fields(document[parent], problems, f"{parent}.", document["sources"])
        described = generic.text("note")
        blocks = _read_blocks(generic)
        generic.close()
        problems.raise_if_any()
        return {
            key: block.transferred(0.0, f"generic set '{parent}': {described}")
            for key, block in blocks.items()
        }
    if "transfer_error" not in fields:
        fields.problems.add(
            fields.name("transfer_error"), f"is missing: how far may constants of {parent!r} be off here?"
        )
    device = _load_parent(parent, path, lineage, "efficiency.from")
    return {
        key: block.transferred(error, f"taken from {device.name}")
        for key, block in device.efficiencies.items()
    }


def _read_blocks(fields: Fields) -> dict[tuple[str, str], Efficiency]:
    blocks = {}
    for operation in OPERATIONS:
        formats = fields.child(operation)
        for dtype in (*DTYPES, ANY_DTYPE):
            formats.asked.add(dtype)
            if dtype in formats:
                blocks[operation, dtype] = _read_block(formats.child(dtype))
        formats.close()
    return blocks


def _read_block(fields: Fields) -> Efficiency:
    if isinstance(fields.table.get("uncertainty"), dict):
        parts = fields.child("uncertainty")
        errors = {
            part: parts.number(part, default=0.25, high=LARGEST_UNCERTAINTY)
            for part in ("compute", "memory", "overhead")
        }
        parts.close()
    else:
        errors = dict.fromkeys(
            ("compute", "memory", "overhead"),
            fields.number("uncertainty", default=0.25, high=LARGEST_UNCERTAINTY),
        )
    block = Efficiency(
        compute=fields.number("compute", default=1.0, low=1e-6, high=2.0),
        memory=fields.number("memory", low=1e-6, high=2.0),
        overhead=fields.measure("overhead", "time"),
        sharpness=fields.number("sharpness", default=2.0, low=0.1, infinite=True),
        compute_uncertainty=errors["compute"],
        memory_uncertainty=errors["memory"],
        overhead_uncertainty=errors["overhead"],
        kind=fields.text("kind", default="assumed", choices=KINDS),
        source=fields.source(),
        note=fields.text("note"),
    )
    fields.close()
    return block
