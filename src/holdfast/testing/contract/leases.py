"""Claims and leases: who holds a message, for how long, and what a late holder may do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ...deliveries import Delivery, Lease, write_receipt
from ...errors import LeaseLost, MessageNotFound
from ...holders import process_name
from ...queue import Queue
from ...retry import Fixed, NoRetry
from .base import LONG_S, PATIENCE_S, SHORT_S, StoreContract

VERBS: dict[str, tuple[Any, ...]] = {"complete": (), "fail": ("late",), "release": (), "kill": ("late",)}


class Leases(StoreContract):
    """Execution at least once, completion exactly once."""

    async def lose(self, queue: Queue[Any]) -> tuple[Delivery[Any], Delivery[Any]]:
        """A delivery whose lease ran out, and the one that took over."""
        old = await self.take(queue, lease=SHORT_S)
        await self.advance(SHORT_S)
        new = await self.take(queue)
        assert new.id == old.id
        return old, new

    async def test_plain_dequeue_holds_under_the_name_of_its_process(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue(1)
        delivery = await queue.dequeue()
        record = await queue.get(id)
        assert delivery is not None
        assert record is not None
        assert (record.status, record.worker) == ("processing", process_name())

    async def test_held_message_is_invisible(self) -> None:
        queue = await self.queue()
        await queue.enqueue(1)
        await self.take(queue)
        assert await queue.dequeue() is None

    async def test_two_claimers_never_hold_one_message(self) -> None:
        queue = await self.queue()
        await queue.enqueue_many(range(5))
        taken = [d for d in await asyncio.gather(*[queue.dequeue(lease=LONG_S) for _ in range(12)]) if d is not None]
        assert sorted(delivery.value for delivery in taken) == [0, 1, 2, 3, 4]

    async def test_two_brokers_never_hold_one_message(self) -> None:
        mine = await self.queue()
        theirs = await (await self.another_broker()).queue("jobs")
        await mine.enqueue_many(range(20))
        claims = [queue.dequeue_many(3, lease=LONG_S) for _ in range(5) for queue in (mine, theirs)]
        taken = [delivery.value for deliveries in await asyncio.gather(*claims) for delivery in deliveries]
        assert sorted(taken) == sorted(set(taken))

    async def test_claim_never_gives_more_than_asked(self) -> None:
        queue = await self.queue()
        await queue.enqueue_many(range(20))
        sizes = [len(found) for found in await asyncio.gather(*[queue.dequeue_many(3, lease=LONG_S) for _ in range(8)])]
        assert max(sizes) <= 3
        assert sum(sizes) == 20
        assert (await queue.stats()).processing == 20

    async def test_expired_lease_is_redelivered_with_the_next_attempt(self) -> None:
        queue = await self.queue()
        await queue.enqueue("survivor")
        old, new = await self.lose(queue)
        assert (old.attempt, new.attempt, new.value) == (1, 2, "survivor")

    async def test_waiting_claim_gets_a_message_whose_lease_expires(self) -> None:
        queue = await self.queue()
        await queue.enqueue(1)
        await self.take(queue, lease=SHORT_S)
        waiting = asyncio.create_task(queue.dequeue(wait=PATIENCE_S))
        await self.advance(SHORT_S)
        delivery = await waiting
        assert delivery is not None
        assert delivery.attempt == 2

    async def test_waiting_claim_gets_a_new_message(self) -> None:
        queue = await self.queue()
        waiting = asyncio.create_task(queue.dequeue(wait=PATIENCE_S))
        await asyncio.sleep(0)
        id = await queue.enqueue(1)
        delivery = await asyncio.wait_for(waiting, PATIENCE_S / 2)
        assert delivery is not None
        assert delivery.id == id

    async def test_waiting_claim_waits_on_when_it_finds_an_exhausted_message(self) -> None:
        queue = await self.queue(max_attempts=1)
        dead = await queue.enqueue("poison")
        await self.take(queue, lease=SHORT_S)
        await self.advance(SHORT_S)
        waiting = asyncio.create_task(queue.dequeue(wait=PATIENCE_S))
        await queue.wait(dead, PATIENCE_S)
        await queue.enqueue("healthy")
        delivery = await waiting
        assert delivery is not None
        assert delivery.value == "healthy"

    async def test_extend_keeps_a_message_beyond_its_first_deadline(self) -> None:
        queue = await self.queue()
        await queue.enqueue(1)
        delivery = await self.take(queue, lease=SHORT_S)
        end = await delivery.extend(LONG_S)
        assert abs(end.timestamp() - await self.clock() - LONG_S) < 5
        await self.advance(SHORT_S)
        assert await queue.dequeue() is None
        assert delivery.attempt == 1
        await delivery.complete()

    async def test_extend_never_shortens(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue(1)
        delivery = await self.take(queue, lease=LONG_S)
        end = delivery.expires_at
        assert await delivery.extend(0.01) >= end
        await self.advance(0.02)
        assert await queue.status(id) == "processing"

    async def test_extend_with_an_old_token_is_refused(self) -> None:
        queue = await self.queue()
        await queue.enqueue(1)
        old, new = await self.lose(queue)
        end = new.expires_at
        with pytest.raises(LeaseLost):
            await queue.extend(old.receipt, 10 * LONG_S)
        record = await queue.get(new.id)
        assert record is not None
        assert record.visible_at is not None
        assert abs((record.visible_at - end).total_seconds()) < 1

    async def test_extend_after_completion_is_refused(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue(1)
        delivery = await self.take(queue)
        await delivery.complete()
        with pytest.raises(LeaseLost):
            await delivery.extend(LONG_S)
        assert await queue.status(id) == "completed"

    async def test_stranger_cannot_settle_or_extend(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue(1)
        delivery = await self.take(queue)
        stranger = await (await self.another_broker()).queue("jobs")
        for verb, arguments in {**VERBS, "extend": (LONG_S,)}.items():
            with pytest.raises(LeaseLost):
                await getattr(stranger, verb)(id, *arguments)
        await delivery.complete()

    @pytest.mark.parametrize("verb", VERBS)
    async def test_old_holder_changes_nothing_and_the_new_one_succeeds(self, verb: str) -> None:
        queue = await self.queue(retry=Fixed(0))
        id = await queue.enqueue(1)
        old, new = await self.lose(queue)
        with pytest.raises(LeaseLost):
            await getattr(old, verb)(*VERBS[verb])
        assert await queue.status(id) == "processing"
        await new.complete("mine")
        with pytest.raises(LeaseLost):
            await getattr(old, verb)(*VERBS[verb])
        record = await queue.get(id)
        assert record is not None
        assert (record.status, record.result, record.attempts) == ("completed", "mine", 2)

    async def test_batch_of_old_and_new_holders_is_answered_per_message(self) -> None:
        queue = await self.queue()
        await queue.enqueue(1)
        old, new = await self.lose(queue)
        await queue.enqueue(2)
        other = await self.take(queue)
        assert await queue.complete_many([old, other, new], ["old", "other", "new"]) == [False, True, True]
        assert [record.result for record in await queue.archive.list()] == ["new", "other"]

    async def test_attempts_are_counted_at_the_claim_so_crashes_run_out(self) -> None:
        queue = await self.queue(max_attempts=2)
        id = await queue.enqueue("killer")
        for attempt in (1, 2):
            assert (await self.take(queue, lease=SHORT_S)).attempt == attempt
            await self.advance(SHORT_S)
        assert await queue.dequeue() is None
        record = await queue.wait(id, PATIENCE_S)
        assert (record.status, record.attempts, record.error) == ("dead", 2, "lease expired")

    async def test_message_whose_lease_expired_can_be_cancelled_and_purged(self) -> None:
        queue = await self.queue()
        first, second = await queue.enqueue_many([1, 2])
        assert len(await queue.dequeue_many(2, lease=SHORT_S)) == 2
        await self.advance(SHORT_S)
        assert [await queue.status(id) for id in (first, second)] == ["pending", "pending"]
        assert await queue.cancel(first)
        assert await queue.purge() == 1
        assert [await queue.status(id) for id in (first, second)] == ["failed", None]

    async def test_expired_lease_without_retries_is_dead(self) -> None:
        queue = await self.queue(retry=NoRetry(), max_attempts=5)
        id = await queue.enqueue(1)
        await self.take(queue, lease=SHORT_S)
        await self.advance(SHORT_S)
        assert await queue.dequeue() is None
        assert await queue.status(id) == "dead"

    async def test_last_attempt_after_expired_leases_comes_alone(self) -> None:
        queue = await self.queue(max_attempts=2)
        await queue.enqueue_many(["suspect", "innocent"])
        assert (await self.take(queue, lease=SHORT_S)).value == "suspect"
        await self.advance(SHORT_S)
        assert [delivery.value for delivery in await queue.dequeue_many(10, lease=LONG_S)] == ["suspect"]
        assert [delivery.value for delivery in await queue.dequeue_many(10, lease=LONG_S)] == ["innocent"]

    async def test_release_does_not_cost_an_attempt(self) -> None:
        queue = await self.queue(max_attempts=1)
        await queue.enqueue(1)
        for _ in range(3):
            delivery = await self.take(queue)
            assert delivery.attempt == 1
            await delivery.release()
        assert (await queue.stats()).pending == 1

    async def test_released_message_keeps_its_place(self) -> None:
        queue = await self.queue()
        await queue.enqueue_many(["first", "second"])
        await (await self.take(queue)).release()
        assert (await self.take(queue)).value == "first"

    async def test_release_with_a_delay_hides_the_message_until_then(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue(1)
        await (await self.take(queue)).release(SHORT_S)
        assert await queue.dequeue() is None
        assert await queue.status(id) in ("delayed", "retry")
        await self.advance(SHORT_S)
        assert (await self.take(queue)).attempt == 1

    async def test_repeating_a_settle_is_success_and_changes_nothing(self) -> None:
        queue = await self.queue(retry=Fixed(0), max_attempts=3)
        done, failing = await queue.enqueue_many([1, 2])
        first, second = await self.take_all(queue, 2)
        for _ in range(3):
            await first.complete("once")
            await second.fail("once")
        assert await queue.complete_many([first.receipt]) == [True]
        stats = await queue.stats()
        assert (stats.completed, stats.archived, stats.pending) == (1, 1, 1)
        assert await queue.status(done) == "completed"
        again = await self.take(queue)
        assert (again.id, again.attempt) == (failing, 2)

    @pytest.mark.parametrize("archive", [True, False], ids=["keep=False", "archive=False"])
    async def test_repeating_a_settle_that_kept_nothing_is_success_after_many_others(self, archive: bool) -> None:
        queue = await self.queue(archive=archive)
        await queue.enqueue_many([1, 2])
        single, many = await self.take_all(queue, 2)
        keep = False if archive else None
        await single.complete(keep=keep)
        assert await queue.complete_many([many], keep=keep) == [True]
        await self._complete_others(queue, 200)
        await single.complete(keep=keep)
        await queue.complete(single.receipt, keep=keep)
        assert await queue.complete_many([single, many.receipt], keep=keep) == [True, True]
        with pytest.raises((LeaseLost, MessageNotFound)):
            await single.fail("another verb")
        with pytest.raises((LeaseLost, MessageNotFound)):
            await single.release()
        with pytest.raises((LeaseLost, MessageNotFound)):
            await many.kill("another verb")
        forged = Lease(single.id, many.token, single.attempt, single.max_attempts)
        with pytest.raises((LeaseLost, MessageNotFound)):
            await queue.complete(write_receipt(forged), keep=keep)
        assert (await queue.stats()).completed == 202

    async def test_a_settle_of_another_queue_is_no_repeat(self) -> None:
        queue, other = await self.queue(), await self.queue("other")
        await queue.enqueue(1)
        delivery = await self.take(queue)
        await delivery.complete(keep=False)
        await queue.complete(delivery.receipt, keep=False)
        with pytest.raises((LeaseLost, MessageNotFound)):
            await other.complete(delivery.receipt, keep=False)

    async def test_repeating_a_release_is_success_when_somebody_else_holds_the_message(self) -> None:
        queue = await self.queue()
        await queue.enqueue(1)
        first = await self.take(queue)
        await first.release()
        second = await self.take(queue)
        await first.release()
        with pytest.raises(LeaseLost):
            await first.complete()
        await second.complete()
        assert await queue.status(second.id) == "completed"

    async def _complete_others(self, queue: Queue[Any], count: int) -> None:
        """In many claims, each of a few messages."""
        await queue.enqueue_many(range(count))
        held: list[Delivery[Any]] = []
        async with asyncio.timeout(self.patience):
            while len(held) < count:
                claims = -(-(count - len(held)) // 5)
                found = await asyncio.gather(*(queue.dequeue_many(5, lease=LONG_S) for _ in range(claims)))
                held += [delivery for some in found for delivery in some]
        assert all(await queue.complete_many(held, keep=False))

    async def test_lease_of_the_queue_is_used_unless_the_call_has_its_own(self) -> None:
        queue = await self.queue(lease=SHORT_S)
        short, long = await queue.enqueue_many([1, 2])
        assert await queue.dequeue() is not None
        assert (await self.take(queue, lease=LONG_S)).id == long
        await self.advance(SHORT_S)
        assert [await queue.status(id) for id in (short, long)] == ["pending", "processing"]
