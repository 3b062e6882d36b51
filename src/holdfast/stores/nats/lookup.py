"""Looking: what is known of messages, pages of a view, and counts that mean backlog."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...errors import Damaged
from ...ids import number, priority_of
from ...v1.task_pb2 import Record, Task
from ..base import QueueInfo
from ..records import Stats, Stored, View
from . import damage, state, sums, tasks
from .connection import WINDOW
from .deadline import POLL_S, TRY_S
from .names import id_of
from .partition import BEHIND_S, Partition, is_id
from .reading import Found

_EXACT = (
    5000  # messages in hand, delayed or to be retried are looked at one by one: beyond it `stats` would take seconds
)


class _Delay(NamedTuple):
    """What never changes of a message that was enqueued with a delay."""

    due: float
    sequence: int
    consumer: str


class Looker:
    """Reads one queue, or its dead letters, without changing anything."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._listed: dict[tuple[View, str | None], list[str]] = {}  # ids behind the last page, by its view and last id
        self._delays: dict[str, _Delay] = {}  # of what was enqueued with a delay, by id

    # ------------------------------------------------------------------ one by one

    async def get(self, ids: Sequence[str]) -> list[Stored | None]:
        info = await self._partition.info()
        known = await self.known([id for id in dict.fromkeys(ids) if is_id(id)])
        for id, (_, record) in known.items():
            if damage.is_lost(record):
                raise sums.damaged(self._partition.names.done + id, "its record cannot be read")
        stored = {id: await self._stored(info, task, record) for id, (task, record) in known.items()}
        return [stored.get(id) for id in ids]

    async def known(self, ids: Sequence[str]) -> dict[str, tuple[Task, Record | None]]:
        """Task and record of those that exist and are kept."""
        if not ids:
            return {}
        records = await self._partition.records(ids)
        live = [id for id in ids if id not in records or not records[id][1].HasField("task")]
        found = await self._partition.tasks(live) if live else {}
        unread = [id for id in live if id not in found and state.is_unread(records.get(id, (0, None))[1])]
        letters = await self._partition.letters(unread) if unread else {}
        known: dict[str, tuple[Task, Record | None]] = {}
        for id in ids:
            record = records[id][1] if id in records else None
            if record is not None and record.gone:
                continue
            if record is not None and record.HasField("task"):
                known[id] = (record.task, record)
            elif id in found:
                known[id] = (found[id][1], record)
            elif record is not None and id in unread:
                known[id] = damage.ended(id, record, letters.get(id))
        return known

    async def _stored(self, info: QueueInfo, task: Task, record: Record | None) -> Stored:
        """What is known of one message."""
        status = state.status(record, task, self._partition.seen(task.id, record), dead=self._partition.dead)
        due = state.wait_until(record, task) if status in ("processing", "delayed", "retry") else None
        rest = record or Record()
        error = rest.error if rest.HasField("error") else damage.why(task) or None
        payload, result = task.data, rest.result if rest.HasField("result") else None
        try:
            payload = await self._partition.blobs.payload(task)
            result = await self._partition.blobs.get(rest.result_blob) if rest.result_blob else result
        except Damaged as unread:  # one that cannot be read does not hide the others
            damage.logger.error("%s", unread)
            error = str(unread)
        return Stored(
            task.id,
            status,
            payload,
            tasks.content_type(task),
            tasks.headers(task),
            task.metadata.priority,
            rest.attempts,
            tasks.most(task, info.options),
            tasks.enqueued_at(task),
            due,
            rest.finished_at or None,
            result,
            error,
            rest.worker if rest.HasField("worker") else None,
            rest.claimed_at or None if rest.finished_at else None,
            task.expires or None,
            tasks.history(rest),
        )

    # ------------------------------------------------------------------ pages

    async def scan(self, view: View, *, after: str | None, limit: int) -> list[Stored]:
        """One page of a view, in id order."""
        info = await self._partition.info()
        page: list[Stored] = []
        if (listed := self._listed.pop((view, after), None)) is not None:
            page = await self._page(info, view, listed, limit)
        if len(page) < limit:  # nothing was listed; or that is over, and what is new stands behind it
            last = page[-1].id if page else after
            ids = sorted({id for id in await self._candidates(view) if last is None or id > last})
            page += await self._page(info, view, ids, limit - len(page))
        return page

    async def upcoming(self, view: View, *, after: tuple[float, str] | None, limit: int) -> list[Stored]:
        """One page by due time: all are looked at, since only a message itself tells when it is due."""
        info = await self._partition.info()
        found = await self._page(info, view, sorted(set(await self._candidates(view))), 1 << 30)
        found.sort(key=lambda stored: (stored.visible_at or 0.0, stored.id))
        return [one for one in found if after is None or (one.visible_at or 0.0, one.id) > after][:limit]

    async def held_by(self, worker: str) -> list[str]:
        """Ids of what a worker holds."""
        await self._partition.info()
        found, ids = list[str](), list(dict.fromkeys(await self._candidates("processing")))
        for start in range(0, len(ids), WINDOW):
            records = await self._partition.records(ids[start : start + WINDOW])
            found += [id for id, (_, record) in records.items() if record.token and record.worker == worker]
        return found

    async def peek(self, limit: int) -> list[Stored]:
        """What is ready, the most urgent first, then the oldest."""
        info = await self._partition.info()
        ids = sorted(set(await self._candidates("ready")), key=lambda id: (-priority_of(number(id) or 0), id))
        page = await self._page(info, "ready", ids, limit, claimable=True)
        self._listed.clear()  # these are in another order than the next page of a view
        return page

    async def _page(
        self, info: QueueInfo, view: View, ids: list[str], limit: int, *, claimable: bool = False
    ) -> list[Stored]:
        """`claimable`: without those that the next claim ends, since no attempt is left or they have expired."""
        page: list[Stored] = []
        for start in range(0, len(ids), WINDOW):
            known = await self.known(ids[start : start + WINDOW])
            for place, id in enumerate(ids[start : start + WINDOW], start + 1):
                if id in known and self._view(*known[id]) == view:
                    if claimable and self._sight(info, *known[id]) in ("expired", "lapsed"):
                        continue
                    page.append(await self._stored(info, *known[id]))
                    if len(page) == limit:
                        self._keep_listed(view, id, ids[place:])
                        return page
        return page

    def _sight(self, info: QueueInfo, task: Task, record: Record | None) -> str:
        seen = self._partition.seen(task.id, record)
        return state.sight(record, task, info.options, seen, dead=self._partition.dead)

    def _keep_listed(self, view: View, after: str, ids: list[str]) -> None:
        """For the next page, if it comes soon: else every page would list all. What is new comes behind the last."""
        if ids:
            self._listed = {(view, after): ids}
            asyncio.get_running_loop().call_later(TRY_S, self._listed.pop, (view, after), None)

    async def _candidates(self, view: View) -> list[str]:
        """Ids that may be in a view; the names of subjects are enough for that."""
        partition, names = self._partition, self._partition.names
        if view == "archive":
            return _ids(await partition.reader.subjects(names.done_stream, f"{names.done}*"))
        if view == "dead" or partition.dead:
            return _ids(await partition.reader.subjects(names.dead_stream, f"{names.dead}*.*"))
        if view in ("processing", "retry"):
            return [id_of(found.subject) for found in await self.delivered(await partition.consumers.look())]
        later = await self._later()
        if view == "delayed":
            return [*later, *[id_of(found.subject) for found in await self.delivered(await partition.consumers.look())]]
        return [*later, *_ids(await partition.reader.subjects(names.task_stream, f"{names.task}*.*"))]

    async def _later(self) -> list[str]:
        """Ids that were enqueued with a delay, whether they are due by now or not."""
        if self._partition.dead:
            return []
        return _ids(await self._partition.reader.subjects(self._partition.stream, self._partition.names.later))

    def _view(self, task: Task, record: Record | None) -> str:
        place = state.LIVE if record is None else record.place
        if damage.is_lost(record):
            damage.logger.error("%s", record.error if record else "")
            return "nowhere"
        if place == state.ARCHIVE or (place == state.DEAD and not self._partition.dead):
            return "archive" if place == state.ARCHIVE else "dead"
        if self._partition.dead and place != state.DEAD:
            return "elsewhere"
        status = state.status(record, task, self._partition.seen(task.id, record), dead=self._partition.dead)
        return "ready" if status == "pending" else status

    async def delivered(
        self, consumers: Sequence[dict[str, Any]], limit: int = 1 << 30, *, of: str = ">"
    ) -> list[Found]:
        """Tasks that were handed out and not ended: they stand before everything that was not."""
        found: list[Found] = []
        for consumer in consumers:
            most = min(consumer["num_ack_pending"], limit - len(found))
            pattern = f"{self._partition.subject}{consumer['name']}.{of}"
            run = await self._partition.reader.run(self._partition.stream, pattern, 1, most) if most > 0 else []
            found += [one for one in run if one.sequence <= consumer["delivered"]["stream_seq"]]
        return found

    # ------------------------------------------------------------------ counts

    async def stats(self) -> Stats:
        partition, names = self._partition, self._partition.names
        await partition.info()
        await partition.cleaned()
        (counts, subjects, left), done, letters, (n, recorded, oldest, exact) = await asyncio.gather(
            partition.counters.read(),
            partition.connection.api(f"STREAM.INFO.{names.done_stream}"),
            partition.connection.api(f"STREAM.INFO.{names.dead_stream}"),
            self._live(),
        )
        dead = int(letters["state"]["messages"])
        recorded |= left.keys()
        archived = max(0, int(done["state"].get("num_subjects", 0)) - subjects - dead - len(recorded))
        if partition.dead:
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
        partition, now = self._partition, self._partition.connection.now()
        consumers, later = await self._consumers()
        all_known = await self._learn(later)
        due = await self._due(now)
        found = await self.delivered(consumers, _EXACT, of="*")
        known = {id_of(one.subject): damage.task_of(one) for one in found} | due
        records = await partition.records(list(known))
        handed_out = sum(consumer["num_ack_pending"] for consumer in consumers)
        fresh = sum(consumer["num_pending"] for consumer in consumers) - self._delayed_behind(consumers)
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
        since += await self._first_waiting(consumers)
        recorded = {id for id, (_, record) in records.items() if record.place == state.LIVE or record.gone}
        return n, recorded, max((max(0.0, now - at) for at in since), default=None), exact

    async def _learn(self, later: Sequence[str]) -> bool:
        """Read those of what was enqueued with a delay that are not known yet; whether all are known now."""
        self._delays = {id: self._delays[id] for id in later if id in self._delays}
        unread = [id for id in later if id not in self._delays]
        for id, (found, task) in (await self._partition.tasks(unread[:_EXACT])).items():
            self._delays[id] = _Delay(task.due, found.sequence, str(task.metadata.priority))
        return len(unread) <= _EXACT

    async def _due(self, now: float) -> dict[str, Task]:
        """Of what was enqueued with a delay, what is due."""
        over = [id for id, delay in self._delays.items() if delay.due <= now]
        return {id: task for id, (_, task) in (await self._partition.tasks(over[:_EXACT])).items()}

    def _delayed_behind(self, consumers: Sequence[dict[str, Any]]) -> int:
        """How many of these nobody was handed yet: a consumer hands out in the order of the stream."""
        handed = {consumer["name"]: int(consumer["delivered"]["stream_seq"]) for consumer in consumers}
        return sum(delay.sequence > handed.get(delay.consumer, delay.sequence) for delay in self._delays.values())

    async def _consumers(self) -> tuple[list[dict[str, Any]], list[str]]:
        """The consumers, once the server knows of what this process has just stored, and what is delayed.

        Consumers hear of a message a little later than the stream. Of a long backlog that does not matter.
        """
        partition = self._partition
        end = partition.stored_at + BEHIND_S
        while time.monotonic() < end:
            consumers = await partition.consumers.look()
            if sum(consumer["num_pending"] for consumer in consumers) > _EXACT:
                break
            later = await self._later()
            there = len(later) + len(await partition.reader.subjects(partition.stream, f"{partition.subject}*.*"))
            consumers = await partition.consumers.look()
            if sum(consumer["num_pending"] + consumer["num_ack_pending"] for consumer in consumers) >= there:
                return consumers, later
            await asyncio.sleep(POLL_S)
        consumers, later = await asyncio.gather(partition.consumers.look(), self._later())
        return consumers, later

    async def _first_waiting(self, consumers: Sequence[dict[str, Any]]) -> list[float]:
        """Since when the first of each consumer that nobody was handed has been waiting."""
        stream, subject = self._partition.stream, self._partition.subject
        since: list[float] = []
        for consumer in consumers:
            if consumer["num_pending"]:
                start = consumer["delivered"]["stream_seq"] + 1
                for one in await self._partition.reader.run(stream, f"{subject}{consumer['name']}.>", start, 1):
                    task = damage.task_of(one)
                    since.append(max(tasks.enqueued_at(task), task.due))
        return since


def _ids(subjects: Sequence[str]) -> list[str]:
    return [id_of(subject) for subject in subjects]
