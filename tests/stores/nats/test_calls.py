"""Calls of more messages than the server takes at once: all of them, or none, whoever dies when."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import holdfast
from holdfast.errors import StoreError, Unavailable, UnknownOutcome
from holdfast.stores.nats.store import NatsStore
from holdfast.testing.contract.base import eventually
from tests.servers.nats import Server

MANY = 2500  # three parts


@pytest.fixture
def prefix() -> str:
    return f"t{os.urandom(6).hex()}"


@pytest.fixture
def hasty(server: Server, prefix: str) -> str:
    """A URL whose calls are given up soon after their producer is gone."""
    return f"{server.url}?prefix={prefix}&operation_timeout=2"


def store_of(broker: holdfast.Broker) -> NatsStore:
    store = broker.store
    assert isinstance(store, NatsStore)
    return store


async def left_on_the_server(store: NatsStore, *families: str) -> list[str]:
    names = store.register.names("jobs")
    found: list[str] = []
    for family in families:
        pattern = getattr(names, family) + {"task": "*.*", "later": ""}.get(family, "*")
        found += await store.reader.subjects(names.task_stream, pattern)
    return found


async def taken(queue: holdfast.Queue[object], most: int = 10_000) -> list[object]:
    """Everything that can be had, and completed."""
    values: list[object] = []
    while found := await queue.dequeue_many(min(500, most), wait=1):
        values += [delivery.value for delivery in found]
        assert all(await queue.complete_many(found))
    return values


def dies(url: str, body: str) -> None:
    """Run a producer that kills itself with SIGKILL somewhere in the middle."""
    program = """
        import asyncio, os, signal
        import holdfast
        from holdfast.stores.nats.calls import Calls
        from holdfast.stores.nats.connection import Connection

        def die(*_):
            os.kill(os.getpid(), signal.SIGKILL)

        async def main():
            async with holdfast.connect({url!r}) as broker:
                queue = await broker.queue("jobs")
        {body}
        asyncio.run(main())
    """
    text = textwrap.dedent(program).format(url=url, body=textwrap.indent(textwrap.dedent(body).strip(), " " * 8))
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


BEFORE_THE_COMMIT = f"""
    Calls.commit = die
    await queue.enqueue_many(range({MANY}))
"""
AFTER_ONE_PART = f"""
    sent = Connection._store_batch
    async def first_only(self, posts, *rest):
        await sent(self, posts, *rest)
        die()
    Connection._store_batch = first_only
    await queue.enqueue_many(range({MANY}))
"""
AFTER_THE_COMMIT = f"""
    Calls._remove = die
    await queue.enqueue_many(range({MANY}))
"""
WITH_KEYS = f"""
    Calls.commit = die
    await queue.enqueue_many([holdfast.Message(n, dedup_key=str(n)) for n in range({MANY})])
"""
DELAYED = f"""
    Calls.commit = die
    await queue.enqueue_many(range({MANY}), delay=0.5)
