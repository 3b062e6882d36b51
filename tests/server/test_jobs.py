"""Bulk jobs: what they touch, how they go on, how they stop."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

import holdfast
from holdfast.errors import ConfigError, Unavailable
from holdfast.queue import Queue
from holdfast.server import jobs
from holdfast.server.jobs import Job, Jobs
from holdfast.server.search import Wanted
from holdfast.stores.records import View


def made(queue: Queue[Any], view: View, verb: str, **wanted: Any) -> Job:
    return Job(
        id=jobs.new_id(),
        who="me",
        queue=queue.name,
        view=view,
        verb=jobs.check(view, verb),
        wanted=Wanted(**wanted),
        total=0,
        began=datetime.now(UTC),
    )


async def run(queue: Queue[Any], job: Job) -> Job:
    """Until it has ended."""
    told: asyncio.Queue[Job] = asyncio.Queue()
    Jobs().start(queue, job, ended=told.put)
    async with asyncio.timeout(30):
        return await told.get()


async def test_each_verb_does_it_to_those_that_fit() -> None:
    async with holdfast.connect("memory://") as broker:
        queue = await broker.queue("jobs", max_attempts=1)
        await queue.enqueue_many([{"n": number} for number in range(2400)], headers={"kind": "a"})
        await queue.enqueue_many([{"n": number} for number in range(100)], headers={"kind": "b"})
        done = await run(queue, made(queue, "ready", "cancel", headers=(("kind", "b"),)))
        assert (done.state, done.done, done.looked) == ("done", 100, 2500)
        held = await queue.dequeue_many(1200)
        done = await run(queue, made(queue, "processing", "take-back"))
        assert (done.done, (await queue.stats()).processing) == (len(held), 0)
        assert await queue.complete_many(held[:2]) == [False, False]
        again = await queue.dequeue_many(10)
        assert (await run(queue, made(queue, "processing", "cancel"))).done == len(again)
        for each in await queue.dequeue_many(30):
            await each.kill("odd" if each.value["n"] % 2 else "even")
        before = (await queue.stats()).dead
        done = await run(queue, made(queue, "dead", "replay", text="odd"))
        assert done.done > 0
        assert (await queue.stats()).dead == before - done.done
        done = await run(queue, made(queue, "dead", "delete"))
        assert (await queue.stats()).dead == 0
        archived = (await queue.stats()).archived
        assert (await run(queue, made(queue, "archive", "delete"))).done == archived


async def test_what_came_after_the_preview_stays() -> None:
    async with holdfast.connect("memory://") as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue_many([1, 2, 3])
        seen = datetime.fromtimestamp(await broker.store.clock(), UTC)
        await asyncio.sleep(0.01)
        await queue.enqueue_many([4, 5])
        assert (await run(queue, made(queue, "ready", "cancel", until=seen))).done == 3
        assert [each.value for each in await queue.peek()] == [4, 5]


async def test_a_job_is_stopped_between_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    async with holdfast.connect("memory://") as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue_many(list(range(5000)))
        running, job = Jobs(), made(queue, "ready", "cancel")
        told: asyncio.Queue[Job] = asyncio.Queue()
        running.start(queue, job, ended=told.put)
        while not job.looked:
            await asyncio.sleep(0)
        await running.stop(job.id)
        assert (await told.get()).state == "stopped"
        assert 0 < job.done < 5000
        assert (await queue.stats()).pending == 5000 - job.done
        await running.stop(job.id)  # harmless
        rest = await run(queue, made(queue, "ready", "cancel"))
        assert rest.done + job.done == 5000


async def test_a_store_that_goes_away_ends_it_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async with holdfast.connect("memory://") as broker:
        queue = await broker.queue("jobs")

        async def away(*args: object, **how: object) -> list[Any]:
            raise Unavailable("nobody answers")

        monkeypatch.setattr(queue.store, "scan", away)
        done = await run(queue, made(queue, "ready", "cancel"))
        assert (done.state, done.why) == ("failed", "nobody answers")
        assert done.ended is not None


def test_a_verb_that_a_state_does_not_know() -> None:
    with pytest.raises(ConfigError, match="one of cancel, not 'replay'"):
        jobs.check("ready", "replay")
