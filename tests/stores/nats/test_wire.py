"""What the server takes in one message: nothing above it is ever sent, and everything of a message finds its way."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator

import pytest

import holdfast
from holdfast.errors import MessageTooLarge, UnsafeStore
from holdfast.retry import Fixed
from holdfast.stores.nats import wire
from holdfast.stores.nats.store import NatsStore
from holdfast.stores.records import Envelope
from holdfast.testing.contract.base import eventually
from tests.servers.nats import Server


@pytest.fixture
def small() -> Iterator[Server]:
    with Server("max_payload: 65536") as server:
        yield server


def envelope(header: int) -> Envelope:
    """Past the limits of the public face, as another version of it may let it through."""
    return Envelope(b'"x"', "application/json", {"k": "v" * header})


@pytest.mark.parametrize("header", [1_200_000, 1_048_576 - 100])
async def test_headers_above_the_maximum_are_refused_and_the_process_goes_on(own: Server, header: int) -> None:
    async with holdfast.connect(own.url, operation_timeout=2) as broker:
        queue = await broker.queue("jobs")
        started = time.monotonic()
        with pytest.raises(MessageTooLarge) as refused:
            await broker.store.append("jobs", [envelope(10), envelope(header)])
        assert time.monotonic() - started < 1
        assert refused.value.actual > refused.value.limit
        await queue.enqueue("next")
        assert [delivery.value for delivery in await queue.dequeue_many(5, wait=5)] == ["next"]
    assert "maximum payload" not in (own.folder / "log").read_text()


async def test_everything_large_goes_through_a_server_of_64_kib(small: Server) -> None:
    data, result, error = os.urandom(1 << 20), "r" * (1 << 20), "e" * 100_000
    async with holdfast.connect(small.url, operation_timeout=5) as broker:
        queue = await broker.queue("jobs", max_attempts=1, retry=Fixed(0))
        for value in (data, os.urandom(30_000), "small"):
            ids = await queue.enqueue_many([value, value, value], headers={"k": "v" * 20_000})
            kept, failed, dropped = await queue.dequeue_many(3, wait=5)
            await kept.complete(result)
            await failed.fail(error)
            await dropped.complete(result, keep=False)
            record = await queue.get(ids[0])
            assert record is not None
            assert (record.value, record.result) == (value, result)
            letter = await queue.get(ids[1])
            assert letter is not None
            assert (letter.status, letter.value, len(letter.headers["k"])) == ("dead", value, 20_000)
            assert await queue.dead.replay([ids[1]]) == 1
            again = await queue.dequeue(wait=5)
            assert again is not None
            assert again.value == value
            await again.complete()
        with pytest.raises(MessageTooLarge):
            await broker.store.append("jobs", [envelope(60_000)])
        await queue.enqueue("next")
    assert "maximum payload" not in (small.folder / "log").read_text()


@pytest.mark.parametrize("headers", [10, 200_000])
async def test_message_of_days_when_the_server_took_more_ends(own: Server, headers: int) -> None:
    async with holdfast.connect(own.url) as broker:
        await broker.queue("jobs", max_attempts=1, retry=Fixed(0))
        message = Envelope(b'"%s"' % (b"x" * 200_000), "application/json", {"k": "v" * headers})
        ids = await broker.store.append("jobs", [message, message, message])
    await asyncio.to_thread(own.stop)
    own.config = "max_payload: 65536"
    await asyncio.to_thread(own.start)
    async with holdfast.connect(own.url, operation_timeout=5) as broker:
        queue = await broker.queue("jobs")
        first, second, third = await queue.dequeue_many(3, wait=5)
        assert await queue.complete_many([first, second]) == [True, True]
        await third.fail("broken")
        assert [await queue.status(id) for id in ids] == ["completed", "completed", "dead"]
        for id in ids:
            record = await queue.get(id)
            assert record is not None
            assert record.value == "x" * 200_000
        assert await queue.dead.replay([ids[2]]) == 1
        again = await queue.dequeue(wait=5)
        assert again is not None
        assert again.value == "x" * 200_000


async def test_link_outlives_an_error_that_closes_the_driver(own: Server) -> None:
    async with holdfast.connect(own.url, operation_timeout=5) as broker:
        queue, store = await broker.queue("jobs"), broker.store
        assert isinstance(store, NatsStore)
        await queue.enqueue("before")
        held = await queue.dequeue(wait=5)
        assert held is not None
        old = store.connection.client
        await store.connection.say(wire.frame("any.subject", b"x" * (2 << 20)))

        async def closed() -> bool:
            return old.is_closed

        await eventually(closed, "the driver to give up")
        await held.complete()
        await queue.enqueue(os.urandom(2 << 20))
        assert await queue.dequeue(wait=5) is not None
    assert (own.folder / "log").read_text().count("maximum payload") == 1


async def test_server_that_takes_too_little_is_refused() -> None:
    with Server("max_payload: 32768") as server, pytest.raises(UnsafeStore, match="max_payload"):
        await holdfast.connect(server.url)
