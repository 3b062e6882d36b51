"""Events: what this process did, each once, with its fields."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest

from ...errors import ConfigError, LeaseLost
from ...outcome import Dead
from ...retry import Fixed
from .base import LONG_S, PATIENCE_S, SHORT_S, StoreContract, eventually, working

MESSAGE_EVENTS = [f"message.{name}" for name in ("enqueued", "completed", "retry", "dead", "failed", "recovered")]


class Events(StoreContract):
    """Subscribers hear, and are never felt."""

    def listen(self, *names: str) -> list[Any]:
        """Everything that happens from now on, in order."""
        heard: list[Any] = []
        for name in names:
            self.broker.on(name, heard.append)
        return heard

    async def hear(self, heard: list[Any], count: int) -> None:
        """Wait for so many events: a subscriber of the blocking face has a thread of its own."""
        await eventually(lambda: len(heard) >= count, f"{count} events")

    async def test_enqueued_comes_before_completed(self) -> None:
        heard = self.listen(*MESSAGE_EVENTS, "lease.lost")
        queue = await self.queue()
        id = await queue.enqueue(1)
        async with working(queue.worker(lambda n: {"n": n})):
            await queue.wait(id, PATIENCE_S)
            await self.hear(heard, 2)
        assert [event.name for event in heard] == ["message.enqueued", "message.completed"]
        assert dict(heard[0]) == {"queue": "jobs", "id": id}
        duration = heard[1].duration
        assert dict(heard[1]) == {"queue": "jobs", "id": id, "attempts": 1, "duration": duration, "result": {"n": 1}}
        assert 0 <= duration < PATIENCE_S

    async def test_every_message_of_a_batch_is_an_event(self) -> None:
        heard = self.listen("message.enqueued", "message.completed")
        queue = await self.queue()
        ids = await self.finish(queue, *range(3))
        await self.hear(heard, 6)
        for name in ("message.enqueued", "message.completed"):
            assert [event.id for event in heard if event.name == name] == ids

    async def test_retry_tells_when(self) -> None:
        heard = self.listen(*MESSAGE_EVENTS[1:])
        queue = await self.queue(retry=Fixed(LONG_S))
        id = await queue.enqueue(1)
        await (await self.take(queue)).fail("later")
        await self.hear(heard, 1)
        [event] = heard
        assert event.name == "message.retry"
        assert (event.queue, event.id, event.attempts, event.error) == ("jobs", id, 1, "later")
        assert isinstance(event.next_visible_at, datetime)
        assert abs(event.next_visible_at.timestamp() - await self.clock() - LONG_S) < 5

    @pytest.mark.parametrize(("dead_letter", "name"), [(True, "message.dead"), (False, "message.failed")])
    async def test_end_without_success_is_an_event(self, dead_letter: bool, name: str) -> None:
        heard = self.listen(*MESSAGE_EVENTS[1:])
        queue = await self.queue(dead_letter=dead_letter, max_attempts=1)
        id = await queue.enqueue(1)
        await (await self.take(queue)).fail("broken")
        await self.hear(heard, 1)
        assert [(event.name, dict(event)) for event in heard] == [
            (name, {"queue": "jobs", "id": id, "attempts": 1, "error": "broken"})
        ]

    async def test_worker_and_caller_tell_the_same(self) -> None:
        """However an attempt ended: the same events in the same words, and due by the store's clock."""
        heard = self.listen("message.completed", "message.retry", "message.dead")
        queue = await self.queue(retry=Fixed(LONG_S))
        values = ["complete", "retry", "dead"]
        by_value = dict(zip(await queue.enqueue_many(values), values, strict=True))
        for delivery in await self.take_all(queue, 3):
            await {
                "complete": lambda one: one.complete({"n": 1}),
                "retry": lambda one: one.fail("later"),
                "dead": lambda one: one.kill("broken"),
            }[by_value[delivery.id]](delivery)
        await self.hear(heard, 3)
        by_value |= dict(zip(await queue.enqueue_many(values), values, strict=True))
        async with working(queue.worker(_end_as)):
            await self.hear(heard, 6)
        now = await self.clock()
        for event in heard:
            if event.name == "message.retry":
                assert abs(event.next_visible_at.timestamp() - now - LONG_S) < 5
        caller, worker = ({by_value[event.id]: _alike(event) for event in part} for part in (heard[:3], heard[3:]))
        assert caller == worker

    async def test_cancel_is_an_event(self) -> None:
        heard = self.listen(*MESSAGE_EVENTS[1:])
        queue = await self.queue()
        id = await queue.enqueue(1)
        await queue.cancel(id)
        await self.hear(heard, 1)
        assert [(event.name, event.id, event.error) for event in heard] == [("message.failed", id, "cancelled")]

    async def test_recovered_and_exhausted_messages_are_events(self) -> None:
        heard = self.listen(*MESSAGE_EVENTS[1:])
        queue = await self.queue(max_attempts=2)
        id = await queue.enqueue(1)
        for _ in range(2):
            await self.take(queue, lease=SHORT_S)
            await self.advance(SHORT_S)
        assert await queue.dequeue() is None
        await self.hear(heard, 2)
        assert [(event.name, event.id, event.attempts) for event in heard] == [
            ("message.recovered", id, 2),
            ("message.dead", id, 2),
        ]
        assert heard[1].error == "lease expired"

    async def test_lost_lease_is_an_event(self) -> None:
        heard = self.listen("lease.lost", "message.completed")
        queue = await self.queue()
        id = await queue.enqueue(1)
        old = await self.take(queue, lease=SHORT_S)
        await self.advance(SHORT_S)
        await self.take(queue)
        with pytest.raises(LeaseLost):
            await old.complete()
        await self.hear(heard, 1)
        assert [(event.name, dict(event)) for event in heard] == [("lease.lost", {"queue": "jobs", "id": id})]

    async def test_repeated_settle_is_no_second_event(self) -> None:
        heard = self.listen("message.completed")
        queue = await self.queue()
        await queue.enqueue(1)
        delivery = await self.take(queue)
        await delivery.complete()
        await delivery.complete()
        await queue.complete(delivery.receipt)
        assert await queue.complete_many([delivery.receipt, delivery]) == [True, True]
        await queue.enqueue(2)
        await (await self.take(queue)).complete()
        await self.hear(heard, 2)
        assert len(heard) == 2

    async def test_repeated_settle_by_receipt_of_what_is_not_kept_is_no_second_event(self) -> None:
        heard = self.listen("message.completed", "message.retry", "message.dead")
        queue = await self.queue()
        await queue.enqueue_many([1, 2, 3])
        done, failed, killed = (each.receipt for each in await self.take_all(queue, 3))
        for _ in range(3):
            await queue.complete(done, keep=False)
            await queue.fail(failed, "once", retry_in=60)
            await queue.kill(killed, "once")
        assert await queue.complete_many([done, done], keep=False) == [True, True]
        await self.hear(heard, 3)
        assert sorted(event.name for event in heard) == ["message.completed", "message.dead", "message.retry"]

    async def test_workers_tell_when_they_start_and_stop(self) -> None:
        heard = self.listen("workers.started", "workers.stopped")
        queue = await self.queue()
        worker = queue.worker(print, concurrency=3, worker_id="w1")
        await worker.start()
        await worker.stop()
        await self.hear(heard, 2)
        assert [(event.name, dict(event)) for event in heard] == [
            ("workers.started", {"queue": "jobs", "concurrency": 3, "worker_id": "w1"}),
            ("workers.stopped", {"queue": "jobs", "worker_id": "w1"}),
        ]

    async def test_failing_subscriber_is_not_felt(self) -> None:
        def broken(_: Any) -> None:
            raise RuntimeError("subscriber")

        async def broken_later(_: Any) -> None:
            raise RuntimeError("subscriber")

        for callback in (broken, broken_later):
            self.broker.on("message.enqueued", callback)
        heard = self.listen("message.enqueued")
        queue = await self.queue()
        id = await queue.enqueue(1)
        await self.hear(heard, 1)
        assert [event.id for event in heard] == [id]

    async def test_async_subscribers_are_awaited(self) -> None:
        heard: list[str] = []

        async def callback(event: Any) -> None:
            await asyncio.sleep(0)
            heard.append(event.id)

        self.broker.on("message.enqueued", callback)
        id = await (await self.queue()).enqueue(1)
        await eventually(lambda: heard == [id], "the subscriber")

    async def test_unknown_event_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"message\.completed"):
            self.broker.on("message.complete", print)


async def _end_as(value: str) -> dict[str, int]:
    if value == "complete":
        return {"n": 1}
    raise Dead("broken") if value == "dead" else RuntimeError("later")


def _alike(event: Any) -> tuple[str, dict[str, Any]]:
    """What must be equal: all but whose it is, how long it ran, the instant, and the exception's type and frames."""
    told = {field: value for field, value in event.items() if field not in ("id", "duration", "next_visible_at")}
    if "error" in told:
        told["error"] = told["error"].splitlines()[0].removeprefix("RuntimeError: ")
    return event.name, told
