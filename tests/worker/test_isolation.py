"""The last attempt of a message whose earlier leases expired runs alone, so that a crash kills only the guilty."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap

import pytest

import holdfast
from holdfast.worker.isolation import isolation_of
from tests.worker_stores import KINDS, broker_on, finished, until


@pytest.fixture(params=KINDS)
async def broker(request, tmp_path):
    async with broker_on(request.param, tmp_path) as broker:
        yield broker


async def crash(queue, times):
    """Claim and let the lease expire, as a process that dies does; the id."""
    id = await queue.enqueue("poison", max_attempts=times + 1, priority=9)
    for attempt in range(1, times + 1):
        claims = await claimed(queue)
        assert [(message.id, message.attempt) for message in claims] == [(id, attempt)]
        await until(lambda: lease_over(queue, id))
    return id


async def claimed(queue):
    return (await queue.store.claim(queue.name, 1, 0.05, wait=5)).messages


async def lease_over(queue, id):
    return await queue.status(id) == "pending"


async def test_it_runs_when_everything_else_is_settled_and_before_anything_else(broker):
    queue, other = await broker.queue("q", lease=600), await broker.queue("other", lease=600)
    poison = await crash(queue, 1)
    running, beside, order = set(), [], []
    free = asyncio.Event()

    async def handle(value, context):
        running.add(context.message_id)
        if value == "poison":
            beside.extend(sorted(running - {poison}))
            held = [(await each.stats()).processing for each in (queue, other)]
            beside.extend(["held"] * (sum(held) - 1))
            await asyncio.sleep(0.05)
        elif value == "first":
            await free.wait()
        order.append(value)
        running.discard(context.message_id)

    firsts = [*(await other.enqueue_many(["first"] * 3)), *(await other.enqueue_many(["later"] * 20, delay=0.1))]
    async with other.worker(handle, concurrency=5):
        await until(lambda: len(running) == 3)
        async with queue.worker(handle, concurrency=5):
            healthy = await queue.enqueue_many(["healthy"] * 20)
            await until(lambda: not isolation_of(broker.store).is_open)
            await asyncio.sleep(0.2)  # the others of the process are in its way: nothing new is begun
            assert not {"poison", "healthy"} & set(order)
            free.set()
            assert await finished(queue, poison, *healthy) == ["completed"] * 21
            assert await finished(other, *firsts) == ["completed"] * 23
    assert beside == []
    assert set(order[: order.index("poison")]) <= {"first", "later"}
    assert order[: order.index("poison")].count("first") == 3


async def test_two_of_them_run_one_after_the_other(broker):
    queues = [await broker.queue(name, lease=600) for name in ("a", "b", "c")]
    poisons = [await crash(queue, 1) for queue in queues]
    running, most = 0, 0

    async def handle(value):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.03)
        running -= 1

    workers = [queue.worker(handle) for queue in queues]
    await asyncio.gather(*(worker.start() for worker in workers))
    for queue, poison in zip(queues, poisons, strict=True):
        assert await finished(queue, poison) == ["completed"]
    await asyncio.gather(*(worker.stop() for worker in workers))
    assert most == 1


async def test_stop_while_it_waits_gives_it_back(broker):
    queue, other = await broker.queue("q", lease=600), await broker.queue("other", lease=600)
    poison = await crash(queue, 1)
    started = asyncio.Event()

    async def forever(value):
        started.set()
        await asyncio.Event().wait()

    await other.enqueue(1)
    async with other.worker(forever, grace=0):
        await asyncio.wait_for(started.wait(), 20)
        worker = queue.worker(forever)
        await worker.start()
        await until(lambda: not isolation_of(broker.store).is_open)
        await asyncio.wait_for(worker.stop(grace=0), 20)
        record = await queue.get(poison)
        assert (record.status, record.attempts) == ("pending", 1)


async def test_a_failure_of_it_is_the_last(broker):
    queue = await broker.queue("q", retry=holdfast.Fixed(0))
    poison = await crash(queue, 2)

    async def fail(value):
        raise ValueError("still bad")

    async with queue.worker(fail):
        assert await finished(queue, poison) == ["dead"]
    assert (await queue.get(poison)).attempts == 3


PROGRAM = """
    import asyncio, os, sys, holdfast

    async def main():
        async with holdfast.connect(sys.argv[1]) as broker:
            queue = await broker.queue("q", lease=0.5, max_attempts=3, retry=holdfast.Fixed(0.01))
            async def handle(value, context):
                await asyncio.sleep(0.002)
                if value["poison"]:
                    os._exit(9)
                return context.attempt
            worker = queue.worker(handle, concurrency=20)
            await worker.start()
            while True:
                stats = await queue.stats()
                if stats.pending == stats.processing == stats.retry == stats.delayed == 0:
                    break
                await asyncio.sleep(0.02)
            await worker.stop()

    asyncio.run(main())
"""


async def test_handlers_that_kill_their_process_kill_no_innocent(tmp_path):
    """Poison among healthy messages, one process after the other: each poison dead after exactly its attempts."""
    url = (tmp_path / "data").as_uri()
    poisons = 3
    async with holdfast.connect(url) as broker:
        queue = await broker.queue("q", lease=0.5, max_attempts=3, retry=holdfast.Fixed(0.01))
        values = [{"n": n, "poison": n % 67 == 33} for n in range(67 * poisons)]
        ids = await queue.enqueue_many(values)
    crashes = 0
    for _ in range(3 * poisons + 1):
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", textwrap.dedent(PROGRAM), url],
            capture_output=True,
            text=True,
            timeout=40,
            check=False,
        )
        assert done.returncode in (0, 9), done.stderr
        if done.returncode == 0:
            break
        crashes += 1
    async with holdfast.connect(url) as broker:
        queue = await broker.queue("q")
        ended = {id: await queue.get(id) for id in ids}
        bad = [record for record in ended.values() if record.value["poison"]]
        good = [record for record in ended.values() if not record.value["poison"]]
        assert {(record.status, record.attempts, record.error) for record in bad} == {("dead", 3, "lease expired")}
        assert {record.status for record in good} == {"completed"}
    assert crashes <= 3 * poisons
