"""Benchmarks that gate the project: every bar, each as a ratio of two sides of one run. `python -m benchmarks`."""
