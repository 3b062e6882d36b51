"""Appends with names: many share one statement, and each is added once, whatever answers were lost."""

from __future__ import annotations

import asyncio

import holdfast
from holdfast.errors import UnknownOutcome
from holdfast.stores.base import CallName
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.records import Envelope

from .fixtures import Database
from .proxy import Proxy

CALLS = 40
_STATEMENTS = "SELECT count(*) FROM holdfast.deltas"  # each statement that adds messages says so in one row


def store_of(broker: holdfast.Broker) -> PostgresStore:
    assert isinstance(broker.store, PostgresStore)
    return broker.store


def call(store: PostgresStore, number: int, count: int = 1, *, delay: float = 0.0) -> asyncio.Future[list[str]]:
    messages = [Envelope(b"%d" % number, delay=delay)] * count
    return asyncio.ensure_future(store.append_call("jobs", messages, CallName(f"call {number}")))


async def test_calls_that_come_together_share_statements(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as broker:
        queue, store = await broker.queue("jobs"), store_of(broker)
        before = postgres.value(_STATEMENTS)
        made = await asyncio.gather(*[call(store, n, 1 + n % 3, delay=n % 2 * 3600.0) for n in range(CALLS)])
        assert postgres.value(_STATEMENTS) - before <= 6  # type: ignore[operator]
        assert [len(ids) for ids in made] == [1 + n % 3 for n in range(CALLS)]
        stored = await store.get("jobs", [id for ids in made for id in ids])
        assert [each and each.payload for each in stored] == [b"%d" % n for n in range(CALLS) for _ in range(1 + n % 3)]
        stats = await queue.stats()
        assert stats.total == len(stored)
        assert stats.delayed == sum(1 + n % 3 for n in range(1, CALLS, 2))


async def test_known_calls_among_new_ones_add_nothing(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as broker:
        queue, store = await broker.queue("jobs"), store_of(broker)
        known = await asyncio.gather(*[call(store, n, 3) for n in range(0, CALLS, 2)])
        both = await asyncio.gather(*[call(store, n, 3) for n in (*range(CALLS), *range(CALLS))])
        assert both[:CALLS] == both[CALLS:]
        assert both[:CALLS:2] == known
        assert (await queue.stats()).total == 3 * CALLS


async def test_a_name_is_free_again_when_its_hour_is_over(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as broker:
        queue, store = await broker.queue("jobs"), store_of(broker)
        first = await call(store, 1)
        postgres.rows("UPDATE holdfast.keys SET until = holdfast.now() - interval '1 s'")
        second = await call(store, 1)
        assert first != second == await call(store, 1)
        assert (await queue.stats()).total == 2


async def test_calls_whose_answers_were_lost_add_nothing_when_their_messages_are_gone(postgres: Database) -> None:
    proxy = Proxy(postgres.server.port)
    async with (
        proxy.running(),
        holdfast.connect(postgres.url) as direct,
        holdfast.connect(proxy.url(postgres.name), operation_timeout=1.5, notify=False) as broker,
    ):
        drained = await direct.queue("jobs", archive=False)
        store = store_of(broker)
        await asyncio.gather(*[call(store, n) for n in range(20)])
        proxy.mute_after = 1  # the first of them is answered, then those that waited for it travel together
        calls = [call(store, 100 + n, 2) for n in range(20)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        proxy.muted, proxy.mute_after = False, None
        proxy.cut_all()
        errors = [answer for answer in answers if isinstance(answer, UnknownOutcome)]
        assert len(errors) > 10
        finished = await drained.dequeue_many(100)
        assert len(finished) == 60
        await drained.complete_many(finished)
        sent = {each.id for each in finished}
        for error in errors:
            assert set(await error.retry()) <= sent
        repeated = await asyncio.gather(*[call(store, 100 + n, 2) for n in range(20)])
        assert {id for ids in repeated for id in ids} <= sent
        assert (await drained.stats()).pending == 0


async def test_connections_that_break_at_random_bytes_add_each_call_once(postgres: Database) -> None:
    """The statement is repeated by itself on another connection, also when the one that broke had committed."""
    proxy = Proxy(postgres.server.port)
    async with proxy.running(), holdfast.connect(proxy.url(postgres.name), notify=False) as broker:
        queue, store = await broker.queue("jobs"), store_of(broker)

        async def produce(producer: int) -> list[str]:
            return [id for n in range(40) for id in await call(store, 100 * producer + n, 3)]

        proxy.cut_after = (1, 4000)
        proxy.cut_all()
        made = await asyncio.gather(*[produce(n) for n in range(4)])
        proxy.cut_after = None
        assert proxy.cuts > 5
        assert (await queue.stats()).total == len({id for ids in made for id in ids}) == 4 * 40 * 3
