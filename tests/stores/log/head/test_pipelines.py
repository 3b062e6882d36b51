"""What data pipelines leave in the head stays small."""

from __future__ import annotations

import pytest

from holdfast.config import QueueOptions, StoreOptions
from holdfast.stores.log import open_memory
from holdfast.stores.records import Envelope

QUEUE = "emails"


@pytest.fixture
async def store():
    made = await open_memory("", StoreOptions())
    await made.create_queue(QUEUE, QueueOptions())
    yield made
    await made.close()


async def test_the_head_stays_small(store):
    """A batch of many messages costs the head a few bytes for each block."""
    for _ in range(50):
        await store.append(QUEUE, [Envelope(b"x")] * 1000)
    owner = await store.batches.own(QUEUE, "etl", holder="me", lease=60.0)
    assert (await store.batches.claim_batch(owner, after=0, limit=50_000)).count == 50_000
    stored = await store._space.read(lambda view: view.get(store._log(QUEUE).committer.look(view).root + "head"))
    assert len(stored.data) < 20_000


async def test_marks_are_bounded(store):
    for n in range(3):
        await store.batches.publish(QUEUE, f"s{n}", 0, [])
    head = (await store._log(QUEUE).committer.ask()).head
    assert list(head.pipes.sinks) == ["s0", "s1", "s2"]
    pipes, now = head.pipes, await store.clock()
    for n in range(1200):
        pipes = pipes.with_sink(f"t{n}", 0, now + n)
    assert len(pipes.sinks) == 1000
    assert "t1199" in pipes.sinks
    assert list(pipes.with_sink("late", 0, now + 32 * 86400).sinks) == ["late"]
