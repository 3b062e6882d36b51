"""The short form of the run `backup`; that on a folder is one of `test_runs.py`'s."""

from __future__ import annotations

from importlib import import_module

import msgspec
import pytest

from chaos.runs import RUNS
from chaos.verdict import lines

backup_run = import_module("chaos.runs.backup")  # the name in the package is the function's
[SHORT] = [run.short for run in RUNS if run.name == "backup"]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("store", [store for store in backup_run.STORES if store != SHORT.store])
async def test_short_form(store: str) -> None:
    stops = 2 if store == "s3" else SHORT.stops  # a look at a bucket begins again as long as others change it
    verdict = await backup_run.backup(msgspec.structs.replace(SHORT, store=store, stops=stops))
    assert verdict.valid, "\n".join(lines(verdict))
    assert verdict.acknowledged > 0


async def test_a_backup_that_loses_something_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = backup_run._everything

    async def lossy(url: str) -> object:
        found, total = await whole(url)
        found.popitem()
        return found, total

    monkeypatch.setattr(backup_run, "_everything", lossy)
    verdict = await backup_run.backup(msgspec.structs.replace(SHORT, stops=1))
    assert verdict.lost > 0 or verdict.unexpected > 0
    assert not verdict.valid
