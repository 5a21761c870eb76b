"""Find and read hardware profiles.

One device is one TOML file in ``hardware_profiles/`` (its README explains the format).  Every number carries
its source and kind; efficiencies that were not measured on the device say where they were taken from.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from latency_model.errors import InputError, Problems, nearest, shorten
from latency_model.specs.dtypes import DTYPES
from latency_model.specs.profile import (
    ANY_DTYPE,
    DEVICE_KINDS,
    ENGINES_WITH_KERNELS,
    HOST_TIMES,
    OPERATIONS,
    Efficiency,
    FitRecord,
    HardwareProfile,
    Peak,
    PriceRange,
)
from latency_model.specs.quantity import KINDS, Quantity
from latency_model.specs.toml_fields import LARGEST_UNCERTAINTY, Fields, parse_toml, read_toml

__all__ = [
    "OPERATIONS",
    "Efficiency",
    "HardwareProfile",
    "Peak",
    "PriceRange",
    "Quantity",
    "hardware_names",
    "load_hardware",
    "parse_hardware",
    "profiles_directory",
    "read_fit",
]

_Blocks = dict[tuple[str, str, str], Efficiency]  # by engine, operation, format
_EVERY_ENGINE = ""
_EFFICIENCY_SETS = "efficiency_sets.toml"
_ENGINES = "engines.toml"
_UNTUNED = "untuned"
_NOT_DEVICES = {"engines", "efficiency_sets"}
_NAME = re.compile(r"[a-z0-9][a-z0-9.+-]{0,79}", re.ASCII)
_ALIASES_LINE = re.compile(r"^aliases *=.*$", re.MULTILINE)


@cache
def profiles_directory() -> Path:
    """Find ``hardware_profiles/``: inside the package when installed, beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for directory in (package / "hardware_profiles", package.parent / "hardware_profiles"):
        if (directory / _EFFICIENCY_SETS).is_file():
            return directory
    raise InputError(f"hardware_profiles/ was found neither in {package} nor beside it; reinstall latency-model")


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


def parse_hardware(content: bytes, *, where: str) -> HardwareProfile:
    """Read a profile that may come from anywhere: it can build on shipped profiles, but not on other files.

    Parameters
    ----------
    content
        What a TOML file would hold.
    where
        What errors call it.

    Returns
    -------
    HardwareProfile
        The device.

    Examples
    --------
    >>> parse_hardware(b'extends = "h100"', where="my profile").title
    'H100 SXM 80 GB'
    >>> parse_hardware(b'extends = "/etc/passwd"', where="my profile")
    Traceback (most recent call last):
    latency_model.errors.InputError: my profile: only shipped profiles can be built on here, got '/etc/passwd'
    """
    document, digest = parse_toml(content, where)
    efficiency = document.get("efficiency")
    parents = efficiency.get("from", []) if isinstance(efficiency, dict) else []
    for reference in (document.get("extends"), *(parents if isinstance(parents, list) else [parents])):
        if isinstance(reference, str) and _is_path(reference):
            raise InputError(f"{where}: only shipped profiles can be built on here, got {shorten(reference)}")
    return _profile(document, digest, Path(where), ())


def _is_path(reference: str | Path) -> bool:
    return isinstance(reference, Path) or "/" in reference or os.sep in reference or reference.endswith(".toml")


def _locate(reference: str | Path, folder: Path) -> Path:
    """Turn a name into the path of a shipped file, or a path relative to ``folder`` into that path."""
    if isinstance(reference, Path) or _is_path(reference):
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
    return re.sub(r"[^\w.+-]+|_+", "-", name.casefold()).strip("-")


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
        raise InputError(f"{path} extends or takes its efficiency from itself, through {len(ancestors)} file(s)")
    return _profile(document, digest, path, (*ancestors, identity))


def _profile(document: dict[str, Any], digest: str, path: Path, lineage: tuple[str, ...]) -> HardwareProfile:
    problems = Problems(str(path))
    fields = Fields(document, problems, sources=_read_sources(document, problems))
    fields.asked.add("sources")

    extends = fields.text("extends")
    base = _load_parent(extends, path, lineage, "extends") if extends else None
    own: dict[str, Any] = {
        "name": fields.text("id", default=_slug(path.stem)),
        "title": fields.text("title", default=base.title if base else path.stem),
        "vendor": fields.text("vendor", default=base.vendor if base else ""),
        "device_kind": fields.text("device_kind", default=base.device_kind if base else "gpu", choices=DEVICE_KINDS),
        "note": fields.text("note", default=base.note if base else ""),
        "aliases": fields.texts("aliases"),
        **_read_compute(fields.child("compute"), base),
        **_read_memory(fields.child("memory"), base),
        **_read_link(fields.child("link"), base),
        **_read_board(fields.child("board"), base),
        **_read_price(fields.child("price"), base),
    }
    if not _NAME.fullmatch(own["name"]):
        problems.add("id", "must be lower-case letters, digits, dots and hyphens", own["name"])
    blocks = _read_efficiencies(fields.child("efficiency"), base, path, lineage)
    own["efficiencies"] = {key[1:]: block for key, block in blocks.items() if key[0] == _EVERY_ENGINE}
    own["engine_efficiencies"] = {key: block for key, block in blocks.items() if key[0] != _EVERY_ENGINE}
    own["host_times"] = _read_host_times(fields.child("engine"), base)
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


