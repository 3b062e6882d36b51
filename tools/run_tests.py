"""All tests, and beside them the fast ones under the other Pythons; arguments are pytest's, for the former."""

from __future__ import annotations

import os
import subprocess
import sys

import pythons
from suite import ROOT, Suite, run

AT_ONCE = "8"  # tests wait for clocks, disks and servers more than they compute: four for each of two processors


def main() -> int:
    pytest = [sys.executable, "-m", "pytest"]
    whole = Suite("", pytest, ["-n", AT_ONCE, *sys.argv[1:]], folder=ROOT / "build" / "tests", env=os.environ)
    with subprocess.Popen([*pytest, "--collect-only", "-q"], cwd=ROOT, stdout=subprocess.DEVNULL):
        others = pythons.suites()  # meanwhile one process compiles the tests, or each of ours would
    return run([whole, *others])


if __name__ == "__main__":
    sys.exit(main())
