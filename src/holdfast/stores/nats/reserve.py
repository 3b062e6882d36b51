"""A reserve on the server: some MiB that say nothing, given up when it is full so that it can be drained.

Claims and outcomes write records, and a full server takes none. While the reserve is given up nothing is enqueued:
what is freed belongs to those who drain. It is made again when there is room.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from ...errors import Unavailable
from .connection import Connection
from .deadline import FRESH_S
from .faults import NO_ROOM, Code, Ignored, Refused
from .names import reserve_stream, reserve_subject
from .wire import Post

RESERVE_BYTES = 4 << 20  # the records of some thousand messages, so that a full server can be drained
NOTE = b"reserve"  # the word that it is given up


class Reserve:
    """The reserve of one prefix, as this process knows it."""

    def __init__(self, connection: Connection, prefix: str) -> None:
        self._connection = connection
        self._stream = reserve_stream(prefix)
        self._subject = reserve_subject(prefix)
        self._note = f"{prefix}._.note._"
        self._is_there = True
        self._in_doubt = True  # nothing was asked yet, or an enqueue was refused: look before the next
        self._given_up_at = float("-inf")
        self._making = asyncio.Lock()

    async def look(self) -> None:
        """Ask the server whether it is there; a store that has none yet is left alone."""
        found = True
        with Ignored(Code.STREAM_NOT_FOUND):
            info = await self._connection.api(f"STREAM.INFO.{self._stream}")
            found = int(info["state"]["bytes"]) >= RESERVE_BYTES
        self._is_there = found

    def heard(self) -> None:
        """A client has given it up."""
        self._is_there, self._given_up_at = False, time.monotonic()

    async def give_up(self) -> bool:
        """Free its room, for what drains the server; False: there is none left."""
        await self._connection.send(self._note, NOTE)
        answer: dict[str, Any] | None = None
        with Ignored(Code.STREAM_NOT_FOUND):
            answer = await self._connection.api(f"STREAM.PURGE.{self._stream}")
        if answer is None:
            return False
        just = self._was_just_given_up
        if int(answer.get("purged", 0)) or not just:
            self.heard()
        return bool(answer.get("purged")) or just

    @property
    def _was_just_given_up(self) -> bool:
        return time.monotonic() - self._given_up_at < FRESH_S  # so long it is for those who were refused

    async def refill(self, *, begun: bool = False) -> bool:
        """Make it again where there is room for it: one client does, unless one that was `begun` is made whole."""
        if self._was_just_given_up:
            return False
        piece = min(RESERVE_BYTES // 8, self._connection.max_payload // 2)
        first, *rest = [Post(f"{self._subject}.{place}", bytes(piece)) for place in range(-(-RESERVE_BYTES // piece))]
        refused = await self._refused([first if begun else msgspec.structs.replace(first, expect=0)])
        if not refused:
            refused = await self._refused(rest)
        elif isinstance(refused[0], Refused) and refused[0].code == Code.WRONG_SEQUENCE:
            refused = []  # another is at it; should it end before it is done, the next `mend` goes on
        if not refused:
            self._is_there = True
            return True
        await self._connection.api(f"STREAM.PURGE.{self._stream}")
        if not isinstance(refused[0], Refused) or refused[0].code not in NO_ROOM:
            raise refused[0]
        return False

    async def _refused(self, posts: Sequence[Post]) -> list[Exception]:
        return [answer for answer in await self._connection.store_each(posts) if isinstance(answer, Exception)]

    async def mend(self) -> int:
        """Make it again if it was given up; how often that was done."""
        await self.look()
        return int(not self._is_there and await self.refill(begun=True))

    def refused(self) -> None:
        """The server had no room for a message."""
        self._in_doubt = True

    async def check_room(self) -> None:
        """Before an enqueue; Unavailable while the room is for those who drain."""
        if self._is_there and not self._in_doubt:
            return
        async with self._making:  # those who wait find what the first one found
            if self._in_doubt:
                await self.look()
            if not self._is_there and not await self.refill():
                raise Unavailable("nats: the server has no room: complete or delete messages, or give it more storage")
            self._in_doubt = False
