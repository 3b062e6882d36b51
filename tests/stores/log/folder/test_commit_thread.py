"""A child of a fork finds nothing locked that a thread of its parent had."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.loop_thread import portal
from holdfast.stores.log.folder import FolderSpace, commit_thread

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def space(tmp_path: Path) -> Iterator[FolderSpace]:
    space = portal().run(FolderSpace.open(tmp_path / "store"))
    yield space
    portal().run(space.close())


class Inside:
    """A step that is in the database until it is let go."""

    def __init__(self, space: FolderSpace, verb: str) -> None:
        self.is_there = False
        self.end = threading.Event()
        self._begun = threading.Event()

        async def submit() -> object:
            return getattr(space, verb)(self)

        portal().run(submit())
        assert self._begun.wait(30)

    def __call__(self, view: object) -> None:
        self.is_there = True
        self._begun.set()
        self.end.wait(30)
        self.is_there = False


def in_a_child(inside: Inside) -> bool:
    """Whether a child of a fork was made while the step was in the database."""
    child = os.fork()
    if child == 0:
        os._exit(int(inside.is_there))
    return bool(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def works(space: FolderSpace) -> bool:
    space.transact_from_thread(lambda tx: tx.put("a/1", b"x"))
    return True


@pytest.mark.parametrize("verb", ["read", "transact"])
def test_a_fork_waits_until_no_thread_is_in_the_database(space: FolderSpace, verb: str) -> None:
    inside = Inside(space, verb)
    threading.Timer(0.3, inside.end.set).start()
    assert not in_a_child(inside)
    assert works(space)  # nothing stays paused


def test_a_fork_of_one_who_is_stuck_is_made_in_the_end(space: FolderSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_thread, "_EXIT_PATIENCE_S", 0.2)
    inside = Inside(space, "transact")
    assert in_a_child(inside)
    inside.end.set()
    assert works(space)
