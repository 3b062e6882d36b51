"""Looking: what is known of messages, pages of a view, and counts that mean backlog."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from ...messages import Stats, Stored, View
from ...v1.task_pb2 import Record, Task
from ..base import QueueInfo
from . import state, tasks
from .log import BEHIND, Log, is_id
from .names import id_of
from .reading import Found

_MOMENT = 0.005  # seconds between two looks at consumers that are behind
_CHUNK = 200  # messages read at once
_EXACT = 5000  # messages in hand or waiting for a retry that are looked at one by one


class Looker:
    """Reads one queue, or its dead letters, without changing anything."""

    def __init__(self, log: Log) -> None:
        self._log = log

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
        ids = sorted(id for id in await self._candidates(view) if after is None or id > after)
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
        later = _ids(await log.reader.subjects(names.task_stream, f"{names.later}*.*"))
        if view == "delayed":
            return [*later, *[id_of(found.subject) for found in await self.delivered(await log.lanes.look())]]
        return [*later, *_ids(await log.reader.subjects(names.task_stream, f"{names.task}*.*"))]

    def _view(self, task: Task, record: Record | None) -> str:
        place = state.LIVE if record is None else record.place
        if place == state.ARCHIVE or (place == state.DEAD and not self._log.dead):
            return "archive" if place == state.ARCHIVE else "dead"
        if self._log.dead and place != state.DEAD:
            return "elsewhere"
        status = state.status(record, task, self._log.seen(task.id, record), dead=self._log.dead)
        return "ready" if status == "pending" else status

    async def delivered(self, lanes: Sequence[dict[str, Any]], limit: int = 1 << 30) -> list[Found]:
        """Tasks that were handed out and not ended: they stand before everything that was not."""
        stream, subject = self._log.source()
        found: list[Found] = []
        for lane in lanes:
            most = min(lane["num_ack_pending"], limit - len(found))
            run = await self._log.reader.run(stream, f"{subject}{lane['name']}.*", 1, most) if most > 0 else []
            found += [one for one in run if one.sequence <= lane["delivered"]["stream_seq"]]
        return found

    # ------------------------------------------------------------------ counts

    async def stats(self) -> Stats:
        log, names = self._log, self._log.names
        info = await log.info()
        counts, subjects = await log.tally.read()
        done = await log.link.api(f"STREAM.INFO.{names.done_stream}")
        letters = await log.link.api(f"STREAM.INFO.{names.dead_stream}")
        dead = int(letters["state"]["messages"])
        n, recorded, oldest, exact = await self._live(info)
        archived = max(0, int(done["state"].get("num_subjects", 0)) - subjects - dead - recorded)
        if log.dead:
            recorded_live = (await self._live_records(info)) if archived else 0
            archived, dead = max(0, archived - recorded_live + recorded), 0
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

    async def _live_records(self, info: QueueInfo) -> int:
        """How many records are of live messages, seen from the dead letters."""
        lanes = self._log.names
        stream = await self._log.link.api(f"CONSUMER.LIST.{lanes.task_stream}")
        return sum(int(one["num_ack_pending"]) for one in stream.get("consumers") or [])

    async def _live(self, info: QueueInfo) -> tuple[dict[str, int], int, float | None, bool]:
        """Counts by view, how many of them have a record, the age of the oldest, and whether all were looked at."""
        log, now = self._log, self._log.link.now()
        lanes = await self._lanes()
        found = await self.delivered(lanes, _EXACT)
        records = await log.records([id_of(one.subject) for one in found])
        n = {"ready": sum(lane["num_pending"] for lane in lanes), "delayed": 0, "processing": 0, "retry": 0}
        since: list[float] = []
        for one in found:
            record = records[id_of(one.subject)][1] if id_of(one.subject) in records else None
            task = tasks.read_task(one.data)
            view = self._view(task, record)
            if view in n:
                n[view] += 1
            if view == "ready":
                since.append(max(tasks.enqueued_at(task), task.due, record.visible_at if record else 0.0))
        handed_out = sum(lane["num_ack_pending"] for lane in lanes)
        exact = len(found) < _EXACT or handed_out <= _EXACT
        if not exact:
            n["retry"] += handed_out - len(found)  # what was not looked at is most likely waiting for its retry
        if not log.dead:
            pattern = f"{log.names.later}*.*"
            n["delayed"] += len(await log.reader.subjects(log.names.task_stream, pattern))
        since += await self._first_waiting(lanes)
        return n, len(records), max((max(0.0, now - at) for at in since), default=None), exact

    async def _lanes(self) -> list[dict[str, Any]]:
        """What the server says of the lanes, when it knows of what this process has just stored.

        Consumers hear of a message a little later than the stream. Of a long backlog that does not matter.
        """
        log, stream, subject = self._log, *self._log.source()
        end = log.stored_at + BEHIND
        while time.monotonic() < end:
            lanes = await log.lanes.look()
            if sum(lane["num_pending"] for lane in lanes) > _EXACT:
                return lanes
            there = len(await log.reader.subjects(stream, f"{subject}*.*"))
            lanes = await log.lanes.look()
            if sum(lane["num_pending"] + lane["num_ack_pending"] for lane in lanes) >= there:
                return lanes
            await asyncio.sleep(_MOMENT)
        return await log.lanes.look()

    async def _first_waiting(self, lanes: Sequence[dict[str, Any]]) -> list[float]:
        """Since when the first of each lane that nobody was handed has been waiting."""
        stream, subject = self._log.source()
        since: list[float] = []
        for lane in lanes:
            if lane["num_pending"]:
                start = lane["delivered"]["stream_seq"] + 1
                for one in await self._log.reader.run(stream, f"{subject}{lane['name']}.*", start, 1):
                    task = tasks.read_task(one.data)
                    since.append(max(tasks.enqueued_at(task), task.due))
        return since


def _ids(subjects: Sequence[str]) -> list[str]:
    return [id_of(subject) for subject in subjects]
