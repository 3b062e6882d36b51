"""Wake-up: notifications, timers, and polling when nothing is notified."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast.stores.postgres.notify import Bell, Notifier
from holdfast.testing.contract.base import eventually
from tests.servers.postgres import Server

from .fixtures import Database
from .proxy import Proxy


async def picked_up(producer: holdfast.Queue, consumer: holdfast.Queue) -> float:
    """Seconds from an enqueue in one broker to the claim that waits in another."""
    waiting = asyncio.create_task(consumer.dequeue(wait=20))
    await eventually(lambda: consumer.store._bell._waiting.get("jobs"), "somebody who waits")
    started = time.monotonic()
    await producer.enqueue(1)
    delivery = await waiting
    assert delivery is not None
    await delivery.complete()
    return time.monotonic() - started


async def listening(broker: holdfast.Broker) -> None:
    broker.store._listener.start()
    await eventually(lambda: broker.store._listener.works, "notifications")


async def test_another_process_is_woken_long_before_its_poll(postgres: Database) -> None:
    async with (
        holdfast.connect(postgres.url) as here,
        holdfast.connect(postgres.url, poll_interval=30) as there,
    ):
        producer, consumer = await here.queue("jobs"), await there.queue("jobs")
        await listening(there)
        assert min([await picked_up(producer, consumer) for _ in range(5)]) < 1


async def test_every_notification_dropped_is_noticed_and_polling_finds_messages(postgres: Database, caplog) -> None:
    proxy = Proxy(postgres.server.port)
    proxy.notifications = False
    async with (
        proxy.running(),
        holdfast.connect(postgres.url) as here,
        holdfast.connect(proxy.url(postgres.name), poll_interval=0.3) as there,
    ):
        producer, consumer = await here.queue("jobs"), await there.queue("jobs")
        waits = [await picked_up(producer, consumer) for _ in range(3)]
        assert max(waits) < 0.3 + 1.0
        with caplog.at_level(logging.WARNING, "holdfast.postgres"):
            assert not await there.store._listener.tried()
        [check] = [check for check in await there.check() if check.name == "notify"]
        assert check.state == "warn"
        assert proxy.dropped > 0
    assert len([r for r in caplog.records if "notifications do not arrive" in r.getMessage()]) == 1


async def test_without_notify_nobody_listens_and_polling_finds_messages(postgres: Database) -> None:
    async with (
        holdfast.connect(postgres.url, notify=False) as here,
        holdfast.connect(f"{postgres.url}?notify=false&poll_interval=0.2") as there,
    ):
        producer, consumer = await here.queue("jobs"), await there.queue("jobs")
        assert await picked_up(producer, consumer) < 1.5
        assert there.store._listener is None
        assert postgres.value("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%'") == 0


async def test_listens_again_after_its_connection_is_gone(postgres: Database) -> None:
    async with (
        holdfast.connect(postgres.url) as here,
        holdfast.connect(postgres.url, poll_interval=30) as there,
    ):
        producer, consumer = await here.queue("jobs"), await there.queue("jobs")
        await listening(there)
        old = there.store._listener.backend
        postgres.rows("SELECT pg_terminate_backend(%s)", old)
        await eventually(lambda: there.store._listener.backend not in (old, None), "another listening connection")
        assert await picked_up(producer, consumer) < 5


async def test_one_connection_listens_for_all_queues(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as broker:
        queues = [await broker.queue(f"q{n}") for n in range(4)]
        waiting = [asyncio.create_task(queue.dequeue(wait=5)) for queue in queues]
        await listening(broker)
        assert postgres.value("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%'") == 1
        for queue in queues:
            await queue.enqueue(1)
        assert all(await asyncio.gather(*waiting))


async def test_delays_and_leases_have_timers(postgres: Database) -> None:
    """A poll would take half a minute."""
    async with holdfast.connect(postgres.url, poll_interval=30) as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue("delayed", delay=0.3)
        started = time.monotonic()
        first = await queue.dequeue(lease=0.5, wait=20)
        assert first is not None
        again = await queue.dequeue(wait=20)
        assert again is not None
        assert (again.attempt, again.value) == (2, "delayed")
        assert time.monotonic() - started < 10


async def test_notifier_has_a_leading_and_a_trailing_edge() -> None:
    sent: list[float] = []

    async def send(queue: str) -> None:
        sent.append(time.monotonic())

    notifier = Notifier(send)
    started = time.monotonic()
    for _ in range(500):
        notifier.tell("jobs")
    await eventually(lambda: len(sent) >= 2, "the trailing edge")
    await asyncio.sleep(0.03)
    assert len(sent) == 2
    assert sent[0] - started < sent[1] - started
    assert sent[1] - sent[0] >= 0.004


async def test_after_some_quiet_the_append_itself_notifies(postgres: Database) -> None:
    """In its own transaction: it needs no second round trip, and cannot get lost between the two."""

    async def broken(queue: str) -> None:
        raise AssertionError("sent apart")

    async with (
        holdfast.connect(postgres.url) as here,
        holdfast.connect(postgres.url, poll_interval=30) as there,
    ):
        producer, consumer = await here.queue("jobs"), await there.queue("jobs")
        here.store._notifier._send = broken
        await listening(there)
        for _ in range(3):
            assert await picked_up(producer, consumer) < 5
            await asyncio.sleep(0.02)  # the quiet


async def test_notifier_leads_only_after_quiet() -> None:
    async def send(queue: str) -> None:
        pass

    notifier = Notifier(send)
    assert notifier.lead("jobs")
    assert not notifier.lead("jobs")
    assert notifier.lead("other")
    await asyncio.sleep(0.02)
    assert notifier.lead("jobs")
    notifier.tell("jobs")  # trails
    assert not notifier.lead("jobs")


async def test_notifications_are_few_however_many_messages(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as broker:
        queue = await broker.queue("jobs")
        started = time.monotonic()
        await asyncio.gather(*[queue.enqueue(n) for n in range(300)])
        took = time.monotonic() - started
        assert broker.store._notifier.sent <= took / 0.005 + 2


async def test_closing_tells_what_is_still_to_be_told() -> None:
    sent: list[str] = []

    async def send(queue: str) -> None:
        sent.append(queue)

    notifier = Notifier(send)
    for _ in range(3):
        notifier.tell("jobs")
    await notifier.close()
    assert sent == ["jobs"] * 2  # the leading edge, and the trailing one before its time
    await asyncio.sleep(0.02)
    assert len(sent) == 2


def notify_without_end(connection: psycopg.Connection) -> None:
    for _ in range(500):
        connection.execute("SELECT pg_notify('anything', repeat('x', 7900))")


@pytest.mark.timeout(120)
async def test_full_queue_of_notifications_keeps_no_message_out() -> None:
    """Somebody listens and never ends its transaction: the server cannot take notifications, but messages."""
    with Server(settings={"max_notify_queue_pages": "64", "fsync": "off"}) as server:
        async with holdfast.connect(server.url()) as broker:
            queue = await broker.queue("jobs")
            with (
                psycopg.connect(server.url(), autocommit=True) as stuck,
                psycopg.connect(server.url(), autocommit=True) as busy,
            ):
                stuck.execute("LISTEN anything")
                stuck.execute("BEGIN")
                stuck.execute("SELECT 1")
                with pytest.raises(psycopg.errors.ProgramLimitExceeded):
                    notify_without_end(busy)
                for n in range(3):
                    await queue.enqueue(n)
                    await asyncio.sleep(0.02)  # quiet: each of them wants to notify
            assert len(await queue.dequeue_many(10)) == 3


async def test_bell_misses_nothing_that_rang_since_the_ticket() -> None:
    bell = Bell()
    ticket = bell.ticket("a")
    bell.ring("a")
    await asyncio.wait_for(bell.wait("a", 60, since=ticket), 1)
    ticket = bell.ticket("b")
    bell.ring_all()
    await asyncio.wait_for(bell.wait("b", 60, since=ticket), 1)
    ticket = bell.ticket("a")
    bell.ring("b")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(bell.wait("a", 60, since=ticket), 0.02)


async def test_claim_that_is_cancelled_gives_back_what_it_got(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as broker:
        queue = await broker.queue("jobs", max_attempts=1)
        await queue.enqueue_many(range(50))
        for _ in range(30):
            claiming = asyncio.create_task(queue.dequeue_many(50, lease=600))
            await asyncio.sleep(0.001)
            claiming.cancel()
            await asyncio.wait({claiming})
            if not claiming.cancelled():
                for delivery in claiming.result():
                    await delivery.release()

        async def all_back() -> bool:
            return (await queue.stats()).pending == 50

        await eventually(all_back, "every message given back")
        taken: list[holdfast.Delivery[Any]] = []

        async def all_taken() -> bool:
            taken.extend(await queue.dequeue_many(50))  # rows that a cancelled claim still locks are passed over
            return len(taken) >= 50

        await eventually(all_taken, "every message taken")
        assert [delivery.attempt for delivery in taken] == [1] * 50
