"""Fault runs: processes that are killed, stopped and poisoned, one history each, one checker for all."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))  # its `servers`
