"""`make test` sees to it that there is a Java for Spark and a Node for Azurite, or says how to get one."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests import ROOT

_spec = importlib.util.spec_from_file_location("programs_tool", ROOT / "tools" / "programs.py")
programs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(programs)
JAVA, NODE = programs.JAVA, programs.NODE


def program(folder: Path, name: str, said: str) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "21" 2023-09-19 LTS', 21),
        ('java version "1.8.0_392"', 8),
        ("command not found", None),
    ],
)
def test_versions(said: str, version: int | None) -> None:
    assert programs.version(JAVA, said) == version


def test_a_java_that_is_there_is_enough(tmp_path: Path) -> None:
    program(tmp_path, "java", 'openjdk version "21.0.1"')
    assert programs.ensure(JAVA, {"PATH": str(tmp_path)}, run=_never, root=True)
    home = tmp_path / "home"
    home.mkdir()
    program(home / "bin", "java", 'openjdk version "17.0.1"')
    assert programs.ensure(JAVA, {"JAVA_HOME": str(home), "PATH": ""}, run=_never, root=True)


def _never(command: list[str]) -> int:
    raise AssertionError(command)


@pytest.mark.parametrize("said", ["", 'openjdk version "11.0.1"'])
def test_everybody_else_is_told_how(tmp_path: Path, capsys: pytest.CaptureFixture[str], said: str) -> None:
    program(tmp_path, "apt-get", "")
    if said:
        program(tmp_path, "java", said)
    assert not programs.ensure(JAVA, {"PATH": str(tmp_path)}, run=_never, root=False)
    told = capsys.readouterr().err
    assert "apt-get install openjdk-17-jre-headless" in told
    assert ("this is Java 11" if said else "there is none") in told


@pytest.mark.parametrize(("root", "environment"), [(True, {}), (False, {"CI": "true"})])
def test_root_and_ci_install_it(tmp_path: Path, root: bool, environment: dict[str, str]) -> None:
    program(tmp_path, "apt-get", "")
    ran: list[list[str]] = []

    def run(command: list[str]) -> int:
        ran.append(command)
        if "install" in command:
            program(tmp_path, "java", 'openjdk version "17.0.15"')
        return 0

    assert programs.ensure(JAVA, {"PATH": str(tmp_path), **environment}, run=run, root=root)
    assert ["sudo" in command for command in ran] == [not root] * 2
    assert JAVA.packages[0] in ran[1]


def test_a_failed_installation_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program(tmp_path, "apt-get", "")
    assert not programs.ensure(JAVA, {"PATH": str(tmp_path)}, run=lambda command: 100, root=True)
    assert "JAVA_HOME" in capsys.readouterr().err


def test_a_node_is_enough_from_18_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program(tmp_path, "node", "v20.20.2")
    assert programs.ensure(NODE, {"PATH": str(tmp_path)}, run=_never, root=True)
    program(tmp_path, "node", "v16.1.0")
    assert not programs.ensure(NODE, {"PATH": str(tmp_path)}, run=_never, root=False)
    assert "this is Node 16" in capsys.readouterr().err


def test_a_chromium_is_enough_from_120_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program(tmp_path, "chromium", "Chromium 150.0.7871.100 built on Debian GNU/Linux 12 (bookworm)")
    assert programs.ensure(programs.CHROMIUM, {"PATH": str(tmp_path)}, run=_never, root=True)
    program(tmp_path, "chromium", "Chromium 99.0.4844.51")
    assert not programs.ensure(programs.CHROMIUM, {"PATH": str(tmp_path)}, run=_never, root=False)
    assert "apt-get install chromium" in capsys.readouterr().err
