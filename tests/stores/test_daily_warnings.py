"""Warnings come once per store and day, whatever the number of processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.stores import daily_warnings

ASK = """
import sys
from holdfast.stores.daily_warnings import is_due
print(is_due("this", sys.argv[1], day=sys.argv[2]))
"""


def asked(store: str, day: str) -> str:
    """What another process is told."""
    command = [sys.executable, "-c", ASK, store, day]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_once_per_store_and_day_for_all_processes(cache: Path) -> None:
    assert daily_warnings.is_due("this", "a", day="20260101")
    assert not daily_warnings.is_due("this", "a", day="20260101")
    assert asked("a", "20260101") == "False"
    assert asked("b", "20260101") == "True"
    assert asked("a", "20260102") == "True"
    assert len(list((cache / "holdfast" / "reminded").iterdir())) == 2  # the first day's is forgotten


def test_without_a_cache_once_per_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert daily_warnings.is_due("that", "a", day="20260101")
    assert not daily_warnings.is_due("that", "a", day="20260101")
