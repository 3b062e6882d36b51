"""Two versions side by side on every store; and the run must betray a version before that is none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from chaos import older
from chaos.older import NoHistory, commit_before
from chaos.runs import RUNS
from chaos.runs.upgrade import STORES, upgrade
from chaos.settings import Settings
from chaos.verdict import lines

SHORT = next(run.short for run in RUNS if run.name == "upgrade")


def on(store: str) -> Settings:
    return msgspec.structs.replace(SHORT, store=store)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("store", [store for store in STORES if store != SHORT.store])
async def test_two_versions_work_side_by_side(store: str) -> None:
    verdict = await upgrade(on(store))
    assert verdict.valid, "\n".join(lines(verdict))
    assert verdict.acknowledged > 0
    assert " | refused" in str(verdict.notes[store])


@pytest.mark.timeout(180)
async def test_a_version_of_the_same_format_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(older, "commit_before", lambda store: "HEAD")
    verdict = await upgrade(on("file"))
    assert "has the same format" in "\n".join(verdict.failures)


@pytest.mark.parametrize("store", STORES)
def test_the_version_before_has_another_format(store: str) -> None:
    assert older._number(store, commit_before(store)) != older._number(store, "HEAD")


async def test_without_history_it_fails_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(older, "ROOT", tmp_path)
    verdict = await upgrade(on("all"))
    assert not verdict.valid
    assert len(verdict.failures) == len(STORES)
    assert "built from this repository's history, and git does not give it" in verdict.failures[0]


def test_a_history_that_is_cut_off_fails_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "clone", "-q", "--depth=1", older.ROOT.as_uri(), str(tmp_path / "cut")], check=True)
    monkeypatch.setattr(older, "ROOT", tmp_path / "cut")
    for store in STORES:
        with pytest.raises(NoHistory, match="git fetch --unshallow"):
            commit_before(store)
