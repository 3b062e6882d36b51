"""Messages that expire where nobody claims: upkeep reads each task once, and only of queues that have such tasks."""

from __future__ import annotations

import holdfast
from holdfast.stores.nats.store import NatsStore
from holdfast.testing.contract.base import LONG_S, SHORT_S, eventually
from tests.servers.nats import Server


def store_of(broker: holdfast.Broker) -> NatsStore:
    store = broker.store
    assert isinstance(store, NatsStore)
    return store


async def is_marked(broker: holdfast.Broker) -> bool:
    store = store_of(broker)
    names = store.register.names("jobs")
    return await store.reader.last_exact(names.task_stream, names.expiring) is not None


async def test_queues_without_such_tasks_are_not_read(broker: holdfast.Broker) -> None:
    queue = await broker.queue("jobs")
    await queue.enqueue_many(range(5))
    await broker.maintain()
    lapses = store_of(broker).parts("jobs").partition.lapses
    assert (lapses._read_upto, lapses._ends) == (0, {})
    assert not await is_marked(broker)
    await queue.enqueue(1, expires=LONG_S)
    assert await is_marked(broker)


async def test_another_process_finds_them(broker: holdfast.Broker, server: Server) -> None:
    queue = await broker.queue("jobs")
    gone = await queue.enqueue_many(range(3), expires=SHORT_S, delay=LONG_S)
    stays = await queue.enqueue_many(range(3), expires=LONG_S)
    async with holdfast.connect(server.url, prefix=broker.options.prefix) as other:
        lapses = store_of(other).parts("jobs").partition.lapses

        async def ended() -> bool:
            await other.maintain()
            return [await queue.status(id) for id in gone] == ["failed"] * 3

        await eventually(ended)
        assert set(lapses._ends) == set(stays), "those that ended are forgotten"
        read = lapses._read_upto
        await other.maintain()
        assert lapses._read_upto == read
    assert sorted(each.id for each in await queue.archive.list()) == sorted(gone)
