"""Sweeping: what clients leave behind does not pile up, and nothing is counted or copied twice by that."""

from __future__ import annotations

import os
from typing import Any

import pytest

import holdfast
from holdfast.stores.nats import maintenance
from holdfast.stores.nats.counters import Counts, Slot
from holdfast.stores.nats.store import NatsStore
from holdfast.testing.contract.base import eventually
from tests.servers.nats import Server


def store_of(broker: holdfast.Broker) -> NatsStore:
    store = broker.store
    assert isinstance(store, NatsStore)
    return store


async def finish(queue: holdfast.Queue[object], count: int) -> None:
    await queue.enqueue_many(range(count))
    assert all(await queue.complete_many(await queue.dequeue_many(count)))


async def tallies(store: NatsStore, queue: str = "jobs") -> list[str]:
    names = store.register.names(queue)
    return await store.reader.subjects(names.done_stream, f"{names.tally}*")


async def clients_that_are_gone(store: NatsStore, count: int, each: Counts) -> None:
    """What so many clients have counted."""
    subject = store.register.names("jobs").tally
    for _ in range(count):
        slot = Slot(subject + os.urandom(6).hex())
        slot.counts = each
        await store.connection.store([slot.post([])])


async def test_tallies_of_clients_are_folded_into_one(broker: holdfast.Broker) -> None:
    queue, store = await broker.queue("jobs"), store_of(broker)
    await finish(queue, 5)
    await clients_that_are_gone(store, 140, Counts(completed=2, failed=1))
    assert (await broker.maintain())["jobs"]["tallies"] == 141
    assert len(await tallies(store)) == 1
    stats = await queue.stats()
    assert (stats.completed, stats.failed, stats.archived) == (285, 140, 5)
    await finish(queue, 5)  # our own slot was folded under us
    stats = await queue.stats()
    assert (stats.completed, stats.failed, stats.archived) == (290, 140, 10)
    await clients_that_are_gone(store, 140, Counts(completed=1))
    assert (await broker.maintain())["jobs"]["tallies"] == 141
    stats = await queue.stats()
    assert (stats.completed, stats.failed) == (430, 140)


async def test_a_few_tallies_are_left_alone(broker: holdfast.Broker) -> None:
    queue = await broker.queue("jobs")
    await finish(queue, 2)
    assert (await broker.maintain())["jobs"]["tallies"] == 0
    assert len(await tallies(store_of(broker))) == 1


async def swept(store: NatsStore, queue: str, *, older_than: float) -> int:
    parts = store.parts(queue)
    return await maintenance.sweep(parts.partition, parts.copier, older_than=older_than)


async def marks(store: NatsStore, queue: str) -> int:
    names = store.register.names(queue)
    return len(await store.reader.subjects(names.task_stream, f"{names.once}*"))


async def test_a_mark_of_a_replay_stays_while_its_original_is_there(broker: holdfast.Broker) -> None:
    queue, store = await broker.queue("jobs"), store_of(broker)
    await finish(queue, 1)
    [record] = await queue.archive.list()
    assert await queue.archive.replay([record.id]) == 1
    assert await swept(store, "jobs", older_than=0.0) == 0
    assert await queue.archive.replay([record.id]) == 0, "the copy was made before"
    await queue.archive.delete([record.id])
    assert await swept(store, "jobs", older_than=3600.0) == 0, "too young: somebody may be in the middle of it"
    assert await swept(store, "jobs", older_than=0.0) == 1
    assert await marks(store, "jobs") == 0


async def test_a_mark_of_a_replayed_dead_letter_goes_with_the_letter(broker: holdfast.Broker) -> None:
    queue, store = await broker.queue("jobs", max_attempts=1), store_of(broker)
    await queue.enqueue("bad")
    delivery = await queue.dequeue()
    assert delivery is not None
    await delivery.fail("no")
    assert await queue.dead.replay() == 1
    assert await marks(store, "jobs") == 1
    assert await swept(store, "jobs", older_than=0.0) == 1


