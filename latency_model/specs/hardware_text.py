"""Write a profile to a file, and lay two of them side by side."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import attrs

from latency_model import units
from latency_model.errors import InputError
from latency_model.specs.hardware import Efficiency, HardwareProfile, Quantity, load_hardware
from latency_model.specs.profile import FitRecord

__all__ = ["diff_profiles", "efficiency_text", "profile_rows", "quantity_text", "record_text", "write_hardware"]

_QUANTITIES = {  # field of the profile: (table and key in the file, dimension)
    "memory_bandwidth": ("memory.bandwidth", "bandwidth"),
    "memory_capacity": ("memory.capacity", "size"),
    "on_chip": ("memory.on_chip", "size"),
    "exponentials": ("compute.exponentials", "compute"),
    "link_bandwidth": ("link.bandwidth", "bandwidth"),
    "pcie": ("board.pcie", "bandwidth"),
    "tdp": ("board.tdp", "power"),
}


def write_hardware(profile: HardwareProfile, path: str | Path, *, extends: str = "") -> None:
    """Write a profile as a TOML file; an existing file is replaced whole or not at all.

    Parameters
    ----------
    profile
        Device; loading the file gives an equal one.
    path
        File to write.
    extends
        Name or absolute path of the profile this one was made from: only what differs from it is written.
        Without it the file is self-contained.
    """
    target = Path(path)
    base = load_hardware(extends) if extends else None
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        draft.write_text("\n".join(_lines(profile, base, extends)) + "\n", encoding="utf-8")
        os.replace(draft, target)
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror}") from None
    finally:
        with contextlib.suppress(OSError):  # moved, or never begun
            draft.unlink()


def profile_rows(profile: HardwareProfile) -> dict[str, str]:
    """Lay out a profile as field names, as in its file, and values with units.

    Parameters
    ----------
    profile
        Device.

    Returns
    -------
    dict
        Field to text; fields that are absent are left out.
    """
    rows = {"title": profile.title, "vendor": profile.vendor, "device_kind": profile.device_kind}
    rows |= {key: _shown(quantity, dimension) for key, quantity, dimension in _quantities(profile)}
    if profile.link_name:
        rows["link.name"] = profile.link_name
    if profile.cores:
        rows["board.cores"] = str(profile.cores)
    if profile.price:
        rows["price.range"] = f"{profile.price.low:.2f} to {profile.price.high:.2f} $/h"
    if profile.price_per_hour is not None:
        rows["price.typical"] = f"{profile.price_per_hour:.2f} $/h"
    for key, block in (*sorted(profile.efficiencies.items()), *sorted(profile.engine_efficiencies.items())):
        rows[f"efficiency.{'.'.join(key)}"] = _shown_block(block)
    return rows


def diff_profiles(first: HardwareProfile, second: HardwareProfile) -> list[tuple[str, str, str]]:
    """List what differs between two profiles.

    Parameters
    ----------
    first, second
        Devices.

    Returns
    -------
    list of tuple
        Field, value in the first, value in the second; ``-`` where one has none.

    Examples
    --------
    >>> from latency_model.specs.hardware import load_hardware
    >>> for row in diff_profiles(load_hardware("h100-sxm"), load_hardware("h200-sxm"))[:4]:
    ...     print(*row, sep=" | ")
    title | H100 SXM 80 GB | H200 SXM 141 GB
    memory.bandwidth | 3.35 TB/s | 4.8 TB/s
    memory.capacity | 80 GB | 141 GB
    price.range | 1.99 to 5.00 $/h | 2.50 to 7.00 $/h
    """
    left, right = profile_rows(first), profile_rows(second)
    pairs = [(key, left.get(key, "-"), right.get(key, "-")) for key in {**left, **right}]
    return [pair for pair in pairs if pair[1] != pair[2]]


def _quantities(profile: HardwareProfile) -> Iterator[tuple[str, Quantity, str]]:
    """Give every number of a profile with its key in the file and its dimension."""
    for dtype, peak in profile.peaks.items():
        yield f"compute.{dtype}", peak, "compute"
    for name, (key, dimension) in _QUANTITIES.items():
        quantity: Quantity | None = getattr(profile, name)
        if quantity is not None:
            yield key, quantity, dimension


def _shown(quantity: Quantity, dimension: str) -> str:
    error = f" ± {quantity.uncertainty:.0%}" if quantity.uncertainty else ""
    kind = "" if quantity.kind == "datasheet" else f" ({quantity.kind})"
    return units.format_quantity(quantity.value, dimension, digits=4) + error + kind


def _shown_block(block: Efficiency) -> str:
    overhead = units.format_quantity(block.overhead, "time")
    tail = f" / tail {block.tail:g}" if block.tail else ""
    return f"{block.compute:g} / {block.memory:g} / {overhead} / p {block.sharpness:g}{tail} ({block.kind})"


def _lines(profile: HardwareProfile, base: HardwareProfile | None, extends: str) -> Iterator[str]:
    """Lines of the file; with a base, only of what the profile states differently."""
    yield f"id = {_quoted(profile.name)}"
    if base:
        yield f"extends = {_quoted(extends)}"
    for key in ("title", "vendor", "device_kind", "note"):
        if not base or getattr(base, key) != getattr(profile, key):
            yield f"{key} = {_quoted(getattr(profile, key))}"
    yield f"aliases = [{', '.join(map(_quoted, profile.aliases))}]"
    known = dict(_stated(base)) if base else {}
    yield from (text for key, text in _stated(profile) if known.get(key) != text)


def _stated(profile: HardwareProfile) -> Iterator[tuple[str, str]]:
    """Name and text of every table a self-contained file has."""
    for key, quantity, dimension in _quantities(profile):
        yield key, quantity_text(key, quantity, dimension)
    if profile.link_name:
        yield "link", f"\n[link]\nname = {_quoted(profile.link_name)}"
    if profile.cores:
        yield "board", f"\n[board]\ncores = {profile.cores}"
    if profile.price_per_hour is not None:
        lines = [f"\n[price]\ntypical = {_exact(profile.price_per_hour, 'price')}"]
        if profile.price:
            lines.append(f"low = {_exact(profile.price.low, 'price')}")
            lines.append(f"high = {_exact(profile.price.high, 'price')}")
            lines += _provenance(profile.price.kind, profile.price.source, profile.price.note)
        yield "price", "\n".join(lines)
    yield "efficiency", "\n[efficiency]\nfrom = []"
    for where, block in (*profile.efficiencies.items(), *profile.engine_efficiencies.items()):
        name = f"efficiency.{'.'.join(where)}"
        yield name, efficiency_text(name, block)
    for (engine, part), quantity in profile.host_times.items():
        yield f"engine.{engine}.{part}", quantity_text(f"engine.{engine}.{part}", quantity, "time")


def quantity_text(key: str, quantity: Quantity, dimension: str) -> str:
    """Write one number with its provenance as its table in a file."""
    lines = [f"\n[{key}]", f"value = {_exact(quantity.value, dimension)}"]
    lines += _provenance(quantity.kind, quantity.source, quantity.note)
    lines.append(f"uncertainty = {quantity.uncertainty!r}")
    if quantity.exception:
        lines.append(f"exception = {_quoted(quantity.exception)}")
    return "\n".join(lines)


def efficiency_text(name: str, block: Efficiency) -> str:
    """Write one block of constants as its table in a file."""
    errors = {part: getattr(block, f"{part}_uncertainty") for part in ("compute", "memory", "overhead")}
    lines = [
        f"\n[{name}]",
        f"compute = {block.compute!r}\nmemory = {block.memory!r}",
        f"overhead = {_exact(block.overhead, 'time')}\nsharpness = {block.sharpness!r}",
        *([f"tail = {block.tail!r}"] if block.tail else []),
        f"uncertainty = {{ {', '.join(f'{part} = {error!r}' for part, error in errors.items())} }}",
        *_provenance(block.kind, block.source, block.note),
    ]
    if block.fit:
        lines.append(f"fit = {{ {', '.join(_record_fields(block.fit))} }}")
    return "\n".join(lines)


def record_text(key: str, record: FitRecord) -> str:
    """Write what constants were fitted on as a table in a file."""
    return "\n".join([f"\n[{key}]", *_record_fields(record)])


def _record_fields(record: FitRecord) -> Iterator[str]:
    return (f"{name} = {_plain(fact)}" for name, fact in attrs.asdict(record).items())


def _plain(fact: str | float) -> str:
    return _quoted(fact) if isinstance(fact, str) else repr(fact)


def _provenance(kind: str, source: str, note: str) -> Iterator[str]:
    yield f"kind = {_quoted(kind)}"
    yield f"source = {_quoted(source)}"
    if note:
        yield f"note = {_quoted(note)}"


def _quoted(text: str) -> str:
    """Write a TOML basic string: JSON's, except that TOML wants DEL escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _exact(value: float, dimension: str) -> str:
    """Write a value with the unit that reads well, if it reads back to the same float."""
    text = units.format_quantity(value, dimension, digits=15)
    if units.parse(text, dimension) != value:
        text = f"{value!r} {units.SI_UNITS[dimension]}"
    return _quoted(text)
