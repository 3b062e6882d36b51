"""A child of a fork finds nothing locked that a thread of its parent had."""

from __future__ import annotations

import os
import threading

import pytest

from holdfast.kombu.link import Link, link_to

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("verb", ["read", "transact"])
def test_a_fork_waits_until_no_thread_is_in_the_database(file_url: str, verb: str) -> None:
    link = link_to(file_url.removeprefix("holdfast+"))
    link.run(link.store.clock())
    begun, end, is_inside = threading.Event(), threading.Event(), [False]

    def step(view: object) -> None:
        is_inside[0] = True
        begun.set()
        end.wait(30)
        is_inside[0] = False

    async def submit() -> object:
        return getattr(link.store._space, verb)(step)  # type: ignore[attr-defined] # the folder's

    link.run(submit())
    assert begun.wait(30)
    threading.Timer(0.3, end.set).start()
    assert not in_a_child(is_inside)
    assert _works(link)  # nothing stays paused


def in_a_child(flag: list[bool]) -> bool:
    """What a child of a fork finds."""
    child = os.fork()
    if child == 0:
        os._exit(int(flag[0]))
    return bool(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _works(link: Link) -> bool:
    return link.run(link.values.put("key", b"value")) is not None


def test_a_fork_of_one_who_is_stuck_is_made_in_the_end(file_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.stores.log.folder.commit_thread._EXIT_PATIENCE_S", 0.2)
    link = link_to(file_url.removeprefix("holdfast+"))
    link.run(link.store.clock())
    begun, end = threading.Event(), threading.Event()

    def step(view: object) -> None:
        begun.set()
        end.wait(30)

    async def submit() -> object:
        return link.store._space.transact(step)  # type: ignore[attr-defined] # the folder's

    link.run(submit())
    assert begun.wait(30)
    assert not in_a_child([False])
    end.set()
    assert _works(link)
