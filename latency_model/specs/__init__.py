"""Frozen nouns: what a machine, a model, a workload, a drafter is. Nothing here computes a time."""
