"""The driver is told of the arrays we send, so that no first call waits until it has looked them up."""

from __future__ import annotations

import asyncpg
import pytest

import holdfast
from holdfast.config import StoreOptions
from holdfast.stores.postgres import address
from holdfast.stores.postgres.address import Address
from holdfast.stores.records import Envelope, Settlement

from .fixtures import Database


async def test_told_arrays_are_those_of_the_server(postgres: Database) -> None:
    found = postgres.rows("SELECT typname, oid, typarray FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace")
    by_name = {str(name): (element, array) for name, element, array in found}
    for name, numbers in address._ARRAYS.items():
        assert by_name[name] == numbers


async def test_usual_calls_look_up_no_types(postgres: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[object] = []
    look_up = asyncpg.Connection._introspect_types

    async def noted(self: asyncpg.Connection, oids: object, timeout: object) -> object:
        looked.append(oids)
        return await look_up(self, oids, timeout)

    monkeypatch.setattr(asyncpg.Connection, "_introspect_types", noted)
    async with holdfast.connect(postgres.url) as broker:
        await broker.queue("jobs")
        store = broker.store
        await store.append("jobs", [Envelope(b"x", headers={"a": "b"}), Envelope(b"y", delay=0.001)])
        await store.append("jobs", [Envelope(b"x")] * 500)
        first, *others = (await store.claim("jobs", 10, 60)).messages
        await store.extend("jobs", [(first.id, first.token)], 90)
        await store.settle("jobs", [Settlement(m.id, m.token, "complete", result=b"1") for m in others])
        await store.settle("jobs", [Settlement(first.id, first.token, "dead", error="no")])
        await store.get("jobs", [first.id])
        await store.replay("jobs", "dead", [first.id])
        await store.stats("jobs")
        await store.maintain("jobs")
    assert looked == []


async def test_unknown_driver_looks_them_up_itself(postgres: Database) -> None:
    address._teach_arrays(object())
    connection = await Address(postgres.url, StoreOptions()).connect()
    try:
        assert await connection.fetchval("SELECT $1::point[]", [(1, 2)]) == [(1, 2)]
    finally:
        await connection.close()
