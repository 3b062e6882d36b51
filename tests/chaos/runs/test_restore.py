"""The short form of the run `restore`; that on a folder is one of `test_runs.py`'s."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

import holdfast
from chaos.restoring.load import QUEUE
from chaos.restoring.places import Folder
from chaos.runs import RUNS
from chaos.verdict import lines

restore_run = import_module("chaos.runs.restore")  # the name in the package is the function's
[SHORT] = [run.short for run in RUNS if run.name == "restore"]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("store", [store for store in restore_run.STORES if store != SHORT.store])
async def test_short_form(store: str) -> None:
    verdict = await restore_run.restore(msgspec.structs.replace(SHORT, store=store))
    assert verdict.valid, "\n".join(lines(verdict))
    assert verdict.acknowledged > 0


class Lossy(Folder):
    """Its copies forget what waits."""

    def copy(self) -> str:
        url = super().copy()
        with holdfast.sync.connect(url) as broker:
            broker.queue(QUEUE, create=False).purge()
        return url


async def test_a_copy_that_loses_something_is_found(monkeypatch) -> None:
    @contextmanager
    def opened(store: str, root: Path) -> Iterator[Folder]:
        yield Lossy(root)

    monkeypatch.setattr(restore_run, "opened", opened)
    verdict = await restore_run.restore(SHORT)
    assert verdict.lost > 0
    assert not verdict.valid


async def test_what_comes_back_in_the_original_is_found(monkeypatch) -> None:
    """A drain that sees an ended message again, as if its end had been undone."""
    drained = restore_run._drained

    def revived(url: str) -> object:
        found = drained(url)
        return restore_run.Found(found.drained | found.ended, found.ended, found.errors, found.left)

    monkeypatch.setattr(restore_run, "_drained", revived)
    verdict = await restore_run.restore(SHORT)
    assert verdict.duplicate_completions > 0
    assert not verdict.valid
