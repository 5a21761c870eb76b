"""What a reader of the explorer has chosen, and the query string that carries it from one browser to another."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Callable, Collection
from typing import Any
from urllib.parse import parse_qsl, urlencode

import attrs
from attrs import field, frozen

from latency_model.errors import InputError, nearest, shorten
from latency_model.specs.acceptance import Acceptance
from latency_model.specs.draft import Draft
from latency_model.specs.dtypes import DTYPES
from latency_model.specs.engine import engine_names
from latency_model.specs.hardware import hardware_names
from latency_model.specs.loader import load_model, model_names
from latency_model.specs.parallelism import Parallelism
from latency_model.specs.quantization import FORMATS
from latency_model.specs.routing import Routing
from latency_model.views.explorer.presets import presets

__all__ = ["ACTIVATIONS", "DRAFTERS", "FALLBACKS", "LARGEST_UPLOAD", "LIMITS", "PRESET", "UPLOADED", "State"]

#: What ``model`` or ``hardware`` is when the reader brought a file.
UPLOADED = "uploaded"
LARGEST_UPLOAD = 1 << 20  # bytes of a config.json or a profile; published ones take a few thousand
#: A file goes into the address if it is this short when packed; some programs cut addresses of 8,000 characters.
LONGEST_PACKED = 3000
LONGEST_QUERY = 20_000
LONGEST_TEXT = 400
PRESET = "preset:"

#: Kinds of drafters by the name an address has for them.
DRAFTERS = {
    "eagle3": "EAGLE-3 head",
    "eagle": "EAGLE head",
    "mtp": "Multi-token prediction",
    "model": "Separate draft model",
    "ngram": "N-gram lookup",
    "parallel": "Block drafter",
    "self": "The target itself",
}

ACTIVATIONS = ("bf16", "fp16", "fp32")
#: What happens where the device lacks the arithmetic of a format.
FALLBACKS = {"": "is an error", "wider": "next wider format"}


def _among(what: str, names: Callable[[], Collection[str]]) -> Callable[[object], str]:
    def read(value: object) -> str:
        known = names()
        if value not in known:
            raise InputError(f"{what} {shorten(value)} is not known here; {nearest(value, known)}")
        return str(value)

    return read


def _whole(name: str, lowest: int, highest: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        try:
            number = float(value)  # type: ignore[arg-type]  # whatever float() refuses is refused
            if isinstance(value, bool) or not (number.is_integer() and lowest <= number <= highest):
                raise ValueError
        except (TypeError, ValueError, OverflowError):
            raise InputError(
                f"{name.replace('_', ' ')} must be a whole number from {lowest} to {highest}, got {shorten(value)}"
            ) from None
        return int(number)

    return read


def _share(what: str, highest: float = 1.0) -> Callable[[object], float]:
    def read(value: object) -> float:
        try:
            number = float(value)  # type: ignore[arg-type]  # whatever float() refuses is refused
            if isinstance(value, bool) or not (math.isfinite(number) and 0.0 <= number <= highest):
                raise ValueError
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"{what} must be a number from 0 to {highest:g}, got {shorten(value)}") from None
        return number

    return read


def _length(value: object) -> int | None:
    return None if value in (None, "") else _whole("draft_length", *LIMITS["draft_length"])(value)


def _text(what: str, longest: int) -> Callable[[object], str]:
    def read(value: object) -> str:
        try:
            size = len(value.encode("utf-8"))  # type: ignore[attr-defined]  # what has no encode is refused
        except (AttributeError, UnicodeEncodeError):
            raise InputError(f"{what} must be text, got {shorten(value)}") from None
        if size > longest:
            raise InputError(f"{what} must be text of at most {longest:,} bytes, got {size:,}")
        return str(value)

    return read


def _acceptance(value: object) -> str:
    text = _text("acceptance", LONGEST_TEXT)(value).strip()
    name = text.removeprefix(PRESET)
    if name != text:
        if name not in presets():
            raise InputError(f"no published acceptance is named {shorten(name)}; {nearest(name, presets())}")
    elif text:
        Acceptance.parse(text)
    return text


def _names(bundled: Callable[[], tuple[str, ...]]) -> Callable[[], Collection[str]]:
    return lambda: (*bundled(), UPLOADED)


#: Highest values of the number fields, with the lowest.
LIMITS = {
    "batch": (1, 4096),
    "context": (0, 10_000_000),
    "draft_length": (0, 16),
    "draft_tp": (1, 64),
    **dict.fromkeys(("tp", "ep", "pp", "dp"), (1, 1024)),
}

#: How each field is read and checked, in the order of an address.
READERS: dict[str, Callable[[object], Any]] = {
    "model": _among("model", _names(model_names)),
    "hardware": _among("hardware", _names(hardware_names)),
    "draft": _among("drafter", lambda: DRAFTERS),
    "draft_model": _among("draft model", model_names),
    "acceptance": _acceptance,
    **{name: _whole(name, *LIMITS[name]) for name in LIMITS if name != "draft_length"},
    "draft_length": _length,
    "weights": _among("weight format", lambda: ("", *FORMATS)),
    "kv_dtype": _among("KV-cache format", lambda: ("", *DTYPES)),
    "activations": _among("activation format", lambda: ACTIVATIONS),
    "fallback": _among("fallback", lambda: FALLBACKS),
    "engine": _among("engine", engine_names),
    "persistence": _share("routing persistence"),
    "stickiness": _share("routing stickiness"),
    "popularity_cv": _share("unevenness of expert popularity", 16.0),
    "kv_reread": _share("KV re-reading"),
    "config": _text("the config", LARGEST_UPLOAD),
    "device": _text("the profile", LARGEST_UPLOAD),
}


@frozen(kw_only=True)
class State:
    """Everything that can be chosen; numbers may come as text, as an address has them.

    Attributes
    ----------
    model, hardware : str
        Bundled names, or ``uploaded`` for what ``config`` and ``device`` hold.
    draft, draft_model, draft_tp : str, str, int
        Kind of drafter; the bundled model that drafts where the kind is ``model``, and its ranks.
    acceptance : str
        As :meth:`Acceptance.parse` reads it, ``preset:NAME``, or empty for the published one of the drafter's kind.
    batch, context, draft_length : int
        The point looked at [1], [token], [token]; no draft length means the best.
    tp, ep, pp, dp : int
        Ranks [1].
    weights, kv_dtype, activations, fallback : str
        Number formats, empty is as stored; and whether the next wider one stands in where the device lacks one.
    engine : str
        Whose host times are added.
    persistence, stickiness, popularity_cv, kv_reread : float
        Routing and cache [1].
    config, device : str
        Texts of an uploaded ``config.json`` and of an uploaded profile.

    Examples
    --------
    >>> State(batch=64).query
    'batch=64'
    >>> State.from_query("batch=64").batch
    64
    >>> State.from_query("batch=many")
    Traceback (most recent call last):
    latency_model.errors.InputError: batch must be a whole number from 1 to 4096, got 'many'
    """

    model: str = "Qwen3-30B-A3B"
    hardware: str = "h100-sxm"
    draft: str = "eagle3"
    draft_model: str = "Qwen3-0.6B"
    draft_tp: int = 1
    acceptance: str = ".70,.62,.60,.58"
    batch: int = 16
    context: int = 4096
    draft_length: int | None = None
    tp: int = 1
    ep: int = 1
    pp: int = 1
    dp: int = 1
    weights: str = ""
    kv_dtype: str = ""
    activations: str = "bf16"
    fallback: str = ""
    engine: str = "vllm"
    persistence: float = Routing().persistence
    stickiness: float = Routing().stickiness
    popularity_cv: float = 0.0
    kv_reread: float = 0.0
    config: str = field(default="", repr=False)
    device: str = field(default="", repr=False)

    def __attrs_post_init__(self) -> None:
        for name, read in READERS.items():
            object.__setattr__(self, name, read(getattr(self, name)))

    @classmethod
    def of(cls, values: dict[str, Any]) -> State:
        """Read values by name, from controls or a store of the page."""
        names = {known.name for known in attrs.fields(cls)}
        for name in values:
            if name not in names:
                raise InputError(f"{shorten(name)} is nothing that can be chosen; {nearest(name, names)}")
        return cls(**values)

    @classmethod
    def from_query(cls, query: str) -> State:
        """Read the query string of an address, with or without its question mark."""
        if len(query) > LONGEST_QUERY:
            raise InputError(f"the address has {len(query):,} characters, more than the {LONGEST_QUERY:,} ever written")
        try:
            pairs = parse_qsl(
                query.removeprefix("?"), keep_blank_values=True, strict_parsing=bool(query.strip("?")), errors="strict"
            )
        except ValueError:  # UnicodeDecodeError is one
            raise InputError(f"the address cannot be read: {shorten(query)} is not name=value&name=value") from None
        values = dict(pairs)
        if len(values) < len(pairs):
            raise InputError("the address gives a choice twice; keep one of each")
        for name in ("config", "device"):
            if name in values:
                values[name] = _unpacked(values[name], name)
        return cls.of(values)

    @property
    def query(self) -> str:
        """The query string: what differs from the defaults; files only where they are short."""
        values = {
            known.name: getattr(self, known.name)
            for known in attrs.fields(type(self))
            if getattr(self, known.name) != known.default
        }
        for name in ("config", "device"):
            if name in values:
                values[name] = _packed(values[name])
                if len(values[name]) > LONGEST_PACKED:
                    del values[name]
        return urlencode(values)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Uploaded files too long for the address."""
        named = {"config": "config.json", "device": "profile"}
        return tuple(title for name, title in named.items() if len(_packed(getattr(self, name))) > LONGEST_PACKED)

    @property
    def drafter(self) -> Draft:
        """The drafter chosen."""
        if self.draft == "model":
            return Draft.model(load_model(self.draft_model), parallelism=Parallelism(tp=self.draft_tp))
        return Draft.parse(self.draft)

    @property
    def accepted(self) -> Acceptance:
        """The acceptance chosen."""
        if self.acceptance.startswith(PRESET):
            preset = presets()[self.acceptance.removeprefix(PRESET)]
            return attrs.evolve(preset.acceptance, assumptions=(f"acceptance of {preset.title}: {preset.source}",))
        return Acceptance.parse(self.acceptance) if self.acceptance else self.drafter.default_acceptance


def _packed(text: str) -> str:
    """Squeeze a file into characters an address may hold.

    >>> _unpacked(_packed('{"model_type": "llama"}'), "config")
    '{"model_type": "llama"}'
    """
    return base64.urlsafe_b64encode(zlib.compress(text.encode("utf-8"), 9)).decode().rstrip("=")


def _unpacked(packed: str, name: str) -> str:
    """Undo :func:`_packed`, refusing what would unfold beyond the size of an upload."""
    try:
        unfolding = zlib.decompressobj()
        content = base64.b64decode(packed + "=" * (-len(packed) % 4), altchars=b"-_", validate=True)
        text = unfolding.decompress(content, LARGEST_UPLOAD + 1)
        if not unfolding.eof or unfolding.unused_data:
            raise ValueError
        return text.decode("utf-8")
    except (ValueError, zlib.error):
        raise InputError(f"{name}: what the address holds is damaged; upload the file again") from None
