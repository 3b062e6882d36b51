"""Reading streams: the last messages of many subjects, runs of a stream, and the ids behind subjects."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, NamedTuple

from . import deadline
from .connection import TRIES, WINDOW, Connection
from .faults import Code, Ignored, Lost
from .wire import BATCH_BYTES, BATCH_MESSAGES


class Found(NamedTuple):
    """A stored message."""

    subject: str
    sequence: int
    data: bytes


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
            page = [_found(message.headers or {}, message.data) for message in messages]
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
            return Found(answer["subject"], answer["seq"], base64.b64decode(answer.get("data", "")))
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
        return [_found(message.headers or {}, message.data) for message in messages]

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


def _found(headers: dict[str, str], data: bytes) -> Found:
    return Found(headers["Nats-Subject"], int(headers["Nats-Sequence"]), data)
