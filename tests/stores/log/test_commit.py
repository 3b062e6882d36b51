"""A commit that outlives its deadline: its callers have been told, and whoever asks next is not its business."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from pathlib import Path

import pytest

from holdfast.config import QueueOptions, StoreOptions
from holdfast.errors import Unavailable
from holdfast.stores.log import commit, open_folder
from holdfast.stores.log.bucket.gather import Gather, Group
from holdfast.stores.log.entries import Step
from holdfast.stores.log.store import LogStore
from holdfast.stores.records import Claims, Envelope


class Stalled:
    """The next commit of a committer waits inside its step until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered, self.leave = threading.Event(), threading.Event()
        step = commit.Committer.step

        def stalling(committer, tx, entries):
            monkeypatch.setattr(commit.Committer, "step", step)
            self.entered.set()
            assert self.leave.wait(10)
            step(committer, tx, entries)

        monkeypatch.setattr(commit.Committer, "step", stalling)


@pytest.fixture
async def store(tmp_path: Path):
    store = await open_folder(tmp_path / "store", StoreOptions(operation_timeout=10))
    await store.create_queue("q", QueueOptions())
    await store.append("q", [Envelope(b"1")])
    yield store
    await store.close()


async def claimed(store: LogStore) -> list[bytes]:
    """What is given soon: whatever was given back is on its way."""
    for _ in range(500):
        claims: Claims = await store.claim("q", 1, 30.0)
        if claims.messages:
            return [each.payload for each in claims.messages]
        await asyncio.sleep(0.01)
    return []


async def test_what_a_claim_took_after_its_deadline_is_given_back(store: LogStore, monkeypatch: pytest.MonkeyPatch):
    committer = store._log("q").committer
    monkeypatch.setattr(committer, "_timeout", 0.1)
    stalled = Stalled(monkeypatch)
    with pytest.raises(Unavailable, match="unknown"):
        await store.claim("q", 1, 30.0)
    monkeypatch.setattr(committer, "_timeout", 10)
    next_claim = asyncio.ensure_future(claimed(store))
    await asyncio.sleep(0.05)
    stalled.leave.set()
    assert await next_claim == [b"1"]


async def test_what_a_cancelled_claim_took_is_given_back(store: LogStore, monkeypatch: pytest.MonkeyPatch):
    stalled = Stalled(monkeypatch)
    claim = asyncio.ensure_future(store.claim("q", 1, 30.0))
    assert await asyncio.to_thread(stalled.entered.wait, 10)
    claim.cancel()
    stalled.leave.set()
    with pytest.raises(asyncio.CancelledError):
        await claim
    assert await claimed(store) == [b"1"]


async def test_what_a_claim_took_whose_caller_is_cancelled_with_the_answer_in_hand_is_given_back(store: LogStore):
    """Cancelled between the answer and the moment in which the caller would have had it."""
    asked = asyncio.get_running_loop().create_task(store.claim("q", 1, 30.0))
    tell = commit.Request.tell

    def cancelling(self) -> None:
        tell(self)
        asked.cancel()

    commit.Request.tell = cancelling  # type: ignore[method-assign]
    try:
        with pytest.raises(asyncio.CancelledError):
            await asked
    finally:
        commit.Request.tell = tell  # type: ignore[method-assign]
    assert await claimed(store) == [b"1"]


async def test_a_group_that_was_given_up_takes_nobody_elses_entry():
    """On a bucket, where a step may still be waiting for its thread when its callers have been told."""
    left: list[Group] = []

    async def carry_out(group: Group) -> None:
        if not left:
            left.append(group)
            raise Unavailable("no answer in time")
        group.join()
        for entry in group:
            entry.result = "done"

    gather = Gather(carry_out, most=1)

    def put() -> Awaitable[object]:
        return gather.put(Step(lambda _: None), 1.0)

    with pytest.raises(Unavailable, match="no answer"):
        await put()
    following = put()
    with pytest.raises(Unavailable, match="nobody waits"):
        left[0].join()
    assert await following == "done"
