"""A user with exactly the rights that the page about NATS lists, and no others, can do everything."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast.testing.contract.base import eventually
from tests import ROOT
from tests.servers.nats import Server

PAGE = ROOT / "docs" / "stores" / "nats.md"


def documented(prefix: str) -> str:
    """The configuration of the page, for this prefix."""
    [block] = re.findall(r"```conf\n(.*?permissions.*?)```", PAGE.read_text(), re.S)
    return str(block).replace("holdfast", prefix)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(documented("mine")) as server:
        yield server


async def test_everything_works_with_the_documented_rights(server: Server) -> None:
    url = f"nats://worker:secret@{server.host}?prefix=mine&operation_timeout=5"
    async with holdfast.connect(url) as broker:
        queue = await broker.queue("jobs", max_attempts=1)
        large = os.urandom(3 << 20)
        await queue.enqueue_many([large, "dies", "stays"])
        first, second, third = await queue.dequeue_many(3, wait=5)
        assert first.payload == large
        await first.complete("r" * (2 << 20))
        await second.fail("why")
        await third.extend(60)
        await third.release()
        record = await queue.get(first.id)
        assert record is not None
        assert len(record.result) == 2 << 20
        assert await queue.dead.replay() == 1
        assert await queue.archive.replay([first.id]) == 1
        assert await queue.enqueue("k", dedup_key="k") == await queue.enqueue("k", dedup_key="k")
        assert await broker.store.maintain("jobs") != {}
        assert (await queue.stats()).completed == 1
        await queue.pause()
        assert await queue.purge() == 4
        assert {check.state for check in await broker.store.check()} <= {"ok", "warn"}
        await broker.uninstall()


async def test_a_right_that_is_missing_is_named_by_the_call_that_needs_it(server: Server) -> None:
    async with holdfast.connect(f"nats://worker:secret@{server.host}?prefix=mine") as broker:
        await broker.queue("jobs")
        server.config = documented("mine").replace('"$O.mine-blobs.>"', '"other"')
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start)
        queue = await eventually(lambda: opened(broker), "the server")
        with pytest.raises(holdfast.StoreError, match=r"may not publish to '\$o\.mine-blobs"):
            await queue.enqueue(bytes(3 << 20))


async def opened(broker: holdfast.Broker) -> holdfast.Queue[bytes] | None:
    try:
        return await broker.queue("jobs")
    except holdfast.Unavailable:
        return None


async def test_a_claim_that_may_not_write_gives_its_messages_back(server: Server) -> None:
    async with holdfast.connect(f"nats://worker:secret@{server.host}?prefix=mine&operation_timeout=5") as broker:
        queue = await broker.queue("jobs", lease=300)
        await queue.enqueue("work")
        await asyncio.to_thread(server.reload, documented("mine").replace('"mine.>"', '"other.>"', 1))
        await eventually(lambda: refused(queue), "the server to refuse")
        await asyncio.to_thread(server.reload, documented("mine"))
        await eventually(lambda: taken(queue), "what was handed out, long before its lease would be over")


async def refused(queue: holdfast.Queue[Any]) -> bool:
    try:
        await queue.dequeue()
    except holdfast.Unavailable:
        return False  # the server has just hung up
    except holdfast.StoreError as error:
        assert "may not publish" in str(error)
        return True
    return False


async def taken(queue: holdfast.Queue[Any]) -> bool:
    try:
        return await queue.dequeue() is not None
    except holdfast.StoreError:
        return False
