"""What many messages cost: requests in slices, not one by one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast.stores.nats import claiming, connection
from holdfast.stores.nats.connection import Connection
from holdfast.stores.nats.fast_reader import Incoming
from holdfast.stores.nats.settling import Settler
from holdfast.stores.nats.store import NatsStore
from holdfast.stores.nats.wire import read_there
from holdfast.stores.records import Settlement
from holdfast.testing.contract.base import eventually
from tests.servers.nats import Server

MANY = 100
A_SLICE = 15  # requests: far from one for each message


def store_of(broker: holdfast.Broker) -> NatsStore:
    store = broker.store
    assert isinstance(store, NatsStore)
    return store


class Counter:
    """Requests that were awaited, and in how many rounds: what is asked together is one."""

    def __init__(self) -> None:
        self.asked = self.rounds = self.under_way = 0


@contextmanager
def counted(patch: pytest.MonkeyPatch) -> Iterator[Counter]:
    found = Counter()

    def around(name: str) -> None:
        inner = getattr(Connection, name)

        async def outer(*args: Any, **options: Any) -> Any:
            found.rounds += found.under_way == 0
            found.asked += 1
            found.under_way += 1
            try:
                return await inner(*args, **options)
            finally:
                found.under_way -= 1

        patch.setattr(Connection, name, outer)

    with patch.context() as patch:
        for name in ("_ask", "collect"):
            around(name)
        yield found


async def taken(queue: holdfast.Queue[Any], count: int = MANY) -> list[holdfast.Delivery[Any]]:
    await queue.enqueue_many(range(count))
    found = list(await queue.dequeue_many(count, lease=60, wait=5))
    assert len(found) == count
    return found


async def records(store: NatsStore) -> list[str]:
    names = store.register.names("jobs")
    return await store.reader.subjects(names.done_stream, f"{names.done}*")


async def test_ends_of_messages_that_are_not_kept(broker: holdfast.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = await broker.queue("jobs", archive=False)
    held = await taken(queue)
    with counted(monkeypatch) as found:
        assert all(await queue.complete_many(held))
        await eventually(lambda: _empty(store_of(broker)), "no record to be left")
    stats = await queue.stats()
    assert (stats.completed, stats.archived, stats.total) == (MANY, 0, 0)
    assert found.asked < 5 * A_SLICE  # with the looks whether they are gone


async def _empty(store: NatsStore) -> bool:
    await asyncio.sleep(0.02)
    return not await records(store)


async def test_what_is_not_kept_counts_nowhere_the_moment_it_ends(broker: holdfast.Broker) -> None:
    queue = await broker.queue("jobs", archive=False)
    for _ in range(5):
        held = await taken(queue)
        assert all(await queue.complete_many(held))
        assert (await queue.stats()).total == 0
        assert await queue.get(held[0].id) is None


async def test_what_is_not_kept_is_cleaned_up_before_the_broker_is_closed(server: Server) -> None:
    prefix = f"c{os.urandom(6).hex()}"
    async with holdfast.connect(server.url, prefix=prefix) as broker:
        queue = await broker.queue("jobs", archive=False)
        assert all(await queue.complete_many(await taken(queue)))
    async with holdfast.connect(server.url, prefix=prefix) as broker:
        assert await records(store_of(broker)) == []
        await broker.uninstall()


async def test_record_of_what_is_not_kept_outlasts_its_task(
    broker: holdfast.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An acknowledgement that is lost must not leave a task without a record: it would be taken for a new one."""

    async def lost(*_: object) -> None:
        return None

    queue = await broker.queue("jobs", archive=False, lease=1)
    held = await taken(queue, 3)
    monkeypatch.setattr(Settler, "_say", lost)
    assert all(await queue.complete_many(held))
    await store_of(broker).parts("jobs").partition.cleaned()
    monkeypatch.undo()
    assert await queue.dequeue(wait=3) is None
    assert (await queue.stats()).completed == 3


