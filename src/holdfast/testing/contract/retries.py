"""Retries: when the next try is, and when there is none."""

from __future__ import annotations

from typing import Any

import pytest

from ...outcome import Dead, Retry
from ...retry import Exponential, Fixed, Linear, NoRetry, RetryPolicy
from .base import LONG_S, PATIENCE_S, SHORT_S, StoreContract, eventually, working

BACKOFFS: list[tuple[RetryPolicy, list[float]]] = [
    (Fixed(60), [60, 60, 60]),
    (Linear(60, cap=150), [60, 120, 150]),
    (Exponential(base=60, factor=3, cap=300, jitter=False), [60, 180, 300]),
]


class Retries(StoreContract):
    """Every failure costs an attempt and buys a delay."""

    async def due_in(self, queue: Any, id: str) -> float:
        record = await queue.get(id)
        assert record is not None
        assert record.status == "retry"
        return float(record.visible_at.timestamp() - await self.clock())

    async def test_failed_message_returns_after_its_backoff(self) -> None:
        queue = await self.queue(retry=Fixed(SHORT_S))
        id = await queue.enqueue("again")
        await (await self.take(queue)).fail("not yet")
        assert await queue.status(id) == "retry"
        assert await queue.dequeue() is None
        await self.advance(SHORT_S)
        again = await self.take(queue)
        assert (again.id, again.value, again.attempt) == (id, "again", 2)

    async def test_failure_beyond_the_limit_is_dead(self) -> None:
        queue = await self.queue(retry=Fixed(0), max_attempts=3)
        id = await queue.enqueue(1)
        for attempt in (1, 2, 3):
            delivery = await self.take(queue)
            assert delivery.attempt == attempt
            await delivery.fail(f"failure {attempt}")
        assert await queue.dequeue() is None
        record = await queue.get(id)
        assert record is not None
        assert (record.status, record.attempts, record.error) == ("dead", 3, "failure 3")

    @pytest.mark.parametrize(("policy", "delays"), BACKOFFS, ids=["fixed", "linear", "exponential"])
    async def test_backoff_follows_the_policy(self, policy: RetryPolicy, delays: list[float]) -> None:
        queue = await self.queue(retry=policy, max_attempts=9)
        for tries, delay in enumerate(delays):
            id = await queue.enqueue(delay)
            for _ in range(tries):
                await (await self.take(queue)).fail("early", retry_in=0)
            await (await self.take(queue)).fail("now")
            assert abs(await self.due_in(queue, id) - delay) < 5

    async def test_jitter_stays_between_half_and_all(self) -> None:
        queue = await self.queue(retry=Exponential(base=100, factor=1))
        for id in await queue.enqueue_many(range(10)):
            await (await self.take(queue)).fail("x")
            assert 45 <= await self.due_in(queue, id) <= 101

    async def test_retry_in_wins_over_the_policy(self) -> None:
        queue = await self.queue(retry=Fixed(LONG_S))
        id = await queue.enqueue(1)
        await (await self.take(queue)).fail("busy", retry_in=500)
        assert abs(await self.due_in(queue, id) - 500) < 5

    @pytest.mark.parametrize("options", [{"max_attempts": 1}, {"retry": NoRetry()}], ids=["one attempt", "no retry"])
    async def test_single_attempt_is_dead_at_once(self, options: dict[str, Any]) -> None:
        queue = await self.queue(**options)
        id = await queue.enqueue(1)
        await (await self.take(queue)).fail("once is enough")
        assert await queue.status(id) == "dead"

    async def test_attempts_of_a_message_win_over_those_of_the_queue(self) -> None:
        queue = await self.queue(retry=Fixed(0), max_attempts=5)
        id = await queue.enqueue(1, max_attempts=2)
        for _ in range(2):
            delivery = await self.take(queue)
            assert delivery.max_attempts == 2
            await delivery.fail("x")
        assert await queue.status(id) == "dead"

    async def test_retried_message_keeps_its_place(self) -> None:
        queue = await self.queue(retry=Fixed(SHORT_S))
        await queue.enqueue("old")
        await (await self.take(queue)).fail("later")
        await queue.enqueue("new")
        await self.advance(SHORT_S)
        assert [d.value for d in await self.take_all(queue, 2)] == ["old", "new"]

    async def test_record_of_a_retrying_message_tells_the_last_error(self) -> None:
        queue = await self.queue(retry=Fixed(LONG_S))
        id = await queue.enqueue(1)
        try:
            raise ValueError("ünlucky")
        except ValueError as error:
            await (await self.take(queue)).fail(error)
        record = await queue.get(id)
        assert record is not None
        assert "ValueError: ünlucky" in (record.error or "")
        assert record.attempts == 1

    async def test_handler_asks_for_its_own_retry(self) -> None:
        queue = await self.queue(retry=Fixed(0))

        def handle(_: int) -> None:
            raise Retry(500)

        id = await queue.enqueue(1)
        async with working(queue.worker(handle)):
            await eventually(lambda: self.is_now(queue, id, "retry"), "a retry")
        assert abs(await self.due_in(queue, id) - 500) < 10

    async def test_handler_says_dead(self) -> None:
        queue = await self.queue(retry=Fixed(0))

        async def handle(_: int) -> None:
            raise Dead("no such address")

        id = await queue.enqueue(1)
        async with working(queue.worker(handle)):
            record = await queue.wait(id, PATIENCE_S)
        assert (record.status, record.attempts, record.error) == ("dead", 1, "no such address")

    async def test_a_slip_in_a_decision_costs_the_attempt_and_not_the_worker(self) -> None:
        queue = await self.queue(retry=Fixed(0), max_attempts=1)
        slips: dict[str, Any] = {"dead": lambda: Dead(404), "retry": lambda: Retry(float("inf"))}  # type: ignore[arg-type]  # the slip

        def handle(value: str) -> str:
            if value in slips:
                raise slips[value]()
            return value

        ids = await queue.enqueue_many([*slips, "fine"])
        async with working(queue.worker(handle, concurrency=1)):
            records = [await queue.wait(id, PATIENCE_S) for id in ids]
        assert [record.status for record in records] == ["dead", "dead", "completed"]
        assert records[0].error == "404"

    async def test_worker_takes_a_retry_function(self) -> None:
        queue = await self.queue(retry=Fixed(0))
        asked: list[tuple[int, str]] = []

        def retry(attempt: int, error: BaseException) -> float | None:
            asked.append((attempt, str(error)))
            return 500 if attempt < 2 else None

        def handle(_: int) -> None:
            raise ValueError("x")

        id = await queue.enqueue(1)
        async with working(queue.worker(handle, retry=retry)):
            await eventually(lambda: self.is_now(queue, id, "retry"), "a retry")
        assert asked == [(1, "x")]
        assert abs(await self.due_in(queue, id) - 500) < 10
