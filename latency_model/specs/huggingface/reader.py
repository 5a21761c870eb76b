"""Strict reading of a Hugging Face config: typed fields, all problems collected, read keys remembered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from latency_model.errors import Problems, shorten

__all__ = ["LIMITS", "Config"]

#: Largest value a size may have; far above any published model, low enough that no config exhausts memory.
LIMITS = {"layers": 2_000, "size": 100_000_000}


class Config:
    """A config mapping read field by field.

    A field that is missing or wrong is noted in ``problems`` and a harmless placeholder is returned, so that
    one pass finds everything wrong; call :meth:`check` before building anything from the values.
    A field that may be absent has its default written where it is read; ``defaulted`` keeps what was used.

    Parameters
    ----------
    values : mapping
        The parsed JSON object.
    problems : Problems
        Where to note what is wrong.
    path : str
        Prefix of field names in messages, e.g. ``text_config.``.

    Examples
    --------
    >>> config = Config({"hidden_size": 64, "num_key_value_heads": None}, Problems("config.json"))
    >>> config.integer("hidden_size"), config.integer("num_key_value_heads", default=8)
    (64, 8)
    >>> config.defaulted
    {'num_key_value_heads': 8}
    """

    def __init__(self, values: Mapping[str, object], problems: Problems, path: str = "") -> None:
        self.values = values
        self.problems = problems
        self.path = path
        self.understood: set[str] = set()
        self.defaulted: dict[str, object] = {}
        self.assumptions: list[str] = []
        self.faulty: set[str] = set()

    def get(self, name: str) -> object:
        """Return the raw value, remembered as read; None when absent or null."""
        self.understood.add(name)
        return self.values.get(name)

    def has(self, name: str) -> bool:
        """Say whether the field is present and not null; this does not count as reading it."""
        return self.values.get(name) is not None

    def wrong(self, name: str, rule: str, value: object = ..., hint: str = "") -> None:
        """Note that a field breaks a rule."""
        self.faulty.add(name)
        self.problems.add(self.path + name, rule, value, hint)

    def sound(self, *names: str) -> bool:
        """Say whether nothing was wrong with these fields so far, so that comparing them makes sense."""
        return self.faulty.isdisjoint(names)

    def check(self) -> None:
        """Raise everything found so far."""
        self.problems.raise_if_any()

    def integer(
        self, name: str, *aliases: str, default: int | None = None, low: int = 1, high: int = LIMITS["size"]
    ) -> int:
        """Read a whole number, required unless a default is given; aliases are other spellings."""
        found = self.optional_integer(name, *aliases, low=low, high=high)
        if found is not None:
            return found
        if default is None:
            if not any(self.has(spelling) for spelling in (name, *aliases)):
                others = f" (also read as {', '.join(aliases)})" if aliases else ""
                state = "is null" if name in self.values else "is missing"
                self.wrong(name, f"{state}; this model family requires it{others}")
            return max(low, 1)
        self.defaulted[name] = default
        return default

    def require(self, name: str) -> None:
        """Note a field that may be derived elsewhere but that this family must state."""
        if not self.has(name):
            self.wrong(name, "is missing; this model family requires it")

    def optional_integer(self, name: str, *aliases: str, low: int = 1, high: int = LIMITS["size"]) -> int | None:
        """Read a whole number, or None where absent, null or wrong (the wrong is noted)."""
        given = {spelling: self.get(spelling) for spelling in (name, *aliases) if self.has(spelling)}
        self.understood.update((name, *aliases))
        numbers: dict[str, int] = {}
        for spelling, value in given.items():
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                self.wrong(spelling, f"must be a whole number from {low} to {high}", value)
            else:
                numbers[spelling] = value
        if len(set(numbers.values())) > 1:
            self.wrong(" and ".join(numbers), "are the same quantity but differ", numbers)
        return next(iter(numbers.values()), None)

    def flag(self, name: str, default: bool | None = None) -> bool:
        """Read a truth value, required unless a default is given."""
        value = self.get(name)
        if isinstance(value, bool):
            return value
        if value is not None:
            self.wrong(name, "must be true or false", value)
        elif default is None:
            self.wrong(name, "is missing; this model family requires it")
        else:
            self.defaulted[name] = default
        return bool(default)

    def text(self, name: str, default: str = "") -> str:
        """Read a string; absent and null give the default."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            self.wrong(name, "must be a string", value)
            return default
        return value

    def strings(self, name: str, choices: Iterable[str] | None = None) -> tuple[str, ...] | None:
        """Read a list of strings, each one of ``choices`` if given; None where absent or null."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            self.wrong(name, "must be a list of strings", value)
            return None
        if choices is not None:
            for item in sorted(set(value) - set(choices)):
                self.wrong(name, f"may hold {', '.join(sorted(choices))} only", item)
        return tuple(value)

    def integers(self, name: str, low: int = 0, high: int = LIMITS["size"]) -> tuple[int, ...] | None:
        """Read a list of whole numbers; None where absent or null."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, list | tuple) and all(
            isinstance(item, int) and not isinstance(item, bool) and low <= item <= high for item in value
        ):
            return tuple(value)
        self.wrong(name, f"must be a list of whole numbers from {low} to {high}", value)
        return None

    def section(self, name: str) -> Config | None:
        """Read a nested object; None where absent or null."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            self.wrong(name, "must be an object", value)
            return None
        return Config(value, self.problems, f"{self.path}{name}.")

    def unread(self) -> list[str]:
        """List keys nobody has read, in the order of the file; null ones count as absent."""
        return [name for name, value in self.values.items() if name not in self.understood and value is not None]

    def layer_list(self, name: str, choices: Iterable[str], layers: int) -> tuple[str, ...] | None:
        """Read a list of one string per layer; None where absent or null."""
        kinds = self.strings(name, choices)
        if kinds is not None and len(kinds) != layers:
            self.wrong(name, f"must name one kind for each of the {layers} layers", f"{len(kinds)} entries")
            return None
        return kinds

    def describe_defaults(self) -> list[str]:
        """Write one sentence that lists every absent field and the value used for it."""
        if not self.defaulted:
            return []
        listed = ", ".join(f"{self.path}{name} = {shorten(value)}" for name, value in self.defaulted.items())
        return [f"absent from the config and taken as the model family defines: {listed}"]
