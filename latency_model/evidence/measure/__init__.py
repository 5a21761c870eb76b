"""Measure this machine: short microbenchmarks in torch, a profile fitted to them, and a check of the whole chain."""

from latency_model.evidence.measure.measure import Measurement, measure

__all__ = ["Measurement", "measure"]
