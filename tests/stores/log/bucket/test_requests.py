"""A bucket whose every answer takes its time: all requests of a call share the call's timeout."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import time

import pytest

import holdfast
from holdfast.stores.log.bucket.requests import Tag
from tests.servers.bucket import BucketServer
from tests.servers.http import Request, Response
from tests.servers.proxy import Faults, Proxy


async def test_a_dedup_key_does_not_make_an_append_late() -> None:
    with BucketServer() as server, Proxy(server.port) as proxy:
        url = server.url("jobs", endpoint=proxy.endpoint)
        async with holdfast.connect(url, operation_timeout=1) as broker:
            queue = await broker.queue("jobs")
            await queue.enqueue("before", dedup_key="before")
            proxy.latency, before, began = 0.45, proxy.counts.copy(), time.monotonic()
            with contextlib.suppress(holdfast.Unavailable, holdfast.UnknownOutcome):
                await queue.enqueue("once", dedup_key="once")
            seconds, requests = time.monotonic() - began, proxy.counts.since(before).requests
            proxy.latency = 0.0
            assert seconds < 2, requests
            # The promise and the message: for the third write, which only tidies up, no time was left.
            assert sum(requests[kind] for kind in ("create", "swap", "put")) <= 2
            id = await queue.enqueue("again", dedup_key="once")
            assert await queue.enqueue("and again", dedup_key="once") == id
            assert (await queue.stats()).pending == 2


async def test_the_error_of_a_cancelled_call_is_not_reported_as_forgotten() -> None:
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
    with BucketServer() as server, Proxy(server.port) as proxy:
        async with holdfast.connect(server.url("jobs", endpoint=proxy.endpoint), operation_timeout=1) as broker:
            queue = await broker.queue("jobs")
            proxy.faults = Faults(unavailable=1.0)
            before = proxy.counts.faults["unavailable"]
            pausing = asyncio.create_task(queue.pause())
            async with asyncio.timeout(10):
                while proxy.counts.faults["unavailable"] == before:
                    await asyncio.sleep(0.01)
            pausing.cancel()
            await asyncio.wait([pausing])
            with pytest.raises(holdfast.Unavailable):  # begun later, so the time of the first is over, too
                await queue.pause()
            del pausing  # its traceback holds what it waited for
            gc.collect()
    assert told == []


class SummingServer(BucketServer):
    """Notes every upload whose header does not tell the SHA-256 of its bytes, as servers verify it."""

    def __init__(self) -> None:
        super().__init__()
        self.uploads, self.unsummed = 0, list[str]()

    async def _put(self, key: str, request: Request) -> Response:
        self.uploads += 1
        if request.headers.get("x-amz-content-sha256") != hashlib.sha256(request.body).hexdigest():
            self.unsummed.append(key)
        return await super()._put(key, request)


async def test_every_upload_carries_a_sum_that_the_server_verifies() -> None:
    """The driver signs the bytes of a request with it, so that nothing else can be stored."""
    with SummingServer() as server:
        async with holdfast.connect(server.url("jobs")) as broker:
            queue = await broker.queue("jobs")
            await queue.enqueue_many([{"body": "x" * 9_000}] * 100)
            for delivery in await queue.dequeue_many(50):
                await delivery.complete("y" * 9_000)
            await broker.store.discard("jobs", "archive", [])  # flushes
    assert server.uploads > 5
    assert server.unsummed == []


def test_tags_of_lists_and_answers_are_compared_without_quotes() -> None:
    """Azure's lists leave them out: no list would confirm a head there, and none would set the clock."""
    assert Tag("0x8D").bare == Tag('"0x8D"').bare
    assert Tag("0x8D").bare != Tag("0x8E").bare
    assert Tag(None).bare is None