async def test_dead_letters_and_their_replay(broker: holdfast.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = await broker.queue("jobs", max_attempts=1)
    held = await taken(queue)
    with counted(monkeypatch) as dying:
        assert all(await queue.fail_many(held, "why"))
    assert dying.asked < A_SLICE
    assert (await queue.stats()).dead == MANY
    with counted(monkeypatch) as back:
        assert await queue.dead.replay() == MANY
    assert back.asked < 2 * A_SLICE
    stats = await queue.stats()
    assert (stats.dead, stats.pending) == (0, MANY)
    assert await queue.dead.replay([one.id for one in held]) == 0


@contextmanager
def removals(patch: pytest.MonkeyPatch) -> Iterator[list[Incoming]]:
    """The server's answers to removals."""
    answers: list[Incoming] = []

    def outer(word: Incoming) -> bool | Exception:
        answers.append(word)
        return read_there(word)

    with patch.context() as patch:
        patch.setattr(connection, "read_there", outer)
        yield answers


async def test_removals_are_not_answered_one_by_one(broker: holdfast.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer costs half as much as the removal itself."""
    queue, log = await broker.queue("jobs", max_attempts=1, archive=False), store_of(broker).parts("jobs").partition
    held = await taken(queue)
    with removals(monkeypatch) as answers:
        assert all(await queue.complete_many(held))
        await log.cleaned()
    assert len(answers) == 1
    assert all(await queue.fail_many(await taken(queue), "why"))
    with removals(monkeypatch) as answers:
        assert await queue.dead.replay() == MANY
    assert len(answers) == 2  # of the records, and of the letters


async def test_removals_that_the_server_did_not_hear_are_asked_for_again(
    broker: holdfast.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = Connection.say

    async def deaf(self: Connection, frames: bytes) -> None:
        if b"STREAM.MSG.DELETE" not in frames and b"STREAM.PURGE" not in frames:
            await inner(self, frames)

    monkeypatch.setattr(Connection, "say", deaf)
    queue, store = await broker.queue("jobs", max_attempts=1, archive=False), store_of(broker)
    assert all(await queue.complete_many(await taken(queue)))
    await store.parts("jobs").partition.cleaned()
    assert await records(store) == []
    assert all(await queue.fail_many(await taken(queue), "why"))
    assert await queue.dead.replay() == MANY
    assert await records(store) == []
    assert (await queue.stats()).total == MANY


async def test_record_that_another_has_written_anew_is_not_removed(broker: holdfast.Broker) -> None:
    queue, log = await broker.queue("jobs"), store_of(broker).parts("jobs").partition
    first, second = await taken(queue, 2)
    places = {id: sequence for id, (sequence, _) in (await log.records([first.id, second.id])).items()}
    await second.extend(120)
    assert await log.drop_records(places) == [first.id]
    assert list(await log.records([first.id, second.id])) == [second.id]


async def test_replay_that_was_interrupted_is_repeated_without_doubles(
    broker: holdfast.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, store = await broker.queue("jobs", max_attempts=1), store_of(broker)
    assert all(await queue.fail_many(await taken(queue), "why"))
    ids = [one.id for one in await queue.dead.list(MANY)]
    copier = store.parts("jobs").copier
    tasks = [record.task for _, record in (await store.parts("jobs").partition.records(ids[: MANY // 2])).values()]
    assert await copier.replay(tasks) == MANY // 2  # and then it died: the letters are still there
    assert await queue.dead.replay() == MANY // 2
    assert (await queue.stats()).pending == MANY
    assert (await queue.stats()).dead == 0


async def test_letter_whose_record_is_gone_is_swept(broker: holdfast.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who deletes a dead letter stopped in the middle of it."""

    class Killed(BaseException):
        pass

    async def killed(*_: object) -> None:
        raise Killed

    queue, store = await broker.queue("jobs", max_attempts=1), store_of(broker)
    held = await taken(queue, 2)
    await queue.fail_many(held, "why")
    with monkeypatch.context() as patch:
        patch.setattr(type(store.parts("jobs").partition), "drop_letters", killed)
        with pytest.raises(Killed):
            await queue.dead.delete([held[0].id])
    await broker.maintain()
    assert (await queue.stats()).dead == 1


async def test_acknowledgements_are_not_answered(broker: holdfast.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answered one makes the server search a long stream from its beginning at the next claim."""
    queue, asked = await broker.queue("jobs"), list[str]()
    held = await taken(queue)
    inner = Connection.request

    async def outer(self: Connection, subject: str, *args: Any, **options: Any) -> Any:
        asked.append(subject)
        return await inner(self, subject, *args, **options)

    monkeypatch.setattr(Connection, "request", outer)
    assert all(await queue.complete_many(held))
    assert [subject for subject in asked if subject.startswith("$JS.ACK")] == []
    assert (await queue.stats()).total == MANY  # all of them in the archive
    assert await queue.dequeue() is None


async def test_claim_that_took_long_looks_at_its_tasks_in_one_write(
    broker: holdfast.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, store = await broker.queue("jobs"), store_of(broker)
    await queue.enqueue_many(range(MANY))
    monkeypatch.setattr(claiming, "OUTLASTS_S", -1.0)  # every claim took that long
    with counted(monkeypatch) as found:
        held = await queue.dequeue_many(MANY, lease=60, wait=5)
    assert [one.value for one in held] == list(range(MANY))
    assert found.asked < A_SLICE
    log = store.parts("jobs").partition
    last = int((await log.connection.api(f"STREAM.INFO.{log.stream}"))["state"]["last_seq"])
    assert await log.are_there([last, last + 1]) == [True, False]


async def test_empty_lanes_are_asked_in_one_write(broker: holdfast.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = await broker.queue("jobs")
    await queue.enqueue_many([holdfast.Message(n, priority=n) for n in range(16)])
    held = await queue.dequeue_many(16, wait=5)
    assert [one.value for one in held] == list(range(15, -1, -1))
    await queue.complete_many(held)
    await asyncio.sleep(0.15)  # a claim soon after an enqueue of its own is patient
    assert await queue.dequeue() is None
    writes, inner = list[bytes](), Connection._send

    async def outer(self: Connection, data: bytes, within: float) -> None:
        writes.append(data)
        await inner(self, data, within)

    monkeypatch.setattr(Connection, "_send", outer)
    assert await queue.dequeue() is None
    pulls = [data for data in writes if b"CONSUMER.MSG.NEXT" in data]
    assert len(pulls) == 1
    assert pulls[0].count(b"CONSUMER.MSG.NEXT") == 16


async def test_messages_in_lanes_that_were_empty_come_in_their_order(broker: holdfast.Broker) -> None:
    queue = await broker.queue("jobs")
    await queue.enqueue_many([holdfast.Message("warm", priority=n) for n in range(16)])
    assert all(await queue.complete_many(await queue.dequeue_many(16, wait=5)))
    await asyncio.sleep(0.15)
    assert await queue.dequeue() is None
    messages = [holdfast.Message((n % 16, n), priority=n % 16) for n in range(64)]
    await queue.enqueue_many(messages)
    found: list[Any] = []
    while held := await queue.dequeue_many(7, wait=1):
        found += [tuple(one.value) for one in held]
        assert all(one.attempt == 1 for one in held)
        await queue.complete_many(held)
    assert found == sorted(found, key=lambda one: (-one[0], one[1]))
    assert len(found) == 64


async def test_counts_are_asked_for_together(broker: holdfast.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = await broker.queue("jobs")
    await queue.enqueue_many(range(10))
    await queue.complete_many(await queue.dequeue_many(5, wait=5))
    await asyncio.sleep(0.15)
    assert (await queue.stats()).pending == 5
    with counted(monkeypatch) as found:
        stats = await queue.stats()
    assert (stats.pending, stats.completed, stats.archived) == (5, 5, 5)
    assert found.rounds <= 4


async def test_neighbours_that_two_processes_end_each_leave_their_trace(server: Server) -> None:
    url = f"{server.url}?prefix=n{os.urandom(6).hex()}"
    async with holdfast.connect(url) as first, holdfast.connect(url) as second, holdfast.connect(url) as third:
        queue, other = await first.queue("jobs", archive=False), await second.queue("jobs")
        await queue.enqueue_many(range(40))
        claims = [
            (store, (await store.claim("jobs", 10, 60, wait=5)).messages) for store in 2 * [first.store, second.store]
        ]
        ends = [(store, [Settlement(one.id, one.token, "complete") for one in some]) for store, some in claims]
        for answers in await asyncio.gather(*[store.settle("jobs", some) for store, some in ends]):
            assert set(answers) == {"ok"}
        for broker in (first, second):
            await store_of(broker).parts("jobs").partition.cleaned()
        assert await records(store_of(third)) == []
        repeated = [one for _, some in ends for one in some]
        assert set(await third.store.settle("jobs", repeated)) == {"ok"}
        strange = [msgspec.structs.replace(one, token="0" * 17) for one in repeated]
        assert set(await third.store.settle("jobs", strange)) == {"lost"}
        assert (await other.stats()).completed == 40
        await third.uninstall()


async def test_a_lane_may_come_while_others_are_put_back(broker: holdfast.Broker) -> None:
    queue, consumers = await broker.queue("jobs"), store_of(broker).parts("jobs").partition.consumers
    await queue.enqueue_many([holdfast.Message(n, priority=n) for n in range(3)])
    for _, consumer in await consumers._all():
        await consumer.fetch(0, ahead=1)  # into its buffer
        consumer.buffer.extend(await consumer.fetch(1, ahead=1))
    await asyncio.gather(consumers.put_back(), consumers.ensure(9, 30.0))
    assert [one.value for one in await queue.dequeue_many(5, wait=5)] == [2, 1, 0]
