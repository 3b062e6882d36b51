"""The smallest right store: one process, dicts, no durability. Tests of the layers above run on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from holdfast import ids as makers
from holdfast.config import QueueOptions
from holdfast.errors import MessageNotFound, QueueExists, QueueNotEmpty, QueueNotFound
from holdfast.retry import NoRetry
from holdfast.stores.base import DEAD, Check, Ordinary, QueueInfo
from holdfast.stores.living_keys import replacing
from holdfast.stores.records import (
    Answer,
    Change,
    Claimed,
    Claims,
    Dedup,
    Enqueued,
    Envelope,
    Expired,
    Settlement,
    Stats,
    Status,
    Stored,
    View,
)

EXPIRED = "lease expired"


@dataclass
class Row:
    """One message; `place` says where it lies: live, dead or archive."""

    id: str
    envelope: Envelope
    enqueued_at: float
    visible_at: float
    waiting: Status = "delayed"  # what it is called while it is not due
    place: str = "live"
    attempts: int = 0
    tries: int = 0  # claims of the dead letter; `attempts` stays what it died with
    claimed_at: float | None = None
    tried_at: float | None = None  # the last claim of the dead letter
    token: str | None = None
    lease_end: float = 0.0
    recovered: bool = False  # some lease of it has expired
    status: Status = "completed"  # what it ended as, once it is in the archive
    finished_at: float | None = None
    result: bytes | None = None
    error: str | None = None
    worker: str | None = None


@dataclass
class Room:
    """One queue with its dead letters and its archive."""

    info: QueueInfo
    rows: dict[str, Row] = field(default_factory=dict)
    dedup: dict[str, tuple[str, float]] = field(default_factory=dict)
    settled: dict[tuple[str, str], str] = field(default_factory=dict)  # (id, token) → action, so that repeats are ok
    copies: set[str] = field(default_factory=set)  # ids that a replay has given out
    completed: int = 0
    failed: int = 0


class ToyStore(Ordinary):
    """Implements `holdfast.stores.base.Store` plainly; `clock` gives seconds since 1970."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.now = clock
        self.rooms: dict[str, Room] = {}
        self._ids = makers.Ids()
        self._tokens = 0
        self._change = asyncio.Event()
        if on_advance := getattr(clock, "on_advance", None):
            on_advance(lambda *_: self.changed())

    # ------------------------------------------------------------------ the store as a whole

    async def install(self, *, dry_run: bool = False) -> list[str]:
        return []

    async def uninstall(self) -> None:
        self.rooms.clear()

    async def close(self) -> None:
        self.changed()

    async def check(self) -> list[Check]:
        return [Check("toy", "ok", "one process, in memory")]

    async def clock(self) -> float:
        return self.now()

    async def watch(self, queue: str, timeout: float) -> None:
        await self.news(timeout)

    def changed(self) -> None:
        """Wake everybody who waits."""
        self._change.set()
        self._change = asyncio.Event()

    async def news(self, timeout: float) -> None:
        try:
            await asyncio.wait_for(self._change.wait(), max(timeout, 0.001))
        except TimeoutError:
            pass

    # ------------------------------------------------------------------ queues

    def room(self, queue: str) -> Room:
        try:
            return self.rooms[queue.removesuffix(DEAD)]
        except KeyError:
            raise QueueNotFound(queue) from None

    async def create_queue(self, name: str, options: QueueOptions) -> QueueInfo:
        if name in self.rooms:
            raise QueueExists(name)
        self.rooms[name] = Room(QueueInfo(name, options, False, self.now()))
        return self.rooms[name].info

    async def configure(self, name: str, options: QueueOptions) -> QueueInfo:
        room = self.room(name)
        room.info = QueueInfo(name, options, room.info.paused, room.info.created_at)
        self.changed()
        return room.info

    async def queues(self) -> list[QueueInfo]:
        return [self.rooms[name].info for name in sorted(self.rooms)]

    async def queue(self, name: str) -> QueueInfo | None:
        return self.rooms[name].info if name in self.rooms else None

    async def delete_queue(self, name: str, *, force: bool = False) -> None:
        if not force and any(row.place != "archive" for row in self.room(name).rows.values()):
            raise QueueNotEmpty(name)
        del self.rooms[self.room(name).info.name]

    async def pause(self, name: str, paused: bool) -> None:
        room = self.room(name)
        room.info = QueueInfo(name, room.info.options, paused, room.info.created_at)
        self.changed()

    async def purge(self, queue: str) -> int:
        room, place = self.room(queue), place_of(queue)
        gone = [row.id for row in room.rows.values() if row.place == place and not self.held(row)]
        for id in gone:
            del room.rows[id]
        self.changed()
        return len(gone)

    # ------------------------------------------------------------------ in

    async def append(self, queue: str, messages: Sequence[Envelope]) -> list[str]:
        room = self.room(queue)
        answer = [self.append_one(room, envelope) for envelope in messages]
        self.changed()
        return answer

    async def append_once(
        self, queue: str, messages: Sequence[Envelope], dedup: Dedup = "window", *, replace: bool = False
    ) -> list[Enqueued]:
        room = self.room(queue)
        made: list[Enqueued] = []
        if dedup != "window":
            return [await self.append_alive(queue, room, messages[0], dedup, replace)]
        for envelope in messages:
            before = len(room.rows)
            id = self.append_one(room, envelope)
            made.append(Enqueued(id, len(room.rows) > before))
        self.changed()
        return made

    async def append_alive(self, queue: str, room: Room, message: Envelope, dedup: Dedup, replace: bool) -> Enqueued:
        self.expire(room)
        key = f"\0alive {message.dedup_key}"
        row = room.rows.get(room.dedup.get(key, ("", 0.0))[0])
        held = row is not None and self.held(row)
        if row is not None and row.place == "live" and not (held and dedup == "waiting"):
            return Enqueued(row.id, False, replace and await self.change(queue, row.id, replacing(message)))
        id = self.append_one(room, msgspec.structs.replace(message, dedup_key=None))
        room.dedup[key] = (id, float("inf"))
        self.changed()
        return Enqueued(id, True)

    def append_one(self, room: Room, envelope: Envelope) -> str:
        now, key = self.now(), envelope.dedup_key
        if key is not None and key in room.dedup and room.dedup[key][1] > now:
            return room.dedup[key][0]
        due = envelope.at if envelope.at is not None else now + envelope.delay
        id = makers.text(self._ids.block(now, envelope.priority, carried=due > now))
        room.rows[id] = Row(id, envelope, now, due)
        if key is not None:
            room.dedup[key] = (id, now + room.info.options.dedup_window)
        return id

    # ------------------------------------------------------------------ leases

    async def claim(
        self, queue: str, limit: int, lease: float, *, wait: float = 0.0, worker: str | None = None
    ) -> Claims:
        deadline = time.monotonic() + wait  # how long somebody waits is real, whatever clock the messages have
        while True:
            claims = self.claim_now(queue, limit, lease)
            for message in claims.messages:
                self.room(queue).rows[message.id].worker = worker
            left = deadline - time.monotonic()
            if claims.messages or claims.expired or left <= 0:
                return claims
            await self.news(min(left, self.next_due(queue) - self.now()))

    def next_due(self, queue: str) -> float:
        rows = (row for row in self.room(queue).rows.values() if row.place == place_of(queue))
        return min((row.lease_end if self.held(row) else row.visible_at for row in rows), default=float("inf"))

    def claim_now(self, queue: str, limit: int, lease: float) -> Claims:
        room, place = self.room(queue), place_of(queue)
        expired = [] if place == "dead" else self.expire(room)
        claimed: list[Claimed] = []
        for row in self.ready(room, place) if not room.info.paused else ():
            if len(claimed) == limit or (claimed and self.alone(room, row)):
                break
            claimed.append(self.take(room, row, lease))
            if claimed[-1].alone:
                break
        return Claims(claimed, expired)

    def expire(self, room: Room) -> list[Expired]:
        """Messages whose lease is over and that may not run again end here."""
        over = [row for row in room.rows.values() if row.place == "live" and row.token and not self.held(row)]
        last = [row for row in over if self.spent(room, row) or isinstance(room.info.options.retry, NoRetry)]
        for row in last:
            self.bury(room, row, EXPIRED)
        kept: Status = "dead" if room.info.options.dead_letter else "failed"
        return [Expired(row.id, row.attempts, "dead" if kept == "dead" else "failed", EXPIRED) for row in last]

    def ready(self, room: Room, place: str) -> Iterator[Row]:
        rows = [row for row in room.rows.values() if row.place == place and self.visible(row)]
        return iter(sorted(rows, key=lambda row: (-row.envelope.priority, row.id)))

    def alone(self, room: Room, row: Row) -> bool:
        again = row.recovered or row.token is not None
        return row.place == "live" and again and row.attempts + 1 == self.most(room, row)

    def take(self, room: Room, row: Row, lease: float) -> Claimed:
        alone, recovered = self.alone(room, row), row.token is not None
        self._tokens += 1
        row.token, row.lease_end = f"t{self._tokens}", self.now() + lease
        row.recovered = row.recovered or recovered
        if row.place == "dead":
            row.tries, row.tried_at = row.tries + 1, self.now()
        else:
            row.attempts, row.claimed_at = row.attempts + 1, self.now()
        e, attempt = row.envelope, row.tries if row.place == "dead" else row.attempts
        return Claimed(row.id, row.token, e.payload, e.content_type, e.headers, e.priority, attempt,
                       self.most(room, row), row.enqueued_at, row.lease_end, recovered, alone)  # fmt: skip

    async def extend(self, queue: str, leases: Sequence[tuple[str, str]], seconds: float) -> list[float | None]:
        return [self.extend_one(self.room(queue), id, token, seconds) for id, token in leases]

    def extend_from_thread(
        self, queue: str, leases: Sequence[tuple[str, str]], seconds: float
    ) -> list[float | None] | None:
        return [self.extend_one(self.room(queue), id, token, seconds) for id, token in leases]

    def extend_one(self, room: Room, id: str, token: str, seconds: float) -> float | None:
        row = room.rows.get(id)
        if row is None or row.token != token:
            return None
        row.lease_end = max(row.lease_end, self.now() + seconds)
        return row.lease_end

    def held(self, row: Row) -> bool:
        return row.token is not None and row.lease_end > self.now()

    def visible(self, row: Row) -> bool:
        return not self.held(row) and (row.token is not None or row.visible_at <= self.now())

    def most(self, room: Room, row: Row) -> int:
        return row.envelope.max_attempts or room.info.options.max_attempts

    def spent(self, room: Room, row: Row) -> bool:
        return row.attempts >= self.most(room, row)

    # ------------------------------------------------------------------ out

    async def settle(self, queue: str, settlements: Sequence[Settlement]) -> list[Answer]:
        room = self.room(queue)
        answers = [self.settle_one(room, settlement) for settlement in settlements]
        self.changed()
        return answers

    def settle_one(self, room: Room, s: Settlement) -> Answer:
        row = room.rows.get(s.id)
        if (s.id, s.token) in room.settled:
            return "ok" if room.settled[s.id, s.token] == s.action else "lost"
        if row is None:
            return "unknown"
        if row.token != s.token:
            return "lost"
        room.settled[s.id, s.token] = s.action
        row.token, row.worker, row.visible_at = None, s.worker or row.worker, self.now() + s.delay
        row.error = s.error or row.error
        if s.action == "complete":
            row.result, row.error = s.result, None
            row.claimed_at = row.tried_at if row.place == "dead" else row.claimed_at
            self.archive(room, row, "completed", keep=s.keep)
        elif s.action == "release":
            self.give_back(row, s.delay)
        elif row.place == "live" and (s.action == "dead" or self.spent(room, row)):
            self.bury(room, row, s.error or "dead")
        else:
            row.waiting = "retry"
        return "ok"

    def give_back(self, row: Row, delay: float) -> None:
        row.waiting = "delayed" if row.attempts == 1 else "retry"
        if row.place == "dead":
            row.tries -= 1
        else:
            row.attempts -= 1

    def archive(self, room: Room, row: Row, status: Status, *, keep: bool | None = None) -> None:
        if status == "completed":
            room.completed += 1
        else:
            room.failed += 1
        row.place, row.status, row.token, row.finished_at = "archive", status, None, self.now()
        if not (room.info.options.archive if keep is None else keep):
            del room.rows[row.id]

    def bury(self, room: Room, row: Row, reason: str) -> None:
        """The end without success: a dead letter here, a message in another queue, or `failed`."""
        row.error, row.token, target = reason, None, room.info.options.dead_letter
        if target is True:
            row.place, row.finished_at, row.visible_at = "dead", self.now(), self.now()
            return
        self.archive(room, row, "failed")
        if isinstance(target, str):
            if target not in self.rooms:
                self.rooms[target] = Room(QueueInfo(target, QueueOptions(), False, self.now()))
            why = {"dead_from": room.info.name, "dead_reason": reason, "dead_id": row.id}
            e, headers = row.envelope, (row.envelope.headers or {}) | why
            self.append_one(self.rooms[target], Envelope(e.payload, e.content_type, headers, e.priority))

    async def change(self, queue: str, id: str, change: Change) -> bool:
        room = self.room(queue)
        self.expire(room)
        if (row := room.rows.get(id)) is None:
            raise MessageNotFound(id)
        if row.place != "live" or self.held(row):
            return False
        row.recovered, row.token = row.recovered or row.token is not None, None
        if change.at is not None or change.delay is not None:
            row.visible_at = change.at if change.at is not None else self.now() + (change.delay or 0.0)
            row.waiting = "retry" if row.attempts else "delayed"
        said: dict[str, Any] = {} if change.priority is None else {"priority": change.priority}
        if change.payload is not None:
            said |= {"payload": change.payload, "content_type": change.content_type}
        row.envelope = msgspec.structs.replace(row.envelope, **said)
        self.changed()
        return True

    async def take_back(self, queue: str, ids: Sequence[str] | None, *, worker: str | None = None) -> int:
        live = [row for row in self.room(queue).rows.values() if row.place == place_of(queue) and self.held(row)]
        held = [row for row in live if (row.worker == worker if ids is None else row.id in ids)]
        for row in held:
            self._tokens += 1
            row.token, row.lease_end = f"t{self._tokens}", self.now()
        self.changed()
        return len(held)

    async def cancel(self, queue: str, id: str, *, running: bool = False) -> bool:
        room = self.room(queue)
        if (row := room.rows.get(id)) is None:
            raise MessageNotFound(id)
        if row.place != "live" or (self.held(row) and not running):
            return False
        row.error, row.claimed_at = "cancelled", row.claimed_at if self.held(row) else None
        self.archive(room, row, "failed")
        self.changed()
        return True

    # ------------------------------------------------------------------ looking

    async def get(self, queue: str, ids: Sequence[str]) -> list[Stored | None]:
        rows = self.room(queue).rows
        return [self.stored(queue, rows[id]) if id in rows else None for id in ids]

    async def scan(self, queue: str, view: View, *, after: str | None = None, limit: int = 100) -> list[Stored]:
        found = [row for _, row in sorted(self.room(queue).rows.items()) if self.view(queue, row) == view]
        return [self.stored(queue, row) for row in found if after is None or row.id > after][:limit]

    async def upcoming(
        self, queue: str, view: View, *, after: tuple[float, str] | None = None, limit: int = 100
    ) -> list[Stored]:
        found = [row for row in self.room(queue).rows.values() if self.view(queue, row) == view]
        found.sort(key=lambda row: (row.visible_at, row.id))
        return [self.stored(queue, row) for row in found if after is None or (row.visible_at, row.id) > after][:limit]

    async def peek(self, queue: str, limit: int) -> list[Stored]:
        room, place = self.room(queue), place_of(queue)
        self.expire(room)
        return [self.stored(queue, row) for row in self.ready(room, place)][:limit]

    def view(self, queue: str, row: Row) -> str:
        if row.place == "archive" or (row.place == "dead" and not queue.endswith(DEAD)):
            return row.place
        if row.place != place_of(queue):
            return "elsewhere"
        status = self.status(queue, row)
        return "ready" if status == "pending" else status

    def status(self, queue: str, row: Row) -> Status:
        if row.place == "archive":
            return row.status
        if row.place == "dead" and not queue.endswith(DEAD):
            return "dead"
        return "processing" if self.held(row) else "pending" if self.visible(row) else row.waiting

    def stored(self, queue: str, row: Row) -> Stored:
        e, status = row.envelope, self.status(queue, row)
        due = {"processing": row.lease_end, "delayed": row.visible_at, "retry": row.visible_at}.get(status)
        return Stored(row.id, status, e.payload, e.content_type, e.headers, e.priority, row.attempts,
                      self.most(self.room(queue), row), row.enqueued_at, due, row.finished_at, row.result, row.error,
                      row.worker, row.claimed_at if row.finished_at else None)  # fmt: skip

    async def stats(self, queue: str) -> Stats:
        room, now = self.room(queue), self.now()
        views = [self.view(queue, row) for row in room.rows.values()]
        ready = (row for row in room.rows.values() if self.view(queue, row) == "ready")
        waited = [now - max(row.visible_at, row.enqueued_at) for row in ready]
        n = {view: views.count(view) for view in ("ready", "delayed", "processing", "retry", "dead", "archive")}
        return Stats(sum(n.values()), n["ready"], n["delayed"], n["processing"], n["retry"], n["dead"], n["archive"],
                     room.completed, room.failed, max(waited, default=None))  # fmt: skip

    # ------------------------------------------------------------------ dead letters and archive

    async def replay(self, queue: str, view: View, ids: Sequence[str]) -> int:
        room = self.room(queue)
        wanted = [row for id in dict.fromkeys(ids) if (row := room.rows.get(id))]
        found = [row for row in wanted if row.place == view and not self.held(row)]
        copied = sum(self.copy(room, row) for row in found)
        for row in found:
            if view == "dead":
                del room.rows[row.id]
        self.changed()
        return copied

    def copy(self, room: Room, row: Row) -> bool:
        e, id = row.envelope, makers.text(makers.derived(makers.number(row.id) or 0, "replay"))
        if id in room.copies:
            return False
        room.copies.add(id)
        headers = (e.headers or {}) | {"replayed_from": row.id}
        fresh = Envelope(e.payload, e.content_type, headers, e.priority, max_attempts=e.max_attempts)
        room.rows[id] = Row(id, fresh, self.now(), self.now())
        return True

    async def discard(
        self, queue: str, view: View, ids: Sequence[str] | None = None, *, before: float | None = None
    ) -> int:
        room = self.room(queue)
        gone = [row for row in room.rows.values() if row.place == view and (ids is None or row.id in ids)]
        gone = [row for row in gone if before is None or (row.finished_at or 0.0) < before]
        for row in gone:
            del room.rows[row.id]
        return len(gone)

    async def maintain(self, queue: str) -> dict[str, int]:
        room = self.room(queue)
        days = room.info.options.archive_days
        return {"archive": await self.discard(queue, "archive", before=self.now() - days * 86400)}


def place_of(queue: str) -> str:
    return "dead" if queue.endswith(DEAD) else "live"
