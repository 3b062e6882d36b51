"""Counts and what is left of a client that was killed between any two of its messages to the server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

import holdfast
from holdfast.stores.nats.settling import Settler
from holdfast.stores.nats.store import NatsStore
from holdfast.stores.nats.wire import Post
from holdfast.stores.records import Stats
from holdfast.testing.contract.base import eventually
from tests.servers.nats import Server

MESSAGES = 10


class Killed(BaseException):
    """Nothing that runs afterwards catches it."""


def store_of(broker: holdfast.Broker) -> NatsStore:
    store = broker.store
    assert isinstance(store, NatsStore)
    return store


async def records(store: NatsStore) -> list[str]:
    names = store.register.names("jobs")
    return await store.reader.subjects(names.done_stream, f"{names.done}*")


def counts(stats: Stats) -> tuple[int, int, int]:
    assert stats.exact
    return stats.completed, stats.failed, stats.archived


# ---------------------------------------------------------------------- what is not kept


@pytest.mark.parametrize("step", ["_leave", "_say", "_forget"])
async def test_kill_while_a_message_goes_leaves_nothing_in_the_archive(
    own: Server, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    async def killed(*_: object) -> None:
        raise Killed

    async with holdfast.connect(own.url) as broker:
        queue = await broker.queue("jobs", lease=1)
        id = await queue.enqueue(1)
        delivery = await queue.dequeue(wait=5)
        assert delivery is not None
        with monkeypatch.context() as patched:
            patched.setattr(Settler, step, killed)
            with suppress(Killed):  # the last steps follow while the caller goes on
                await delivery.complete(keep=False)
            await store_of(broker).parts("jobs").partition.cleaned()
    async with holdfast.connect(own.url) as broker:
        queue = await broker.queue("jobs")
        assert counts(await queue.stats()) == (1, 0, 0)
        assert (await queue.archive.list(), await queue.get(id)) == ([], None)

        async def nothing_left() -> bool:
            assert await queue.dequeue() is None
            await broker.maintain()
            return not await records(store_of(broker))

        await eventually(nothing_left, "the last of it to go")
        stats = await queue.stats()
        assert (counts(stats), stats.total) == ((1, 0, 0), 0)


# ---------------------------------------------------------------------- counts


async def hold(broker: holdfast.Broker, lease: float) -> list[Any]:
    queue = await broker.queue("jobs")
    await queue.enqueue_many(range(MESSAGES))
    return await queue.dequeue_many(MESSAGES, lease=lease, wait=5)


async def complete_until_killed(broker: holdfast.Broker, held: list[Any], arrived: int) -> None:
    """The process dies when so many messages of its write have reached the server."""
    connection = store_of(broker).connection
    store_each = connection.store_each

    async def cut(posts: Sequence[Post]) -> list[int | Exception]:
        await store_each(posts[:arrived])
        raise Killed

    connection.store_each = cut  # type: ignore[method-assign]  # where the kill comes
    with pytest.raises(Killed):
        await (await broker.queue("jobs")).complete_many(held)


@pytest.mark.parametrize("arrived", [0, 1, 5, MESSAGES, MESSAGES + 1])
async def test_counts_are_exact_wherever_a_client_was_killed(own: Server, arrived: int) -> None:
    async with holdfast.connect(own.url) as broker:
        await complete_until_killed(broker, await hold(broker, 60), arrived)
    async with holdfast.connect(own.url) as broker:
        queue = await broker.queue("jobs")
        stats = await queue.stats()
        assert counts(stats) == (stats.archived, 0, max(0, arrived - 1))
        assert len(await queue.archive.list()) == stats.archived
        assert await queue.archive.delete([record.id for record in await queue.archive.list()]) == stats.archived
        assert (await queue.stats()).completed == stats.completed


@pytest.mark.parametrize("keep", [True, False])
async def test_what_another_completes_after_a_kill_counts_once(own: Server, keep: bool) -> None:
    async with holdfast.connect(own.url) as broker:
        await complete_until_killed(broker, await hold(broker, 0.5), 4)
    async with holdfast.connect(own.url) as broker:
        queue, done = await broker.queue("jobs"), 3

        async def all_done() -> bool:
            nonlocal done
            taken = await queue.dequeue_many(MESSAGES, wait=1)
            assert all(await queue.complete_many(taken, keep=keep))
            done += len(taken)
            return done >= MESSAGES

        await eventually(all_done, "all completed")
        assert counts(await queue.stats()) == (MESSAGES, 0, MESSAGES if keep else 3)


async def test_cancelled_messages_count_wherever_the_client_was_killed(own: Server) -> None:
    async with holdfast.connect(own.url) as broker:
        queue = await broker.queue("jobs")
        first, second = await queue.enqueue_many(range(2))
        assert await queue.cancel(first)
        connection = store_of(broker).connection
        store_each = connection.store_each

        async def cut(posts: Sequence[Post]) -> list[int | Exception]:
            await store_each(posts[:1])
            raise Killed

        connection.store_each = cut  # type: ignore[method-assign]  # where the kill comes
        with pytest.raises(Killed):
            await queue.cancel(second)
    async with holdfast.connect(own.url) as broker:
        queue = await broker.queue("jobs")
        assert await queue.status(second) == "pending"
        assert counts(await queue.stats()) == (0, 1, 1)
        assert await queue.archive.delete([first]) == 1
        assert (await queue.stats()).failed == 1


async def test_many_outcomes_of_one_call_are_counted(broker: holdfast.Broker) -> None:
    queue = await broker.queue("jobs")
    await queue.enqueue_many(range(700))
    held = await queue.dequeue_many(700, wait=5)
    assert all(await queue.complete_many(held))
    assert counts(await queue.stats()) == (700, 0, 700)
    assert len(await store_of(broker).reader.subjects(store_of(broker).register.names("jobs").done_stream, ">")) == 701


async def test_message_that_ends_while_another_is_being_handed_it_does_not_come_back(own: Server) -> None:
    async with holdfast.connect(own.url) as first, holdfast.connect(own.url) as second:
        queue, other = await first.queue("jobs"), store_of(second)
        await queue.enqueue(1)
        held = await queue.dequeue(lease=60, wait=5)
        assert held is not None
        log = other.parts("jobs").partition
        await log.consumers.look()
        await first.store.extend("jobs", [(held.id, held.token)], 1)
        ack = store_of(first).parts("jobs").partition.leases[held.id, held.token].ack
        records = log.records

        handed = asyncio.Event()

        async def late(ids: Sequence[str]) -> Any:
            handed.set()
            await held.complete(keep=False)
            return await records(ids)

        log.records = late  # type: ignore[method-assign]  # between being handed it and looking at its record
        async with asyncio.timeout(50):
            while not handed.is_set():
                await log.connection.send(ack, b"-NAK")  # a request of the first may still be open, and get it
                assert (await other.claim("jobs", 1, 60, wait=2)).messages == []
        assert counts(await queue.stats()) == (1, 0, 0)
