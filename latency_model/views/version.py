"""The version of the package, which tables and figures carry."""

from __future__ import annotations

import importlib.metadata
from functools import cache

__all__ = ["package_version"]


@cache
def package_version() -> str:
    """Version installed; looking it up searches directories for milliseconds, so it is done once.

    >>> package_version().split(".")[0]
    '0'
    """
    return importlib.metadata.version("latency-model")
