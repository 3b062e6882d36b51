"""A bucket whose every answer takes its time: all requests of a call share the call's timeout."""

from __future__ import annotations

import contextlib
import time

import holdfast
from servers.bucket import BucketServer
from servers.proxy import Proxy


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
