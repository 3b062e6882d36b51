"""Operating: what is done to single messages by somebody who does not hold them."""

from __future__ import annotations

from typing import Any

import pytest

from ...errors import ConfigError, LeaseLost, MessageNotFound
from ...retry import Fixed, NoRetry
from .base import LONG_S, StoreContract, eventually, refused, working
from .basics import STRANGERS


class Operating(StoreContract):
    """`take_back`, and `cancel(running=True)`."""

    async def test_taken_back_message_is_pending_again_and_its_holder_has_lost_it(self) -> None:
        queue = await self.queue(max_attempts=5)
        id = await queue.enqueue("work")
        old = await self.take(queue)
        assert await queue.take_back(id) == 1
        record = await queue.get(id)
        assert record is not None
        assert (record.status, record.attempts) == ("pending", 1)
        for call in (
            lambda: queue.extend(old, 1.0),  # no longer than it had it
            lambda: queue.complete(old),
            lambda: queue.fail(old, "late"),
            lambda: queue.release(old),
            lambda: queue.kill(old, "late"),
            lambda: queue.extend(old, LONG_S),
        ):
            with pytest.raises(LeaseLost):
                await call()
        assert await queue.complete_many([old.receipt]) == [False]
        new = await self.take(queue)
        assert (new.id, new.attempt) == (id, 2)
        assert new.token != old.token
        with pytest.raises(LeaseLost):
            await old.complete()
        await new.complete("done")
        assert await queue.status(id) == "completed"
        assert (await queue.stats()).completed == 1

    async def test_only_what_is_held_is_taken_back(self) -> None:
        queue = await self.queue(retry=Fixed(LONG_S), max_attempts=5)
        ids = await queue.enqueue_many(range(6))
        later = await queue.enqueue("later", delay=LONG_S)
        taken = await self.take_all(queue, 5)
        await taken[0].complete()
        await taken[1].fail("why")
        await taken[2].kill("why")
        strangers = [text for text in STRANGERS if "\u2028" not in text]
        assert await queue.take_back([*ids, later, *ids, *strangers]) == 2
        expected = ["completed", "retry", "dead", "pending", "pending", "pending", "delayed"]
        assert [await queue.status(id) for id in [*ids, later]] == expected
        assert await queue.take_back(ids) == 0
        assert await queue.take_back([]) == 0
        assert {each.id for each in await self.take_all(queue, 3)} == set(ids[3:])

    async def test_lease_taken_back_counts_as_expired(self) -> None:
        """The last attempt after it runs alone, and with no attempt left the message is dead."""
        queue = await self.queue(max_attempts=2)
        first, second = await queue.enqueue_many(range(2))
        await self.take_all(queue, 1)
        assert await queue.take_back([first]) == 1
        alone = await queue.dequeue_many(10, lease=LONG_S, wait=self.patience)
        assert [(each.id, each.attempt) for each in alone] == [(first, 2)]
        assert await queue.take_back(first) == 1
        record = await queue.get(first)
        assert record is None or record.status in ("dead", "pending")
        assert [each.id for each in await self.take_all(queue, 1)] == [second]

        async def is_buried() -> bool:
            """A claim finds out, where nothing else does."""
            assert await queue.dequeue() is None
            return await self.is_now(queue, first, "dead")

        await eventually(is_buried, "the end of the message")
        record = await queue.get(first)
        assert record is not None
        assert (record.status, record.error, record.attempts) == ("dead", "lease expired", 2)

    async def test_taken_back_without_retries_is_dead(self) -> None:
        queue = await self.queue(retry=NoRetry())
        id = await queue.enqueue(1)
        await self.take(queue)
        assert await queue.take_back(id) == 1
        assert await queue.dequeue() is None
        await eventually(lambda: self.is_now(queue, id, "dead"), "the end of a message that is not retried")

    async def test_extended_lease_is_taken_back_too(self) -> None:
        queue = await self.queue()
        await queue.enqueue(1)
        held = await self.take(queue)
        await held.extend(10 * LONG_S)
        assert await queue.take_back(held.id) == 1
        assert (await self.take(queue)).id == held.id

    async def test_another_broker_takes_back_and_claims(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue(1)
        held = await self.take(queue)
        other = await (await self.another_broker()).queue("jobs")
        assert await other.take_back(id) == 1
        new = await self.take(other)
        assert (new.id, new.attempt) == (id, 2)
        with pytest.raises(LeaseLost):
            await held.complete()
        await new.complete()

    async def test_many_are_taken_back_in_one_call(self) -> None:
        queue = await self.queue()
        ids = await queue.enqueue_many(range(250))
        held = await self.take_all(queue, 250)
        assert await queue.take_back(ids[:200]) == 200
        assert (await queue.stats()).processing == 50
        assert await queue.complete_many(held) == [False] * 200 + [True] * 50
        assert {each.id for each in await self.take_all(queue, 200)} == set(ids[:200])

    async def test_worker_loses_what_is_taken_back(self) -> None:
        queue = await self.queue(lease=1.0)
        id = await queue.enqueue(1)
        runs: list[bool] = []

        async def handle(value: Any, context: Any) -> None:
            runs.append(True)
            if len(runs) == 1:
                await eventually(lambda: context.lost, "the loss of the lease")

        async with working(queue.worker(handle, concurrency=2)):
            await eventually(lambda: len(runs) == 1, "the first run")
            assert await queue.take_back(id) == 1
            await eventually(lambda: self.is_now(queue, id, "completed"), "the end of the second run")
        assert len(runs) == 2

    async def test_all_that_a_worker_holds_is_taken_back(self) -> None:
        queue = await self.queue(lease=LONG_S)
        ids = await queue.enqueue_many(range(3))
        mine = await self.take(queue)
        started: list[str] = []

        async def hold(value: Any, context: Any) -> None:
            started.append(context.message_id)
            await eventually(lambda: context.lost, "the loss of the lease", within=4 * LONG_S)

        worker = queue.worker(hold, concurrency=2, worker_id="w 7/é")
        async with working(worker):
            await eventually(lambda: len(started) == 2, "both runs")
            assert await queue.take_back(worker="somebody else") == 0
            assert await queue.take_back(worker="w 7/é") == 2
        assert await queue.take_back(worker="w 7/é") == 0
        assert [await queue.status(id) for id in ids[:1]] == ["processing"]
        await mine.complete()
        assert {each.id for each in await self.take_all(queue, 2)} == set(ids[1:])

    async def test_bad_ids_to_take_back_are_refused(self) -> None:
        queue = await self.queue()
        bad: list[Any] = [None, 5, [5], {"a": 1}]
        for ids in bad:
            with refused(ids, ConfigError):
                await queue.take_back(ids)
        more: list[dict[str, Any]] = [{}, {"ids": "x", "worker": "w"}, {"worker": ""}, {"worker": 5}]
        for how in more:
            with refused(how, ConfigError):
                await queue.take_back(**how)

    async def test_running_message_is_cancelled_when_asked_for(self) -> None:
        queue = await self.queue(max_attempts=5)
        id = await queue.enqueue(1)
        held = await self.take(queue)
        assert await queue.cancel(id) is False
        assert await queue.cancel(id, running=True) is True
        record = await queue.get(id)
        assert record is not None
        assert (record.status, record.error, record.attempts) == ("failed", "cancelled", 1)
        for call in (lambda: queue.complete(held), lambda: queue.fail(held, "x"), lambda: queue.extend(held, LONG_S)):
            with pytest.raises(LeaseLost):
                await call()
        assert await queue.cancel(id, running=True) is False
        assert await queue.dequeue() is None
        stats = await queue.stats()
        assert (stats.failed, stats.completed, stats.processing, stats.archived) == (1, 0, 0, 1)

    async def test_running_cancels_what_waits_too(self) -> None:
        queue = await self.queue()
        ids = [await queue.enqueue(1), await queue.enqueue(2, delay=LONG_S)]
        assert [await queue.cancel(id, running=True) for id in ids] == [True, True]
        with pytest.raises(MessageNotFound):
            await queue.cancel(STRANGERS[0], running=True)
        bad: list[Any] = [None, 1, "yes"]
        for running in bad:
            with refused(running, ConfigError):
                await queue.cancel(ids[0], running=running)

    async def test_running_message_that_is_not_kept_leaves_nothing(self) -> None:
        queue = await self.queue(archive=False)
        id = await queue.enqueue(1)
        held = await self.take(queue)
        assert await queue.cancel(id, running=True)
        assert await queue.complete_many([held]) == [False]
        assert await queue.status(id) is None
        assert (await queue.stats()).failed == 1
