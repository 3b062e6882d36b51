"""Purge, and cancel of what is not kept, beside claims of another process: each message has one end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

import holdfast
from holdfast.stores.nats.maintenance import sweep_records
from holdfast.stores.nats.partition import Partition
from holdfast.stores.nats.settling import Settler
from holdfast.stores.nats.store import NatsStore
from holdfast.stores.records import Claims
from holdfast.testing.contract.base import eventually
from tests.servers.nats import Server

LEASE = 60.0


class Killed(BaseException):
    """Nothing that runs afterwards catches it."""


def store_of(broker: holdfast.Broker) -> NatsStore:
    store = broker.store
    assert isinstance(store, NatsStore)
    return store


def log_of(broker: holdfast.Broker) -> Partition:
    return store_of(broker).parts("jobs").partition


async def records(broker: holdfast.Broker) -> list[str]:
    names = store_of(broker).register.names("jobs")
    return await store_of(broker).reader.subjects(names.done_stream, f"{names.done}*")


def once_beside(log: Partition, name: str, act: Callable[[], Awaitable[Any]], *, after: bool) -> None:
    """The next call of this method of a log meets what another does, before or after it."""
    method = getattr(log, name)

    async def beside(*args: Any) -> Any:
        setattr(log, name, method)
        if not after:
            await act()
        answer = await method(*args)
        if after:
            await act()
        return answer

    setattr(log, name, beside)


async def retried(queue: holdfast.Queue[Any]) -> str:
    """A message that was claimed before, and can be claimed again."""
    id = await queue.enqueue(1)
    delivery = await queue.dequeue(wait=5)
    assert delivery is not None
    await delivery.fail("again", retry_in=0)
    return id


async def test_purge_leaves_what_was_claimed_since_it_looked(own: Server) -> None:
    async with holdfast.connect(own.url) as first, holdfast.connect(own.url) as second:
        queue, other = await first.queue("jobs"), await second.queue("jobs")
        await retried(queue)
        held: list[Any] = []

        async def claim() -> None:
            held.append(await other.dequeue(wait=5))

        once_beside(log_of(first), "records", claim, after=True)
        assert await queue.purge() == 0
        await held[0].complete()
        stats = await queue.stats()
        assert (stats.completed, stats.archived, stats.total) == (1, 1, 1)


async def test_claim_beside_a_purge_does_not_take_a_message_for_a_new_one(own: Server) -> None:
    async with holdfast.connect(own.url) as first, holdfast.connect(own.url) as second:
        queue, other = await first.queue("jobs"), await second.queue("jobs")
        await retried(queue)
        found: list[Any] = []

        async def claim() -> None:
            found.append(await other.dequeue())

        once_beside(log_of(first), "delete_each", claim, after=True)
        assert await queue.purge() == 1
        assert found == [None]
        assert (await queue.stats()).total == 0


async def claim_slowly(store: NatsStore, meanwhile: Callable[[], Awaitable[Any]]) -> Claims:
    """A claim that is handed a message, and writes its lease after something else has happened."""
    fence = store.parts("jobs").partition.fence
    write = fence.write

    async def late(posts: Sequence[Any], before: Any = None) -> Any:
        fence.write = write  # type: ignore[method-assign]  # once
        await meanwhile()
        return await write(posts, before)

    fence.write = late  # type: ignore[method-assign]  # between being handed a message and taking it
    return await store.claim("jobs", 1, LEASE, wait=0.5)


async def test_claim_that_was_handed_a_message_before_a_purge_does_not_get_it(own: Server) -> None:
    async with holdfast.connect(own.url) as first, holdfast.connect(own.url) as second:
        queue = await first.queue("jobs")
        await queue.enqueue(1)
        assert (await claim_slowly(store_of(second), queue.purge)).messages == []
        assert (await queue.stats()).total == 0
        assert await records(first) == []


async def test_claim_that_was_handed_a_message_before_its_cancel_does_not_get_it(own: Server) -> None:
    async with holdfast.connect(own.url) as first, holdfast.connect(own.url) as second:
        queue = await first.queue("jobs", archive=False)
        id = await queue.enqueue(1)
        assert (await claim_slowly(store_of(second), lambda: queue.cancel(id))).messages == []
        stats = await queue.stats()
        assert (stats.failed, stats.total) == (1, 0)
        assert await records(first) == []


async def test_purge_takes_what_others_were_handed_and_do_not_hold(own: Server) -> None:
    async with holdfast.connect(own.url) as first, holdfast.connect(own.url) as second:
        queue, other = await first.queue("jobs"), await second.queue("jobs")
        await queue.enqueue(1)
        held = await queue.dequeue(wait=5)
        delayed = await queue.enqueue(2, delay=LEASE)
        once_beside(log_of(first), "records", other.dequeue, after=False)  # it is not due, and given back until then
        assert await queue.purge() == 1
        assert await queue.get(delayed) is None
        assert held is not None
        await held.complete()


@pytest.mark.parametrize("step", ["_leave", "_forget"])
async def test_kill_in_a_purge_leaves_nothing_in_the_archive(
    own: Server, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    async def killed(*_: object) -> None:
        raise Killed

    async with holdfast.connect(own.url) as broker:
        queue = await broker.queue("jobs", lease=1)
        await retried(queue)
        await queue.enqueue(2)
        with monkeypatch.context() as patched:
            patched.setattr(Settler, step, killed)
            with pytest.raises(Killed):
                await queue.purge()
    async with holdfast.connect(own.url) as broker:
        queue = await broker.queue("jobs")
        assert (await queue.stats()).archived == 0

        async def nothing_left() -> bool:
            assert await queue.dequeue() is None
            await broker.maintain()
            return not await records(broker)

        await eventually(nothing_left, "the last of it to go")
        stats = await queue.stats()
        assert (stats.total, stats.completed, stats.failed) == (0, 0, 0)


async def test_record_without_its_task_is_swept(own: Server) -> None:
    async with holdfast.connect(own.url) as broker:
        queue = await broker.queue("jobs", lease=0.5)
        lost, kept = await retried(queue), await retried(queue)
        log = log_of(broker)
        await log.delete(log.names.task_stream, (await log.tasks([lost]))[lost][0].sequence)
        assert (await queue.stats()).archived == 1  # as an earlier version has left it
        assert await sweep_records(log, older_than=60) == 0
        await eventually(lambda: sweep_records(log, older_than=0), "the record to go")
        stats = await queue.stats()
        assert (stats.archived, stats.total) == (0, 1)
        assert (await queue.status(kept)) is not None
