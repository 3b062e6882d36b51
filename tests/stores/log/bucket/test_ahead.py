"""A caller that takes, completes and takes again on a shared head: its next claim goes with its completion."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from holdfast.config import QueueOptions
from holdfast.stores.log.bucket import ahead
from holdfast.stores.log.bucket.store import LateStore
from holdfast.stores.records import Claims, Envelope, Settlement
from tests.stores.log.bucket.far_bucket import FarBucket, process

DEADLINE = 30.0


@pytest.fixture
def bucket() -> FarBucket:
    return FarBucket(time.time, resolution=0.001)


async def shared(bucket: FarBucket, blocks: int = 40, size: int = 5) -> tuple[LateStore, LateStore]:
    """Two processes on one queue, the second of which has just claimed."""
    one, _ = await process(bucket)
    two, _ = await process(bucket)
    await one.create_queue("q", QueueOptions(archive=False))
    for number in range(blocks):
        await one.append("q", [Envelope(f"{number}-{place}".encode()) for place in range(size)])
    await two.claim("q", 1, 30.0)
    return one, two


async def complete(store: LateStore, messages: Any) -> None:
    answers = await store.settle("q", [Settlement(each.id, each.token, "complete") for each in messages])
    assert answers == ["ok"] * len(messages)


async def rounds(store: LateStore, count: int, limit: int = 5) -> list[str]:
    taken: list[str] = []
    for _ in range(count):
        held = (await store.claim("q", limit, 30.0)).messages
        taken += [each.id for each in held]
        await complete(store, held)
    return taken


async def held_ahead(store: LateStore) -> int:
    held = store._ahead._held.get("q")
    return len((await asyncio.shield(held.claim)).messages) if held is not None else 0


async def test_the_next_claim_is_there_already_and_is_given_once(bucket: FarBucket) -> None:
    one, two = await shared(bucket)
    taken = await rounds(one, 6)
    assert await held_ahead(one) == 5
    assert (await one.stats("q")).processing == 1 + 5
    following = (await one.claim("q", 5, 30.0)).messages
    assert "q" not in one._ahead._held
    assert not set(taken) & {each.id for each in following}
    assert [each.attempt for each in following] == [1] * 5
    await complete(one, following)
    await one.close()
    await two.close()


async def test_nothing_is_claimed_ahead_where_nobody_else_is(bucket: FarBucket) -> None:
    one, _ = await process(bucket)
    await one.create_queue("q", QueueOptions(archive=False))
    for _ in range(10):
        await one.append("q", [Envelope(b"x")] * 5)
    await rounds(one, 8)
    assert (await one.stats("q")).processing == 0
    await one.close()


async def test_what_nobody_asks_for_is_given_back_soon_without_costing_an_attempt(bucket: FarBucket) -> None:
    one, two = await shared(bucket)
    await rounds(one, 6)
    assert await held_ahead(one) == 5
    async with asyncio.timeout(DEADLINE):
        while (await two.stats("q")).processing > 1:
            await asyncio.sleep(ahead.KEPT / 3)
    held = (await two.claim("q", 200, 30.0)).messages
    assert len(held) == 200 - 1 - 30
    assert {each.attempt for each in held} == {1}
    await one.close()
    await two.close()


async def test_closing_gives_back_what_was_claimed_ahead(bucket: FarBucket) -> None:
    one, two = await shared(bucket)
    await rounds(one, 6)
    assert await held_ahead(one) == 5
    await one.close()
    assert (await two.stats("q")).processing == 1
    await two.close()


async def test_a_claim_of_another_size_gives_it_back_and_claims_for_itself(bucket: FarBucket) -> None:
    one, two = await shared(bucket)
    await rounds(one, 6)
    assert await held_ahead(one) == 5
    assert len((await one.claim("q", 2, 30.0)).messages) == 2
    async with asyncio.timeout(DEADLINE):
        while (await two.stats("q")).processing != 1 + 2:
            await asyncio.sleep(0.01)
    await one.close()
    await two.close()


async def test_a_caller_that_is_cancelled_while_it_waits_for_it_loses_nothing(bucket: FarBucket) -> None:
    one, two = await shared(bucket)
    taken = await rounds(one, 5)
    held = (await one.claim("q", 5, 30.0)).messages
    taken += [each.id for each in held]
    completing = asyncio.create_task(complete(one, held))
    await asyncio.sleep(0)
    claiming = asyncio.create_task(one.claim("q", 5, 30.0))
    await asyncio.sleep(0)
    claiming.cancel()
    await asyncio.wait([claiming])
    await completing
    async with asyncio.timeout(DEADLINE):
        while (await two.stats("q")).processing > 1:
            await asyncio.sleep(ahead.KEPT / 3)
    assert (await two.stats("q")).pending == 200 - 1 - len(taken)
    await one.close()
    await two.close()


def test_a_habit_needs_one_caller_that_settles_all_it_took() -> None:
    habit = ahead.Habit()

    class Message:
        def __init__(self, name: str) -> None:
            self.id = name

    def turn(names: str, settled: str) -> tuple[int, float] | None:
        habit.claims(len(names), 30.0)
        habit.claimed(Claims([Message(each) for each in names]))  # type: ignore[misc]  # only ids count here
        settlements = [Settlement(each, "t", "complete") for each in settled]
        following = habit.next(settlements)
        habit.settled(settlements)
        return following

    assert [turn("ab", "ab") for _ in range(3)] == [None, (2, 30.0), (2, 30.0)]
    assert turn("ab", "a") is None, "one of them is still at work"
    assert turn("ab", "ab") is None, "it did not settle all before it claimed again"
    assert turn("ab", "ab") == (2, 30.0)
    habit.claims(2, 30.0)
    assert habit.next([Settlement("a", "t", "complete")]) is None, "somebody is claiming"
