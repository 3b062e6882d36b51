"""What a message remembers of its attempts."""

from __future__ import annotations

import pytest

from ...deliveries import Record
from ...limits import HISTORY_ATTEMPTS, HISTORY_TEXT_BYTES
from ...queue import Queue
from ...retry import Fixed
from .base import LONG_S, SHORT_S, StoreContract


class History(StoreContract):
    """The last attempts: when, by whom, and how they failed."""

    async def _record(self, queue: Queue[object], id: str) -> Record[object]:
        record = await queue.get(id)
        assert record is not None
        return record

    async def test_a_message_that_waits_for_its_retry_remembers_its_attempts(self) -> None:
        queue = await self.queue(retry=Fixed(0), max_attempts=9)
        id = await queue.enqueue(1)
        for text in ("first", "second"):
            before = await self.clock()
            delivery = await self.take(queue)
            await self.advance(SHORT_S)
            await delivery.fail(text)
            record = await self._record(queue, id)
            last = record.history[-1]
            assert (last.error, last.worker) == (text, record.worker)
            assert last.start is not None
            assert before - SHORT_S / 2 < last.start.timestamp() < last.end.timestamp() - SHORT_S / 2
            assert last.end.timestamp() < await self.clock() + SHORT_S / 2
        assert [each.error for each in record.history] == ["first", "second"]
        [listed] = await queue.list("ready")
        assert listed.history == record.history

    @pytest.mark.parametrize("end", ["complete", "kill", "cancel", "dead letter"])
    async def test_a_message_that_ended_remembers_them_and_the_last_one(self, end: str) -> None:
        queue = await self.queue(retry=Fixed(0), max_attempts=3)
        id = await queue.enqueue(1)
        for _ in range(2):
            await (await self.take(queue)).fail("not yet")
        delivery = await self.take(queue)
        held = await self._record(queue, id)
        assert [each.error for each in held.history] == ["not yet"] * 2
        if end == "cancel":
            await queue.cancel(id, running=True)
        elif end == "complete":
            await delivery.complete()
        else:
            await (delivery.kill("no") if end == "kill" else delivery.fail("no"))
        last = {"complete": None, "cancel": "cancelled"}.get(end, "no")
        for _ in range(2):  # as it is, and once it is filed
            [listed] = await (queue.archive if end in ("complete", "cancel") else queue.dead).list()
            for record in (await self._record(queue, id), listed):
                assert [each.error for each in record.history] == ["not yet", "not yet", last]
                assert (record.history[-1].start, record.history[-1].end) == (record.claimed_at, record.finished_at)
                starts = [each.start for each in record.history]
                assert starts == sorted(each for each in starts if each is not None)
            await self.broker.maintain()

    async def test_a_lease_that_expires_is_an_attempt(self) -> None:
        queue = await self.queue(lease=SHORT_S, max_attempts=4)
        id = await queue.enqueue(1)
        await self.take(queue, lease=SHORT_S)
        await self.advance(2 * SHORT_S)
        await (await self.take(queue)).complete()
        record = await self._record(queue, id)
        assert [each.error for each in record.history] == ["lease expired", None]
        assert record.history[0].worker == record.worker

    async def test_a_message_that_is_taken_back_remembers_it(self) -> None:
        queue = await self.queue(lease=LONG_S)
        id = await queue.enqueue(1)
        await self.take(queue)
        assert await queue.take_back(id) == 1
        await self.take(queue)
        assert [each.error for each in (await self._record(queue, id)).history] == ["lease expired"]

    async def test_what_is_given_back_was_no_attempt(self) -> None:
        queue = await self.queue()
        id = await queue.enqueue(1)
        await (await self.take(queue)).release()
        assert (await self._record(queue, id)).history == ()

    async def test_only_the_last_attempts_are_remembered_and_of_each_error_the_beginning(self) -> None:
        queue = await self.queue(retry=Fixed(0), max_attempts=99)
        id = await queue.enqueue(1)
        for number in range(HISTORY_ATTEMPTS + 2):
            await (await self.take(queue)).fail(f"{number} " + "ä" * 3000)
        record = await self._record(queue, id)
        assert [each.error and each.error.split()[0] for each in record.history] == [
            str(number) for number in range(2, HISTORY_ATTEMPTS + 2)
        ]
        assert {len((each.error or "").encode()) for each in record.history} <= {
            HISTORY_TEXT_BYTES,
            HISTORY_TEXT_BYTES - 1,
        }
        assert record.error is not None
        assert len(record.error.encode()) > 10 * HISTORY_TEXT_BYTES
        await (await self.take(queue)).complete()
        assert len((await self._record(queue, id)).history) == HISTORY_ATTEMPTS

    async def test_many_that_wait_remember_each_their_own(self) -> None:
        queue = await self.queue(retry=Fixed(0), max_attempts=9)
        ids = await queue.enqueue_many(range(40))
        for round in range(2):
            for delivery in await self.take_all(queue, 40):
                await delivery.fail(f"{delivery.value} in round {round}")
        for delivery in await self.take_all(queue, 40):
            await delivery.fail("later", retry_in=LONG_S)
        await self.broker.maintain()
        listed = {record.id: record for record in await queue.list("retry")}
        assert sorted(listed) == ids
        for number, id in enumerate(ids):
            errors = [f"{number} in round {round}" for round in range(2)]
            assert [each.error for each in listed[id].history] == [*errors, "later"]

    async def test_a_replay_begins_anew(self) -> None:
        queue = await self.queue(retry=Fixed(0), max_attempts=2)
        await queue.enqueue(1)
        for _ in range(2):
            await (await self.take(queue)).fail("no")
        done = await queue.dead.replay()
        [new] = (done.ids or {}).values()
        assert (await self._record(queue, new)).history == ()