def _read_compute(fields: Fields, base: HardwareProfile | None) -> dict[str, Any]:
    stated = {dtype: fields.quantity(dtype, "compute") for dtype in DTYPES}
    peaks = {**(base.peaks if base else {}), **{dtype: peak for dtype, peak in stated.items() if peak}}
    read = {"exponentials": fields.quantity("exponentials", "compute")}
    fields.close()
    return {"peaks": peaks, **_inherit(read, base)}


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
    if typical is None or fields.table.keys() > {"typical"}:
        price = PriceRange(
            low=fields.measure("low", "price", default=typical),
            high=fields.measure("high", "price", default=typical),
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


def _read_efficiencies(fields: Fields, base: HardwareProfile | None, path: Path, lineage: tuple[str, ...]) -> _Blocks:
    """Read the blocks of this file over those of ``from``, last first, over those of the extended profile."""
    parents = fields.texts("from") if "from" in fields or base else (_UNTUNED,)
    error = fields.number("transfer_error", default=0.0, high=LARGEST_UNCERTAINTY)
    blocks = _blocks_of(base) if base else {}
    for parent in parents:
        blocks = _over(blocks, _taken_from(parent, error, fields, path, lineage))
    blocks = _over(blocks, _read_blocks(fields))
    fields.close()
    return blocks


def _blocks_of(profile: HardwareProfile) -> _Blocks:
    return {(_EVERY_ENGINE, *key): block for key, block in profile.efficiencies.items()} | dict(
        profile.engine_efficiencies
    )


def _over(inherited: _Blocks, stated: _Blocks) -> _Blocks:
    """Put blocks over inherited ones: a block for every engine also replaces those of single engines."""
    replaced = {key[1:] for key in stated if key[0] == _EVERY_ENGINE}
    return {key: block for key, block in inherited.items() if key[1:] not in replaced} | stated


def _taken_from(parent: str, error: float, fields: Fields, path: Path, lineage: tuple[str, ...]) -> _Blocks:
    """Take efficiency blocks from a generic set or, with an error of transfer, from another device."""
    document, _ = read_toml(profiles_directory() / _EFFICIENCY_SETS)
    if parent in document and parent != "sources":
        problems = Problems(_EFFICIENCY_SETS)
        generic = Fields(document[parent], problems, f"{parent}.", document["sources"])
        described = generic.text("note")
        blocks = _read_blocks(generic)
        generic.close()
        problems.raise_if_any()
        return {key: block.transferred(0.0, f"generic set '{parent}': {described}") for key, block in blocks.items()}
    if "transfer_error" not in fields:
        fields.problems.add(
            fields.name("transfer_error"), f"is missing: how far may constants of {parent!r} be off here?"
        )
    device = _load_parent(parent, path, lineage, "efficiency.from")
    blocks = _blocks_of(device)
    return {key: block.transferred(error, f"taken from {device.name}") for key, block in blocks.items()}


def _read_blocks(fields: Fields) -> _Blocks:
    """Read ``[efficiency.OPERATION.FORMAT]``, and ``[efficiency.ENGINE.OPERATION.FORMAT]`` of single engines."""
    blocks = _read_engine_blocks(fields, _EVERY_ENGINE)
    for engine in ENGINES_WITH_KERNELS:
        own = fields.child(engine)
        blocks |= _read_engine_blocks(own, engine)
        own.close()
    return blocks


def _read_engine_blocks(fields: Fields, engine: str) -> _Blocks:
    blocks: _Blocks = {}
    for operation in OPERATIONS:
        formats = fields.child(operation)
        for dtype in (*DTYPES, ANY_DTYPE):
            formats.asked.add(dtype)
            if dtype in formats:
                blocks[engine, operation, dtype] = _read_block(formats.child(dtype))
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
        tail=fields.number("tail", default=0.0, high=1e3),
        compute_uncertainty=errors["compute"],
        memory_uncertainty=errors["memory"],
        overhead_uncertainty=errors["overhead"],
        kind=fields.text("kind", default="assumed", choices=KINDS),
        source=fields.source(),
        note=fields.text("note"),
        fit=read_fit(fields.child("fit")) if "fit" in fields else None,
    )
    fields.close()
    return block


def read_fit(fields: Fields) -> FitRecord:
    """Read what constants were fitted on and how well they predict rows they have not seen."""
    record = FitRecord(
        rows=int(fields.number("rows", high=1e9)),
        held_out=int(fields.number("held_out", high=1e9)),
        median_error=fields.number("median_error", high=1e3),
        p90_error=fields.number("p90_error", high=1e3),
        coverage=fields.number("coverage", high=1.0),
        date=fields.text("date"),
    )
    fields.close()
    return record


def _read_host_times(fields: Fields, base: HardwareProfile | None) -> dict[tuple[str, str], Quantity]:
    """Read ``[engine.NAME]`` tables: host times measured with this machine, over those of the extended profile."""
    times = dict(base.host_times) if base else {}
    if fields.table:
        engines, _ = read_toml(profiles_directory() / _ENGINES)
        for name in engines.keys() - {"sources"}:
            parts = fields.child(name)
            stated = {(name, part): parts.quantity(part, "time") for part in HOST_TIMES}
            times |= {key: quantity for key, quantity in stated.items() if quantity is not None}
            parts.close()
    fields.close()
    return times
