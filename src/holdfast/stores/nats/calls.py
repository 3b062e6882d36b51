"""Calls of more messages than the server takes at once: their parts count together, or not at all.

The word `open` is written before the first part is sent. When the last part is stored it becomes `committed`, and is
removed. So whoever is handed a part and finds no word, or `committed`, may take it; with `open` it has to wait. A call
whose producer died stays open until its time is over; then whoever meets it writes `dropped`, and its parts are thrown
away as they are met. Both words expect the sequence of `open`: of the producer and the others, one decides.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal

import msgspec

from ...v1.task_pb2 import Task
from .connection import WINDOW, Connection
from .fence import Fence
from .names import Names
from .reading import Found, Reader
from .reserve import Reserve
from .wire import Post

_MESSAGES_PER_S = 1000  # stored by the slowest producer: a call that is slower is dropped by whoever meets it

Verdict = Literal["counts", "waits", "dropped"]


class Mark(msgspec.Struct, frozen=True):
    """What is said of a call."""

    state: Literal["open", "committed", "dropped"]
    until: float  # when others may drop it


class Call(msgspec.Struct, frozen=True):
    """A call under way."""

    name: str
    subject: str
    until: float
    sequence: int  # of its open word

    def marked(self, posts: Sequence[Post]) -> list[Post]:
        """Tasks as parts of this call: a field more, behind the bytes that are there."""
        field = Task(call=self.name).SerializeToString()
        return [msgspec.structs.replace(post, data=post.data + field) for post in posts]


read_mark = msgspec.json.Decoder(Mark).decode


class Calls:
    """The calls of one queue."""

    def __init__(self, connection: Connection, reader: Reader, reserve: Reserve, names: Names) -> None:
        self._connection = connection
        self._reader = reader
        self._names = names
        self._fence = Fence(connection, reader, reserve, names.task_stream, names.queue)
        self._ended: dict[str, Verdict] = {}

    # ------------------------------------------------------------------ the producer's side

    async def begin(self, messages: int) -> Call:
        name = os.urandom(8).hex()
        seconds = 2 * self._connection.options.operation_timeout + messages / _MESSAGES_PER_S
        until = self._connection.moment().latest + seconds
        subject = self._names.call + name
        [sequence], _ = await self._fence.write([Post(subject, _word("open", until), "", 0)])
        assert sequence is not None  # nobody else knows the name
        return Call(name, subject, until, sequence)

    async def commit(self, call: Call) -> bool:
        """From now on its messages count; False: it took too long, and another dropped it."""
        if not await self._end(call.subject, call.until, call.sequence, "committed"):
            return await self.verdict(call.name) == "counts"  # a repeat: its word may be removed already
        self._remember(call.name, "counts")
        await self._remove(call.subject)
        return True

    async def drop(self, call: Call) -> None:
        """None of its messages counts, whatever was stored of it."""
        if await self._end(call.subject, call.until, call.sequence, "dropped"):
            self._remember(call.name, "dropped")

    async def is_open(self, call: Call) -> bool:
        found = await self._find(call.name)
        return found is not None and _read(found).state == "open"

    # ------------------------------------------------------------------ everybody's

    async def verdict(self, name: str) -> Verdict:
        """Whether messages of this call count; an open one whose time is over is dropped."""
        while (known := self._ended.get(name)) is None:
            found = await self._find(name)
            word = None if found is None else _read(found)
            if found is None or word is None or word.state == "committed":
                return self._remember(name, "counts")
            if word.state == "dropped":
                return self._remember(name, "dropped")
            if word.until > self._connection.moment().earliest:
                return "waits"
            await self._end(found.subject, word.until, found.sequence, "dropped")
        return known

    async def _find(self, name: str) -> Found | None:
        return await self._reader.last_exact(self._names.task_stream, self._names.call + name)

    async def _end(self, subject: str, until: float, sequence: int, state: Literal["committed", "dropped"]) -> bool:
        [took], _ = await self._fence.write([Post(subject, _word(state, until), "", sequence)])
        return took is not None

    async def _remove(self, subject: str) -> None:
        await self._connection.api(f"STREAM.PURGE.{self._names.task_stream}", {"filter": subject})

    def _remember(self, name: str, verdict: Verdict) -> Verdict:
        self._ended[name] = verdict
        if len(self._ended) > WINDOW:
            del self._ended[next(iter(self._ended))]
        return verdict

    # ------------------------------------------------------------------ sweeping

    async def sweep(self, *, older_than: float, nothing_waits: bool) -> int:
        """Words that say nothing any more: of committed calls, and of dropped ones when no message is left at all."""
        names = self._names
        swept = 0
        for subject in await self._reader.subjects(names.task_stream, f"{names.call}*"):
            found = await self._reader.last_exact(names.task_stream, subject)
            mark = found.note(read_mark) if found is not None else None
            if mark is None or mark.until > self._connection.now() - older_than:
                continue
            if mark.state == "committed" or (mark.state == "dropped" and nothing_waits):
                await self._remove(subject)
                swept += 1
        return swept


def _word(state: Literal["open", "committed", "dropped"], until: float) -> bytes:
    return msgspec.json.encode(Mark(state, until))


def _read(found: Found) -> Mark:
    return found.read(read_mark)
