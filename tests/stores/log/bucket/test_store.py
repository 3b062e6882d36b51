"""The engine on a bucket: lost answers are settled, nothing comes back to life, and every request is counted."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

import holdfast
from holdfast import Message
from holdfast.broker import Broker
from holdfast.errors import HoldfastError
from tests.servers.bucket import BucketServer
from tests.servers.proxy import Faults, Proxy

PATIENCE = 60.0


def requests(broker: Broker) -> int:
    counts = broker.store._space.tally.read()
    return sum(count for kind, count in counts.items() if not kind.startswith("bytes"))


async def flushed(broker: Broker, queue: str) -> None:
    """Wait until the outcomes have left the head, without asking the server for anything."""
    log = broker.store._logs[queue]
    async with asyncio.timeout(PATIENCE):
        while not log._is_clear or log._flushing is not None:
            await asyncio.sleep(0.02)


async def drained(queue: Any, count: int, batch: int) -> Counter[Any]:
    done: Counter[Any] = Counter()
    async with asyncio.timeout(PATIENCE):
        while sum(done.values()) < count:
            held = await queue.dequeue_many(batch, wait=5)
            done.update(
                delivery.value for delivery, ok in zip(held, await queue.complete_many(held), strict=True) if ok
            )
    return done


@pytest.mark.parametrize(
    "faults",
    [
        Faults(dropped=0.3),
        Faults(unavailable=0.3),
        Faults(conflict=0.5),
        Faults(unavailable=0.1, dropped=0.05, conflict=0.02, delayed=0.05, truncated=0.01, delay=0.5),
    ],
    ids=["replies are lost", "the server is busy", "somebody else is writing", "everything"],
)
async def test_whatever_the_network_does_each_message_is_completed_once(faults: Faults):
    with BucketServer() as server, Proxy(server.port, faults, seed=7) as proxy:
        url = server.url("x", endpoint=proxy.endpoint)
        async with holdfast.connect(url) as one, holdfast.connect(url) as two:
            queue = await one.queue("jobs")
            other = await two.queue("jobs")
            sent = [f"{place}" for place in range(60)]
            await asyncio.gather(*(queue.enqueue_many(sent[place : place + 6]) for place in range(0, 60, 6)))
            first, second = await asyncio.gather(_share(queue), _share(other))
            assert first + second == Counter(sent), "none lost, none twice"
            stats = await queue.stats()
            assert (stats.completed, stats.pending, stats.processing) == (60, 0, 0)
        assert sum(proxy.counts.faults.values()) > 5


async def _share(queue: Any) -> Counter[Any]:
    """What one of several consumers completes, until nothing is left for it."""
    done: Counter[Any] = Counter()
    async with asyncio.timeout(PATIENCE):
        while held := await queue.dequeue_many(7, wait=3):
            for delivery in held:
                try:
                    await delivery.complete()
                    done[delivery.value] += 1
                except HoldfastError as error:
                    raise AssertionError(f"{delivery.value}: {error}") from error
    return done


async def test_a_call_over_several_blocks_is_one_object_in_the_inbox():
    with BucketServer() as server:
        async with holdfast.connect(server.url("x")) as broker:
            queue = await broker.queue("jobs")
            ids = await queue.enqueue_many([Message(place, priority=place % 3) for place in range(9)])
            inbox = [key for key in server.items if "/inbox/" in key and "/parts/" not in key]
            assert len(inbox) == 1
            assert inbox[0].endswith(".bundle")
            assert [(await queue.get(id)).value for id in ids] == list(range(9))
            assert (await queue.stats()).pending == 9
            assert [d.value for d in await queue.dequeue_many(9)] == [2, 5, 8, 1, 4, 7, 0, 3, 6]


async def test_requests_per_message():
    with BucketServer() as server:
        async with holdfast.connect(server.url("x")) as broker:
            kept, plain = await broker.queue("kept"), await broker.queue("plain", archive=False)
            for queue in (kept, plain):  # the first message of a queue makes its head
                await drained_after(queue, 1, 1)
                await flushed(broker, queue.name)
            # Not counted here: one request after the window deletes the finished blocks, up to a thousand together.
            for queue, count, batch, most in (
                (plain, 1, 1, 5),
                (kept, 1, 1, 9),
                (kept, 2000, 50, 400),
                (kept, 10_000, 1000, 200),
            ):
                before = requests(broker)
                await drained_after(queue, count, batch)
                await flushed(broker, queue.name)
                assert requests(broker) - before <= most, (queue.name, count, batch)
            lines = {check.name: check.detail for check in await broker.store.check()}
            assert "put" in lines["requests"]


async def test_stats_tell_what_a_message_costs():
    with BucketServer() as server:
        async with holdfast.connect(server.url("x")) as broker:
            queue, other = await broker.queue("jobs", archive=False), await broker.queue("other")
            assert (await queue.stats()).usage.requests_per_message == {}
            assert (await queue.stats()).usage.bytes_per_message is None
            await drained_after(queue, 200, 50)
            usage = (await queue.stats()).usage
            assert usage.messages == 200
            assert usage.requests_per_message["put"] == usage.requests["put"] / 200 > 4 / 200
            assert usage.bytes_per_message > 100, "more than the payload"
            assert (await other.stats()).usage.messages == 0
            assert (await other.stats()).usage.bytes_sent < usage.bytes_sent
            in_all = broker.store.requests()
            assert usage.bytes_sent < in_all["bytes_sent"], "opening writes too"
    async with holdfast.connect("memory://") as broker:
        assert (await (await broker.queue("jobs")).stats()).usage is None


async def drained_after(queue: Any, count: int, batch: int) -> None:
    for _ in range(0, count, batch):
        await queue.enqueue_many(["x" * 100] * batch)
    await drained(queue, count, batch)


async def test_payloads_up_to_the_limit():
    with BucketServer() as server:
        async with holdfast.connect(server.url("x")) as broker:
            queue = await broker.queue("jobs", bytes, max_message_size=80 << 20)
            large = bytes(64 << 20)
            await queue.enqueue(large)
            delivery = await queue.dequeue(wait=5)
            assert delivery is not None
            assert delivery.value == large
            await delivery.complete()


async def test_every_shard_is_drained_by_one_consumer():
    with BucketServer() as server:
        url = server.url("x")
        async with holdfast.connect(url) as consumer:
            queue = await consumer.queue("jobs", shards=8)
            for _ in range(12):  # each producer stays on a shard of its own
                async with holdfast.connect(url) as producer:
                    await (await producer.queue("jobs")).enqueue_many(range(5))
            used = {key.split("/")[2] for key in server.items if "/inbox/" in key}
            assert len(used) > 2
            assert (await queue.stats()).pending == 60
            assert sum((await drained(queue, 60, 7)).values()) == 60
            assert (await queue.stats()).pending == 0


async def test_order_is_strict_on_a_shard():
    with BucketServer() as server:
        async with holdfast.connect(server.url("x")) as broker:
            queue = await broker.queue("jobs", shards=4)
            for place in range(20):
                await queue.enqueue(place)
            taken = [delivery.value for _ in range(4) for delivery in await queue.dequeue_many(5, wait=5)]
            assert taken == list(range(20))


async def test_pipelines_read_every_shard_and_streams_too():
    with BucketServer() as server:
        url = server.url("x")
        async with holdfast.connect(url) as broker:
            await broker.queue("jobs", shards=8)
            for _ in range(6):
                async with holdfast.connect(url) as producer:
                    await (await producer.queue("jobs")).enqueue_many(range(5))
            slices = await broker.store.batches.plan_scan("jobs", "ready")
            assert sum(part.rows for part in slices) == 30
            owner = await broker.store.batches.own("jobs", "reader", holder="me", lease=30.0)
            assert owner.consumer == "reader"
