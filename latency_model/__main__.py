"""``python -m latency_model`` is the command ``latency-model``."""

from __future__ import annotations

from latency_model.cli import main

if __name__ == "__main__":
    main(prog_name="latency-model")
