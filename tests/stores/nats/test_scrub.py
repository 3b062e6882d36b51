"""What another program removed from JetStream is named, and what is left is taken for no new queue."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast import admin
from holdfast.errors import Damaged, HoldfastError
from holdfast.stores.nats.queues import Register
from holdfast.stores.nats.store import NatsStore
from tests.stores.nats.test_damage import drained, store_of, wrong

OPTIONS = "_.queue.jobs"


async def filled(broker: holdfast.Broker) -> holdfast.Queue[Any]:
    """One message in each state: dead, completed, waiting again, and three that nobody has tried."""
    queue = await broker.queue("jobs", retry=holdfast.Fixed(60), max_attempts=7)
    for ending in ("kill", "complete", "fail"):
        await queue.enqueue(ending)
        [each] = await queue.dequeue_many(1)
        await (each.complete() if ending == "complete" else getattr(each, ending)("why"))
    await queue.enqueue_many(["a", "b", "c"])
    assert await wrong(broker) == {}
    return queue


async def purge(store: NatsStore, stream: str, subject: str) -> None:
    answer = await store.connection.api(f"STREAM.PURGE.{stream}", {"filter": subject})
    assert answer["purged"] == 1
    store.register.forget("jobs")


async def ends(broker: holdfast.Broker) -> str:
    """What fails in the line of doctor."""
    [line] = [line for line in await broker.check() if line.name == "ends"]
    assert (line.state == "ok") == (line.detail == "no stream is gone or shorter than it was")
    return "" if line.state == "ok" else line.detail


async def test_a_queue_whose_options_are_gone_is_no_new_one(broker: holdfast.Broker) -> None:
    queue, store = await filled(broker), store_of(broker)
    assert await ends(broker) == ""
    await purge(store, f"{store.prefix}=queues", f"{store.prefix}.{OPTIONS}")
    with pytest.raises(Damaged, match="messages, and its options are not there") as said:
        await broker.queue("jobs")
    assert (said.value.queue, said.value.key) == ("jobs", f"{store.prefix}.{OPTIONS}")
    assert "queue 'jobs'" in await ends(broker)
    assert list(await wrong(broker)) == [f"{store.prefix}.{OPTIONS}"]
    assert list(await wrong(broker, quarantine=True)) == [f"{store.prefix}.{OPTIONS}"]
    assert await wrong(broker) == {}
    assert await ends(broker) == ""
    assert await queue.dequeue_many(9) == []  # nobody knows whether it was paused
    await queue.resume()
    assert await drained(queue) == ["a", "b", "c"]
    assert [each.value for each in await queue.dead.list()] == ["kill"]


async def test_what_is_left_of_it_can_be_removed(broker: holdfast.Broker) -> None:
    queue, store = await filled(broker), store_of(broker)
    await purge(store, f"{store.prefix}=queues", f"{store.prefix}.{OPTIONS}")
    with pytest.raises(holdfast.QueueNotFound):
        await broker.delete_queue("jobs")
    await broker.delete_queue("jobs", force=True)
    with pytest.raises(holdfast.QueueNotFound):
        await broker.delete_queue("jobs", force=True)
    queue = await broker.queue("jobs")
    assert (await queue.stats()).total == 0


@pytest.mark.parametrize("kind", ["tasks", "done", "dead"])
async def test_a_stream_that_is_gone_is_named(broker: holdfast.Broker, kind: str) -> None:
    queue, store = await filled(broker), store_of(broker)
    stream = f"{store.prefix}=jobs={kind}"
    await store.register.drop_stream(stream)
    assert await ends(broker) == f"stream {stream} is gone, with all that was in it"
    assert f"stream {stream} is gone, with all that was in it" in (await wrong(broker)).values()
    with pytest.raises(HoldfastError):
        await queue.stats()
    await broker.delete_queue("jobs", force=True)
    assert await ends(broker) == ""
    queue = await broker.queue("jobs")
    await queue.enqueue(1)
    assert await drained(queue) == [1]


@pytest.mark.parametrize(("stream", "value"), [("tasks", "fail"), ("dead", "kill")])
async def test_a_message_whose_record_is_left_is_missed(broker: holdfast.Broker, stream: str, value: str) -> None:
    queue, store = await filled(broker), store_of(broker)
    names = store.register.names("jobs")
    view = queue.dead.list() if stream == "dead" else queue.list("retry")
    [id] = [each.id for each in await view if each.value == value]
    await purge(store, f"{store.prefix}=jobs={stream}", (names.dead if stream == "dead" else names.task) + f"0.{id}")
    problem = "its dead letter is gone" if stream == "dead" else "its task is gone"
    assert await wrong(broker) == {names.done + id: problem}
    assert await drained(queue) == ["a", "b", "c"]
    if stream == "dead":  # its record has all of it
        assert await queue.dead.replay([id]) == 1
        assert await drained(queue) == ["kill"]
        assert await wrong(broker) == {}


async def test_a_deletion_that_was_interrupted_can_be_repeated(
    broker: holdfast.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(broker)
    drop, dropped = Register.drop_stream, list[str]()

    async def dying(self: Register, name: str) -> None:
        if dropped:
            raise KeyboardInterrupt
        dropped.append(name)
        await drop(self, name)

    monkeypatch.setattr(Register, "drop_stream", dying)
    with pytest.raises(KeyboardInterrupt):
        await broker.delete_queue("jobs", force=True)
    monkeypatch.undo()
    assert dropped[0] in await ends(broker)
    await broker.delete_queue("jobs", force=True)
    queue = await broker.queue("jobs")
    assert (await queue.stats()).total == 0
    assert (await admin.scrub(broker)).wrong == []
