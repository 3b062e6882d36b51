"""Full streams and full servers: what was acknowledged stays, a refusal says so, and everything can be drained."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

import holdfast
from holdfast import admin
from holdfast.errors import QueueFull, Unavailable, UnsafeStore
from holdfast.stores.nats.reserve import RESERVE_BYTES
from holdfast.stores.nats.store import NatsStore
from holdfast.testing.contract.base import eventually
from tests.servers.nats import Server

SERVER_BYTES = 24 << 20
LARGE = 100 << 10


@pytest.fixture
def narrow() -> Iterator[Server]:
    with Server(max_file_store=SERVER_BYTES) as server:
        yield server


def store_of(broker: holdfast.Broker) -> NatsStore:
    store = broker.store
    assert isinstance(store, NatsStore)
    return store


async def edit(store: NatsStore, stream: str, **changes: Any) -> None:
    """As an operator would."""
    config = (await store.connection.api(f"STREAM.INFO.{stream}"))["config"]
    await store.connection.api(f"STREAM.UPDATE.{stream}", {**config, **changes})


async def fill(queue: Any, value: Any, most: int, **terms: Any) -> list[str]:
    """Ids that were acknowledged before the first refusal; each call by itself."""
    ids: list[str] = []
    while len(ids) < most:
        try:
            ids.append(await queue.enqueue(value, **terms))
        except (QueueFull, Unavailable):
            return ids
    return ids


async def drain(queue: Any, *, keep: bool | None = None) -> list[str]:
    done: list[str] = []
    while taken := await queue.dequeue_many(10, wait=0.3):
        done += [delivery.id for delivery in taken]
        assert all(await queue.complete_many(taken, keep=keep))
    return done


# ---------------------------------------------------------------------- a stream at its limit


@pytest.mark.parametrize("limit", [{"max_bytes": 40_000}, {"max_msgs": 60}], ids=["bytes", "messages"])
@pytest.mark.parametrize("delay", [0.0, 0.3], ids=["at once", "delayed"])
async def test_stream_at_its_limit_refuses_and_drops_nothing(
    broker: holdfast.Broker, limit: dict[str, int], delay: float
) -> None:
    queue, store = await broker.queue("jobs"), store_of(broker)
    await edit(store, store.register.names("jobs").task_stream, **limit)
    acknowledged = await fill(queue, "x" * 200, 500, delay=delay)
    assert 20 < len(acknowledged) < 500
    with pytest.raises(QueueFull, match="limit"):
        await queue.enqueue("x" * 200)
    with pytest.raises(QueueFull):
        await queue.enqueue_many(["x" * 200] * 50)
    done: list[str] = []

    async def all_done() -> bool:
        done.extend(await drain(queue))
        return len(done) >= len(acknowledged)

    await eventually(all_done, "everything that was acknowledged")
    assert sorted(done) == sorted(acknowledged)
    await queue.enqueue("there is room again")


async def test_records_at_their_limit_are_unavailable_and_cost_nothing(broker: holdfast.Broker) -> None:
    queue, store = await broker.queue("jobs"), store_of(broker)
    ids = await queue.enqueue_many(range(5))
    stream = store.register.names("jobs").done_stream
    await edit(store, stream, max_msgs=1)
    with pytest.raises(Unavailable, match="limit"):
        await queue.dequeue_many(5, lease=0.5)
    await edit(store, stream, max_msgs=-1)
    done: list[str] = []

    async def all_done() -> bool:
        done.extend(await drain(queue))
        return len(done) >= len(ids)

    await eventually(all_done, "all five")
    assert sorted(done) == ids


# ---------------------------------------------------------------------- streams that would drop


@pytest.mark.parametrize("stream", ["task_stream", "done_stream", "dead_stream"])
@pytest.mark.parametrize(
    ("changes", "words"),
    [({"max_age": 3600 * 10**9}, "--max-age=0"), ({"discard": "old", "max_bytes": 1 << 20}, "--discard=new")],
    ids=["age", "limit"],
)
async def test_stream_that_drops_is_refused_at_opening(
    server: Server, stream: str, changes: dict[str, Any], words: str
) -> None:
    prefix = f"t{os.urandom(6).hex()}"
    async with holdfast.connect(server.url, prefix=prefix) as broker:
        await broker.queue("jobs")
        store = store_of(broker)
        name = getattr(store.register.names("jobs"), stream)
        config = (await store.connection.api(f"STREAM.INFO.{name}"))["config"]
        await edit(store, name, **changes)
        with pytest.raises(UnsafeStore, match=f"{name}.*nats stream edit.*{words}"):
            await holdfast.connect(server.url, prefix=prefix)
        checks = {check.name: check for check in await admin.doctor(f"{server.url}?prefix={prefix}")}
        assert checks["store"].state == "fail"
        assert name in checks["store"].detail
        checks = {check.name: check for check in await broker.check()}
        assert (checks["streams"].state, name in checks["streams"].detail) == ("fail", True)
        await store.connection.api(f"STREAM.UPDATE.{name}", config)
        async with holdfast.connect(server.url, prefix=prefix):
            pass
        await broker.uninstall()


async def test_doctor_says_that_full_streams_refuse(broker: holdfast.Broker) -> None:
    await broker.queue("jobs")
    checks = {check.name: check for check in await broker.check()}
    assert checks["streams"].state == "ok"


# ---------------------------------------------------------------------- a full server


async def test_full_server_can_be_drained_and_takes_messages_again(narrow: Server) -> None:
    async with holdfast.connect(narrow.url) as broker, holdfast.connect(narrow.url) as other:
        queue = await broker.queue("jobs", archive=False)
        acknowledged = await fill(queue, "x" * LARGE, 1000)
        assert SERVER_BYTES - 2 * RESERVE_BYTES < len(acknowledged) * LARGE < SERVER_BYTES
        with pytest.raises(Unavailable, match="no room"):
            await queue.enqueue("x" * LARGE)
        first = await queue.dequeue(wait=5)
        assert first is not None
        with pytest.raises(Unavailable, match="no room"):  # what was given up is not for more messages
            await (await other.queue("jobs")).enqueue_many(["x" * LARGE] * 10)
        await first.complete()
        assert sorted([first.id, *await drain(queue)]) == acknowledged
        assert await eventually(lambda: fill(queue, "x" * LARGE, 1), "room again")
        info = await store_of(broker).connection.api("STREAM.INFO.holdfast=reserve")
        assert info["state"]["bytes"] >= RESERVE_BYTES


async def test_first_enqueues_of_many_producers_write_the_reserve_once(server: Server) -> None:
    prefix = "together"
    async with AsyncExitStack() as stack:
        brokers = [await stack.enter_async_context(holdfast.connect(server.url, prefix=prefix)) for _ in range(6)]
        queues = [await broker.queue("jobs") for broker in brokers]
        await asyncio.gather(*(queue.enqueue(place) for queue in queues for place in range(20)))
        assert (await queues[0].stats()).pending == 120
        store = store_of(brokers[0])
        state = (await store.connection.api(f"STREAM.INFO.{prefix}=reserve"))["state"]
        assert state["bytes"] >= RESERVE_BYTES
        assert state["last_seq"] * state["bytes"] // state["messages"] < 2 * RESERVE_BYTES, "written more than once"
        await brokers[0].uninstall()


async def test_a_reserve_that_was_begun_is_made_whole(server: Server, broker: holdfast.Broker) -> None:
    queue, store = await broker.queue("jobs"), store_of(broker)
    await queue.enqueue(1)
    stream = f"{store.prefix}=reserve"
    whole = (await store.connection.api(f"STREAM.INFO.{stream}"))["state"]
    for place in range(1, whole["messages"]):  # whoever wrote it ended after its first piece
        await store.connection.api(f"STREAM.PURGE.{stream}", {"filter": f"{store.prefix}._.reserve.{place}"})
    async with holdfast.connect(server.url, prefix=store.prefix) as other:
        await (await other.queue("jobs")).enqueue(2)
        await other.maintain()
    assert (await store.connection.api(f"STREAM.INFO.{stream}"))["state"]["bytes"] >= RESERVE_BYTES


async def test_full_server_keeps_an_archive_while_it_is_drained(narrow: Server) -> None:
    async with holdfast.connect(narrow.url) as broker:
        queue = await broker.queue("jobs")
        acknowledged = await fill(queue, "x" * LARGE, 1000)
        assert sorted(await drain(queue)) == acknowledged
        stats = await queue.stats()
        assert (stats.completed, stats.archived, stats.pending) == (len(acknowledged), len(acknowledged), 0)
        assert await queue.archive.delete(acknowledged[:100]) == 100
        assert await eventually(lambda: fill(queue, "x" * LARGE, 1), "room again")


async def test_full_account_can_be_drained() -> None:
    limits = 'accounts { A: { jetstream: {max_file: 16MB}, users: [{user: "u", password: "p"}] } }'
    with Server(limits) as server:
        async with holdfast.connect(f"nats://u:p@{server.host}") as broker:
            queue = await broker.queue("jobs", archive=False)
            acknowledged = await fill(queue, "x" * LARGE, 1000)
            small = await fill(queue, 1, 1000)  # whatever is left
            assert len(acknowledged) > 50
            assert sorted(await drain(queue)) == sorted([*acknowledged, *small])
            assert await eventually(lambda: fill(queue, "x" * LARGE, 1), "room again")
