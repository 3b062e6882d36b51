"""Sweeping: what clients leave behind does not pile up, and nothing is counted or copied twice by that."""

from __future__ import annotations

import os

import holdfast
from holdfast.stores.nats import maintenance
from holdfast.stores.nats.store import NatsStore
from holdfast.stores.nats.tally import Counts, Slot
from holdfast.testing.contract.base import eventually
from servers.nats import Server


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
        await store.link.store([slot.post([])])


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
    return await maintenance.sweep(parts.log, parts.mover, older_than=older_than)


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
    calls, names = store.parts("jobs").log.calls, store.register.names("jobs")
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
    await store.parts("jobs").log.calls.begin(2000)
    assert await swept(store, "jobs", older_than=-3600.0) == 0


async def test_install_gives_an_older_stream_the_subjects_that_came_later(server: Server) -> None:
    async with holdfast.connect(server.url, prefix=f"t{os.urandom(6).hex()}") as broker:
        store, queue = store_of(broker), await broker.queue("jobs")
        names = store.register.names("jobs")
        config = (await store.link.api(f"STREAM.INFO.{names.task_stream}"))["config"]
        old = [f"{names.task}*.*", f"{names.key}*"]
        await store.link.api(f"STREAM.UPDATE.{names.task_stream}", {**config, "subjects": old})
        await broker.install()
        assert len(await queue.enqueue_many(range(1500))) == 1500
        await broker.uninstall()
