"""`make test` runs what failed once more, alone; its last line counts, and names what needed that."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests import ROOT

THREE = """
from pathlib import Path

def test_good():
    pass

def test_flaky(marked=Path(__file__).with_name("marked")):
    there = marked.exists()
    marked.touch()
    assert there

def test_bad():
    assert False
"""


@pytest.fixture
def suite(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import suite

    return suite


def made(suite: ModuleType, root: Path, *chosen: str, name: str = "") -> Any:
    (root / "pytest.ini").write_text("[pytest]\n")
    (root / "test_three.py").write_text(THREE)
    pytest = [sys.executable, "-m", "pytest", "-q"]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # none is needed, and they take long to load
    return suite.Suite(name, pytest, [*chosen], folder=root / "kept", env=env, root=root)


def test_what_fails_once_is_named_and_what_fails_twice_fails(
    suite: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert suite.run([made(suite, tmp_path)]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("2 passed, 1 failed, 0 skipped in ")
    assert last.endswith("; failed twice: test_three.py::test_bad; second run: test_three.py::test_flaky")


def test_what_passes_alone_passes(suite: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert suite.run([made(suite, tmp_path, "-k", "good or flaky", name="Python 3.x")]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("2 passed, 0 failed, 0 skipped in ")
    assert last.endswith("; second run: test_three.py::test_flaky (Python 3.x)")


def test_what_is_no_verdict_of_tests_has_no_second_run(
    suite: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert suite.run([made(suite, tmp_path, "-k", "nothing")]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("0 passed, 0 failed, 0 skipped in ")
    assert last.endswith("; pytest ended with 5; second run: none")
