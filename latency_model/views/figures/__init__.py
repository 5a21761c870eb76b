"""Figures of results, one module each in one house style; every function returns a ``plotly`` Figure.

Each takes a result (a Dataset of :func:`latency_model.sweep`, a Round, a ServingCurve), or the arguments that make
one.
"""

from __future__ import annotations

from latency_model.views.figures.draft_length_map import draft_length_map
from latency_model.views.figures.experts import experts
from latency_model.views.figures.load import latency_against_load
from latency_model.views.figures.memory import memory
from latency_model.views.figures.pareto import pareto
from latency_model.views.figures.roofline import roofline
from latency_model.views.figures.speedup import speedup
from latency_model.views.figures.waterfall import waterfall

__all__ = [
    "draft_length_map",
    "experts",
    "latency_against_load",
    "memory",
    "pareto",
    "roofline",
    "speedup",
    "waterfall",
]
