"""Reports: whether a dedup key hit, for one message and for many."""

from __future__ import annotations

import asyncio
from typing import Any

from ...errors import ConfigError
from ...messages import Message
from ...stores.records import Enqueued
from .base import StoreContract, refused


class Reporting(StoreContract):
    """`enqueue(..., report=True)` and `enqueue_many(..., report=True)`."""

    async def test_report_says_whether_a_message_is_new(self) -> None:
        queue = await self.queue()
        plain = await queue.enqueue("a", report=True)
        first = await queue.enqueue("b", dedup_key="k", priority=3, report=True)
        again = await queue.enqueue("c", dedup_key="k", report=True)
        assert [type(each) for each in (plain, first, again)] == [Enqueued] * 3
        assert (plain.new, plain.replaced, first.new, first.replaced) == (True, False, True, False)
        assert again == Enqueued(first.id, False)
        assert [(each.id, each.value) for each in await self.take_all(queue, 2)] == [(first.id, "b"), (plain.id, "a")]
        assert await queue.dequeue() is None

    async def test_report_counts_the_window(self) -> None:
        queue = await self.queue(dedup_window=0.5)
        first = await queue.enqueue("a", dedup_key="k", report=True)
        await (await self.take(queue)).complete()
        assert await queue.enqueue("b", dedup_key="k", report=True) == Enqueued(first.id, False)
        await self.advance(0.5)
        second = await queue.enqueue("c", dedup_key="k", report=True)
        assert second.new
        assert second.id != first.id

    async def test_report_of_many_is_in_input_order(self) -> None:
        queue = await self.queue()
        known = await queue.enqueue("known", dedup_key="known")
        values: list[Any] = [
            *("a", Message("b", dedup_key="known"), Message("c", dedup_key="new"), "d"),
            *(Message("e", dedup_key="new"), Message("f", dedup_key="other", priority=7)),
        ]
        made = await queue.enqueue_many(values, report=True)
        assert [each.new for each in made] == [True, False, True, True, False, True]
        assert (made[1].id, made[4].id) == (known, made[2].id)
        taken = await self.take_all(queue, 5)
        assert {each.id: each.value for each in taken} == {
            known: "known", made[0].id: "a", made[2].id: "c", made[3].id: "d", made[5].id: "f"
        }  # fmt: skip
        assert (await queue.stats()).total == 5
        assert await queue.enqueue_many([], report=True) == []

    async def test_report_of_many_without_keys(self) -> None:
        queue = await self.queue()
        made = await queue.enqueue_many(range(500), report=True)
        assert [each.new for each in made] == [True] * 500
        assert [each.id for each in await self.take_all(queue, 500)] == [each.id for each in made]

    async def test_one_of_several_at_once_is_new(self) -> None:
        queue = await self.queue()
        other = await (await self.another_broker()).queue("jobs") if self.several_brokers else queue
        calls = [each.enqueue(n, dedup_key="k", report=True) for n, each in enumerate([queue, other] * 5)]
        made = await asyncio.gather(*calls)
        assert len({each.id for each in made}) == 1
        assert [each.new for each in made].count(True) == 1
        held = await self.take(queue)
        assert made[held.value].new
        assert (await queue.stats()).total == 1

    async def test_bad_reports_are_refused(self) -> None:
        queue = await self.queue()
        bad: list[dict[str, Any]] = [{"report": "yes"}, {"report": 1}, {"report": None}]
        for how in bad:
            with refused(how, ConfigError):
                await queue.enqueue("a", **how)
            with refused(how, ConfigError):
                await queue.enqueue_many(["a"], **how)
        assert (await queue.stats()).total == 0
