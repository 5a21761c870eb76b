"""Calibrate from what users have: benchmark files in, a profile of their machine out."""

from latency_model.evidence.calibrate.calibrate import Calibration, TimingFit, calibrate

__all__ = ["Calibration", "TimingFit", "calibrate"]
