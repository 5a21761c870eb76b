"""Model architectures from Hugging Face ``config.json`` files, without running any of their code."""

from latency_model.specs.huggingface.families import FAMILIES, architecture_from_config

__all__ = ["FAMILIES", "architecture_from_config"]
