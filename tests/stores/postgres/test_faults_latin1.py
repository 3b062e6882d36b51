"""A database whose encoding lacks letters: what it cannot keep is written another way, and holds up nobody."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

import holdfast
from holdfast.errors import StoreError
from holdfast.stores.postgres import faults
from tests.servers.postgres import Server

from .fixtures import Database

FOREIGN = "größer als 🙂\0€"
ESCAPED = "gr\\xf6\\xdfer als \\U0001f642\\0\\u20ac"


@pytest.fixture
def latin1(postgres_server: Server) -> Iterator[str]:
    name = sql.Identifier("latin1")
    with psycopg.connect(postgres_server.url(), autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {} ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'").format(name))
        yield postgres_server.url("latin1")
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


@pytest.mark.parametrize("by", ["the store", "the worker"])
async def test_worker_goes_on_when_an_error_has_letters_that_the_database_lacks(
    latin1: str, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by == "the worker":  # for whom this is one of many words to say no with
        monkeypatch.setattr(faults, "lacks_letters", lambda error: False)
    async with holdfast.connect(latin1) as broker:
        queue = await broker.queue("jobs", max_attempts=1)

        async def handle(value: str) -> str:
            if value == "bad":
                raise ValueError(FOREIGN)
            return FOREIGN

        ids = await queue.enqueue_many(["a", "bad", "b", "c"])
        async with queue.worker(handle, concurrency=4):
            records = [await queue.wait(id, 20) for id in ids]
            assert [record.status for record in records] == ["completed", "dead", "completed", "completed"]
            again = await queue.enqueue("d")
            assert (await queue.wait(again, 20)).result == FOREIGN  # values are bytes, whatever the encoding
        assert (records[1].error or "").startswith(f"ValueError: {ESCAPED}")


async def test_error_text_is_never_refused(latin1: str) -> None:
    async with holdfast.connect(latin1) as broker:
        queue = await broker.queue("jobs", retry=holdfast.Fixed(0), max_attempts=9)
        id = await queue.enqueue(1)
        plain, foreign = "größer", FOREIGN
        for text, kept in ((plain, plain), (foreign, ESCAPED)):
            delivery = await queue.dequeue(wait=5)
            assert delivery is not None
            await delivery.fail(text)
            record = await queue.get(id)
            assert record is not None
            assert record.error == kept
        delivery = await queue.dequeue(wait=5)
        assert delivery is not None
        assert await queue.fail_many([delivery], [foreign]) == [True]
        delivery = await queue.dequeue(wait=5)
        assert delivery is not None
        await delivery.kill(foreign)
        assert (await queue.dead.list())[0].error == ESCAPED


async def test_headers_that_the_database_cannot_keep_are_refused_at_once(latin1: str) -> None:
    async with holdfast.connect(latin1) as broker:
        queue = await broker.queue("jobs")
        with pytest.raises(StoreError, match="LATIN1"):
            await queue.enqueue(1, headers={"k": "🙂"})
        assert (await queue.stats()).total == 0
        id = await queue.enqueue("🙂", headers={"k": "ö"}, dedup_key="🙂")
        delivery = await queue.dequeue()
        assert delivery is not None
        assert (delivery.id, delivery.value, delivery.headers) == (id, "🙂", {"k": "ö"})


async def test_doctor_names_the_encoding(latin1: str, postgres: Database) -> None:
    for url, state, named in ((latin1, "warn", "LATIN1"), (postgres.url, "ok", "UTF8")):
        async with holdfast.connect(url) as broker:
            [check] = [check for check in await broker.check() if check.name == "encoding"]
            assert (check.state, check.detail.split(":")[0]) == (state, named)
