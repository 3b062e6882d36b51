"""Workers: handlers, their results, their leases, and how they stop."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import msgspec
import pytest

from ...queue import Queue
from ...retry import Fixed
from .base import PATIENCE_S, SHORT_S, Gate, StoreContract, eventually, working


class Task(msgspec.Struct):
    n: int


class Workers(StoreContract):
    """The clock of these tests is real: workers extend leases by real time."""

    idle_cpu = 0.25  # share of one core that a worker on an empty queue may use at most
    pickup = 1.0  # seconds until an idle worker has started a new message

    async def handled(self, queue: Queue[Any], handler: Any, *values: Any, **options: Any) -> list[Any]:
        """The finished records of these values."""
        ids = await queue.enqueue_many(values)
        async with working(queue.worker(handler, **options)):
            return [await queue.wait(id, PATIENCE_S) for id in ids]

    @pytest.mark.parametrize("kind", ["sync", "async"])
    async def test_result_of_a_handler_is_stored(self, kind: str) -> None:
        def double(n: int) -> dict[str, int]:
            return {"twice": 2 * n}

        async def double_async(n: int) -> dict[str, int]:
            return double(n)

        queue = await self.queue()
        records = await self.handled(queue, double if kind == "sync" else double_async, 1, 2, 3)
        assert [(record.status, record.result) for record in records] == [
            ("completed", {"twice": 2}),
            ("completed", {"twice": 4}),
            ("completed", {"twice": 6}),
        ]

    async def test_sync_handlers_run_in_threads(self) -> None:
        queue = await self.queue()
        [record] = await self.handled(queue, lambda _: threading.current_thread() is threading.main_thread(), 1)
        assert record.result is False

    async def test_handler_may_take_the_context(self) -> None:
        queue = await self.queue(max_attempts=4)
        seen: list[Any] = []

        async def handle(value: Any, context: Any) -> None:
            seen.append((value, context.attempt, context.max_attempts, context.message_id, context.queue))
            seen.append((context.headers, context.lost, context.worker_id))
            record = await queue.get(context.message_id)
            seen.append(record and (record.status, record.worker))

        id = await queue.enqueue("v", headers={"k": "v"})
        async with working(queue.worker(handle, worker_id="w1")):
            await queue.wait(id, PATIENCE_S)
        assert seen == [("v", 1, 4, id, "jobs"), ({"k": "v"}, False, "w1"), ("processing", "w1")]

    async def test_typed_handlers_get_their_type(self) -> None:
        queue = await self.queue("typed", Task)
        [record] = await self.handled(queue, lambda task: task.n + 1, Task(41))
        assert record.result == 42

    async def test_callbacks_hear_of_the_outcome(self) -> None:
        queue = await self.queue(retry=Fixed(0), max_attempts=1)
        heard: list[Any] = []

        def handle(value: str) -> str:
            if value == "bad":
                raise ValueError("broken")
            return "fine"

        async def on_complete(delivery: Any, result: Any) -> None:
            heard.append((delivery.value, result))

        options: dict[str, Any] = {
            "on_error": lambda error, delivery: heard.append((delivery.value, repr(error))),
            "on_complete": on_complete,
        }
        await self.handled(queue, handle, "good", "bad", **options)
        await eventually(lambda: len(heard) == 2, "two callbacks")
        assert sorted(heard) == [("bad", "ValueError('broken')"), ("good", "fine")]

    async def test_failing_callbacks_are_not_felt(self) -> None:
        queue = await self.queue(max_attempts=1)

        def broken(*_: Any) -> None:
            raise RuntimeError("callback")

        def handle(n: int) -> None:
            if n % 2:
                raise ValueError(n)

        records = await self.handled(queue, handle, 0, 1, 2, 3, on_error=broken, on_complete=broken)
        assert [record.status for record in records] == ["completed", "dead", "completed", "dead"]

    async def test_failing_handlers_never_end_the_worker(self) -> None:
        queue = await self.queue(retry=Fixed(0), max_attempts=2)

        def handle(n: int) -> None:
            if n < 10:
                raise KeyError(n)

        records = await self.handled(queue, handle, *range(11))
        assert [record.status for record in records] == ["dead"] * 10 + ["completed"]
        assert all("KeyError" in record.error for record in records[:10])
        assert [record.attempts for record in records] == [2] * 10 + [1]

    async def test_concurrency_is_respected_and_used(self) -> None:
        queue = await self.queue()
        running: set[int] = set()
        peaks: list[int] = []
        full = Gate()

        async def handle(n: int) -> None:
            running.add(n)
            peaks.append(len(running))
            if len(running) == 3:
                full.open()
            await full.wait()
            running.discard(n)

        await self.handled(queue, handle, *range(9), concurrency=3)
        assert max(peaks) == 3

    @pytest.mark.parametrize("kind", ["sync", "async"])
    async def test_lease_is_extended_while_a_handler_runs(self, kind: str) -> None:
        queue = await self.queue(lease=SHORT_S)
        started, go_on = Gate(), Gate()
        runs: list[int] = []

        def handle(_: int, context: Any) -> None:
            runs.append(context.attempt)
            started.open()
            go_on.wait_blocking()

        async def handle_async(_: int, context: Any) -> None:
            runs.append(context.attempt)
            started.open()
            await go_on.wait()

        id = await queue.enqueue(1)
        async with working(queue.worker(handle if kind == "sync" else handle_async)):
            await started.wait()
            await asyncio.sleep(3 * SHORT_S)
            assert await queue.dequeue() is None
            go_on.open()
            record = await queue.wait(id, PATIENCE_S)
        assert (record.status, record.attempts, runs) == ("completed", 1, [1])

    async def test_handler_that_blocks_the_event_loop_keeps_its_lease(self) -> None:
        queue = await self.queue(lease=2 * SHORT_S)

        async def handle(_: int) -> str:
            time.sleep(6 * SHORT_S)  # noqa: ASYNC251 - blocking the loop is what is tested
            return "done"

        [record] = await self.handled(queue, handle, 1)
        assert (record.status, record.attempts, record.result) == ("completed", 1, "done")

    async def test_handler_timeout_fails_the_attempt(self) -> None:
        queue = await self.queue(max_attempts=1)
        cancelled: list[bool] = []

        async def handle(_: int) -> None:
            try:
                await Gate().wait()
            except asyncio.CancelledError:
                cancelled.append(True)
                raise

        [record] = await self.handled(queue, handle, 1, timeout=0.1)
        assert (record.status, cancelled) == ("dead", [True])
        assert "timeout" in record.error.lower() or "timed out" in record.error.lower()

    async def test_undecodable_payload_is_dead_and_the_worker_lives(self) -> None:
        raw, queue = await self.queue(), await self.queue("jobs", Task, max_attempts=5)
        seen: list[int] = []
        bad = [await raw.enqueue(value) for value in ("text", {"n": "text"}, b"\xff\x00", {})]
        good = await queue.enqueue(Task(7))
        async with working(queue.worker(lambda task: seen.append(task.n))):
            await queue.wait(good, PATIENCE_S)
            records = [await raw.wait(id, PATIENCE_S) for id in bad]
        assert seen == [7]
        assert [record.status for record in records] == ["dead"] * 4
        assert all(record.error for record in records)

    async def test_batch_handlers_get_lists(self) -> None:
        queue = await self.queue()
        sizes: list[int] = []

        async def handle(values: list[int]) -> None:
            sizes.append(len(values))

        records = await self.handled(queue, handle, *range(10), batch=4, concurrency=1)
        assert {record.status for record in records} == {"completed"}
        assert sum(sizes) == 10
        assert max(sizes) <= 4

    async def test_failing_batch_fails_all_its_messages(self) -> None:
        queue = await self.queue(max_attempts=1)

        def handle(values: list[int]) -> None:
            raise ValueError("all of them")

        records = await self.handled(queue, handle, *range(3), batch=3)
        assert [record.status for record in records] == ["dead"] * 3
        assert all("all of them" in record.error for record in records)

    async def test_starting_and_stopping_twice_is_harmless(self) -> None:
        queue = await self.queue()
        seen: list[int] = []
        worker = queue.worker(seen.append)
        await worker.stop()
        await worker.start()
        await worker.start()
        await queue.wait(await queue.enqueue(1), PATIENCE_S)
        await worker.stop()
        await worker.stop()
        await worker.start()
        await queue.wait(await queue.enqueue(2), PATIENCE_S)
        await worker.stop()
        assert seen == [1, 2]

    async def test_stop_lets_running_handlers_finish_and_releases_the_rest(self) -> None:
        queue = await self.queue(max_attempts=1)
        started, go_on = Gate(), Gate()

        async def handle(_: int) -> None:
            started.open()
            await go_on.wait()

        first, *others = await queue.enqueue_many(range(4))
        worker = queue.worker(handle, concurrency=1, prefetch=3)
        await worker.start()
        await started.wait()
        stopping = asyncio.create_task(worker.stop(grace=PATIENCE_S))
        await eventually(lambda: self.are_pending(queue, others), "the others given back while one runs")
        go_on.open()
        await stopping
        assert await queue.status(first) == "completed"
        assert [delivery.attempt for delivery in await self.take_all(queue, 3)] == [1, 1, 1]

    async def are_pending(self, queue: Queue[Any], ids: list[str]) -> bool:
        return {await queue.status(id) for id in ids} == {"pending"}

    async def test_stop_releases_at_once_what_outlasts_the_grace(self) -> None:
        queue = await self.queue(max_attempts=1)
        started = Gate()

        async def handle(_: int) -> None:
            started.open()
            await Gate().wait()

        id = await queue.enqueue(1)
        worker = queue.worker(handle)
        await worker.start()
        await started.wait()
        await worker.stop(grace=0.05)
        assert await queue.status(id) == "pending"
        assert (await self.take(queue)).attempt == 1

    async def test_idle_worker_is_quiet_and_quick(self) -> None:
        queue = await self.queue()
        started: list[float] = []

        async def handle(_: int) -> None:
            started.append(time.monotonic())

        async with working(queue.worker(handle)):
            await queue.wait(await queue.enqueue("warm up"), PATIENCE_S)
            before = time.process_time()
            await asyncio.sleep(1)
            assert time.process_time() - before < self.idle_cpu
            sent = time.monotonic()
            await queue.wait(await queue.enqueue(1), PATIENCE_S)
        assert started[1] - sent < self.pickup
