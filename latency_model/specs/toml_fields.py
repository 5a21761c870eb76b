"""Read TOML tables field by field: every problem of a file is noted, none is passed over."""

from __future__ import annotations

import hashlib
import math
import stat
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from latency_model import units
from latency_model.errors import InputError, Problems, nearest, shorten
from latency_model.specs.quantity import KINDS, Quantity

__all__ = ["Fields", "parse_toml", "read_toml"]

LARGEST_FILE = 1 << 20  # bytes; a profile takes a few thousand
LONGEST_LINE = 1000  # characters; tomllib takes quadratic time over a dotted key of thousands of parts
LARGEST_UNCERTAINTY = 2.0


def read_toml(path: Path) -> tuple[dict[str, Any], str]:
    """Read a TOML file of at most 1 MiB.

    Returns
    -------
    tuple
        The document and a short hash of its bytes.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{path} is not a regular file; give the path of a TOML file")
        if status.st_size > LARGEST_FILE:
            raise InputError(f"{path} has {status.st_size} bytes; at most {LARGEST_FILE} are read")
        content = path.read_bytes()
    except InputError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{shorten(str(path), 200)} cannot be read: {reason}") from None
    return parse_toml(content, str(path))


def parse_toml(content: bytes, where: str) -> tuple[dict[str, Any], str]:
    """Read what :func:`read_toml` read; ``where`` names it in errors."""
    if len(content) > LARGEST_FILE:
        raise InputError(f"{where} has {len(content)} bytes; at most {LARGEST_FILE} are read")
    try:
        text = content.decode("utf-8-sig")  # some editors put a byte-order mark first
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is not UTF-8 text (byte {error.start})") from None
    if max(map(len, text.splitlines()), default=0) > LONGEST_LINE:
        raise InputError(f"{where} has a line of more than {LONGEST_LINE} characters; break it up")
    try:
        return tomllib.loads(text), hashlib.sha256(content).hexdigest()[:12]
    except (ValueError, RecursionError) as error:  # ValueError: also an integer of thousands of digits
        raise InputError(f"{where} is not valid TOML: {shorten(str(error), 200)}") from None


class Fields:
    """One table of a file, read key by key; :meth:`close` reports the keys nobody asked for.

    Every reader returns a usable value even after a problem, so that one pass finds all of them.
    """

    def __init__(
        self,
        table: Mapping[str, Any],
        problems: Problems,
        prefix: str = "",
        sources: Mapping[str, str] | None = None,
    ) -> None:
        self.table = table
        self.problems = problems
        self.prefix = prefix
        self.sources = sources if sources is not None else {}
        self.asked: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self.table

    def name(self, key: str) -> str:
        """Return the full dotted name of a key, for messages."""
        return f"{self.prefix}{shorten(key, 80)[1:-1]}"

    def _get(self, key: str, required: bool = False) -> Any:
        self.asked.add(key)
        if key not in self.table:
            if required:
                self.problems.add(self.name(key), "is missing")
            return None
        return self.table[key]

    def text(self, key: str, *, default: str = "", choices: Collection[str] = ()) -> str:
        """Read a string, if need be one of ``choices``."""
        value = self._get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            self.problems.add(self.name(key), "must be text", value)
            return default
        if choices and value not in choices:
            self.problems.add(self.name(key), f"must be one of {', '.join(choices)}", value, nearest(value, choices))
            return default
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Read a string or a list of strings."""
        value = self._get(key)
        if value is None:
            return ()
        value = [value] if isinstance(value, str) else value
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.problems.add(self.name(key), "must be a list of texts", value)
            return ()
        return tuple(value)

    def number(
        self,
        key: str,
        *,
        default: float | None = None,
        low: float = 0.0,
        high: float = math.inf,
        infinite: bool = False,
    ) -> float:
        """Read a plain number between ``low`` and ``high``; without a default it must be there."""
        value = self._get(key, required=default is None)
        fallback = low if default is None else default
        if value is None:
            return fallback
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.problems.add(self.name(key), "must be a number", value)
            return fallback
        if not low <= value <= high or not ((infinite and value == math.inf) or abs(value) <= 1e300):
            bounds = f"between {low:g} and {high:g}" if high < math.inf else f"a finite number of at least {low:g}"
            self.problems.add(self.name(key), f"must be {bounds}", value)
            return fallback
        return float(value)

    def measure(self, key: str, dimension: str, *, default: float | None = None) -> float:
        """Read a number with its unit, such as ``"3.8 us"``, in SI units."""
        value = self._get(key, required=default is None)
        fallback = 1.0 if default is None else default
        if value is None:
            return fallback
        if not isinstance(value, str):
            example = units.DIMENSIONS[dimension][2]
            self.problems.add(self.name(key), "must be text with a number and its unit", value, f"e.g. {example}")
            return fallback
        try:
            return units.parse(value, dimension)
        except InputError as error:
            self.problems.add(f"{self.name(key)}:", str(error))
            return fallback

    def child(self, key: str) -> Fields:
        """Read a sub-table; a missing one reads as empty."""
        value = self._get(key)
        if value is not None and not isinstance(value, dict):
            self.problems.add(self.name(key), "must be a table", value)
            value = None
        return Fields(value or {}, self.problems, f"{self.name(key)}.", self.sources)

    def quantity(self, key: str, dimension: str) -> Quantity | None:
        """Read a quantity that may be absent."""
        self.asked.add(key)
        return self.required_quantity(key, dimension) if key in self else None

    def required_quantity(self, key: str, dimension: str) -> Quantity:
        """Read ``{ value, source, kind, uncertainty, note, exception }``; text alone is an assumed value."""
        value = self._get(key, required=True)
        if not isinstance(value, dict):
            measured = self.measure(key, dimension, default=1.0)  # a missing key is already noted
            return Quantity(value=measured, source=f"stated in {self.problems.where}", kind="assumed")
        fields = self.child(key)
        quantity = Quantity(
            value=fields.measure("value", dimension),
            source=fields.source(),
            kind=fields.text("kind", default="assumed", choices=KINDS),
            uncertainty=fields.number("uncertainty", default=0.0, high=LARGEST_UNCERTAINTY),
            note=fields.text("note"),
            exception=fields.text("exception"),
        )
        fields.close()
        if quantity.value == 0.0 and dimension != "time":
            self.problems.add(self.name(key), "must not be zero", hint="leave out what is not there")
        return quantity

    def source(self) -> str:
        """Read ``source``: ids of the ``[sources]`` table, or a sentence; returned as full text."""
        value = self._get("source")
        listed = value if isinstance(value, list) else [value]
        if value is None:
            return f"stated in {self.problems.where}"
        if not all(isinstance(item, str) and item for item in listed) or not listed:
            self.problems.add(self.name("source"), "must be text or a list of texts", value)
            return ""
        for item in listed:
            if item not in self.sources and " " not in item:
                hint = nearest(item, self.sources) if self.sources else "list it there or write a sentence"
                self.problems.add(self.name("source"), "is not in [sources]", item, hint)
        return "; ".join(self.sources.get(item, item) for item in listed)

    def close(self) -> None:
        """Report every key that was not read."""
        for key in self.table:
            if key not in self.asked:
                self.problems.add(self.name(key), "is not a known field", hint=nearest(key, self.asked))
