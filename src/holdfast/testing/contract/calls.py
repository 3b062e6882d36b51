"""Calls: an append with a name, repeated by somebody who did not hear the answer. For stores that remember them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from ...config import QueueOptions
from ...errors import ConfigError, QueueNotFound
from ...stores.base import CallName, remembering
from ...stores.records import Envelope
from .base import StoreContract

CALL = CallName("a call", "of these")
MIXED = [
    Envelope(b"1", priority=3),
    Envelope(b"2", dedup_key="k"),
    Envelope(b"3", delay=3600.0),
    Envelope(b"4", dedup_key="k"),
    Envelope(b"5", headers={"a": "b"}, max_attempts=1),
    Envelope(b"6", priority=3),
]


class Calls(StoreContract):
    """A repeat within an hour answers the same ids and adds nothing."""

    async def call(self, messages: Sequence[Envelope], call: CallName = CALL, queue: str = "q") -> list[str]:
        store = remembering(self.store)
        assert store is not None
        return await store.append_call(queue, messages, call)

    async def total(self) -> int:
        return (await self.store.stats("q")).total

    async def made(self) -> None:
        await self.store.create_queue("q", QueueOptions())

    async def test_repeated_call_answers_the_same_ids(self) -> None:
        await self.made()
        first = await self.call([Envelope(b"%d" % n) for n in range(1500)])
        assert len(set(first)) == 1500
        assert await self.call([Envelope(b"%d" % n) for n in range(1500)]) == first
        assert await self.total() == 1500
        other = await self.call([Envelope(b"0")], CallName("another"))
        assert not set(other) & set(first)
        assert await self.total() == 1501

    async def test_messages_of_all_kinds_keep_their_ids(self) -> None:
        await self.made()
        first = await self.call(MIXED)
        assert first[1] == first[3]
        assert await self.call(MIXED) == first
        assert await self.total() == len(MIXED) - 1

    async def test_dedup_keys_of_others_are_answered_again(self) -> None:
        await self.made()
        [held] = await self.store.append("q", [Envelope(b"0", dedup_key="k")])
        first = await self.call(MIXED)
        assert first[1] == first[3] == held
        assert await self.call(MIXED) == first
        assert await self.total() == len(MIXED) - 1

    async def test_large_messages_are_added_once(self) -> None:
        await self.made()
        large = [Envelope(bytes([n]) * 400_000) for n in range(3)]
        first = await self.call(large)
        assert await self.call(large) == first
        assert [found and found.payload for found in await self.store.get("q", first)] == [e.payload for e in large]

    async def test_call_is_remembered_when_its_messages_are_gone(self) -> None:
        await self.made()
        first = await self.call([Envelope(b"1"), Envelope(b"2")])
        assert await self.store.purge("q") == 2
        await self.store.maintain("q")
        assert await self.call([Envelope(b"1"), Envelope(b"2")]) == first
        assert await self.total() == 0

    async def test_other_messages_under_the_same_name_are_refused(self) -> None:
        await self.made()
        first = await self.call([Envelope(b"1")])
        with pytest.raises(ConfigError, match="other messages"):
            await self.call([Envelope(b"2")], CallName(CALL.name, "of others"))
        assert await self.call([Envelope(b"1")]) == first
        assert await self.total() == 1

    async def test_repeats_at_the_same_time_add_once(self) -> None:
        await self.made()
        calls = [self.call([Envelope(b"1"), Envelope(b"2")], CallName(f"call {n % 5}")) for n in range(20)]
        answers = await asyncio.gather(*calls, self.store.append("q", [Envelope(b"3")]))
        assert [answers[n] for n in range(5)] * 4 == answers[:20]
        assert await self.total() == 11

    async def test_calls_of_two_queues_are_two(self) -> None:
        await self.made()
        await self.store.create_queue("other", QueueOptions())
        assert await self.call([Envelope(b"1")]) != await self.call([Envelope(b"1")], queue="other")
        with pytest.raises(QueueNotFound):
            await self.call([Envelope(b"1")], queue="nope")

    async def test_call_is_remembered_after_reopening(self) -> None:
        await self.made()
        first = await self.call(MIXED)
        await self.reopen()
        assert await self.call(MIXED) == first
        assert await self.total() == len(MIXED) - 1
