"""Blocks that a flush may have written wait for it; where the head beside is damaged, nothing waits."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast
from holdfast.errors import Damaged
from tests.stores.log.damaged_places import place


@pytest.mark.parametrize("part", ["dead/head", "queues/source"])
async def test_a_damaged_head_or_queue_beside_holds_up_nothing(tmp_path: Path, part: str) -> None:
    """Retries that have left the head, and letters of another queue: blocks that some flush has written."""
    with place("s3", tmp_path) as where:
        async with holdfast.connect(where.url) as broker:
            queue = await broker.queue("jobs", retry=holdfast.Fixed(0.05))
            source = await broker.queue("source", dead_letter="jobs")
            await source.enqueue("moved")
            await (await source.dequeue_many(1))[0].kill("no")
            await broker.store.discard("source", "archive", [])  # flushes
            await queue.enqueue_many(range(310))
            for each in await queue.dequeue_many(400):
                await each.fail("again")
            await broker.store.discard("jobs", "archive", [])
        for key in [key for key in where.objects() if key.endswith(part) and not key.startswith("source@")]:
            where.write(key, where.objects()[key][:-20] + bytes(20))
        async with holdfast.connect(where.url) as broker:
            with pytest.raises(Damaged):
                await (await broker.queue("jobs" if part == "dead/head" else "source")).dead.list()
            taken: list[str] = []
            queue = await broker.queue("jobs")
            while len(taken) < 311:
                messages = await queue.dequeue_many(400, wait=2)
                assert messages, f"{len(taken)} of 311 came"
                taken += [each.id for each in messages]
            assert len(set(taken)) == 311
