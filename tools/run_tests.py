"""All tests, and beside them the fast ones under the other Pythons; arguments are pytest's, for the former."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext

import pythons
from suite import ROOT, Suite, run

AT_ONCE = "8"  # tests wait for clocks, disks and servers more than they compute: four for each of two processors


def main() -> int:
    pytest = [sys.executable, "-m", "pytest"]
    folder = ROOT / "build" / "tests"
    is_first = not folder.exists()
    whole = Suite("", pytest, ["-n", AT_ONCE, *sys.argv[1:]], folder=folder, env=os.environ)
    with compiling(pytest) if is_first else nullcontext():
        others = pythons.suites()
    return run([whole, *others])


def compiling(pytest: list[str]) -> AbstractContextManager[object]:
    """One process compiles the tests, once; or each of ours would."""
    return subprocess.Popen([*pytest, "--collect-only", "-q"], cwd=ROOT, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