"""


async def test_a_large_call_comes_whole_and_in_order(broker: holdfast.Broker) -> None:
    queue = await broker.queue("jobs")
    ids = await queue.enqueue_many(range(MANY))
    assert len(set(ids)) == MANY
    assert await taken(queue) == list(range(MANY))
    assert await left_on_the_server(store_of(broker), "task", "call") == []


async def test_a_worker_is_given_none_of_it_before_all_of_it_is_there(broker: holdfast.Broker) -> None:
    queue, store = await broker.queue("jobs"), store_of(broker)
    call = await store.parts("jobs").partition.calls.begin(2)
    appender = store.parts("jobs").appender
    posts = await asyncio.gather(*[appender.post(t, 0.0, marked=False) for t in appender._tasks(envelopes(2), 1.0)])
    await store.connection.store(call.marked(posts))
    await queue.enqueue("behind it")
    behind = await queue.dequeue(wait=2)
    assert behind is not None
    assert behind.value == "behind it"
    assert await queue.dequeue(wait=0.3) is None
    assert await store.parts("jobs").partition.calls.commit(call)
    started = time.monotonic()
    assert len(await queue.dequeue_many(2, wait=5)) >= 1
    assert time.monotonic() - started < 2


def envelopes(count: int) -> list[holdfast.stores.records.Envelope]:
    return [holdfast.stores.records.Envelope(b"1", "application/json") for _ in range(count)]


CRASHES = {
    "before the commit": BEFORE_THE_COMMIT,
    "after one part": AFTER_ONE_PART,
    "delayed": DELAYED,
}


@pytest.mark.parametrize("crash", CRASHES.values(), ids=CRASHES)
async def test_nothing_of_a_call_whose_producer_died_is_ever_handed_out(hasty: str, crash: str) -> None:
    await asyncio.to_thread(dies, hasty, crash)
    async with holdfast.connect(hasty) as broker:
        queue, store = await broker.queue("jobs"), store_of(broker)
        assert await left_on_the_server(store, "task", "later"), "the crash came too early to test anything"
        await queue.enqueue("healthy")
        values: list[object] = []

        async def swept() -> bool:
            values.extend(await taken(queue))
            return not await left_on_the_server(store, "task", "later")

        await eventually(swept, "the parts to be thrown away")
        assert values == ["healthy"]
        assert (await queue.stats()).total == 1  # the archived one
        await broker.uninstall()


async def test_a_call_whose_producer_died_after_the_commit_is_there(hasty: str) -> None:
    await asyncio.to_thread(dies, hasty, AFTER_THE_COMMIT)
    async with holdfast.connect(hasty) as broker:
        assert await taken(await broker.queue("jobs")) == list(range(MANY))
        await broker.uninstall()


async def test_keys_of_a_call_that_never_was_are_free_again(hasty: str) -> None:
    await asyncio.to_thread(dies, hasty, WITH_KEYS)
    async with holdfast.connect(f"{hasty}0") as broker:  # 20 seconds: longer than the call is waited for
        queue = await broker.queue("jobs")
        id = await queue.enqueue("mine", dedup_key="7")
        record = await queue.get(id)
        assert record is not None
        assert record.value == "mine"
        assert await queue.enqueue("again", dedup_key="7") == id
        await broker.uninstall()


async def test_a_repeated_large_call_with_keys_adds_nothing(broker: holdfast.Broker) -> None:
    queue = await broker.queue("jobs")
    messages = [holdfast.Message(n, dedup_key=str(n)) for n in range(MANY)]
    ids = await queue.enqueue_many(messages)
    assert await queue.enqueue_many(messages) == ids
    more = await queue.enqueue_many([*messages, holdfast.Message("new", dedup_key="new")])
    assert more[:MANY] == ids
    assert await taken(queue) == [*range(MANY), "new"]


async def test_a_producer_that_is_too_late_hears_that_nothing_was_enqueued(broker: holdfast.Broker) -> None:
    queue, store = await broker.queue("jobs"), store_of(broker)
    calls = store.parts("jobs").partition.calls
    begin = calls.begin

    async def slow(messages: int) -> object:
        call = await begin(messages)
        other = type(calls)(
            store.connection, store.reader, store.reserve, store.register.names("jobs")
        )  # as another client has it
        await other.drop(call)
        return call

    calls.begin = slow  # type: ignore[assignment,method-assign]  # the producer sleeps here
    with pytest.raises(Unavailable, match="none of its messages"):
        await queue.enqueue_many(range(MANY))
    assert await taken(queue) == []
    assert await left_on_the_server(store, "task") == []


async def answered(unknown: UnknownOutcome) -> list[str] | None:
    try:
        return await unknown.retry()
    except StoreError:
        return None


async def test_an_unknown_outcome_of_a_large_call_is_repeated(own: Server) -> None:
    async with holdfast.connect(own.url, operation_timeout=2) as broker:
        queue, store = await broker.queue("jobs"), store_of(broker)
        calls = store.parts("jobs").partition.calls
        commit = calls.commit

        async def away(call: object) -> bool:
            await asyncio.to_thread(own.kill)
            return await commit(call)  # type: ignore[arg-type]  # as it was given

        calls.commit = away  # type: ignore[method-assign]  # the server dies just before
        with pytest.raises(UnknownOutcome) as unknown:
            await queue.enqueue_many(range(MANY))
        calls.commit = commit  # type: ignore[method-assign]  # it is back
        await asyncio.to_thread(own.start)
        for _ in range(2):
            assert await eventually(lambda: answered(unknown.value), "an answer") == unknown.value.ids
        assert await taken(queue) == list(range(MANY))
