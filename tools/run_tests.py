"""All tests, and beside them the fast ones under the other Pythons; arguments are pytest's, for the former."""

from __future__ import annotations

import os
import sys

import pythons
from suite import ROOT, Suite, run

AT_ONCE = "8"  # tests wait for clocks, disks and servers more than they compute: four for each of two processors


def main() -> int:
    pytest = [sys.executable, "-m", "pytest"]
    whole = Suite("", pytest, ["-n", AT_ONCE, *sys.argv[1:]], folder=ROOT / "build" / "tests", env=os.environ)
    return run([whole, *pythons.suites()])


if __name__ == "__main__":
    sys.exit(main())
