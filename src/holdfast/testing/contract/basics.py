"""Basics: ids, payloads, the way of a message, and what is known of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from ...config import MIB
from ...errors import ConfigError, InvalidPriority, MessageNotFound, MessageTooLarge
from ...retry import Fixed
from .base import LONG_S, PATIENCE_S, SHORT_S, StoreContract, refused

STRANGERS = ["01890a5d-ac96-774b-bcce-b302099a8057", "not-an-id", "", "x" * 1000, "../../etc/passwd", "é\u2028"]


@dataclass
class Email:
    to: str
    tags: list[str]


class Basics(StoreContract):
    """What anybody expects of a queue."""

    async def test_ids_are_unique_and_time_ordered(self) -> None:
        queue = await self.queue()
        ids = [await queue.enqueue(n) for n in range(50)]
        assert ids == sorted(set(ids))
        assert all(UUID(id).version == 7 for id in ids)

    async def test_ids_of_concurrent_writers_are_unique(self) -> None:
        queue = await self.queue()

        async def write(writer: int) -> list[str]:
            return [await queue.enqueue([writer, n]) for n in range(25)]

        written = await asyncio.gather(*[write(writer) for writer in range(8)])
        assert len({id for ids in written for id in ids}) == 200
        assert all(ids == sorted(ids) for ids in written)

    async def test_payload_is_kept_byte_for_byte(self) -> None:
        queue = await self.queue()
        for size in (0, 1, 1000, MIB):
            data = bytes(range(256)) * (size // 256) + bytes(range(size % 256))
            id = await queue.enqueue(data)
            delivery = await self.take(queue)
            assert (delivery.id, delivery.payload, delivery.value) == (id, data, data)
            await delivery.complete()
            record = await queue.get(id)
            assert record is not None
            assert record.payload == data

    async def test_payload_at_the_limit_is_taken_and_one_byte_more_refused(self) -> None:
        queue = await self.queue(max_message_size=1000)
        await queue.enqueue(b"x" * 1000)
        with pytest.raises(MessageTooLarge) as refused:
            await queue.enqueue(b"x" * 1001)
        assert (refused.value.actual, refused.value.limit) == (1001, 1000)
        assert (await queue.stats()).total == 1

    async def test_json_values_come_back_equal(self) -> None:
        queue = await self.queue()
        values: list[Any] = [None, True, 0, -1.5, "ü\u2028'\"", [], {}, {"a": [1, {"b": None}]}]
        for value in values:
            await queue.enqueue(value)
            assert (await self.take(queue)).value == value

    async def test_typed_values_come_back_as_their_type(self) -> None:
        queue = await self.queue("typed", Email)
        await queue.enqueue(Email("a@example.com", ["x"]))
        assert (await self.take(queue)).value == Email("a@example.com", ["x"])

    async def test_enqueue_time_lies_within_the_call(self) -> None:
        queue = await self.queue()
        before = await self.clock()
        id = await queue.enqueue(1)
        after = await self.clock()
        record = await queue.get(id)
        assert record is not None
        assert before - 0.002 <= record.enqueued_at.timestamp() <= after + 0.002  # ids count milliseconds
        assert record.enqueued_at.utcoffset() == timedelta(0)

    async def test_empty_queue_gives_none(self) -> None:
        queue = await self.queue()
        assert await queue.dequeue() is None
        assert await queue.dequeue_many(5) == []
        assert await queue.dequeue(wait=0.05) is None

    async def test_message_goes_from_pending_to_completed(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue("work")
        assert await queue.status(id) == "pending"
        delivery = await self.take(queue)
        assert (delivery.id, delivery.attempt) == (id, 1)
        assert await queue.status(id) == "processing"
        await delivery.complete()
        assert await queue.status(id) == "completed"
        assert await queue.dequeue() is None

    async def test_delivery_says_everything(self) -> None:
        queue = await self.queue(max_attempts=5)
        id = await queue.enqueue({"n": 1}, priority=7, headers={"trace": "ü1", "": "empty"})
        delivery = await self.take(queue, lease=LONG_S)
        assert (delivery.id, delivery.value, delivery.priority) == (id, {"n": 1}, 7)
        assert (delivery.attempt, delivery.max_attempts) == (1, 5)
        assert delivery.headers == {"trace": "ü1", "": "empty"}
        assert abs(delivery.expires_at.timestamp() - await self.clock() - LONG_S) < 5
        assert delivery.enqueued_at <= delivery.expires_at
        assert isinstance(delivery.receipt, str)

    async def test_every_status_is_told(self) -> None:
        queue = await self.queue(retry=Fixed(LONG_S), max_attempts=2)
        finished, dead, failing, held, cancelled, pending = ids = await queue.enqueue_many(range(6))
        delayed = await queue.enqueue(6, delay=LONG_S)
        taken = {delivery.id: delivery for delivery in await self.take_all(queue, 4)}
        await taken[finished].complete({"ok": True})
        await taken[dead].kill("poison")
        await taken[failing].fail("once")
        await queue.cancel(cancelled)
        assert held in taken
        assert pending not in taken
        statuses = {id: await queue.status(id) for id in [*ids, delayed]}
        expected = ["completed", "dead", "retry", "processing", "failed", "pending", "delayed"]
        assert list(statuses.values()) == expected
        for id, status in statuses.items():
            record = await queue.get(id)
            assert record is not None
            assert (record.id, record.status) == (id, status)

    async def test_record_keeps_headers_priority_and_result(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue([1], priority=255, headers={"k": "v"})
        await (await self.take(queue)).complete({"answer": [42, None]})
        record = await queue.get(id)
        assert record is not None
        assert (record.value, record.priority, record.headers) == ([1], 255, {"k": "v"})
        assert (record.status, record.attempts, record.result) == ("completed", 1, {"answer": [42, None]})
        assert record.finished_at is not None
        assert record.finished_at >= record.enqueued_at

    async def test_settling_an_unknown_id_raises_message_not_found(self) -> None:
        queue = await self.queue()
        await queue.enqueue("bystander")
        words: dict[str, list[Any]] = {"fail": ["why"], "kill": ["why"], "extend": [5.0]}
        for verb in ("complete", "fail", "release", "kill", "extend", "cancel"):
            for id in STRANGERS[:3]:
                with refused((verb, id), MessageNotFound):
                    await getattr(queue, verb)(id, *words.get(verb, []))
                assert (await queue.stats()).pending == 1, (verb, id)

    async def test_unknown_id_has_no_status(self) -> None:
        queue = await self.queue()
        await queue.enqueue(1)
        for id in STRANGERS:
            assert await queue.status(id) is None, id
            assert await queue.get(id) is None, id

    async def test_higher_priority_comes_first(self) -> None:
        queue = await self.queue()
        for priority in (0, 5, 255, 4, 0, 255):
            await queue.enqueue(priority, priority=priority)
        assert [delivery.value for delivery in await self.take_all(queue, 6)] == [255, 255, 5, 4, 0, 0]

    async def test_first_in_first_out_within_a_priority(self) -> None:
        queue = await self.queue()
        for n in range(20):
            await queue.enqueue(n, priority=n % 2)
        values = [(await self.take(queue)).value for _ in range(20)]
        assert values == [*range(1, 20, 2), *range(0, 20, 2)]

    async def test_priority_holds_for_what_comes_after_a_claim(self) -> None:
        """A store may have looked ahead; one caller, and nobody else."""
        queue = await self.queue()
        await queue.enqueue_many(range(60))
        assert (await self.take(queue)).value == 0
        for n in range(40):
            await queue.enqueue(n, priority=5)
        first = [each.value for each in await self.take_all(queue, 36) if each.priority == 5]
        assert first == list(range(36)), "one claim of many"
        rest = [await self.take(queue) for _ in range(8)]
        assert [(each.priority, each.value) for each in rest] == [
            *((5, n) for n in range(36, 40)),
            *((0, n) for n in range(1, 5)),
        ]

    async def test_priority_out_of_range_is_refused(self) -> None:
        queue = await self.queue()
        bad: list[Any] = [256, -1, 1.5, "5", True]
        for priority in bad:
            with refused(priority, InvalidPriority):
                await queue.enqueue(1, priority=priority)
        assert (await queue.stats()).total == 0

    async def test_delivery_can_be_settled_by_receipt_and_by_id(self) -> None:
        queue = await self.queue()
        first, second = await queue.enqueue_many([1, 2])
        taken = await self.take_all(queue, 2)
        await queue.complete(taken[0].receipt, "by receipt")
        await queue.complete(taken[1].id, "by id")
        assert [record.result for record in await queue.archive.list()] == ["by receipt", "by id"]
        assert [await queue.status(id) for id in (first, second)] == ["completed", "completed"]

    async def test_receipt_of_one_broker_settles_in_another(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue(1)
        receipt = (await self.take(queue)).receipt
        other = await (await self.another_broker()).queue("jobs")
        await other.complete(receipt)
        assert await queue.status(id) == "completed"

    async def test_wait_returns_the_finished_record(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue(1)
        waiting = asyncio.create_task(queue.wait(id, PATIENCE_S))
        await (await self.take(queue)).complete("done")
        record = await waiting
        assert (record.status, record.result) == ("completed", "done")

    async def test_wait_gives_up_after_its_timeout(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue(1)
        with pytest.raises(TimeoutError):
            await queue.wait(id, 0.05)
        with pytest.raises(MessageNotFound):
            await queue.wait(STRANGERS[0], 0.05)

    async def test_cancelled_message_ends_as_failed(self) -> None:
        queue = await self.queue(retry=Fixed(LONG_S))
        retrying = await queue.enqueue(1)
        await (await self.take(queue)).fail("once")
        pending, delayed = await queue.enqueue(2), await queue.enqueue(3, delay=LONG_S)
        for id in (retrying, pending, delayed):
            assert await queue.cancel(id)
            record = await queue.get(id)
            assert record is not None
            assert (record.status, record.error) == ("failed", "cancelled")
        assert await queue.dequeue() is None
        assert (await queue.stats()).failed == 3

    async def test_cancel_leaves_held_and_ended_messages_alone(self) -> None:
        queue = await self.queue()
        done = await queue.enqueue(1)
        await (await self.take(queue)).complete()
        held = await queue.enqueue(2)
        delivery = await self.take(queue)
        assert [await queue.cancel(id) for id in (done, held)] == [False, False]
        await delivery.complete()
        assert [await queue.status(id) for id in (done, held)] == ["completed", "completed"]

    async def test_deliveries_come_one_after_the_other(self) -> None:
        queue = await self.queue()
        await queue.enqueue_many([1, 2, 3])
        seen: list[int] = []
        async for delivery in queue.deliveries(wait=SHORT_S, idle=SHORT_S):
            seen.append(delivery.value)
            assert (await queue.stats()).processing == 1  # the next is claimed when it is asked for
            await delivery.complete()
            if delivery.value == 3:
                await queue.enqueue(4)
        assert seen == [1, 2, 3, 4]
        with pytest.raises(ConfigError):
            async for _ in queue.deliveries(idle=-1):
                pass

    async def test_queues_do_not_see_each_other(self) -> None:
        one, two = await self.queue("one"), await self.queue("two")
        id = await one.enqueue(1)
        assert await two.dequeue() is None
        assert await two.get(id) is None
        assert (await self.take(one)).id == id
