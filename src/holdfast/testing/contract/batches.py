"""Batches: many messages in one call, all or nothing."""

from __future__ import annotations

from typing import Any

from ...errors import CodecError, HoldfastError, InvalidPriority, MessageTooLarge
from ...messages import Message
from ...retry import Fixed
from .base import LONG_S, SHORT_S, StoreContract, refused

BAD: list[tuple[Any, type[HoldfastError]]] = [
    (Message(1, priority=256), InvalidPriority),
    (Message(1, delay=-1), HoldfastError),
    ("x" * 2000, MessageTooLarge),
    (object(), CodecError),
]


class Batches(StoreContract):
    """Answers in input order."""

    async def test_ids_of_a_batch_are_in_input_order(self) -> None:
        queue = await self.queue()
        ids = await queue.enqueue_many([f"m{n}" for n in range(20)])
        assert len(set(ids)) == 20
        assert [(d.id, d.value) for d in await self.take_all(queue, 20)] == [(id, f"m{n}") for n, id in enumerate(ids)]

    async def test_empty_batches_are_nothing(self) -> None:
        queue = await self.queue()
        assert await queue.enqueue_many([]) == []
        assert await queue.complete_many([]) == []
        assert await queue.fail_many([], "why") == []
        assert (await queue.release_many([]), await queue.kill_many([], "why")) == ([], [])
        assert await queue.extend_many([], LONG_S) == []
        assert (await queue.dead.replay([]), await queue.archive.replay([]), await queue.dead.delete([])) == (0, 0, 0)
        assert (await queue.stats()).total == 0

    async def test_one_bad_message_refuses_the_batch_and_names_its_index(self) -> None:
        queue = await self.queue(max_message_size=1000)
        for bad, error in BAD:
            with refused(bad, error, match=r"\b2\b"):
                await queue.enqueue_many(["fine", "fine", bad, "fine"])
        assert (await queue.stats()).total == 0

    async def test_messages_of_a_batch_have_terms_of_their_own(self) -> None:
        queue = await self.queue()
        batch = [
            Message("plain"),
            Message("urgent", priority=200),
            Message("later", delay=LONG_S),
            Message("named", headers={"k": "v"}, max_attempts=9),
            Message("twin", dedup_key="d"),
            Message("twin again", dedup_key="d"),
        ]
        ids = await queue.enqueue_many(batch)
        assert ids[4] == ids[5]
        assert [await queue.status(id) for id in ids[:5]] == ["pending", "pending", "delayed", "pending", "pending"]
        taken = await self.take_all(queue, 4)
        assert [d.value for d in taken] == ["urgent", "plain", "named", "twin"]
        assert (taken[2].headers, taken[2].max_attempts) == ({"k": "v"}, 9)

    async def test_ten_thousand_in_one_call(self) -> None:
        queue = await self.queue()
        ids = await queue.enqueue_many(range(10_000))
        assert len(set(ids)) == 10_000
        assert ids == sorted(ids)
        assert (await queue.stats()).pending == 10_000
        seen = 0
        while deliveries := await queue.dequeue_many(2500, lease=LONG_S):
            assert [d.value for d in deliveries] == list(range(seen, seen + len(deliveries)))
            assert all(await queue.complete_many(deliveries))
            seen += len(deliveries)
        assert seen == 10_000
        assert (await queue.stats()).completed == 10_000

    async def test_batch_of_large_payloads_arrives_whole(self) -> None:
        queue = await self.queue()
        sent = [bytes([n]) * 600_000 for n in range(12)]
        await queue.enqueue_many(sent)
        assert [d.payload for d in await self.take_all(queue, 12)] == sent

    async def test_complete_many_stores_each_result(self) -> None:
        queue = await self.queue()
        ids = await queue.enqueue_many(range(3))
        taken = await self.take_all(queue, 3)
        assert await queue.complete_many(taken, [{"n": d.value} for d in taken]) == [True, True, True]
        records = [await queue.get(id) for id in ids]
        assert [record.result for record in records if record] == [{"n": 0}, {"n": 1}, {"n": 2}]

    async def test_fail_many_answers_per_message(self) -> None:
        queue = await self.queue(retry=Fixed(LONG_S), max_attempts=2)
        ids = await queue.enqueue_many(range(2))
        taken = await self.take_all(queue, 2)
        assert await queue.fail_many([taken[0], "no-such-receipt", taken[1]], "why") == [True, False, True]
        assert [await queue.status(id) for id in ids] == ["retry", "retry"]

    async def test_release_many_gives_back_without_costing_an_attempt(self) -> None:
        queue = await self.queue(max_attempts=2)
        ids = await queue.enqueue_many(range(3))
        one, two, three = await self.take_all(queue, 3)
        await two.complete()
        assert await queue.release_many([three, two, "no-such-receipt", one.receipt]) == [True, False, False, True]
        assert [(d.id, d.attempt) for d in await self.take_all(queue, 2)] == [(ids[0], 1), (ids[2], 1)]

    async def test_release_many_with_a_delay_waits(self) -> None:
        queue = await self.queue()
        ids = await queue.enqueue_many(range(2))
        assert await queue.release_many(await self.take_all(queue, 2), LONG_S) == [True, True]
        assert {await queue.status(id) for id in ids} <= {"delayed", "retry"}
        assert await queue.dequeue() is None

    async def test_kill_many_buries_with_the_reason(self) -> None:
        queue = await self.queue()
        ids = await queue.enqueue_many(range(3))
        one, two, three = await self.take_all(queue, 3)
        await two.release(LONG_S)
        assert await queue.kill_many([one, two, three.id], "poison") == [True, False, True]
        assert [(record.id, record.error) for record in await queue.dead.list()] == [
            (ids[0], "poison"),
            (ids[2], "poison"),
        ]

    async def test_extend_many_holds_those_that_are_not_lost(self) -> None:
        queue = await self.queue(max_attempts=9)
        await queue.enqueue_many(range(3))
        held = await queue.dequeue_many(3, lease=4 * SHORT_S, wait=self.patience)
        await held[1].complete()
        before = held[0].expires_at
        asked: list[Any] = [held[2].receipt, "no-such-receipt", held[1], held[0]]
        assert await queue.extend_many(asked, LONG_S) == [True, False, False, True]
        assert held[0].expires_at > before
        await self.advance(4 * SHORT_S)
        assert await queue.dequeue() is None
        assert await queue.complete_many([held[0], held[2]]) == [True, True]
