"""Lost connections, lost replies, restarts: nothing is lost, nothing is there twice, and it goes on by itself."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

import holdfast
from holdfast import admin
from holdfast.config import QueueOptions, StoreOptions
from holdfast.errors import Damaged, StoreError, Unavailable, UnknownOutcome
from holdfast.stores.postgres import open_postgres
from holdfast.stores.records import Envelope, Settlement, View
from holdfast.testing.contract.base import eventually
from tests.servers.postgres import Server

from .fixtures import Database
from .proxy import Proxy

LONG = 60.0


async def test_repeated_append_adds_nothing_even_when_the_message_is_finished(postgres: Database) -> None:
    """The reply of an append is lost; before it is repeated, a worker has finished and forgotten the message."""
    async with holdfast.connect(postgres.url) as broker:
        await broker.queue("jobs", archive=False)
        store = broker.store
        appender = store._topic("jobs").appender
        for count in (1, 500):  # one statement, and COPY
            batch = appender.batch([Envelope(b"%d" % n) for n in range(count)])
            await appender._send(batch)
            claims = await store.claim("jobs", count, LONG)
            await store.settle("jobs", [Settlement(m.id, m.token, "complete") for m in claims.messages])
            await appender._send(batch)
            stats = await store.stats("jobs")
            assert (stats.total, stats.pending) == (0, 0)
        assert stats.completed == 501


async def test_cut_at_random_bytes_everything_arrives_once(postgres: Database) -> None:
    proxy = Proxy(postgres.server.port)
    async with proxy.running(), holdfast.connect(postgres.url) as direct:
        await direct.queue("jobs")
        proxy.cut_after = (1, 4000)
        store = None
        while store is None:  # opening itself meets the cuts
            try:
                store = await open_postgres(proxy.url(postgres.name), StoreOptions(notify=False))
            except StoreError:
                pass
        done: list[str] = []

        async def produce(producer: int) -> list[str]:
            sent = []
            for n in range(40):
                messages = [Envelope(b"%d/%d/%d" % (producer, n, m)) for m in range(1 + n % 7)]
                sent += await store.append("jobs", messages)
            return sent

        async def consume() -> None:
            while len(done) < expected:
                claims = await store.claim("jobs", 10, 2.0, wait=0.5)
                orders = [Settlement(m.id, m.token, "complete") for m in claims.messages]
                answers = await store.settle("jobs", orders) if orders else []
                done.extend(order.id for order, answer in zip(orders, answers, strict=True) if answer == "ok")

        expected = 4 * sum(1 + n % 7 for n in range(40))
        consumers = [asyncio.create_task(consume()) for _ in range(3)]
        sent = [id for ids in await asyncio.gather(*[produce(n) for n in range(4)]) for id in ids]
        await asyncio.wait_for(asyncio.gather(*consumers), 45)
        proxy.cut_after = None
        await store.close()
        assert proxy.cuts > 20
        assert sorted(done) == sorted(sent)
        stats = await direct.store.stats("jobs")
        assert (stats.completed, stats.archived, stats.pending, stats.dead) == (expected, expected, 0, 0)


async def test_backends_terminated_under_a_worker(postgres: Database) -> None:
    async with holdfast.connect(postgres.url, poll_interval=0.2) as broker:
        queue = await broker.queue("jobs", lease=2)
        seen: list[int] = []
        worker = queue.worker(seen.append, concurrency=5)
        await worker.start()
        sent = 0
        for _ in range(10):
            await queue.enqueue_many(range(sent, sent + 20))
            sent += 20
            postgres.rows(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid()"
            )

        async def all_done() -> bool:
            return (await queue.stats()).completed == sent

        await eventually(all_done, "every message done")
        await worker.stop()
        assert set(seen) == set(range(sent))


@pytest.mark.timeout(120)
async def test_restart_without_a_checkpoint() -> None:
    """What was acknowledged is there; the same broker goes on by itself."""
    with Server() as server:
        async with holdfast.connect(server.url(), poll_interval=0.2) as broker:
            queue = await broker.queue("jobs")
            ids = await queue.enqueue_many(range(300))
            held = await queue.dequeue_many(10, lease=LONG)
            await asyncio.to_thread(server.restart, immediate=True)
            assert all(await queue.complete_many(held))
            ids.append(await queue.enqueue("after"))
            taken = await queue.dequeue_many(500, lease=LONG)
            assert [delivery.id for delivery in [*held, *taken]] == ids


@pytest.mark.timeout(120)
async def test_away_for_good_is_an_error_within_the_deadline_and_its_retry_repeats_the_call() -> None:
    with Server() as server:
        async with holdfast.connect(server.url(), operation_timeout=1.5) as broker:
            queue = await broker.queue("jobs")
            await queue.enqueue("before")
            server.stop(immediate=True)
            started = time.monotonic()
            with pytest.raises(UnknownOutcome) as lost:
                await queue.enqueue_many(["in doubt"] * 3)
            with pytest.raises(Unavailable):
                await queue.stats()
            assert time.monotonic() - started < 8
            with pytest.raises(UnknownOutcome):
                await lost.value.retry()
            await asyncio.to_thread(server.start)
            assert await lost.value.retry() == lost.value.ids
            assert await lost.value.retry() == lost.value.ids
            assert (await queue.stats()).pending == 4


async def test_statement_timeout_is_unavailable(postgres: Database) -> None:
    async with holdfast.connect(postgres.url, statement_timeout=2.0) as broker:
        queue = await broker.queue("jobs")
        with postgres.connect() as other, other.transaction():
            other.execute("LOCK TABLE holdfast.q_jobs IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(Unavailable):
                await queue.enqueue(1)
        await queue.enqueue(1)


async def test_pool_is_bounded(postgres: Database) -> None:
    async with holdfast.connect(postgres.url, max_connections=2, notify=False) as broker:
        queue = await broker.queue("jobs")
        await asyncio.gather(*[queue.stats() for _ in range(40)])
        used = postgres.value(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        assert used == 2


async def test_credentials_are_in_no_error(postgres: Database) -> None:
    url = f"postgresql://secret:canary@127.0.0.1:{postgres.server.port}/{postgres.name}"
    with pytest.raises(StoreError) as refused:
        await holdfast.connect(url)
    shown, error = "", refused.value
    while error is not None:
        shown += f"{error!r} {error} "
        error = error.__cause__
    assert "canary" not in shown


async def test_read_only_server_is_left_for_a_writable_one(postgres: Database) -> None:
    """After a failover the old connection answers, but only reads: another one is made."""
    async with holdfast.connect(postgres.url, operation_timeout=5, notify=False) as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue(1)
        for connection, _ in broker.store._pool._idle:
            await connection.execute("SET default_transaction_read_only = on")
        made = broker.store._pool.made
        await queue.enqueue(2)
        assert broker.store._pool.made > made
        assert (await queue.stats()).pending == 2


async def test_calls_that_travelled_together_are_repeated_as_one(postgres: Database) -> None:
    """The replies are lost, the messages are finished and forgotten, then every caller repeats its call."""
    proxy = Proxy(postgres.server.port)
    async with (
        proxy.running(),
        holdfast.connect(postgres.url) as direct,
        holdfast.connect(proxy.url(postgres.name), operation_timeout=1.5, notify=False) as broker,
    ):
        drained = await direct.queue("jobs", archive=False)
        queue = await broker.queue("jobs")
        await asyncio.gather(*[queue.enqueue("warm") for _ in range(20)])
        proxy.mute_after = 1  # the first of them is answered, then those that waited for it travel together
        calls = [asyncio.create_task(queue.enqueue(n)) for n in range(20)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        proxy.muted, proxy.mute_after = False, None
        proxy.cut_all()
        errors = [answer for answer in answers if isinstance(answer, UnknownOutcome)]
        assert len(errors) > 10  # the first, and what had come in with it, were answered
        finished = await drained.dequeue_many(100)
        assert len(finished) == 40
        await drained.complete_many(finished)
        for error in errors:
            assert await error.retry() == error.ids
        assert (await drained.stats()).pending == 0


async def test_repeated_call_with_keys_adds_nothing_even_when_other_keys_are_free_by_then(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as broker:
        queue = await broker.queue("jobs", archive=False)
        await queue.enqueue("older", dedup_key="a")
        appender = broker.store._topic("jobs").appender
        batch = appender.batch([Envelope(b"1", dedup_key="a"), Envelope(b"2", dedup_key="b")])
        await appender._deduplicated(batch)
        finished = await queue.dequeue_many(10)
        await queue.complete_many(finished)
        assert len(finished) == 2
        postgres.rows("DELETE FROM holdfast.keys WHERE key = 'a'")
        await appender._deduplicated(batch)
        assert (await queue.stats()).pending == 0


async def test_dead_letters_move_as_a_whole_although_we_have_not_heard_yet_that_they_do(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as here, holdfast.connect(postgres.url) as there:
        queue = await here.queue("jobs")
        await queue.enqueue_many(range(2))
        held = await queue.dequeue_many(2)
        await there.configure_queue("jobs", dead_letter="letters")
        settler = here.store._topic("jobs").settler
        assert not settler._moves()
        move = settler._move

        async def broken(*_: object) -> None:
            raise RuntimeError("cut")

        settler._move = broken
        with pytest.raises(StoreError):
            await held[0].kill("bad")
        assert await queue.status(held[0].id) == "processing"  # nothing happened, instead of half of it
        settler._move = move
        for delivery in held:
            await delivery.kill("bad")
        assert (await (await there.queue("letters")).stats()).pending == 2


async def test_host_that_swallows_everything_does_not_use_up_the_time_of_the_next(postgres: Database) -> None:
    """As after the loss of a machine: no refusal, no answer."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(50)
        hosts = f"127.0.0.1:{silent.getsockname()[1]},127.0.0.1:{postgres.server.port}"
        url = f"postgresql://postgres@{hosts}/{postgres.name}"
        started = time.monotonic()
        async with holdfast.connect(url, connect_timeout=1.0, operation_timeout=8) as broker:
            assert await broker.queues() == []
            assert time.monotonic() - started < 7
            address = broker.store._pool._connect.__self__
            assert address._hosts[0].count(f":{postgres.server.port}/") == 1  # asked first from now on


