"""The claims this toolkit exists for, rebuilt from its formulas with the published points on top.

>>> claim = claims(["correlation"])["correlation"]
>>> claim.title
'Temporal correlation of experts cuts the cost of verification'
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from latency_model.errors import InputError, nearest, shorten
from latency_model.views.gallery import (
    context,
    correlation,
    dial,
    draft_length,
    fixed_costs,
    load,
    moe_batch,
    skew,
    sparsity,
    tasks,
)
from latency_model.views.gallery.claim import Claim
from latency_model.views.report import page
from latency_model.views.save import check_target, unwritable, whole_file

__all__ = ["CLAIMS", "Claim", "claims", "save_gallery"]

#: Every claim by its name, in the order of the page.
CLAIMS: dict[str, Callable[[str], Claim]] = {
    "draft-length": draft_length.claim,
    "moe-batch": moe_batch.claim,
    "correlation": correlation.claim,
    "fixed-costs": fixed_costs.claim,
    "sparsity": sparsity.claim,
    "context": context.claim,
    "load": load.claim,
    "tasks": tasks.claim,
    "skew": skew.claim,
    "dial": dial.claim,
}
PAGE = "index.html"
TITLE = "What the formulas say, beside what was published"
SUMMARY = (
    "Lines are predictions of the closed forms, diamonds published measurements. The errors are printed under the "
    "figures, whatever they are."
)


def claims(only: str | Iterable[str | int] = (), *, theme: str = "light") -> dict[str, Claim]:
    """Build claims with their figures.

    Parameters
    ----------
    only : str or iterable of str or int
        Names or numbers, as on the page; all when empty.
    theme : str
        ``light`` or ``dark``.

    Returns
    -------
    dict of str to Claim
        In the order of the page; ``claim.figures`` are plotly Figures, ``claim.checks`` predictions beside
        published numbers.

    Raises
    ------
    InputError
        When no claim has a name.
    """
    asked = set(_names(only)) or set(CLAIMS)
    return {name: build(theme) for name, build in CLAIMS.items() if name in asked}


def _names(only: str | Iterable[str | int]) -> list[str]:
    if isinstance(only, str):
        return [_name(only)]
    if not isinstance(only, Iterable):
        raise InputError(f"claims are a name or a list of names and numbers, got {shorten(only)}")
    return [_name(word if isinstance(word, str) else str(word)) for word in only]


def _name(word: str) -> str:
    names = list(CLAIMS)
    if word.isdecimal() and 1 <= int(word) <= len(names):
        return names[int(word) - 1]
    if word not in CLAIMS:
        raise InputError(
            f"no claim is named {shorten(word)}, nor has it a number from 1 to {len(names)}; {nearest(word, names)}"
        )
    return word


def save_gallery(
    directory: str | Path, only: str | Iterable[str | int] = (), *, force: bool = False
) -> tuple[Path, dict[str, Claim]]:
    """Build claims and write them as one self-contained page.

    Parameters
    ----------
    directory : str or Path
        Where ``index.html`` is written; made where its parent exists.
    only : str or iterable of str or int
        As in :func:`claims`.
    force : bool
        Replace a page that exists.

    Returns
    -------
    Path, dict of str to Claim
        The page, and what it shows.

    Raises
    ------
    InputError
        When no claim has a name, or the page cannot be written; then nothing is.
    """
    names = _names(only)
    target = Path(directory) / PAGE
    _check_directory(target.parent)
    if target.parent.is_dir():
        check_target(target, force=force)
    built = claims(names)
    numbers = {name: number for number, name in enumerate(CLAIMS, start=1)}
    text = page(TITLE, [claim.section(numbers[name]) for name, claim in built.items()], summary=SUMMARY)
    try:
        target.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise unwritable(target.parent, error) from None
    with whole_file(target, force=force) as beside:
        beside.write_text(text, encoding="utf-8")
    return target, built


def _check_directory(path: Path) -> None:
    """Refuse a path that is no directory and cannot become one."""
    if os.path.isdir(path):  # False, where Path.is_dir may raise: for a name that is too long
        return
    if os.path.exists(path):
        raise InputError(f"{path} is a file; give a directory")
    check_target(path, force=False)
