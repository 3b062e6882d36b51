"""Ending and removing without a lease: cancel, purge, replay and discard."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from ...errors import MessageNotFound
from ...messages import View
from ...v1.task_pb2 import Record, Task
from . import state
from .lanes import nak
from .log import Lease, Log, is_id
from .looking import Looker
from .moving import Mover
from .names import id_of
from .reading import Found
from .settling import Settler

T = TypeVar("T")
_TOGETHER = 64  # requests under way at once
_CHUNK = 200


class Letters:
    """What can be done to messages that nobody holds."""

    def __init__(self, log: Log, looker: Looker, mover: Mover, settler: Settler) -> None:
        self._log = log
        self._looker = looker
        self._mover = mover
        self._settler = settler

    # ------------------------------------------------------------------ cancel

    async def cancel(self, id: str) -> bool:
        """End a message that nobody holds as failed."""
        info = await self._log.info()
        while True:
            found = await self._log.record(id) if is_id(id) else None
            live = (await self._log.tasks([id])).get(id) if is_id(id) else None
            if live is None and (found is None or found[1].gone):
                raise MessageNotFound(f"{self._log.queue}: there is no message {id!r}")
            sequence, record = found if found is not None else (0, Record(format=state.FORMAT))
            if live is None or record.place != state.LIVE or state.held(record, self._log.seen(id, record)):
                return False
            new = Record()
            new.CopyFrom(record)
            new.error, new.claimed_at = state.CANCELLED, 0.0
            new = state.ended(new, "failed", info.options, self._log.link.now())
            lease = Lease(id, record, sequence, live[1], live[0].data, record.ack)
            if await self._settler.end(lease, new):
                await self._log.delete(self._log.names.task_stream, live[0].sequence)
                return True

    # ------------------------------------------------------------------ purge

    async def purge(self) -> int:
        """Drop what waits; what is held stays."""
        log, names = self._log, self._log.names
        await log.info()
        if log.dead:
            return await self.discard("dead", None, before=None, spare_held=True)
        gone = await self._purge_subjects(f"{names.old_later}*.*")
        found = await self._looker.delivered(await log.lanes.look())
        records = await log.records([id_of(one.subject) for one in found])
        free = [one for one in found if not self._held(records, id_of(one.subject))]
        await together([self._drop(one, records) for one in free])
        gone += len(free)
        if len(free) == len(found):
            gone += await self._purge_subjects(f"{names.task}*.>")
        else:
            gone += await self._drain()
        log.wake()
        return gone

    def _held(self, records: dict[str, tuple[int, Record]], id: str) -> bool:
        record = records.get(id)
        return record is not None and state.held(record[1], self._log.seen(id, record[1]))

    async def _drop(self, one: Found, records: dict[str, tuple[int, Record]]) -> None:
        """One message with its record; acknowledged where it was handed out, so that nobody waits for it."""
        if (record := records.get(id_of(one.subject))) is not None:
            await self._log.delete(self._log.names.done_stream, record[0])
        await self._log.delete(self._log.names.task_stream, one.sequence)

    async def _purge_subjects(self, pattern: str) -> int:
        answer = await self._log.link.api(f"STREAM.PURGE.{self._log.names.task_stream}", {"filter": pattern})
        return int(answer.get("purged", 0))

    async def _drain(self) -> int:
        """Take what was not handed out yet, while others hold messages of the same stream."""
        gone = 0
        while found := await self._log.lanes.fetch(500):
            records = await self._log.records([handed.id for _, handed in found])
            moment = self._log.link.moment()
            for _, handed in found:
                record = records.get(handed.id)
                if record is not None and self._held(records, handed.id):
                    await self._log.link.send(handed.ack, nak(record[1].lease_end - moment.earliest))
                    continue
                if record is not None:
                    await self._log.delete(self._log.names.done_stream, record[0])
                await self._log.link.request(handed.ack, b"+ACK")
                gone += 1
        return gone

    # ------------------------------------------------------------------ replay and discard

    async def replay(self, view: View, ids: Sequence[str]) -> int:
        """Copies of these as fresh messages; dead letters move."""
        await self._log.info()
        wanted = await self._ended(view, [id for id in dict.fromkeys(ids) if is_id(id)])
        copied = 0
        for id, (sequence, record) in wanted.items():
            if state.held(record, self._log.seen(id, record)):
                continue
            copied += await self._mover.replay(record.task)
            if view == "dead":
                await self._remove(view, id, sequence, record)
        self._log.wake()
        return copied

    async def discard(
        self, view: View, ids: Sequence[str] | None, *, before: float | None, spare_held: bool = False
    ) -> int:
        """Delete ended messages; how many."""
        log, names = self._log, self._log.names
        await log.info()
        if ids is None:
            stream, subject = (
                (names.dead_stream, f"{names.dead}*.*") if view == "dead" else (names.done_stream, f"{names.done}*")
            )
            ids = [id_of(one) for one in await log.reader.subjects(stream, subject)]
        ids, gone = [id for id in dict.fromkeys(ids) if is_id(id)], 0
        for start in range(0, len(ids), _CHUNK):
            found = await self._ended(view, ids[start : start + _CHUNK])
            old = {
                id: (sequence, record)
                for id, (sequence, record) in found.items()
                if (before is None or record.finished_at < before)
                and not (spare_held and state.held(record, log.seen(id, record)))
            }
            await together([self._remove(view, id, sequence, record) for id, (sequence, record) in old.items()])
            gone += len(old)
        return gone

    async def _ended(self, view: View, ids: Sequence[str]) -> dict[str, tuple[int, Record]]:
        place = state.DEAD if view == "dead" else state.ARCHIVE
        found = await self._log.records(ids)
        return {id: found[id] for id in ids if id in found and found[id][1].place == place and not found[id][1].gone}

    async def _remove(self, view: View, id: str, sequence: int, record: Record) -> None:
        """The record first: it is what everybody asks; a letter without one is swept."""
        log = self._log
        await log.delete(log.names.done_stream, sequence)
        if view == "dead" and (letter := await log.dead_letter(id)) is not None:
            await log.delete(log.names.dead_stream, letter.sequence)
        await log.blobs.delete([name for name in (_blob(record.task), record.result_blob) if name])


def _blob(task: Task) -> str:
    return task.blob


async def together(calls: Sequence[Awaitable[T]]) -> list[T]:
    """Many requests, some at a time."""
    gate = asyncio.Semaphore(_TOGETHER)

    async def one(call: Awaitable[T]) -> T:
        async with gate:
            return await call

    return list(await asyncio.gather(*[one(call) for call in calls]))
