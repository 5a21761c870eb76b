"""Which models are trained on which text, and where their routing is kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Architecture:
    """What differs between the models."""

    layers: int
    experts: int
    top_k: int


@dataclass(frozen=True)
class Run:
    """One model to train."""

    text: str
    architecture: Architecture

    @property
    def name(self) -> str:
        """As in ``python-32x4-4l``: text, experts x top-k, layers."""
        a = self.architecture
        return f"{self.text}-{a.experts}x{a.top_k}-{a.layers}l"

    @property
    def trace(self) -> Path:
        """Expert ids of held-out text and what is known of the training."""
        return RESULTS / f"{self.name}.npz"


RUNS = tuple(
    Run(text, architecture)
    for architecture in (Architecture(4, 32, 4), Architecture(2, 16, 2), Architecture(3, 64, 4))
    for text in ("python", "documentation")
)
