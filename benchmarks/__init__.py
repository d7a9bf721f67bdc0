"""Benchmarks of turnlog: one module a question, each against baselines that are measured in the same run."""