async def test_a_mark_of_a_letter_that_moved_goes_when_its_task_is_gone(broker: holdfast.Broker) -> None:
    queue, store = await broker.queue("jobs", max_attempts=1, dead_letter="graveyard"), store_of(broker)
    await queue.enqueue("bad")
    delivery = await queue.dequeue()
    assert delivery is not None
    await delivery.fail("no")
    assert await marks(store, "graveyard") == 1
    assert await swept(store, "graveyard", older_than=0.0) == 1
    moved = await (await broker.queue("graveyard")).dequeue()
    assert moved is not None
    assert moved.value == "bad"


async def test_words_of_dropped_calls_go_when_nothing_is_left_of_them(broker: holdfast.Broker) -> None:
    queue, store = await broker.queue("jobs"), store_of(broker)
    calls, names = store.parts("jobs").partition.calls, store.register.names("jobs")
    call = await calls.begin(2000)
    await calls.drop(call)
    await queue.enqueue("it may be a part of it, for all we know")
    long_ago = -3600.0  # its time is over by then
    assert await swept(store, "jobs", older_than=long_ago) == 0
    delivery = await queue.dequeue()
    assert delivery is not None
    await delivery.complete()

    async def gone() -> bool:  # the task leaves its stream a moment later
        return await swept(store, "jobs", older_than=long_ago) == 1

    await eventually(gone, "the word to go")
    assert await store.reader.subjects(names.task_stream, f"{names.call}*") == []


async def test_an_open_call_is_never_swept(broker: holdfast.Broker) -> None:
    await broker.queue("jobs")
    store = store_of(broker)
    await store.parts("jobs").partition.calls.begin(2000)
    assert await swept(store, "jobs", older_than=-3600.0) == 0


async def test_install_gives_an_older_stream_the_subjects_that_came_later(server: Server) -> None:
    async with holdfast.connect(server.url, prefix=f"t{os.urandom(6).hex()}") as broker:
        store, queue = store_of(broker), await broker.queue("jobs")
        names = store.register.names("jobs")
        config = (await store.connection.api(f"STREAM.INFO.{names.task_stream}"))["config"]
        old = [f"{names.task}*.*", f"{names.key}*"]
        await store.connection.api(f"STREAM.UPDATE.{names.task_stream}", {**config, "subjects": old})
        await broker.install()
        assert len(await queue.enqueue_many(range(1500))) == 1500
        await broker.uninstall()


async def test_what_was_settled_is_remembered_in_bounds(broker: holdfast.Broker) -> None:
    """At once, not at the next look around: a worker that drains a queue settles 100,000 in between."""
    queue, store = await broker.queue("jobs"), store_of(broker)
    settled = store.parts("jobs").partition.settled
    for _ in range(11):
        await finish(queue, 1000)
    assert len(settled) == 10_000


async def test_retention_reads_little_of_an_archive_that_is_young(
    broker: holdfast.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upkeep comes every minute: it must not cost as much as the archive is long."""
    queue, store = await broker.queue("jobs"), store_of(broker)
    for _ in range(3):
        await finish(queue, 1000)
    await broker.maintain()  # the rarer looks are done
    heard = 0
    collect, api = store.connection.collect, store.connection.api

    async def counting_collect(*args: Any, **kwargs: Any) -> Any:
        nonlocal heard
        found = await collect(*args, **kwargs)
        heard += len(found)
        return found

    async def counting_api(*args: Any, **kwargs: Any) -> Any:
        nonlocal heard
        answer = await api(*args, **kwargs)
        heard += len(answer.get("state", {}).get("subjects") or ())
        return answer

    monkeypatch.setattr(store.connection, "collect", counting_collect)
    monkeypatch.setattr(store.connection, "api", counting_api)
    assert (await broker.maintain())["jobs"]["archive"] == 0
    assert heard < 2000, "a page of records, and those of the last settlements"


async def test_retention_goes_through_more_than_a_page(broker: holdfast.Broker) -> None:
    queue = await broker.queue("jobs")
    await queue.enqueue_many(range(300))
    [waits] = await queue.dequeue_many(1)
    held = await queue.dequeue_many(299)
    assert all(await queue.complete_many(held))
    await broker.configure_queue("jobs", archive_days=0.0000001)
    await finish(queue, 250)
    await eventually(lambda: _is_empty_after_upkeep(broker, queue))
    await waits.complete()


async def _is_empty_after_upkeep(broker: holdfast.Broker, queue: holdfast.Queue[object]) -> bool:
    await broker.maintain()
    return (await queue.stats()).archived == 0