async def test_lost_answers_of_calls_that_can_only_succeed_once(postgres: Database) -> None:
    """Making and deleting a queue, cancelling a message: the repeat finds it done, and that is success."""
    proxy = Proxy(postgres.server.port)
    async with (
        proxy.running(),
        holdfast.connect(postgres.url) as direct,
        holdfast.connect(proxy.url(postgres.name), notify=False) as broker,
    ):

        async def lost(call: Callable[[], Awaitable[Any]], done: Callable[[], Awaitable[bool]]) -> Any:
            proxy.results = False
            calling = asyncio.create_task(call())
            await eventually(done, "the call took effect")
            proxy.results = True
            proxy.cut_all()
            return await calling

        async def exists() -> bool:
            return await direct.store.queue("jobs") is not None

        async def absent() -> bool:
            return not await exists()

        store = broker.store
        await broker.queue("other")
        info = await lost(lambda: store.create_queue("jobs", QueueOptions()), exists)
        assert info.name == "jobs"
        queue = await direct.queue("jobs")
        id = await queue.enqueue(1)

        async def cancelled() -> bool:
            return await queue.status(id) == "failed"

        assert await lost(lambda: store.cancel("jobs", id), cancelled) is True
        await lost(lambda: store.delete_queue("jobs", force=True), absent)


