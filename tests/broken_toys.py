"""Toys with one rule broken each: what the tests must notice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec

from holdfast.config import QueueOptions
from holdfast.stores.records import Answer, Claimed, Claims, Envelope, Expired, Settlement, Stats, View
from tests.toy_store import Room, Row, ToyStore


class NoTokenCheck(ToyStore):
    def settle_one(self, room: Room, s: Settlement) -> Answer:
        row = room.rows.get(s.id)
        token = row.token if row is not None and row.token is not None else s.token
        return super().settle_one(room, msgspec.structs.replace(s, token=token))


class AttemptCountedAtFailure(ToyStore):
    def take(self, room: Room, row: Row, lease: float) -> Claimed:
        claimed = super().take(room, row, lease)
        row.attempts -= 1
        return claimed

    def settle_one(self, room: Room, s: Settlement) -> Answer:
        if (row := room.rows.get(s.id)) is not None and row.token == s.token:
            row.attempts += 1
        return super().settle_one(room, s)


class ClaimGivesTooMany(ToyStore):
    def claim_now(self, queue: str, limit: int, lease: float) -> Claims:
        return super().claim_now(queue, limit + 1, lease)


class HolderNotNamed(ToyStore):
    async def claim(
        self, queue: str, limit: int, lease: float, *, wait: float = 0.0, worker: str | None = None
    ) -> Claims:
        return await super().claim(queue, limit, lease, wait=wait)


class HeldMessagesVisible(ToyStore):
    def visible(self, row: Row) -> bool:
        return row.visible_at <= self.now()


class PriorityIgnored(ToyStore):
    def ready(self, room: Room, place: str) -> Iterator[Row]:
        return iter(sorted(super().ready(room, place), key=lambda row: row.id))


class LastInFirstOut(ToyStore):
    def ready(self, room: Room, place: str) -> Iterator[Row]:
        rows = sorted(super().ready(room, place), key=lambda row: row.id, reverse=True)
        return iter(sorted(rows, key=lambda row: -row.envelope.priority))


class RetryLosesItsPlace(ToyStore):
    def ready(self, room: Room, place: str) -> Iterator[Row]:
        rows = sorted(super().ready(room, place), key=lambda row: row.visible_at)
        return iter(sorted(rows, key=lambda row: (-row.envelope.priority, row.attempts)))


class DelayIgnored(ToyStore):
    def append_one(self, room: Room, envelope: Envelope) -> str:
        return super().append_one(room, msgspec.structs.replace(envelope, delay=0.0, at=None))


class DedupIgnored(ToyStore):
    def append_one(self, room: Room, envelope: Envelope) -> str:
        return super().append_one(room, msgspec.structs.replace(envelope, dedup_key=None))


class DedupForever(ToyStore):
    def append_one(self, room: Room, envelope: Envelope) -> str:
        room.dedup = {key: (id, float("inf")) for key, (id, _) in room.dedup.items()}
        return super().append_one(room, envelope)


class ReleaseCostsAnAttempt(ToyStore):
    def give_back(self, row: Row, delay: float) -> None:
        row.waiting = "retry"


class ExpiredStaysHeld(ToyStore):
    def held(self, row: Row) -> bool:
        return row.token is not None


class NoRetryForgottenAtExpiry(ToyStore):
    def expire(self, room: Room) -> list[Expired]:
        info, options = room.info, QueueOptions(max_attempts=room.info.options.max_attempts)
        room.info = msgspec.structs.replace(info, options=options)
        expired = super().expire(room)
        room.info = info
        return expired


class NeverAlone(ToyStore):
    def alone(self, room: Room, row: Row) -> bool:
        return False


class ExtendShortens(ToyStore):
    def extend_one(self, room: Room, id: str, token: str, seconds: float) -> float | None:
        if (row := room.rows.get(id)) is not None and row.token == token:
            row.lease_end = 0.0
        return super().extend_one(room, id, token, seconds)


class AnybodyExtends(ToyStore):
    def extend_one(self, room: Room, id: str, token: str, seconds: float) -> float | None:
        row = room.rows.get(id)
        return super().extend_one(room, id, row.token or "" if row else token, seconds)


class RepeatIsLost(ToyStore):
    def settle_one(self, room: Room, s: Settlement) -> Answer:
        return "lost" if (s.id, s.token) in room.settled else super().settle_one(room, s)


class RepeatCountsTwice(ToyStore):
    def settle_one(self, room: Room, s: Settlement) -> Answer:
        room.completed += s.action == "complete" and (s.id, s.token) in room.settled
        return super().settle_one(room, s)


class CancelsHeldMessages(ToyStore):
    async def cancel(self, queue: str, id: str, *, running: bool = False) -> bool:
        return await super().cancel(queue, id, running=True)


class PurgeKillsHeldMessages(ToyStore):
    async def purge(self, queue: str) -> int:
        for row in self.room(queue).rows.values():
            row.token = None
        return await super().purge(queue)


class PausedQueueGives(ToyStore):
    async def pause(self, name: str, paused: bool) -> None:
        await super().pause(name, False)


class ReplayDoubles(ToyStore):
    def copy(self, room: Room, row: Row) -> bool:
        room.copies.clear()
        return super().copy(room, row)


class ReplayKeepsAttempts(ToyStore):
    def copy(self, room: Room, row: Row) -> bool:
        known = set(room.rows)
        copied = super().copy(room, row)
        for id in set(room.rows) - known:
            room.rows[id].attempts = row.attempts
        return copied


class FirstClaimCounts(ToyStore):
    def take(self, room: Room, row: Row, lease: float) -> Claimed:
        first = row.claimed_at
        claimed = super().take(room, row, lease)
        row.claimed_at = first or row.claimed_at
        return claimed


class DeadLettersForgetHeaders(ToyStore):
    def bury(self, room: Room, row: Row, reason: str) -> None:
        row.envelope = msgspec.structs.replace(row.envelope, headers=None)
        super().bury(room, row, reason)


class CleanupTakesDeadLetters(ToyStore):
    async def discard(
        self, queue: str, view: View, ids: Sequence[str] | None = None, *, before: float | None = None
    ) -> int:
        more = await super().discard(queue, "dead") if view == "archive" else 0
        return more + await super().discard(queue, view, ids, before=before)


class KeepsWhatShouldGo(ToyStore):
    def archive(self, room: Room, row: Row, status: str, *, keep: bool | None = None) -> None:
        super().archive(room, row, status, keep=True)  # type: ignore[arg-type]  # a status, as it came


class HalfOfABatch(ToyStore):
    async def append(self, queue: str, messages: Sequence[Envelope]) -> list[str]:
        answer = await super().append(queue, messages[: max(1, len(messages) // 2)])
        return [*answer, *answer][: len(messages)]


class ForgetsOnClose(ToyStore):
    async def close(self) -> None:
        for room in self.rooms.values():
            room.rows = {id: replace(row, token=None) for id, row in room.rows.items()}
        await super().close()


class CountsWrong(ToyStore):
    async def stats(self, queue: str) -> Stats:
        stats = await super().stats(queue)
        return msgspec.structs.replace(stats, pending=stats.pending + stats.processing, processing=0)
