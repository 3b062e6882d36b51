"""A worker that runs learns of new and changed schedules within a minute, whoever made them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import holdfast
from holdfast.config import QueueOptions
from holdfast.testing.clock import ManualClock
from tests.servers import azure, nats, postgres, s3
from tests.stores.log.bucket.far_bucket import FarBucket, process
from tests.worker_stores import until

NOTICED_S = 60.0  # what is promised
STORES = ("file", "postgres", "s3", "az", "nats")


@contextmanager
def place(store: str, folder: Path) -> Iterator[str]:
    """A store of this kind that processes share."""
    with ExitStack() as stack:
        if store == "file":
            yield f"file://{folder}/store"
        elif store == "postgres":
            yield stack.enter_context(postgres.Server()).url("postgres")
        elif store == "nats":
            yield stack.enter_context(nats.Server()).url
        else:
            yield stack.enter_context(s3.Server() if store == "s3" else azure.Server()).url("noticed")


@contextmanager
def worker_of(url: str) -> Iterator[None]:
    """Another process that works on the queue."""
    child = subprocess.Popen([sys.executable, "-m", "chaos.scheduling.child", url, "[]"])
    try:
        yield
    finally:
        child.kill()
        child.wait()


async def fired(broker: holdfast.Broker) -> set[tuple[str, bytes]]:
    """What the other process has made: names of schedules, and payloads."""
    found, after = set[tuple[str, bytes]](), None
    while page := await broker.store.scan("jobs", "ready", after=after, limit=1000):
        after = page[-1].id
        found |= {((each.headers or {})["schedule"], each.payload) for each in page}
    return found


@pytest.mark.timeout(180)
@pytest.mark.parametrize("store", STORES)
async def test_a_new_and_a_changed_schedule_are_noticed_within_a_minute(store: str, tmp_path: Path) -> None:
    with place(store, tmp_path) as url:
        async with holdfast.connect(url) as broker:
            queue = await broker.queue("jobs")

            async def shows(*wanted: tuple[str, bytes]) -> bool:
                await asyncio.sleep(0.2)  # a look at a bucket is dear
                return set(wanted) <= await fired(broker)

            await queue.pause()  # what was fired stays
            await broker.schedules.put(holdfast.Schedule(name="old", queue="jobs", every=1, value="before"))
            with worker_of(url):
                await until(lambda: shows(("old", b'"before"')), NOTICED_S)
                await broker.schedules.put(holdfast.Schedule(name="new", queue="jobs", every=1))
                await broker.schedules.put(holdfast.Schedule(name="old", queue="jobs", every=1, value="after"))
                await until(lambda: shows(("new", b"null"), ("old", b'"after"')), NOTICED_S)


@pytest.mark.parametrize("home", [0, 1])
async def test_on_a_bucket_one_look_for_messages_shows_what_another_process_has_changed(home: int) -> None:
    """Whichever shard it looks at. How often an idle worker looks, every 50 s at least, is tested with `Polling`."""
    clock = ManualClock()
    bucket = FarBucket(clock)
    worker, _ = await process(bucket)
    other, _ = await process(bucket)
    await other.create_queue("q", QueueOptions(shards=2))
    one, two = holdfast.Broker(worker), holdfast.Broker(other)
    assert worker.schedules is not None
    await worker.claim("q", 1, 60.0)
    worker._rounds["q"].home = home
    assert worker.schedules.seen("q") == []
    for every in (60.0, 90.0):
        await two.schedules.put(holdfast.Schedule(name="a", queue="q", every=every))
        clock.advance(50.0)
        for shard in ("q", "q#1"):
            worker._log(shard).window.late.unlist()  # the next claim lists again, as after a pause
        await worker.claim("q", 1, 60.0)
        seen = worker.schedules.seen("q")
        assert seen is not None
        assert [(each.plan.name, each.plan.every) for each in seen] == [("a", every)]
    await asyncio.gather(one.close(), two.close())
