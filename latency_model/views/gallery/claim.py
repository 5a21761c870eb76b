"""One claim of the gallery: what is said, the figures that show it, and how far published numbers are from them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from attrs import frozen

from latency_model.evidence.published import REPLAYS
from latency_model.evidence.published.record import Group
from latency_model.views.report import Section

if TYPE_CHECKING:
    from latency_model.views.figures.style import Figure

__all__ = ["Claim", "links", "replay"]

#: What a source text may name, and the address it stands for.
ADDRESSES = (
    (re.compile(r"arXiv (\d{4}\.\d{4,5})"), "https://arxiv.org/abs/{}"),
    (re.compile(r"(?:https?://)?((?:www\.)?(?:github\.com|cohere\.com)/[\w./-]*[\w/-])"), "https://{}"),
)

URL = re.compile(r"[,;]? *https?://[^\s;,]+")
#: Checks with so few rows are printed row by row.
FEW = 3


@frozen(kw_only=True, eq=False)
class Claim:
    """One claim with its figures.

    Parameters
    ----------
    name, title, text : str
        Name on the command line, the claim as a heading, and in plain words.
    figures : tuple of plotly Figure
        Our formulas as lines, published numbers as diamonds.
    checks : tuple of Group
        Predicted beside published.
    findings : tuple of str
        Sentences with numbers read off the figures.
    read : tuple of str
        Sources of what is drawn beside what the checks say.
    unpublished : str
        Why nothing published stands in the figures; empty where something does.
    """

    name: str
    title: str
    text: str
    figures: tuple[Figure, ...]
    checks: tuple[Group, ...] = ()
    findings: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    unpublished: str = ""

    @property
    def errors(self) -> tuple[str, ...]:
        """The error of every check in a sentence."""
        return tuple(_error(check) for check in self.checks)

    @property
    def sources(self) -> tuple[tuple[str, str], ...]:
        """Where the published numbers come from, each with its address."""
        said = (text for check in self.checks for text in (*check.sources, *check.assumptions))
        return links((*said, *self.read))

    def section(self, number: int) -> Section:
        """The claim as a part of a page."""
        return Section(
            name=self.name,
            title=f"{number}. {self.title}",
            text=self.text,
            figures=self.figures,
            findings=(*self.findings, *self.errors, *((self.unpublished,) if self.unpublished else ())),
            links=self.sources,
        )


@functools.cache
def replay(name: str) -> Group:
    """A group of :func:`latency_model.evidence.validate.validate`; several claims may share one."""
    return REPLAYS[name]()


def links(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Texts with the addresses they name, each address once.

    >>> links(["MagicDec, arXiv 2408.11049, Table 3", "the same: arXiv 2408.11049"])
    (('MagicDec, arXiv 2408.11049, Table 3', 'https://arxiv.org/abs/2408.11049'),)
    """
    found: dict[str, str] = {}
    for text in texts:
        named = [form.format(match[1]) for pattern, form in ADDRESSES for match in pattern.finditer(text)]
        label = URL.sub("", text).strip(" ,;")
        for address in dict.fromkeys(named):
            if address not in found:
                found[address] = label if label not in found.values() else address.removeprefix("https://")
    return tuple((label, address) for address, label in found.items())


def _error(check: Group) -> str:
    name = check.quantity[:1].upper() + check.quantity[1:]
    if len(check.rows) <= FEW:
        said = (
            f"{row.case}: {_number(row.predicted)} predicted, {_number(row.measured)} published ({row.error:+.1%})"
            for row in check.rows
        )
        return f"{name}. {'; '.join(said)}."
    return (
        f"{name}: {len(check.rows)} published values, median error {check.median_error:.1%}, nine in ten within "
        f"{check.p90_error:.1%}, bias {check.bias:+.1%}, worst {check.worst.error:+.1%} ({check.worst.case})."
    )


def _number(value: float) -> str:
    """Three significant digits, no exponent."""
    return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.3g}"
