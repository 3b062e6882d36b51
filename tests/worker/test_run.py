"""Starting, stopping, stopping again, signals."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from holdfast.broker import Broker
from tests.toy_store import ToyStore
from tests.worker_stores import KINDS, broker_on, finished, until


@pytest.fixture(params=KINDS)
async def broker(request, tmp_path):
    async with broker_on(request.param, tmp_path) as broker:
        yield broker


async def nothing(value):
    return None


async def test_start_twice_and_stop_twice_are_harmless(broker):
    queue = await broker.queue("q")
    worker = queue.worker(nothing)
    events = []
    for name in ("workers.started", "workers.stopped"):
        broker.on(name, lambda event: events.append(event.name))
    await worker.stop()
    await worker.start()
    await worker.start()
    id = await queue.enqueue(1)
    assert await finished(queue, id) == ["completed"]
    await asyncio.gather(worker.stop(), worker.stop())
    await worker.stop()
    assert events == ["workers.started", "workers.stopped"]


async def test_a_stopped_worker_can_be_started_again(broker):
    queue = await broker.queue("q")
    worker = queue.worker(nothing)
    for _ in range(3):
        await worker.start()
        id = await queue.enqueue(1)
        assert await finished(queue, id) == ["completed"]
        await worker.stop()
        assert not worker.is_running


async def test_stop_lets_running_handlers_finish_within_the_grace(broker):
    queue = await broker.queue("q")
    started, go_on = asyncio.Event(), asyncio.Event()

    async def handle(value):
        started.set()
        await go_on.wait()
        return "finished"

    id = await queue.enqueue(1)
    worker = queue.worker(handle)
    await worker.start()
    await asyncio.wait_for(started.wait(), 20)
    stopping = asyncio.create_task(worker.stop(grace=20))
    await asyncio.sleep(0.05)
    late = await queue.enqueue(2)
    assert not stopping.done()
    go_on.set()
    await stopping
    assert (await queue.get(id)).result == "finished"
    assert await queue.status(late) == "pending"


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_stop_releases_the_rest_without_costing_an_attempt(broker, kind):
    queue = await broker.queue("q", lease=600)
    started, ended, free = [], [], threading.Event()

    async def in_loop(value):
        started.append(value)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(value)

    def in_thread(value, context):
        started.append(value)
        free.wait(20)
        ended.append(context.lost)

    ids = await queue.enqueue_many(list(range(6)))
    worker = queue.worker(in_loop if kind == "async" else in_thread, concurrency=2, prefetch=2)
    await worker.start()
    await until(lambda: len(started) == 2)
    before = time.monotonic()
    await worker.stop(grace=0.05)
    assert time.monotonic() - before < 5
    for id in ids:
        await until(lambda id=id: is_fresh(queue, id))
    free.set()
    await until(lambda: len(ended) == 2)
    if kind == "sync":
        assert ended == [True, True]
    assert (await queue.stats()).pending == 6


async def test_a_second_stop_can_shorten_the_grace(broker):
    queue = await broker.queue("q")
    started = asyncio.Event()

    async def forever(value):
        started.set()
        await asyncio.Event().wait()

    id = await queue.enqueue(1)
    worker = queue.worker(forever)
    await worker.start()
    await asyncio.wait_for(started.wait(), 20)
    patient = asyncio.create_task(worker.stop(grace=600))
    await asyncio.sleep(0.02)
    await asyncio.wait_for(worker.stop(grace=0), 20)
    await asyncio.wait_for(patient, 20)
    await until(lambda: is_fresh(queue, id))


async def test_a_handler_that_will_not_end_is_given_back_all_the_same(monkeypatch):
    monkeypatch.setattr("holdfast.worker.run.CLOSING_S", 0.1)
    async with Broker(ToyStore()) as broker:
        queue = await broker.queue("q", lease=600)
        free, started = asyncio.Event(), asyncio.Event()

        async def stubborn(value):
            started.set()
            while not free.is_set():
                try:
                    await free.wait()
                except asyncio.CancelledError:
                    pass

        id = await queue.enqueue(1)
        worker = queue.worker(stubborn)
        await worker.start()
        await asyncio.wait_for(started.wait(), 20)
        await asyncio.wait_for(worker.stop(grace=0), 20)
        assert (await queue.get(id)).attempts == 0
        free.set()


async def test_stop_does_not_wait_for_a_thread_that_has_no_outcome_any_more(broker):
    queue = await broker.queue("q", max_attempts=1)
    free = threading.Event()

    def stuck(value):
        free.wait(30)

    id = await queue.enqueue(1)
    worker = queue.worker(stuck, timeout=0.05, concurrency=1)
    await worker.start()
    assert await finished(queue, id) == ["dead"]
    before = time.monotonic()
    await worker.stop(grace=30)
    assert time.monotonic() - before < 10
    free.set()


async def test_a_batch_is_released_as_a_whole(broker):
    queue = await broker.queue("q", lease=600)
    started = asyncio.Event()

    async def forever(values):
        started.set()
        await asyncio.Event().wait()

    ids = await queue.enqueue_many([1, 2, 3])
    worker = queue.worker(forever, batch=3, concurrency=1)
    await worker.start()
    await asyncio.wait_for(started.wait(), 20)
    await worker.stop(grace=0)
    for id in ids:
        await until(lambda id=id: is_fresh(queue, id))


async def test_a_handler_may_stop_its_own_worker(broker):
    queue = await broker.queue("q")

    async def last(value):
        await worker.stop()
        return "said goodbye"

    id = await queue.enqueue(1)
    worker = queue.worker(last)
    await asyncio.wait_for(worker.run(), 20)
    assert (await queue.get(id)).result == "said goodbye"


async def test_stop_while_claims_are_under_way_leaves_everything_pending_or_done(broker):
    queue = await broker.queue("q", lease=600)
    total = 0
    for _ in range(10):
        await queue.enqueue_many([0] * 20)
        total += 20
        worker = queue.worker(nothing, concurrency=3)
        await worker.start()
        await asyncio.sleep(0.003)
        await worker.stop()
        await until(lambda: nothing_held(queue))
        stats = await queue.stats()
        assert stats.pending + stats.completed == total
    async with queue.worker(nothing, concurrency=50):
        await until(lambda: is_drained(queue))
    assert {record.attempts for record in await queue.archive.list(limit=500)} == {1}


async def nothing_held(queue):
    return (await queue.stats()).processing == 0


async def is_drained(queue):
    stats = await queue.stats()
    return stats.pending == stats.processing == 0


async def test_cancelling_run_stops_at_once_and_gives_back(broker):
    queue = await broker.queue("q", lease=600)
    started = asyncio.Event()

    async def forever(value):
        started.set()
        await asyncio.Event().wait()

    id = await queue.enqueue(1)
    running = asyncio.create_task(queue.worker(forever).run())
    await asyncio.wait_for(started.wait(), 20)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until(lambda: is_fresh(queue, id))


async def is_fresh(queue, id):
    """Pending, with no attempt counted. A store may need a moment: it gives back itself what a recalled claim took."""
    record = await queue.get(id)
    return (record.status, record.attempts) == ("pending", 0)


async def test_run_hears_signals_and_restores_the_handlers(broker):
    queue = await broker.queue("q")
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    for number in (signal.SIGTERM, signal.SIGINT):
        workers = [queue.worker(nothing), queue.worker(nothing)]
        running = [asyncio.create_task(worker.run()) for worker in workers]
        await until(lambda workers=workers: all(worker.is_running for worker in workers))
        id = await queue.enqueue(1)
        assert await finished(queue, id) == ["completed"]
        os.kill(os.getpid(), number)
        await asyncio.wait_for(asyncio.gather(*running), 20)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


async def test_a_second_signal_stops_at_once(broker):
    queue = await broker.queue("q")
    started = asyncio.Event()

    async def forever(value):
        started.set()
        await asyncio.Event().wait()

    id = await queue.enqueue(1)
    running = asyncio.create_task(queue.worker(forever, grace=600).run())
    await asyncio.wait_for(started.wait(), 20)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0.05)
    assert not running.done()
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(running, 20)
    await until(lambda: is_fresh(queue, id))


async def test_a_worker_whose_broker_is_closed_ends(tmp_path):
    async with broker_on("file", tmp_path) as broker:
        queue = await broker.queue("q")
        worker = queue.worker(nothing, concurrency=1)
        await worker.start()
        await finished(queue, await queue.enqueue(1))
    assert not worker.is_running
    await asyncio.wait_for(worker.wait(), 30)  # it was stopped, nothing failed


def test_sigterm_drains_a_real_process(tmp_path):
    """Running handlers finish, the rest is pending again with no attempt lost."""
    program = """
        import asyncio, sys, holdfast
        async def main():
            async with holdfast.connect(sys.argv[1]) as broker:
                queue = await broker.queue("q", lease=600)
                await queue.enqueue_many(list(range(10)))
                async def handle(value):
                    print("started", value, flush=True)
                    await asyncio.sleep(0.5)
                    return value
                await queue.worker(handle, concurrency=2, prefetch=2).run()
                stats = await queue.stats()
                print("stats", stats.completed, stats.pending, stats.processing, flush=True)
        asyncio.run(main())
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), (tmp_path / "data").as_uri()],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline().startswith("started")
        assert process.stdout.readline().startswith("started")
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0
    assert rest.splitlines()[-1] == "stats 2 8 0"
