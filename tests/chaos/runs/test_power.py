"""The run of power cuts must betray a store that acknowledges before the disk has it."""

from __future__ import annotations

import pytest

from chaos.runs.power import power
from chaos.settings import Settings
from holdfast.stores.log.folder import files
from holdfast.stores.log.folder.database import Writing

SMALL = Settings(messages=300, stops=10, quiet=True)


async def test_commits_that_do_not_wait_for_the_disk_are_found_out(monkeypatch: pytest.MonkeyPatch):
    begin = Writing.begin
    monkeypatch.setattr(Writing, "begin", lambda self, now, *, lasting=True: begin(self, now, lasting=False))
    verdict = await power(SMALL)
    assert verdict.lost
    assert not verdict.valid


async def test_files_that_are_not_synced_are_found_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "sync", lambda fd: None)
    verdict = await power(SMALL)
    assert not verdict.valid


async def test_names_that_are_not_synced_are_found_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "sync_directory", lambda directory, **_: None)
    verdict = await power(SMALL)
    assert not verdict.valid
