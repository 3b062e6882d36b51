"""Pages of a view: what is listed once serves the pages behind it, and what is new is found all the same."""

from __future__ import annotations

import pytest

import holdfast
from holdfast import ended
from holdfast.stores.nats.reading import Reader
from holdfast.stores.nats.store import NatsStore

MANY = 60


async def dead(broker: holdfast.Broker) -> holdfast.Queue[int]:
    queue: holdfast.Queue[int] = await broker.queue("jobs", max_attempts=1)
    await queue.enqueue_many(range(MANY))
    assert all(await queue.fail_many(await queue.dequeue_many(MANY, wait=5), "why"))
    return queue


async def test_replay_of_many_letters_lists_them_once(broker: holdfast.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    queue, listed, inner = await dead(broker), list[str](), Reader.subjects

    async def outer(self: Reader, stream: str, pattern: str) -> list[str]:
        listed.append(pattern)
        return await inner(self, stream, pattern)

    monkeypatch.setattr(Reader, "subjects", outer)
    monkeypatch.setattr(ended, "PAGE_ROWS", 7)
    assert await queue.dead.replay() == MANY
    assert len(listed) <= 3  # and behind the last page, for what is new
    assert (await queue.stats()).pending == MANY


async def test_what_comes_between_two_pages_is_found_behind_the_last(broker: holdfast.Broker) -> None:
    queue = await dead(broker)
    assert isinstance(broker.store, NatsStore)
    first = await broker.store.scan("jobs", "dead", limit=MANY // 2)
    [more] = await queue.enqueue_many([MANY])
    assert all(await queue.fail_many(await queue.dequeue_many(1, wait=5), "why"))
    await queue.dead.delete([first[-1].id])
    rest = await broker.store.scan("jobs", "dead", after=first[-1].id, limit=MANY)
    assert [one.id for one in rest] == sorted(one.id for one in rest)
    assert len({one.id for one in (*first, *rest)}) == MANY + 1
    assert rest[-1].id == more
