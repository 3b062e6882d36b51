"""A store that writes down what it was asked and what it answered. It sits right above the real one."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from holdfast.stores.base import Store
from holdfast.stores.records import Answer, Claims, Envelope, Settlement, Stored, View
from holdfast.stores.records import Claimed as Message

from .history import RAISED, Acknowledged, Asked, Attempted, Buried, Claimed, Extended, Found, History, Refused, Settled

KEY = "chaos-key"  # a header, so that the key is readable even when the payload is not
LIVE: tuple[View, ...] = ("ready", "delayed", "processing", "retry")
ENDED: tuple[View, ...] = ("dead", "archive")


def key_of(headers: dict[str, str] | None) -> str:
    return (headers or {}).get(KEY, "")


class Recorder:
    """Wraps any store; everything that is not recorded passes through."""

    def __init__(
        self, store: Store, history: History, *, name: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self._store = store
        self._history = history
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @contextmanager
    def _noting(self, call: str, keys: Sequence[str] = ()) -> Iterator[None]:
        begun = self._clock()
        try:
            yield
        except Exception as error:
            self._history.write(Refused(begun, self._clock(), call, type(error).__name__, str(error), list(keys)))
            raise

    async def append(self, queue: str, messages: Sequence[Envelope]) -> list[str]:
        now, keys = self._clock(), [key_of(message.headers) for message in messages]
        self._history.write(
            *(Attempted(now, k, zlib.crc32(m.payload), m.priority) for k, m in zip(keys, messages, strict=True))
        )
        with self._noting("append", keys):
            ids = await self._store.append(queue, messages)
        now = self._clock()
        self._history.write(*(Acknowledged(now, key, id) for key, id in zip(keys, ids, strict=True)))
        return ids

    async def claim(
        self, queue: str, limit: int, lease: float, *, wait: float = 0.0, worker: str | None = None
    ) -> Claims:
        begun = self._clock()
        with self._noting("claim"):
            claims = await self._store.claim(queue, limit, lease, wait=wait, worker=worker)
        now = self._clock()
        self._history.write(
            *(_claimed(begun, now, lease, message) for message in claims.messages),
            *(Buried(now, expired.id, expired.attempts) for expired in claims.expired),
        )
        return claims

    async def extend(self, queue: str, leases: Sequence[tuple[str, str]], seconds: float) -> list[float | None]:
        begun = self._clock()
        with self._noting("extend"):
            ends = await self._store.extend(queue, leases, seconds)
        self._note_extended(begun, leases, seconds, ends)
        return ends

    def extend_from_thread(
        self, queue: str, leases: Sequence[tuple[str, str]], seconds: float
    ) -> list[float | None] | None:
        begun = self._clock()
        ends = self._store.extend_from_thread(queue, leases, seconds)
        if ends is not None:
            self._note_extended(begun, leases, seconds, ends)
        return ends

    def _note_extended(
        self, begun: float, leases: Sequence[tuple[str, str]], seconds: float, ends: Sequence[float | None]
    ) -> None:
        now = self._clock()
        self._history.write(
            *(Extended(begun, now, *lease, seconds, end is not None) for lease, end in zip(leases, ends, strict=True))
        )

    async def settle(self, queue: str, settlements: Sequence[Settlement]) -> list[Answer]:
        begun = self._clock()
        # Only what gives a message back is asked about later: an end is found in the store, heard or not.
        given_back = [s for s in settlements if s.action in ("release", "retry")]
        self._history.write(*(Asked(begun, s.id, s.token, s.action) for s in given_back))
        answers: Sequence[str] = [RAISED] * len(settlements)
        try:
            with self._noting("settle"):
                answers = found = await self._store.settle(queue, settlements)
        finally:
            self._note_settled(begun, settlements, answers)
        return found

    def _note_settled(self, begun: float, settlements: Sequence[Settlement], answers: Sequence[str]) -> None:
        now = self._clock()
        self._history.write(
            *(Settled(begun, now, s.id, s.token, s.action, a) for s, a in zip(settlements, answers, strict=True))
        )


def _claimed(begun: float, at: float, lease: float, m: Message) -> Claimed:
    check = zlib.crc32(m.payload)
    return Claimed(begun, at, m.id, m.token, m.attempt, m.max_attempts, lease, m.recovered, key_of(m.headers), check)


async def audit(store: Store, queue: str, history: History) -> None:
    """Write down everything the store still knows of a queue: live, dead and archived."""
    for view in (*LIVE, *ENDED):
        after: str | None = None
        while page := await store.scan(queue, view, after=after, limit=1000):
            history.write(*(_found(stored) for stored in page))
            after = page[-1].id


def _found(stored: Stored) -> Found:
    return Found(stored.id, key_of(stored.headers), zlib.crc32(stored.payload), stored.status, stored.attempts)
