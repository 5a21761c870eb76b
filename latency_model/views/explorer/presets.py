"""Published acceptance curves to start from, by name."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import cache

from attrs import frozen

from latency_model.evidence.published.acceptance import length_curves, trace_acceptance
from latency_model.evidence.published.record import read_table
from latency_model.specs.acceptance import Acceptance

__all__ = ["Preset", "presets"]


@frozen(kw_only=True)
class Preset:
    """One published curve.

    Attributes
    ----------
    title : str
        Drafter, target and traffic, for a menu.
    acceptance : Acceptance
        Its conditionals.
    source : str
        Who published it.
    """

    title: str
    acceptance: Acceptance
    source: str

    @property
    def name(self) -> str:
        """What an address calls it: the title in lower case with hyphens."""
        return re.sub(r"[^a-z0-9.]+", "-", self.title.casefold()).strip("-")


@cache
def presets() -> dict[str, Preset]:
    """Every published curve by name.

    >>> round(float(presets()["eagle-3-llama-3.1-8b-on-sharegpt"].acceptance.tokens_per_round(8)), 2)
    3.2
    """
    found = itertools.chain(_traces(), _heads(), _layers(), _curves())
    return {preset.name: preset for preset in found}


def _traces() -> Iterator[Preset]:
    table = read_table("specdecodebench_acceptance_by_position")
    titles = {"gsm8k": "GSM8K", "instructcoder": "InstructCoder", "sharegpt": "ShareGPT", "cnn": "CNN/DailyMail"}
    drafters = {"eagle": "EAGLE-3", "ngram": "n-gram"}
    for row in table.rows:
        yield Preset(
            title=f"{drafters[row['proposer']]}, Llama-3.1-8B on {titles[row['dataset']]}",
            acceptance=trace_acceptance(row),
            source=table.sources[0],
        )


def _heads() -> Iterator[Preset]:
    table = read_table("eagle_per_position_acceptance")
    for row in table.rows:
        yield Preset(
            title=f"EAGLE, {row['model']} at temperature {row['temperature']}",
            acceptance=Acceptance.conditional([float(row[f"alpha{position}"]) for position in range(5)]),
            source=table.sources[0],
        )


def _layers() -> Iterator[Preset]:
    table = read_table("mtp_acceptance")
    for row in table.rows:
        yield Preset(
            title=f"MTP, {row['model']}, {row['variant']}",
            acceptance=Acceptance.survival([float(row[f"pos{position}"]) for position in range(3)]),
            source=table.sources[0],
        )


def _curves() -> Iterator[Preset]:
    (source,) = read_table("acceptance_length_curves").sources
    drafters = {"dspark": "DSpark", "eagle3": "EAGLE-3", "mtp": "MTP"}
    for curve in length_curves():
        yield Preset(title=f"{drafters[curve.drafter]}, {curve.title}", acceptance=curve.known, source=source)
