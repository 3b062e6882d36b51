"""A server that is stopped: every verb ends in time, with the right error, and the work goes on when it is back."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import holdfast
from holdfast.errors import Unavailable, UnknownOutcome
from holdfast.testing.contract.base import eventually
from tests.servers.nats import Server
from tests.starvation import Stopwatch

TIMEOUT = 1.5  # seconds: shorter than what any single wait used to take
LARGE = 3 << 20  # bytes: through the object store


@contextmanager
def frozen(server: Server) -> Iterator[None]:
    assert server._process is not None
    os.kill(server._process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, server._process.pid, os.WSTOPPED)  # it may have read more by then
    try:
        yield
    finally:
        os.kill(server._process.pid, signal.SIGCONT)


async def measured(call: Callable[[], Awaitable[object]]) -> tuple[float, BaseException | None]:
    watch, error = Stopwatch(), None
    try:
        await call()
    except holdfast.HoldfastError as raised:
        error = raised
    return watch.seconds(), error


def verbs(broker: holdfast.Broker, queue: holdfast.Queue[Any], held: list[Any]) -> dict[str, Any]:
    """Every verb that asks the server; `extend` from a thread is another connection."""
    store, id = broker.store, held[0].id
    return {
        "enqueue": lambda: queue.enqueue(1),
        "enqueue with a key": lambda: queue.enqueue(1, dedup_key="k"),
        "enqueue large": lambda: queue.enqueue(bytes(LARGE)),
        "enqueue_many": lambda: queue.enqueue_many(range(3000)),
        "dequeue": lambda: queue.dequeue(),
        "dequeue and wait": lambda: queue.dequeue(wait=TIMEOUT / 2),
        "ten dequeues": lambda: asyncio.gather(*[queue.dequeue() for _ in range(10)]),
        "complete": lambda: held[0].complete(),
        "fail": lambda: held[1].fail("why"),
        "release": lambda: held[2].release(),
        "extend": lambda: held[3].extend(600),
        "get": lambda: queue.get(id),
        "cancel": lambda: queue.cancel(id),
        "stats": lambda: queue.stats(),
        "dead.list": lambda: queue.dead.list(),
        "dead.replay": lambda: queue.dead.replay(),
        "dead.delete": lambda: queue.dead.delete([id]),
        "archive.list": lambda: queue.archive.list(),
        "purge": lambda: queue.purge(),
        "pause": lambda: queue.pause(),
        "queues": lambda: broker.queues(),
        "a new queue": lambda: broker.queue("other"),
        "maintain": lambda: store.maintain("jobs"),
        "check": lambda: store.check(),
        "extend from a thread": lambda: asyncio.to_thread(store.extend_from_thread, "jobs", [(id, "x")], 60),
    }


async def prepared(broker: holdfast.Broker) -> tuple[holdfast.Queue[Any], list[Any]]:
    queue: holdfast.Queue[Any] = await broker.queue("jobs", max_attempts=1)
    await queue.enqueue_many(range(8))
    held = list(await queue.dequeue_many(5, lease=300, wait=5))
    await held.pop().fail("dead")
    await asyncio.to_thread(broker.store.extend_from_thread, "jobs", [(held[0].id, "x")], 60)
    return queue, held


async def test_every_verb_ends_in_time_while_the_server_is_stopped(own: Server) -> None:
    async with holdfast.connect(own.url, operation_timeout=TIMEOUT) as broker:
        queue, held = await prepared(broker)
        calls = verbs(broker, queue, held)
        with frozen(own):
            found = dict(zip(calls, await asyncio.gather(*map(measured, calls.values())), strict=True))
        late = {name: seconds for name, (seconds, _) in found.items() if seconds > TIMEOUT + 1}
        assert late == {}
        wrong = {
            name: error for name, (_, error) in found.items() if not isinstance(error, Unavailable | UnknownOutcome)
        }
        assert wrong == {}
        watch = Stopwatch()
        await eventually(lambda: _works(queue), "the first answer after it is back")
        assert watch.seconds() < 5


async def _works(queue: holdfast.Queue[Any]) -> bool:
    try:
        return bool(await queue.enqueue("after"))
    except holdfast.StoreError:
        return False


@pytest.mark.parametrize("key", [None, "k"])
async def test_what_was_sent_to_a_stopped_server_is_repeated_with_the_same_id(own: Server, key: str | None) -> None:
    async with holdfast.connect(own.url, operation_timeout=TIMEOUT) as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue("before", dedup_key="another")
        connection, stopped = broker.store.connection, frozen(own)  # type: ignore[attr-defined]  # of this store
        send = connection.store

        async def stop_and_send(posts: Any) -> Any:  # the last moment in which nothing is in doubt
            connection.store = send
            stopped.__enter__()
            return await send(posts)

        connection.store = stop_and_send
        watch = Stopwatch()
        with pytest.raises(UnknownOutcome) as unknown:
            await queue.enqueue("once", dedup_key=key)
        assert watch.seconds() < TIMEOUT + 1
        stopped.__exit__(None, None, None)
        ids = await eventually(lambda: _answered(unknown.value), "an answer")
        assert ids == unknown.value.ids
        assert [one.value for one in await queue.dequeue_many(5, wait=5)] == ["before", "once"]


async def _answered(unknown: UnknownOutcome) -> list[str] | None:
    try:
        return await unknown.retry()
    except holdfast.StoreError:
        return None


async def test_closing_ends_in_time_while_the_server_is_stopped(own: Server) -> None:
    broker = await holdfast.connect(own.url, operation_timeout=TIMEOUT)
    await broker.queue("jobs")
    with frozen(own):
        seconds, error = await measured(broker.close)
    assert error is None
    assert seconds < TIMEOUT + 1


async def test_a_server_that_reads_nothing_holds_nobody_up(own: Server) -> None:
    """What is sent fills the socket, then the driver's buffers; who sends then must not wait for ever."""
    async with holdfast.connect(own.url, operation_timeout=TIMEOUT) as broker:
        queue = await broker.queue("jobs")
        with frozen(own):
            calls = [lambda: queue.enqueue(bytes(900_000))] * 150
            found = await asyncio.gather(*map(measured, calls))
        assert max(seconds for seconds, _ in found) < TIMEOUT + 1
        assert all(isinstance(error, Unavailable | UnknownOutcome) for _, error in found)


async def test_a_stopped_server_is_told_within_connect_timeout(own: Server) -> None:
    with frozen(own):
        seconds, error = await measured(lambda: holdfast.connect(own.url, connect_timeout=TIMEOUT))
    assert isinstance(error, Unavailable)
    assert "does not answer" in str(error)
    assert seconds < TIMEOUT + 1


async def test_the_lease_of_a_large_message_begins_when_it_is_delivered(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with holdfast.connect(server.url, prefix=f"l{os.urandom(6).hex()}") as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue(bytes(LARGE))
        store: Any = broker.store
        read = store.blobs.get

        async def slowly(name: str) -> bytes:
            await asyncio.sleep(1)
            return bytes(await read(name))

        monkeypatch.setattr(store.blobs, "get", slowly)
        taken = await queue.dequeue(wait=5, lease=0.8)
        assert taken is not None
        await taken.complete()
        assert (await queue.stats()).completed == 1
        await broker.uninstall()
