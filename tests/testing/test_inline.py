"""Inline: enqueue returns when the handler has run, with real retries and dead letters and no waiting."""

from __future__ import annotations

import asyncio
import time

import pytest

import holdfast
import holdfast.sync
from holdfast.testing import ManualClock, inline


@pytest.fixture
def app():
    return holdfast.App("file:///nowhere/that/could/be/made")


async def test_enqueue_returns_after_the_handler_ran(app):
    seen = []

    @app.handler("greetings")
    async def greet(name, context):
        seen.append((name, context.attempt))
        return f"hello {name}"

    async with inline(app):
        id = await greet.enqueue("ann")
        assert seen == [("ann", 1)]
        await greet.enqueue_many(["bob", "cid"])
        record = await (await greet.queue()).get(id)
        assert (record.status, record.result) == ("completed", "hello ann")
    assert sorted(seen) == [("ann", 1), ("bob", 1), ("cid", 1)]
    assert await greet("dan", type("C", (), {"attempt": 0})) == "hello dan"


async def test_retries_happen_without_waiting(app):
    attempts = []

    @app.handler("q", max_attempts=5, retry=holdfast.Fixed(3600))
    def shaky(value, context):
        attempts.append(context.attempt)
        if context.attempt < 4:
            raise ValueError("not yet")
        return "at last"

    before = time.monotonic()
    async with inline(app) as mode:
        start = mode.clock()
        id = await shaky.enqueue(1)
        assert mode.clock() - start >= 3 * 3600
        assert (await (await shaky.queue()).get(id)).result == "at last"
    assert attempts == [1, 2, 3, 4]
    assert time.monotonic() - before < 20


async def test_the_last_exception_reaches_the_test(app):
    attempts = []

    @app.handler("q", max_attempts=3)
    async def fail(value):
        attempts.append(value)
        raise ValueError(f"attempt {len(attempts)}")

    async with inline(app):
        with pytest.raises(ValueError, match="attempt 3"):
            await fail.enqueue("x")
    assert attempts == ["x"] * 3


async def test_or_the_dead_letters_can_be_looked_at(app):
    @app.handler("q", max_attempts=2)
    async def fail(value):
        raise holdfast.Dead("no use") if value == "dead" else KeyError(value)

    async with inline(app, raise_errors=False):
        ids = [await fail.enqueue("dead"), await fail.enqueue("key")]
        queue = await fail.queue()
        letters = {letter.id: letter for letter in await queue.dead.list()}
        assert set(letters) == set(ids)
        assert letters[ids[0]].error == "no use"
        assert [letters[id].attempts for id in ids] == [1, 2]


async def test_what_a_handler_enqueues_has_run_too(app):
    order = []

    @app.handler("first")
    async def first(value):
        order.append(("first", value))
        await second.enqueue(value + 1, delay=60)

    @app.handler("second")
    def second(value):
        order.append(("second", value))
        if value > 10:
            raise ValueError("too much")

    async with inline(app):
        await first.enqueue(1)
        assert order == [("first", 1), ("second", 2)]
        with pytest.raises(ValueError, match="too much"):
            await first.enqueue(10)


async def test_concurrent_enqueues_each_wait_for_their_own(app):
    done = []

    @app.handler("q", concurrency=2)
    async def handle(value):
        await asyncio.sleep(0.01)
        done.append(value)

    async def send(value):
        await handle.enqueue(value)
        assert value in done

    async with inline(app):
        await asyncio.gather(*(send(value) for value in range(10)))
    assert sorted(done) == list(range(10))


async def test_batches_run_too(app):
    sizes = []

    @app.handler("q", batch=10)
    async def handle(values):
        sizes.append(len(values))

    async with inline(app):
        await handle.enqueue_many(list(range(10)))
    assert sum(sizes) == 10


async def test_a_plain_with_in_an_async_test(app):
    seen = []

    @app.handler("q")
    async def handle(value):
        seen.append(value)

    with inline(app):
        await handle.enqueue(1)
    assert seen == [1]


def test_a_sync_app():
    app = holdfast.sync.App("file:///nowhere/that/could/be/made")
    seen = []

    @app.handler("q", max_attempts=2, retry=holdfast.Fixed(60))
    def handle(value):
        seen.append(value)
        if value == "bad":
            raise ValueError("bad")
        if value == "chain":
            handle.enqueue("link")

    with inline(app):
        handle.enqueue("good")
        assert seen == ["good"]
        with pytest.raises(ValueError, match="bad"):
            handle.enqueue("bad")
        handle.enqueue("chain")
    assert seen == ["good", "bad", "bad", "chain", "link"]


async def test_everything_is_as_before_afterwards(tmp_path):
    async with holdfast.App((tmp_path / "data").as_uri()) as app:

        @app.handler("q")
        async def handle(value):
            raise AssertionError("nobody runs this")

        first = await handle.enqueue(1)
        async with inline(app, raise_errors=False):
            second = await handle.enqueue(2)
        queue = await handle.queue()
        assert await queue.status(first) == "pending"
        assert await queue.status(second) is None


async def test_twice_is_refused(app):
    with inline(app), pytest.raises(RuntimeError, match="already"):
        inline(app).__enter__()


def test_the_clock_moves_on_and_tells():
    clock, told = ManualClock(100.0), []
    off = clock.on_advance(lambda: told.append(clock()))
    assert clock() == 100.0
    assert clock.advance(5) == 105.0
    off()
    clock.advance(1)
    assert told == [105.0]
    with pytest.raises(ValueError):
        clock.advance(-1)
