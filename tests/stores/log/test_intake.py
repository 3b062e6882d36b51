"""Which blocks a claim takes in: what comes first, in one look, however many messages are in hand."""

from __future__ import annotations

import random

import pytest

from holdfast.config import QueueOptions, StoreOptions
from holdfast.stores.log.commit import Committer
from holdfast.stores.log.memory import MemorySpace
from holdfast.stores.log.store import LogStore
from holdfast.stores.records import Claimed, Envelope, Settlement

pytestmark = pytest.mark.asyncio


async def opened() -> LogStore:
    store = LogStore(MemorySpace(), StoreOptions())
    await store.create_queue("q", QueueOptions())
    return store


async def taken(store: LogStore, limit: int = 1) -> list[bytes]:
    return [each.payload for each in (await store.claim("q", limit, 3600.0)).messages]


@pytest.mark.parametrize("held", [0, 1, 40])
async def test_a_claim_behind_messages_in_hand_takes_one_look(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of one message lie before all others in the inbox until they end."""
    store = await opened()
    for n in range(held):
        await store.append("q", [Envelope(b"%d" % n)])
        assert await taken(store) == [b"%d" % n]
    await store.append("q", [Envelope(b"next")] * 2)
    looks: list[int] = []
    survey = Committer.survey
    monkeypatch.setattr(Committer, "survey", lambda *asked: looks.append(1) or survey(*asked))
    assert await taken(store) == [b"next"]
    assert await taken(store) == [b"next"]
    assert len(looks) == 2
    assert await taken(store) == []
    await store.close()


async def test_what_is_urgent_or_comes_back_goes_before_the_rest() -> None:
    store = await opened()
    for n in range(5):
        await store.append("q", [Envelope(b"%d" % n)])
    first = await store.claim("q", 3, 3600.0)
    await store.append("q", [Envelope(b"urgent", priority=9)])
    assert await taken(store) == [b"urgent"]
    back = first.messages[1]
    assert await store.settle("q", [Settlement(back.id, back.token, "release")]) == ["ok"]
    assert [await taken(store) for _ in range(4)] == [[b"1"], [b"3"], [b"4"], []]
    await store.close()


@pytest.mark.parametrize("seed", range(20))
async def test_claims_follow_priority_and_age(seed: int) -> None:
    """Blocks of any size, some in hand, some released, some ended: each claim gets the first of all that is left."""
    chance, store = random.Random(seed), await opened()
    left: list[tuple[int, str]] = []
    held: list[Claimed] = []
    for _ in range(60):
        what = chance.random()
        if what < 0.4:
            priority, count = chance.randrange(3), chance.choice([1, 1, 1, 3])
            ids = await store.append("q", [Envelope(b"", priority=priority)] * count)
            left += [(-priority, id) for id in ids]
        elif what < 0.8 or not held:
            left.sort()
            wanted, left = left[: (limit := chance.choice([1, 1, 1, 2, 5]))], left[limit:]
            messages = (await store.claim("q", limit, 3600.0)).messages
            assert [(-each.priority, each.id) for each in messages] == wanted
            held += messages
        else:
            each = held.pop(chance.randrange(len(held)))
            is_done = chance.random() < 0.5
            done = Settlement(each.id, each.token, "complete" if is_done else "release")
            assert await store.settle("q", [done]) == ["ok"]
            left += [] if is_done else [(-each.priority, each.id)]
    await store.close()
