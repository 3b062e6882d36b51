"""`make test` also runs the fast tests under the other Pythons, and says which it could not run."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests import ROOT


@pytest.fixture
def pythons(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import pythons

    return pythons


def interpreter(path: Path, said: str) -> Path:
    """A program that answers as a Python of that version."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {said}\n" if said else "#!/bin/sh\nexit 127\n")
    path.chmod(0o755)
    return path


def test_the_newest_of_each_version_is_found(pythons: ModuleType, tmp_path: Path) -> None:
    interpreter(tmp_path / "bin" / "python3.10", "3 10 1")
    interpreter(tmp_path / "bin" / "python3.12", "3 12 1")
    interpreter(tmp_path / "bin" / "python3.13", "")  # a shim for nothing
    newer = interpreter(tmp_path / "pyenv" / "versions" / "3.12.4" / "bin" / "python", "3 12 4")
    third = interpreter(tmp_path / "pyenv" / "versions" / "3.13.0" / "bin" / "python", "3 13 0")
    environment = {"PATH": str(tmp_path / "bin"), "PYENV_ROOT": str(tmp_path / "pyenv")}
    assert pythons.found(environment) == {"3.12": newer, "3.13": third}


def test_a_python_that_is_not_there_is_named(pythons: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert pythons.suite_of("3.13", {}) is None
    assert "Python 3.13: not run, it is not on this machine" in capsys.readouterr().out


def test_a_python_without_its_requirements_is_named(
    pythons: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pythons, "environment_of", lambda name, python: None)
    assert pythons.suite_of("3.12", {"3.12": tmp_path / "python"}) is None
    assert "Python 3.12: not run, its requirements cannot be installed" in capsys.readouterr().out


def test_what_fails_there_fails(
    pythons: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_one.py").write_text("def test_one():\n    assert False\n")
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(pythons, "environment_of", lambda name, there: python)
    monkeypatch.setattr(pythons, "FAST", ["-c", "/dev/null", str(tmp_path / "test_one.py")])
    suite = pythons.suite_of("3.12", {"3.12": python})
    suite.start()
    assert suite.wait() == 1
    assert "Python 3.12:" in capsys.readouterr().out


def test_every_fast_test_is_there(pythons: ModuleType) -> None:
    assert [name for name in pythons.FAST if name.startswith("tests/") and not (ROOT / name).exists()] == []
    assert pythons.supported() == ["3.11", "3.12", "3.13"]
