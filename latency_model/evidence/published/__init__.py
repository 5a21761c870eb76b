"""Published measurements replayed: each group predicts what a paper, an engine's log or a user reported.

Nothing in the package is fitted to these rows, except where a group says that it fits and what.
"""

from __future__ import annotations

from collections.abc import Callable

from latency_model.evidence.published import speculation
from latency_model.evidence.published.record import Group

__all__ = ["REPLAYS"]

#: Every group by its name, in the order of the report.
REPLAYS: dict[str, Callable[[], Group]] = {
    "moesd": speculation.moesd,
    "eagle3-sglang": speculation.eagle3_sglang,
    "magicdec": speculation.magicdec,
    "magicdec-times": speculation.magicdec_times,
    "eagle-depths": speculation.eagle_depths,
    "leviathan": speculation.leviathan,
}
