"""Apps: handlers beside their functions, a store on first use, workers for all of them."""

from __future__ import annotations

import asyncio
import os
import signal

import msgspec
import pytest

import holdfast
from tests.worker_stores import finished, until


class Email(msgspec.Struct):
    to: str


@pytest.fixture(params=["memory", "file"])
async def app(request, tmp_path):
    url = f"memory://{tmp_path.name}" if request.param == "memory" else (tmp_path / "data").as_uri()
    app = holdfast.App(url)
    yield app
    await app.close()


async def test_a_handler_stays_callable_and_can_be_enqueued(app):
    @app.handler("emails", Email, concurrency=3, max_attempts=5)
    async def send(email: Email, context: holdfast.Context | None = None):
        """Send it."""
        return f"sent to {email.to}"

    assert await send(Email("ann")) == "sent to ann"
    assert (send.__name__, send.__doc__) == ("send", "Send it.")
    ids = [await send.enqueue(Email("bob"), priority=5), *await send.enqueue_many([Email("cid"), Email("dan")])]
    queue = await send.queue()
    assert queue.options.max_attempts == 5
    async with await send.worker():
        assert await finished(queue, *ids) == ["completed"] * 3
    assert (await queue.get(ids[0])).result == "sent to bob"


async def test_run_works_for_all_queues_until_a_signal(app):
    done = []

    @app.handler("a")
    async def first(value):
        done.append(("a", value))
        await second.enqueue(value)

    @app.handler("b")
    def second(value):
        done.append(("b", value))

    running = asyncio.create_task(app.run())
    await first.enqueue(1)
    await until(lambda: len(done) == 2)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(running, 20)
    assert done == [("a", 1), ("b", 1)]


async def test_run_for_some_queues_only_and_with_other_options(app):
    done = []

    @app.handler("a")
    async def first(value, context):
        done.append(value)

    @app.handler("b")
    async def second(value):
        done.append("never")

    await second.enqueue(0)
    (worker,) = await app.workers(["a"], concurrency=7)
    assert worker.concurrency == 7
    running = asyncio.create_task(app.run(["a"], concurrency=7))
    await first.enqueue("x")
    await until(lambda: done)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert done == ["x"]


async def test_a_second_signal_stops_all_at_once(app):
    started = []

    @app.handler("a", grace=600)
    async def forever(value):
        started.append(value)
        await asyncio.Event().wait()

    id = await forever.enqueue(1)
    running = asyncio.create_task(app.run())
    await until(lambda: started)
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(0.05)
    assert not running.done()
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.wait_for(running, 20)
    await until(lambda: is_pending(forever, id))


async def is_pending(handler, id):
    return await (await handler.queue()).status(id) == "pending"


async def test_a_retry_function_belongs_to_the_worker_and_a_policy_to_the_queue(app):
    @app.handler("a", retry=lambda attempt, error: 0.0 if attempt < 4 else None, max_attempts=9)
    async def by_function(value, context):
        raise ValueError("no")

    @app.handler("b", retry=holdfast.Fixed(0))
    async def by_policy(value):
        raise ValueError("no")

    ids = [await by_function.enqueue(1), await by_policy.enqueue(1)]
    running = asyncio.create_task(app.run())
    a, b = await by_function.queue(), await by_policy.queue()
    await finished(a, ids[0])
    await finished(b, ids[1])
    assert (await a.get(ids[0])).attempts == 4
    assert (await b.get(ids[1])).attempts == 3
    assert b.options.retry == holdfast.Fixed(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_one_failing_worker_ends_the_run(app, monkeypatch):
    @app.handler("a")
    async def first(value): ...

    @app.handler("b")
    async def second(value): ...

    broker = await app.broker()
    claim = broker.store.claim

    async def fenced(queue, *args, **kwargs):
        if queue == "b":
            raise holdfast.Fenced("another writer has it")
        return await claim(queue, *args, **kwargs)

    monkeypatch.setattr(broker.store, "claim", fenced)
    with pytest.raises(holdfast.Fenced):
        await asyncio.wait_for(app.run(), 20)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"concurency": 3}, "did you mean 'concurrency'"),
        ({"max_attempt": 3}, "did you mean 'max_attempts'"),
        ({"concurrency": 0}, "concurrency"),
        ({"lease": -1}, "lease"),
    ],
)
def test_a_wrong_option_is_said_where_it_was_written(options, words):
    app = holdfast.App("memory://")
    with pytest.raises(holdfast.ConfigError, match=words):
        app.handler("q", **options)(lambda value: None)


async def test_mistakes_with_handlers():
    app = holdfast.App("memory://")
    with pytest.raises(holdfast.ConfigError, match="no handlers"):
        await app.run()
    app.handler("emails")(lambda value: None)
    with pytest.raises(holdfast.ConfigError, match="has a handler already"):
        app.handler("emails")(lambda value: None)
    with pytest.raises(holdfast.ConfigError, match="did you mean 'emails'"):
        await app.run(["email"])
    with pytest.raises(holdfast.ConfigError, match="bad queue name"):
        app.handler("not/a/name")(lambda value: None)
    with pytest.raises(holdfast.ConfigError, match="takes"):
        app.handler("other")(lambda: None)
    with pytest.raises(holdfast.ConfigError, match="App: unknown key"):
        holdfast.App("memory://", pol_interval=1)
    assert "emails" in repr(app)
    await app.close()


def test_an_app_can_be_used_in_one_loop_after_the_other(tmp_path):
    app = holdfast.App((tmp_path / "data").as_uri())

    @app.handler("q")
    async def handle(value):
        return value

    async def send():
        return await handle.enqueue(1)

    async def look(id):
        async with app:
            return await (await handle.queue()).status(id)

    id = asyncio.run(send())
    assert asyncio.run(look(id)) == "pending"
