"""Ending and removing without a lease: cancel, purge, replay and discard."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, TypeVar

from ...errors import MessageNotFound
from ...v1.task_pb2 import Record, Task
from ..records import View
from . import damage, deadline, state, tasks
from .connection import WINDOW
from .names import id_of
from .partition import Lease, Partition, is_id
from .priority_consumers import nak
from .reading import Found
from .wire import BATCH_MESSAGES

if TYPE_CHECKING:
    from .copying import Copier
    from .settling import Settler

T = TypeVar("T")
_REPLAYS_AT_ONCE = 3  # parts: the server has work while we prepare the next; more hold other writers up
_PURGES_AT_ONCE = 8  # parts: each waits OUTLASTS_S, so fewer purge slower


class Letters:
    """What can be done to messages that nobody holds."""

    def __init__(self, partition: Partition, copier: Copier, settler: Settler) -> None:
        self._partition = partition
        self._copier = copier
        self._settler = settler

    # ------------------------------------------------------------------ cancel

    async def cancel(self, id: str, *, running: bool = False) -> bool:
        """End a message as failed that nobody holds, or whoever holds it if it is `running`."""
        info = await self._partition.info()
        while True:
            found = await self._partition.record(id) if is_id(id) else None
            live = (await self._partition.tasks([id])).get(id) if is_id(id) else None
            if live is None and (found is None or found[1].gone):
                raise MessageNotFound(f"{self._partition.queue}: there is no message {id!r}")
            sequence, record = found if found is not None else (0, Record(format=tasks.FORMAT))
            is_held = state.held(record, self._partition.seen(id, record))
            if live is None or record.place != state.LIVE or (is_held and not running):
                return False
            new = Record()
            new.CopyFrom(record)
            new.error, new.claimed_at = state.CANCELLED, record.claimed_at if is_held else 0.0
            new = state.ended(new, "failed", info.options, self._partition.connection.now())
            lease = Lease(id, record, sequence, live[1], damage.raw_of(*live), record.ack)
            if await self._settler.end(lease, new, live[0].sequence):
                return True

    async def lapse(self, id: str) -> bool | None:
        """End a message that has expired and that nobody holds; None: somebody does. False: it is none of these."""
        info = await self._partition.info()
        while True:
            found, live = await self._partition.record(id), (await self._partition.tasks([id])).get(id)
            if live is None:
                return False
            sequence, record = found if found is not None else (0, None)
            seen = self._partition.seen(id, record)
            what = state.sight(record, live[1], info.options, seen, dead=False)
            if what != "lapsed" or await self._is_no_part(live[1]):
                return None if what in ("wait", "expired", "take") else False
            old = record or Record(format=tasks.FORMAT)
            lease = Lease(id, old, sequence, live[1], damage.raw_of(*live), old.ack)
            if await self._settler.end(lease, state.lapsed(old, info.options, seen.now), live[0].sequence):
                return True

    async def _is_no_part(self, task: Task) -> bool:
        """It came with others that do not all count, or not yet."""
        return bool(task.call) and await self._partition.calls.verdict(task.call) != "counts"

    # ------------------------------------------------------------------ take back

    async def take_back(self, ids: Sequence[str]) -> int:
        """End these leases now, under tokens that nobody has; how many."""
        await self._partition.info()
        given = [id for id in dict.fromkeys(ids) if is_id(id)]
        taken = sum(await _together([self._take_back(id) for id in given], _REPLAYS_AT_ONCE))
        if taken:
            await self._partition.note(b"change")
            self._partition.wake()
        return taken

    async def _take_back(self, id: str) -> bool:
        partition = self._partition
        while True:
            found = await partition.record(id)
            if found is None or found[1].place != (state.DEAD if partition.dead else state.LIVE):
                return False
            sequence, record = found
            moment = partition.connection.moment()
            if not state.held(record, partition.seen(id, record, moment)):
                return False
            new = state.taken_back(record, os.urandom(8).hex(), moment)
            [took], _ = await partition.fence.write([partition.post(_plain_lease(id, new, sequence), new)])
            if took is not None:
                if record.ack:  # the server hands it out again now, not when its timer is over
                    await self._settler.say_one(record.ack, nak(0.0))
                partition.expect(moment.now)
                return True

    # ------------------------------------------------------------------ purge

    async def purge(self) -> int:
        """Drop what waits; what is held stays."""
        partition, names = self._partition, self._partition.names
        await partition.info()
        if partition.dead:
            return await self.discard("dead", None, before=None, spare_held=True)
        last = int((await partition.connection.api(f"STREAM.INFO.{names.task_stream}"))["state"]["last_seq"])
        gone, start = 0, 1
        while page := await partition.reader.run(
            names.task_stream, f"{names.task}*.>", start, _PURGES_AT_ONCE * WINDOW
        ):
            found = [one for one in page if one.sequence <= last]
            parts = [found[at : at + WINDOW] for at in range(0, len(found), WINDOW)]
            gone += sum(await _together([self._drop(part) for part in parts], _PURGES_AT_ONCE))
            deadline.renew()
            start = page[-1].sequence + 1
        partition.wake()
        return gone

    async def _drop(self, found: Sequence[Found]) -> int:
        """Those of these tasks that nobody holds, each by its record, so that it has one end; how many."""
        gone, left = 0, {id_of(one.subject): one for one in found}
        while left:
            records = await self._partition.records(list(left))
            free = [self._lease(one, records.get(id)) for id, one in left.items() if self._is_free(id, records)]
            took = await self._settler.purge(free) if free else []
            gone += sum(took)
            left = {lease.id: left[lease.id] for (lease, _), ok in zip(free, took, strict=True) if not ok}
        return gone

    def _is_free(self, id: str, records: dict[str, tuple[int, Record]]) -> bool:
        record = records[id][1] if id in records else None
        return record is None or (
            record.place == state.LIVE and not state.held(record, self._partition.seen(id, record))
        )

    def _lease(self, one: Found, known: tuple[int, Record] | None) -> tuple[Lease, int]:
        """What ends a task that nobody holds, and the task's place; its record need not tell what it was."""
        sequence, record = known or (0, Record(format=tasks.FORMAT))
        task = Task(blob=damage.task_of(one).blob)
        return Lease(id_of(one.subject), record, sequence, task, b"", record.ack), one.sequence

    # ------------------------------------------------------------------ replay and discard

    async def replay(self, view: View, ids: Sequence[str]) -> int:
        """Copies of these as fresh messages; dead letters move."""
        await self._partition.info()
        given = [id for id in dict.fromkeys(ids) if is_id(id)]
        parts = [given[start : start + BATCH_MESSAGES // 2] for start in range(0, len(given), BATCH_MESSAGES // 2)]
        copied = sum(await _together([self._replay(view, part) for part in parts], _REPLAYS_AT_ONCE))
        self._partition.wake()
        return copied

    async def _replay(self, view: View, ids: Sequence[str]) -> int:
        wanted = await self._ended(view, ids)
        free = {id: one for id, one in wanted.items() if not state.held(one[1], self._partition.seen(id, one[1]))}
        copied = await self._copier.replay([record.task for _, record in free.values()])
        if view == "dead":
            await self._remove_moved(free)
        deadline.renew()
        return copied

    async def discard(
        self, view: View, ids: Sequence[str] | None, *, before: float | None, spare_held: bool = False
    ) -> int:
        """Delete ended messages; how many."""
        partition, names = self._partition, self._partition.names
        await partition.info()
        if ids is None:
            stream, subject = (
                (names.dead_stream, f"{names.dead}*.*") if view == "dead" else (names.done_stream, f"{names.done}*")
            )
            ids = [id_of(one) for one in await partition.reader.subjects(stream, subject)]
        ids, gone = [id for id in dict.fromkeys(ids) if is_id(id)], 0
        for start in range(0, len(ids), BATCH_MESSAGES // 2):
            found = await self._ended(view, ids[start : start + BATCH_MESSAGES // 2])
            deadline.renew()
            old = {
                id: (sequence, record)
                for id, (sequence, record) in found.items()
                if (before is None or record.finished_at < before)
                and not (spare_held and state.held(record, partition.seen(id, record)))
            }
            gone += await self._remove(view, old)
        return gone

    async def retire(self, before: float) -> int:
        """Delete archived messages that ended before an instant; how many.

        Records lie in the order in which they were written, so nothing is read behind the first that ended later.
        """
        names, gone, start = self._partition.names, 0, 1
        while page := await self._partition.reader.run(names.done_stream, f"{names.done}*", start, BATCH_MESSAGES // 2):
            records = {id_of(one.subject): (one.sequence, damage.record_of(one)) for one in page}
            ended = {id: one for id, one in records.items() if one[1].place == state.ARCHIVE and not one[1].gone}
            old = {id: one for id, one in ended.items() if one[1].finished_at < before}
            gone += await self._remove("archive", old)
            if len(old) < len(ended):
                break
            start = page[-1].sequence + 1
            deadline.renew()
        return gone

    async def _ended(self, view: View, ids: Sequence[str]) -> dict[str, tuple[int, Record]]:
        place = state.DEAD if view == "dead" else state.ARCHIVE
        found = await self._partition.records(ids)
        return {id: found[id] for id in ids if id in found and found[id][1].place == place and not found[id][1].gone}

    async def _remove(self, view: View, found: dict[str, tuple[int, Record]]) -> int:
        """How many; not those that another was quicker with."""
        partition, names = self._partition, self._partition.names
        took = await partition.delete_each(names.done_stream, [sequence for sequence, _ in found.values()])
        gone = [id for id, ok in zip(found, took, strict=True) if ok]
        await self._remove_rest(view, {id: found[id][1] for id in gone})
        return len(gone)

    async def _remove_moved(self, found: dict[str, tuple[int, Record]]) -> None:
        """Letters that were copied; who of two removes them is nothing to be counted."""
        gone = await self._partition.drop_records({id: sequence for id, (sequence, _) in found.items()})
        await self._remove_rest("dead", {id: found[id][1] for id in gone})

    async def _remove_rest(self, view: View, gone: dict[str, Record]) -> None:
        """Behind records that are removed: they go first, since everybody asks them. A letter without one is swept."""
        if view == "dead":
            await self._partition.drop_letters(list(gone))
        for one in gone.values():
            blobs = [name for name in (one.task.blob, one.result_blob, damage.kept_of(one)) if name]
            await self._partition.blobs.delete(blobs)

    async def sweep(self) -> int:
        """Letters whose record is gone: who removed them stopped in between; how many."""
        partition, swept = self._partition, 0
        ids = [
            id_of(one)
            for one in await partition.reader.subjects(partition.names.dead_stream, f"{partition.names.dead}*.*")
        ]
        for start in range(0, len(ids), BATCH_MESSAGES // 2):
            part = ids[start : start + BATCH_MESSAGES // 2]
            known = await partition.records(part)
            left = [id for id in part if id not in known]
            exact = [id for id in left if await partition.record(id) is None]  # a copy of the stream may be behind
            await partition.drop_letters(exact)
            swept += len(exact)
            deadline.renew()
        return swept


def _plain_lease(id: str, record: Record, sequence: int) -> Lease:
    return Lease(id, record, sequence, Task(id=id), b"", record.ack, record.token)


async def _together(calls: Sequence[Awaitable[T]], at_once: int) -> list[T]:
    """Many calls, some at a time."""
    gate = asyncio.Semaphore(at_once)

    async def one(call: Awaitable[T]) -> T:
        async with gate:
            return await call

    return list(await asyncio.gather(*[one(call) for call in calls]))
