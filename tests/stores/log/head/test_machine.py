"""The rules of `head.py` hold, the checks reach every branch of it, and it is as pure as it says."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.stores.log.head import machine
from tests import ROOT
from tests.stores.log.head.head_bench import Bench, claimed
from tests.stores.log.head.head_checks import CHECKS

SOURCE = Path(machine.__file__)
PURE = {"__future__", "bisect", "collections.abc", "functools", "itertools", "operator", "typing", "msgspec"}
PURE_NEIGHBOURS = {"bits", "names", "past", "state", "repeat"}

COVERED = """
import sys
import coverage

measured = coverage.Coverage(branch=True, data_file=None, config_file=False, include=[sys.argv[1]])
measured.start()
from tests.stores.log.head.head_checks import CHECKS
from holdfast.stores.log.head import machine
for check in CHECKS.values():
    check(machine)
measured.stop()
measured.json_report(outfile="-", pretty_print=False)
"""


@pytest.mark.parametrize("name", CHECKS)
def test_rule(name: str):
    CHECKS[name](machine)


def test_the_checks_reach_every_branch():
    command = [sys.executable, "-c", COVERED, str(SOURCE)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["files"].values()
    assert found["summary"]["num_branches"] > 50
    assert found["missing_lines"] == []
    assert found["missing_branches"] == []


def test_no_io_no_clock_no_randomness():
    """By what it imports, and by the names it calls."""
    tree = ast.parse(SOURCE.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert {each.name for each in node.names} <= PURE
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert node.module in PURE
        elif isinstance(node, ast.ImportFrom):
            assert node.level <= 2
            assert ({node.module} if node.module else {each.name for each in node.names}) <= PURE_NEIGHBOURS
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"open", "print", "input", "exec", "eval", "__import__", "hash", "id"}


def test_benches_start_empty():
    """Two benches share nothing: the defaults of a head are not one list for all."""
    claimed(machine, 2)
    assert Bench(machine).head.blocks == {}
    assert Bench(machine).head.leases == []
