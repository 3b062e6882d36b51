"""A bucket that was copied, restored or touched keeps its backlog, on a real server: its dates, its tags, its lists.

`test_quarantine.py` has the same and more on a bucket whose time is ours. Here nobody waits an hour: what is sent is
born an hour ago by its name, so that its objects have the dates of a bucket that was rewritten just now.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import obstore
import pytest

import holdfast
from holdfast import admin
from holdfast.broker import Broker
from holdfast.ids import Ids
from holdfast.stores.log.bucket import identity, transaction
from holdfast.stores.log.bucket.space import CloudSpace
from holdfast.stores.log.head.state import Expire
from tests.cli_runner import Cli

from .fixtures import Place

PATIENCE = 60.0
PENDING = 501
HOUR = 3600.0
Send = Callable[[list[Any]], Any]


@pytest.fixture
def send_an_hour_ago(s3: Place, monkeypatch: pytest.MonkeyPatch) -> Send:
    """Fill the queue `jobs` of the test's place."""
    made = Ids.block

    async def send(values: list[Any]) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Ids, "block", lambda self, now, *rest, **more: made(self, now - HOUR, *rest, **more))
            patch.setattr(transaction, "WINDOW", 2 * HOUR)
            assert CloudSpace.window < HOUR, "only who sends believes that it is in time"
            async with holdfast.connect(s3.url) as broker:
                queue = await broker.queue("jobs")
                await queue.enqueue_many(values[1:])
                await queue.enqueue(values[0])

    return send


def touch_identity(s3: Place) -> None:
    """As if it had been made an hour ago, and rewritten now."""
    found = msgspec.json.decode(bytes(obstore.get(s3.driver(), identity.KEY).bytes()))
    found |= {"made_at": found["made_at"] - HOUR, "sum": 0}
    obstore.put(s3.driver(), identity.KEY, msgspec.json.encode(found))


def named(driver: Any, part: str = "") -> list[str]:
    return [each["path"] for page in obstore.list(driver) for each in page if part in each["path"]]


async def drained(queue: Any) -> Counter[Any]:
    """Complete what there is until nothing comes any more."""
    done: Counter[Any] = Counter()
    async with asyncio.timeout(PATIENCE):
        while held := await queue.dequeue_many(1000, wait=1):
            answers = await queue.complete_many(held)
            done.update(each.value for each, ok in zip(held, answers, strict=True) if ok)
    return done


async def test_a_copy_under_another_prefix_delivers_its_backlog(s3: Place, send_an_hour_ago: Send) -> None:
    await send_an_hour_ago([*range(PENDING)])
    other = Place(s3.server)
    for key in named(s3.driver()):
        obstore.put(other.driver(), key, bytes(obstore.get(s3.driver(), key).bytes()))
    async with holdfast.connect(other.url) as copy:
        queue = await copy.queue("jobs", create=False)
        assert (await queue.stats()).pending == PENDING
        assert await drained(queue) == Counter(range(PENDING))
        assert (await queue.stats()).set_aside == 0
        lines = {line.name: line for line in await copy.check()}
        assert lines["set aside"].state == "ok"
        assert lines["identity"].detail.startswith("a copy")


async def test_a_bucket_touched_in_place_delivers_its_backlog(s3: Place, send_an_hour_ago: Send, monkeypatch) -> None:
    """While a process is running that knows nothing of it."""
    monkeypatch.setattr(identity, "REWRITE_SECONDS", -5.0)  # it was over some seconds ago
    async with holdfast.connect(s3.url) as broker:
        await send_an_hour_ago([*range(PENDING)])
        touch_identity(s3)
        queue = await broker.queue("jobs")
        await broker.maintain()
        assert await drained(queue) == Counter(range(PENDING))
        assert (await queue.stats()).set_aside == 0


async def test_blocks_touched_alone_are_set_aside_and_recovered_once(
    s3: Place, send_an_hour_ago: Send, tmp_path
) -> None:
    await send_an_hour_ago([*range(PENDING)])
    async with holdfast.connect(s3.url) as broker:
        queue = await broker.queue("jobs")
        assert await drained(queue) == Counter()
        async with asyncio.timeout(PATIENCE):
            while len(named(s3.driver(), "/late/")) < 2:
                await asyncio.sleep(0.1)
        stats = await queue.stats()
        assert (stats.set_aside, stats.pending) == (PENDING, 0)
        line = next(line for line in await broker.check() if line.name == "set aside")
        assert (line.state, f"{PENDING} of 'jobs'" in line.detail) == ("warn", True)
        told = [await asyncio.to_thread(Cli(tmp_path).out, "recover", "--url", s3.url) for _ in range(2)]
        assert told == [f"jobs: {PENDING} recovered", "jobs: nothing was set aside"]
        assert await drained(queue) == Counter(range(PENDING))
        assert (await queue.stats()).set_aside == 0


async def test_a_write_after_its_block_was_finished_is_not_delivered_again(s3: Place, send_an_hour_ago: Send) -> None:
    """By a producer that slept through all, a copy too: it signs its request afresh, so the server takes it."""
    await send_an_hour_ago(["once", "and this"])
    touch_identity(s3)
    driver = s3.driver()
    blocks = {key: bytes(obstore.get(driver, key).bytes()) for key in named(driver, "/inbox/")}
    async with holdfast.connect(s3.url) as broker:
        queue = await broker.queue("jobs")
        assert await drained(queue) == Counter(["once", "and this"])
        await forgotten(broker, "jobs")
        for key, data in blocks.items():
            obstore.put(driver, key, data, mode="create")
        assert await drained(queue) == Counter()
        assert (await queue.stats()).set_aside == 2
        (done,) = (await admin.recover(broker)).values()
        assert (done.recovered, done.known) == (0, 2)
        assert await drained(queue) == Counter()
        assert await queue.archive.count() == 2


async def forgotten(broker: Broker, queue: str) -> None:
    """Until the finished blocks are deleted, nobody remembers them, and the copy was made some seconds ago."""
    async with asyncio.timeout(PATIENCE):
        while True:
            await broker.maintain()
            head = (await broker.store._log(queue).committer.ask(Expire())).head
            age = await broker.store.clock() - broker.store._space.epoch
            if not head.blocks and not head.beyond.graveyard and age > 4.0:
                return
            await asyncio.sleep(0.2)
