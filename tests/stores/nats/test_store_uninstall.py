"""Uninstalling removes what Holdfast makes, all of it, and nothing else."""

from __future__ import annotations

import os

import nats
import pytest

import holdfast
from holdfast.errors import StoreError
from holdfast.stores.nats.store import NatsStore
from tests.servers.nats import Server


async def names_of(server: Server) -> list[str]:
    client = await nats.connect(server.url)
    found = [info.config.name or "" for info in await client.jetstream().streams_info()]
    await client.close()
    return sorted(found)


async def test_uninstall_removes_every_stream_of_ours(own: Server) -> None:
    async with holdfast.connect(own.url) as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue(os.urandom(2 << 20))
        store = broker.store
        assert isinstance(store, NatsStore)
        await store.register.make_streams("half-made")  # by a process that died before its queue was written down
        assert await broker.uninstall() == []
    assert await names_of(own) == []


async def test_uninstall_leaves_what_others_made_and_says_so(own: Server) -> None:
    client = await nats.connect(own.url)
    js = client.jetstream()
    await js.add_stream(name="holdfast=orders", subjects=["orders.>"])
    await js.add_stream(name="holdfast=shop=tasks", subjects=["shop.>"])
    await js.add_stream(name="audit", subjects=["holdfast.audit.a.b.c.d.e.f"])
    await js.add_stream(name="unrelated", subjects=["unrelated.>"])
    await js.publish("orders.1", b"one")
    await (await js.create_object_store("holdfast-blobs")).put("theirs", b"not ours")
    async with holdfast.connect(own.url) as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue(os.urandom(2 << 20))
        left = await broker.uninstall()
    assert sorted(left) == [
        "object store holdfast-blobs, 1 objects",
        "stream audit",
        "stream holdfast=orders",
        "stream holdfast=shop=tasks",
    ]
    streams = ["OBJ_holdfast-blobs", "audit", "holdfast=orders", "holdfast=shop=tasks", "unrelated"]
    assert await names_of(own) == streams
    bucket = await js.object_store("holdfast-blobs")
    assert [info.name for info in await bucket.list(ignore_deletes=True)] == ["theirs"]
    assert (await js.get_last_msg("holdfast=orders", "orders.1")).data == b"one"
    await client.close()


async def test_stream_of_others_is_not_taken_for_a_queue(own: Server) -> None:
    client = await nats.connect(own.url)
    await client.jetstream().add_stream(name="holdfast=jobs=done", subjects=["invoices.>"])
    await client.close()
    async with holdfast.connect(own.url) as broker:
        with pytest.raises(StoreError, match="not Holdfast's"):
            await broker.queue("jobs")
