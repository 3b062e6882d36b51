"""Benchmarks that gate the project: every bar, each as a ratio of two sides of one run. `python -m benchmarks`."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))  # its `servers`