async def test_a_late_answer_does_not_let_a_producer_pass_others(postgres: Database) -> None:
    """A process that was stopped hears the time of the store late: what it sends next is no older for that."""
    proxy = Proxy(postgres.server.port)
    async with proxy.running(), holdfast.connect(postgres.url) as direct:
        mine = await direct.queue("jobs")
        async with holdfast.connect(proxy.url(postgres.name), notify=False) as stopped:
            theirs = await stopped.queue("jobs")
            await theirs.enqueue(0)
            proxy.late = 0.6
            slow = asyncio.create_task(theirs.enqueue(1))
            while (await mine.stats()).pending < 2:
                await asyncio.sleep(0.01)
            await mine.enqueue(2)
            await slow
            await theirs.enqueue(3)
        assert [delivery.value for delivery in await mine.dequeue_many(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize("view", ["ready", "archive"])
async def test_a_session_that_ends_while_a_slice_is_read_is_our_error(postgres: Database, view: View) -> None:
    """As when a reader is stopped for longer than `idle_in_transaction_session_timeout`."""
    async with holdfast.connect(postgres.url) as broker:
        await broker.queue("jobs")
        store = broker.store
        await store.append("jobs", [Envelope(b"%d" % n) for n in range(2500)])  # more than one answer
        if view == "archive":
            claims = await store.claim("jobs", 2500, LONG)
            await store.settle("jobs", [Settlement(m.id, m.token, "complete") for m in claims.messages])
        [part, *_] = await store.batches.plan_scan("jobs", view)
        batches = store.batches.read_slice(part)
        await anext(batches)
        ours = "datname = current_database() AND pid <> pg_backend_pid()"
        postgres.rows(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}")
        with pytest.raises(Unavailable):
            await anext(batches)
        assert (await store.stats("jobs")).exact


@pytest.mark.timeout(120)
async def test_a_page_that_does_not_match_its_checksum_is_named() -> None:
    with Server() as server:
        async with holdfast.connect(server.url()) as broker:
            await broker.install()
            queue, other = await broker.queue("jobs"), await broker.queue("other")
            await queue.enqueue_many([f"value {n}" for n in range(20)])
            await other.enqueue("good")
            [line] = [line for line in await broker.check() if line.name == "checksums"]
            assert line.state == "ok"
        connection = await asyncpg.connect(server.url())
        path = await connection.fetchval("SELECT pg_relation_filepath('holdfast.q_jobs')")
        await connection.close()
        server.stop()
        with (server.folder / "d" / path).open("r+b") as file:
            page = bytearray(file.read(8192))
            page[page.find(b"value 7") + 3] ^= 4
            file.seek(0)
            file.write(page)
        server.start()
        async with holdfast.connect(server.url()) as broker:
            queue, other = await broker.queue("jobs"), await broker.queue("other")
            with pytest.raises(Damaged, match="invalid page in block 0") as said:
                await queue.dequeue()
            assert said.value.queue == "jobs"
            assert path in str(said.value)
            delivery = await other.dequeue()
            assert delivery is not None
            assert delivery.value == "good"
            wrong = (await admin.scrub(broker)).wrong
            assert {each.queue for each in wrong} == {"jobs"}
