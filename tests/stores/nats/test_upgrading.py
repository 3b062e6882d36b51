"""Streams that an earlier version made: they are refused, and `install` makes them anew without a loss."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

import pytest

import holdfast
from holdfast.errors import StoreError, UnsafeStore
from holdfast.stores.nats import upgrading
from holdfast.stores.nats.names import LATER
from holdfast.stores.nats.store import NatsStore
from holdfast.stores.nats.wire import Post
from holdfast.testing.contract.base import eventually
from tests.servers.nats import Server


def store_of(broker: holdfast.Broker) -> NatsStore:
    store = broker.store
    assert isinstance(store, NatsStore)
    return store


async def age(store: NatsStore, queue: str) -> None:
    """Put the messages of a queue where the version before put them: in streams of its kind, with schedules."""
    names, connection = store.register.names(queue), store.connection
    found = await store.reader.run(names.task_stream, ">", 1, 1 << 20)
    config = (await connection.api(f"STREAM.INFO.{names.task_stream}"))["config"]
    await connection.api(f"STREAM.DELETE.{names.task_stream}")
    subjects = [f"{names.task}*.*", *(f"{one}*" for one in (names.key, names.call, names.once))]
    old: dict[str, Any] = {"subjects": [*subjects, f"{names.old_later}*.*"], "allow_msg_schedules": True}
    await connection.api(f"STREAM.CREATE.{names.task_stream}", {**config, **old, "discard": "old"})
    for stream in (names.done_stream, names.dead_stream, "holdfast=queues"):
        config = (await connection.api(f"STREAM.INFO.{stream}"))["config"]
        await connection.api(f"STREAM.UPDATE.{stream}", {**config, "discard": "old"})
    for one in found:
        await connection.store([_as_before(store, queue, one.subject, one.data)])
    consumer = {"durable_name": "0", "ack_policy": "explicit", "filter_subject": f"{names.task}0.*"}
    path = f"CONSUMER.CREATE.{names.task_stream}.0.{names.task}0.*"
    await connection.api(path, {"stream_name": names.task_stream, "config": {**consumer, "name": "0"}})


def _as_before(store: NatsStore, queue: str, subject: str, data: bytes) -> Post:
    names = store.register.names(queue)
    if not subject.endswith(LATER):
        return Post(subject, data)
    target = subject.removesuffix(LATER)
    at = datetime.fromtimestamp(store.connection.now() + 1, UTC).isoformat().replace("+00:00", "Z")
    headers = f"Nats-Schedule: @at {at}\r\nNats-Schedule-Target: {target}\r\n"
    return Post(names.old_later + target.removeprefix(names.task), data, headers)


async def grown(broker: holdfast.Broker) -> list[Any]:
    """A queue with a bit of everything, in old streams; the values that have to come out of it."""
    queue = await broker.queue("jobs")
    await queue.enqueue("keyed", dedup_key="k")
    await queue.enqueue_many(range(300))
    await queue.enqueue("delayed", delay=1)
    await age(store_of(broker), "jobs")
    return ["keyed", *range(300), "delayed"]


async def values(queue: Any, count: int) -> list[Any]:
    done: list[Any] = []

    async def all_done() -> bool:
        taken = await queue.dequeue_many(50, wait=0.2)
        done.extend(delivery.value for delivery in taken)
        assert all(await queue.complete_many(taken))
        return len(done) >= count

    await eventually(all_done, f"{count} messages")
    return done


async def test_old_streams_are_refused_until_they_are_converted(own: Server) -> None:
    async with holdfast.connect(own.url) as broker:
        await grown(broker)
    async with holdfast.connect(own.url) as broker:
        queue = await broker.queue("jobs")
        checks = {check.name: check for check in await broker.check()}
        assert checks["streams"].state == "warn"
        assert "holdfast install" in checks["streams"].detail
        for verb in (queue.dequeue(), queue.enqueue("more"), queue.stats(), queue.purge()):
            with pytest.raises(UnsafeStore, match="holdfast install"):
                await verb


async def test_install_makes_old_streams_anew_and_loses_nothing(own: Server) -> None:
    async with holdfast.connect(own.url) as broker:
        wanted = await grown(broker)
    async with holdfast.connect(own.url) as broker:
        queue, names = await broker.queue("jobs"), store_of(broker).register.names("jobs")
        assert any("anew" in step for step in await broker.install())
        assert not any("anew" in step for step in await broker.install())
        for stream in (names.task_stream, names.done_stream, names.dead_stream):
            info = await store_of(broker).connection.api(f"STREAM.INFO.{stream}")
            assert (info["config"]["discard"], info["config"].get("allow_msg_schedules")) == ("new", None)
        assert {check.name: check.state for check in await broker.check()}["streams"] == "ok"
        first = await queue.enqueue("again", dedup_key="k")
        assert await queue.status(first) == "pending"
        assert sorted(map(str, await values(queue, len(wanted)))) == sorted(map(str, wanted))
        assert (await queue.stats()).completed == len(wanted)


async def test_old_streams_with_a_limit_are_refused(own: Server) -> None:
    async with holdfast.connect(own.url) as broker:
        await grown(broker)
        store = store_of(broker)
        stream = store.register.names("jobs").task_stream
        config = (await store.connection.api(f"STREAM.INFO.{stream}"))["config"]
        await store.connection.api(f"STREAM.UPDATE.{stream}", {**config, "max_bytes": 1 << 30})
        with pytest.raises(UnsafeStore, match=r"--max-bytes=-1.*holdfast install"):
            await holdfast.connect(own.url)


async def test_streams_are_not_made_anew_while_messages_are_in_hand(own: Server) -> None:
    async with holdfast.connect(own.url) as broker:
        wanted = await grown(broker)
        queue = await broker.queue("jobs")
        held = await queue.dequeue(lease=60, wait=5)
        assert held is not None
        with pytest.raises(StoreError, match="stop its workers"):
            await broker.install()
        await held.complete()
        await broker.install()
        assert len(await values(queue, len(wanted) - 1)) == len(wanted) - 1


@pytest.mark.parametrize("step", ["_copy", "_move_back", "make_streams"])
async def test_interrupted_upgrade_is_finished_by_the_next(
    own: Server, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    async with holdfast.connect(own.url) as broker:
        wanted = await grown(broker)

        async def dies(*_: object) -> None:
            raise OSError(os.strerror(5))

        with monkeypatch.context() as patched:
            patched.setattr(store_of(broker).register if step == "make_streams" else upgrading, step, dies)
            with pytest.raises(StoreError):
                await broker.install()
    async with holdfast.connect(own.url) as broker:
        with pytest.raises(UnsafeStore, match="holdfast install"):
            await (await broker.queue("jobs")).dequeue()
        await broker.install()
        queue = await broker.queue("jobs")
        assert sorted(map(str, await values(queue, len(wanted)))) == sorted(map(str, wanted))
