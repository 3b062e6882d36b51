"""Looking: what is known of messages, pages of a view, and counts that mean backlog."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...v1.task_pb2 import Record, Task
from ..records import Stats, Stored, View
from . import state, tasks
from .names import id_of
from .partition import BEHIND, Log, is_id
from .reading import Found

_MOMENT = 0.005  # seconds between two looks at consumers that are behind
_CHUNK = 200  # messages read at once
_EXACT = 5000  # messages in hand or waiting for a retry that are looked at one by one


class _Delay(NamedTuple):
    """What never changes of a message that was enqueued with a delay."""

    due: float
    sequence: int
    lane: str


class Looker:
    """Reads one queue, or its dead letters, without changing anything."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._delays: dict[str, _Delay] = {}  # of what was enqueued with a delay, by id

    # ------------------------------------------------------------------ one by one

    async def get(self, ids: Sequence[str]) -> list[Stored | None]:
        info = await self._log.info()
        known = await self.known([id for id in dict.fromkeys(ids) if is_id(id)])
        stored = {id: await self._log.stored(info, task, record) for id, (task, record) in known.items()}
        return [stored.get(id) for id in ids]

    async def known(self, ids: Sequence[str]) -> dict[str, tuple[Task, Record | None]]:
        """Task and record of those that exist and are kept."""
        if not ids:
            return {}
        records = await self._log.records(ids)
        live = [id for id in ids if id not in records or not records[id][1].HasField("task")]
        found = await self._log.tasks(live) if live else {}
        known: dict[str, tuple[Task, Record | None]] = {}
        for id in ids:
            record = records[id][1] if id in records else None
            if record is not None and record.gone:
                continue
            if record is not None and record.HasField("task"):
                known[id] = (record.task, record)
            elif id in found:
                known[id] = (found[id][1], record)
        return known

    # ------------------------------------------------------------------ pages

    async def scan(self, view: View, *, after: str | None, limit: int) -> list[Stored]:
        """One page of a view, in id order."""
        info = await self._log.info()
        ids = sorted({id for id in await self._candidates(view) if after is None or id > after})
        page: list[Stored] = []
        for start in range(0, len(ids), _CHUNK):
            known = await self.known(ids[start : start + _CHUNK])
            for id in ids[start : start + _CHUNK]:
                if id in known and self._view(*known[id]) == view:
                    page.append(await self._log.stored(info, *known[id]))
                    if len(page) == limit:
                        return page
        return page

    async def _candidates(self, view: View) -> list[str]:
        """Ids that may be in a view; the names of subjects are enough for that."""
        log, names = self._log, self._log.names
        if view == "archive":
            return _ids(await log.reader.subjects(names.done_stream, f"{names.done}*"))
        if view == "dead" or log.dead:
            return _ids(await log.reader.subjects(names.dead_stream, f"{names.dead}*.*"))
        if view in ("processing", "retry"):
            return [id_of(found.subject) for found in await self.delivered(await log.lanes.look())]
        later = await self._later()
        if view == "delayed":
            return [*later, *[id_of(found.subject) for found in await self.delivered(await log.lanes.look())]]
        return [*later, *_ids(await log.reader.subjects(names.task_stream, f"{names.task}*.*"))]

    async def _later(self) -> list[str]:
        """Ids that were enqueued with a delay, whether they are due by now or not."""
        if self._log.dead:
            return []
        return _ids(await self._log.reader.subjects(self._log.stream, self._log.names.later))

    def _view(self, task: Task, record: Record | None) -> str:
        place = state.LIVE if record is None else record.place
        if place == state.ARCHIVE or (place == state.DEAD and not self._log.dead):
            return "archive" if place == state.ARCHIVE else "dead"
        if self._log.dead and place != state.DEAD:
            return "elsewhere"
        status = state.status(record, task, self._log.seen(task.id, record), dead=self._log.dead)
        return "ready" if status == "pending" else status

    async def delivered(self, lanes: Sequence[dict[str, Any]], limit: int = 1 << 30, *, of: str = ">") -> list[Found]:
        """Tasks that were handed out and not ended: they stand before everything that was not."""
        found: list[Found] = []
        for lane in lanes:
            most = min(lane["num_ack_pending"], limit - len(found))
            pattern = f"{self._log.subject}{lane['name']}.{of}"
            run = await self._log.reader.run(self._log.stream, pattern, 1, most) if most > 0 else []
            found += [one for one in run if one.sequence <= lane["delivered"]["stream_seq"]]
        return found

    # ------------------------------------------------------------------ counts

    async def stats(self) -> Stats:
        log, names = self._log, self._log.names
        await log.info()
        await log.cleaned()
        (counts, subjects, left), done, letters, (n, recorded, oldest, exact) = await asyncio.gather(
            log.tally.read(),
            log.link.api(f"STREAM.INFO.{names.done_stream}"),
            log.link.api(f"STREAM.INFO.{names.dead_stream}"),
            self._live(),
        )
        dead = int(letters["state"]["messages"])
        recorded |= left.keys()
        archived = max(0, int(done["state"].get("num_subjects", 0)) - subjects - dead - len(recorded))
        if log.dead:
            archived, dead = 0, 0  # the archive is that of the queue
        n = {**n, "dead": dead, "archive": archived}
        return Stats(
            sum(n.values()),
            n["ready"],
            n["delayed"],
            n["processing"],
            n["retry"],
            dead,
            archived,
            counts.completed,
            counts.failed,
            oldest,
            exact,
        )

    async def _live(self) -> tuple[dict[str, int], set[str], float | None, bool]:
        """Counts by view, which of them have a record, the age of the oldest, and whether all were looked at."""
        log, now = self._log, self._log.link.now()
        lanes, later = await self._lanes()
        all_known = await self._learn(later)
        due = await self._due(now)
        found = await self.delivered(lanes, _EXACT, of="*")
        known = {id_of(one.subject): tasks.read_task(one.data) for one in found} | due
        records = await log.records(list(known))
        handed_out = sum(lane["num_ack_pending"] for lane in lanes)
        fresh = sum(lane["num_pending"] for lane in lanes) - self._delayed_behind(lanes)
        n = {"ready": max(0, fresh), "delayed": len(later) - len(due), "processing": 0, "retry": 0}
        since: list[float] = []
        for id, task in known.items():
            record = records[id][1] if id in records else None
            view = self._view(task, record)
            if view in n:
                n[view] += 1
            if view == "ready":
                since.append(max(tasks.enqueued_at(task), task.due, record.visible_at if record else 0.0))
        exact = all_known and len(due) < _EXACT and (len(found) < _EXACT or handed_out <= _EXACT)
        if not exact:  # what was not looked at is most likely waiting for its retry
            n["retry"] += max(0, handed_out - len(found) - len(later))
        since += await self._first_waiting(lanes)
        recorded = {id for id, (_, record) in records.items() if record.place == state.LIVE or record.gone}
        return n, recorded, max((max(0.0, now - at) for at in since), default=None), exact

    async def _learn(self, later: Sequence[str]) -> bool:
        """Read those of what was enqueued with a delay that are not known yet; whether all are known now."""
        self._delays = {id: self._delays[id] for id in later if id in self._delays}
        unread = [id for id in later if id not in self._delays]
        for id, (found, task) in (await self._log.tasks(unread[:_EXACT])).items():
            self._delays[id] = _Delay(task.due, found.sequence, str(task.metadata.priority))
        return len(unread) <= _EXACT

    async def _due(self, now: float) -> dict[str, Task]:
        """Of what was enqueued with a delay, what is due."""
        over = [id for id, delay in self._delays.items() if delay.due <= now]
        return {id: task for id, (_, task) in (await self._log.tasks(over[:_EXACT])).items()}

    def _delayed_behind(self, lanes: Sequence[dict[str, Any]]) -> int:
        """How many of these nobody was handed yet: a lane hands out in the order of the stream."""
        handed = {lane["name"]: int(lane["delivered"]["stream_seq"]) for lane in lanes}
        return sum(delay.sequence > handed.get(delay.lane, delay.sequence) for delay in self._delays.values())

    async def _lanes(self) -> tuple[list[dict[str, Any]], list[str]]:
        """What the server says of the lanes when it knows of what this process has just stored, and what is delayed.

        Consumers hear of a message a little later than the stream. Of a long backlog that does not matter.
        """
        log = self._log
        end = log.stored_at + BEHIND
        while time.monotonic() < end:
            lanes = await log.lanes.look()
            if sum(lane["num_pending"] for lane in lanes) > _EXACT:
                break
            later = await self._later()
            there = len(later) + len(await log.reader.subjects(log.stream, f"{log.subject}*.*"))
            lanes = await log.lanes.look()
            if sum(lane["num_pending"] + lane["num_ack_pending"] for lane in lanes) >= there:
                return lanes, later
            await asyncio.sleep(_MOMENT)
        lanes, later = await asyncio.gather(log.lanes.look(), self._later())
        return lanes, later

    async def _first_waiting(self, lanes: Sequence[dict[str, Any]]) -> list[float]:
        """Since when the first of each lane that nobody was handed has been waiting."""
        stream, subject = self._log.stream, self._log.subject
        since: list[float] = []
        for lane in lanes:
            if lane["num_pending"]:
                start = lane["delivered"]["stream_seq"] + 1
                for one in await self._log.reader.run(stream, f"{subject}{lane['name']}.>", start, 1):
                    task = tasks.read_task(one.data)
                    since.append(max(tasks.enqueued_at(task), task.due))
        return since


def _ids(subjects: Sequence[str]) -> list[str]:
    return [id_of(subject) for subject in subjects]
