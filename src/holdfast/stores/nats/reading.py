"""Reading streams: the last messages of many subjects, runs of a stream, and the ids behind subjects."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from ...errors import Damaged, HoldfastError
from ...escaping import logger_named
from . import deadline
from .connection import TRIES, WINDOW, Connection
from .faults import Code, Ignored, Lost
from .sums import Sums, damaged, is_sealed
from .wire import BATCH_BYTES, BATCH_MESSAGES

T = TypeVar("T")
_LOG = logger_named("holdfast.nats")


class Found(msgspec.Struct, frozen=True):
    """A stored message."""

    subject: str
    sequence: int
    stored: bytes  # with its sum, or without one
    sums: Sums

    @property
    def data(self) -> bytes:
        """What was stored; Damaged."""
        return self.sums.opened(self.subject, self.stored)

    @property
    def has_sum(self) -> bool:
        return is_sealed(self.stored)

    def read(self, decode: Callable[[bytes], T]) -> T:
        """What it says; whatever a decoder makes of rubbish, Damaged names the message."""
        return read(self.subject, decode, self.data)

    def note(self, decode: Callable[[bytes], T]) -> T | None:
        """The same for what the work can go on without; None: it is damaged, which is told."""
        try:
            return self.read(decode)
        except Damaged as error:
            _LOG.error("%s", error)
            return None


def read(subject: str, decode: Callable[[bytes], T], data: bytes) -> T:
    """The same for bytes that have been verified."""
    try:
        return decode(data)
    except (HoldfastError, MemoryError):  # a newer format, or our own want: not rubbish
        raise
    except Exception as error:
        raise damaged(subject, f"{type(error).__name__}: {error}") from error


class Reader:
    """Looks at streams without consuming them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def last(self, stream: str, subjects: Sequence[str]) -> dict[str, Found]:
        """The last message of each subject that has one; subjects may hold wildcards."""
        if not subjects:
            return {}
        found: dict[str, Found] = {}
        longest = max(len(subject) for subject in subjects) + 3  # in JSON
        together = min(WINDOW, self._connection.max_payload // 2 // longest)
        for start in range(0, len(subjects), together):
            found.update(await self._last_of(stream, subjects[start : start + together]))
            if start:
                deadline.renew()
        return found

    async def _last_of(self, stream: str, subjects: Sequence[str]) -> dict[str, Found]:
        found: dict[str, Found] = {}
        wanted: dict[str, Any] = {"multi_last": list(subjects)}
        while True:
            messages = await self._collect(stream, wanted)
            page = [self._found(message.headers or {}, message.data) for message in messages]
            found.update({one.subject: one for one in page})
            if not messages or int((messages[-1].headers or {}).get("Nats-Num-Pending", "0")) == 0:
                return found
            wanted = {**wanted, "seq": page[-1].sequence + 1}

    async def last_exact(self, stream: str, subject: str) -> Found | None:
        """The last message of one subject, from the leader: never an old one."""
        return await self._get(stream, {"last_by_subj": subject})

    async def at(self, stream: str, sequence: int) -> Found | None:
        """The message with this sequence."""
        return await self._get(stream, {"seq": sequence})

    async def _get(self, stream: str, body: dict[str, Any]) -> Found | None:
        with Ignored(Code.MESSAGE_NOT_FOUND):
            answer = (await self._connection.api(f"STREAM.MSG.GET.{stream}", body))["message"]
            stored = base64.b64decode(answer.get("data", ""))
            return Found(answer["subject"], answer["seq"], stored, self._connection.sums)
        return None

    async def run(self, stream: str, subject: str, start: int, limit: int) -> list[Found]:
        """Up to `limit` messages of a subject with wildcards, in the order of the stream, from a sequence on."""
        found: list[Found] = []
        while limit > len(found):
            page = await self._run_page(stream, subject, start, min(limit - len(found), BATCH_MESSAGES))
            found += page
            if not page:
                break
            deadline.renew()
            start = page[-1].sequence + 1
        return found

    async def _run_page(self, stream: str, subject: str, start: int, limit: int) -> list[Found]:
        body = {"seq": max(start, 1), "next_by_subj": subject}
        messages = await self._collect(stream, {**body, "batch": limit, "max_bytes": BATCH_BYTES})
        return [self._found(message.headers or {}, message.data) for message in messages]

    def _found(self, headers: dict[str, str], stored: bytes) -> Found:
        return Found(headers["Nats-Subject"], int(headers["Nats-Sequence"]), stored, self._connection.sums)

    async def _collect(self, stream: str, body: dict[str, Any]) -> list[Any]:
        for attempt in range(TRIES):
            try:
                return await self._connection.collect(f"DIRECT.GET.{stream}", body)
            except Lost:
                if attempt == TRIES - 1 or deadline.is_over():
                    raise
        return []

    async def pages(self, path: str, field: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        """Everything that a list of the server's API names, page by page."""
        found: list[dict[str, Any]] = []
        while True:
            page = await self._connection.api(path, {**body, "offset": len(found)})
            found += page.get(field) or []
            if not page.get(field) or len(found) >= int(page.get("total", 0)):
                return found

    async def subjects(self, stream: str, pattern: str) -> list[str]:
        """Every subject of a pattern that holds a message; names only, no payloads."""
        found: list[str] = []
        while True:
            info = await self._connection.api(
                f"STREAM.INFO.{stream}", {"subjects_filter": pattern, "offset": len(found)}
            )
            page = info["state"].get("subjects") or {}
            found += page
            if not page or len(found) >= int(info.get("total", 0)):
                return found
            deadline.renew()
