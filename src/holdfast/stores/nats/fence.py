"""The fence: one subject per message, written only by whoever knows its last sequence. The current holder wins."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from . import deadline
from .connection import Connection
from .faults import NO_ROOM, Code, Ignored, Lost, Nobody, Refused, of_queue
from .reading import Found, Reader
from .reserve import Reserve
from .wire import Post


class Fence:
    """Conditional writes to the stream of records, safe to repeat after a lost answer."""

    def __init__(self, connection: Connection, reader: Reader, reserve: Reserve, stream: str, queue: str) -> None:
        self._connection = connection
        self._reserve = reserve
        self._reader = reader
        self._stream = stream
        self._queue = queue

    async def write(self, posts: Sequence[Post], before: Post | None = None) -> tuple[list[int | None], int | None]:
        """The new sequence of each, None where another was first; and that of `before`, sent in the same breath.

        Every post must be unlike any other, so that our own write is known again when its answer was lost.
        """
        together = list(posts) if before is None else [before, *posts]
        answers = await self._connection.store_each(together)
        done = [
            answer if isinstance(answer, int) else await self._again(post, answer)
            for post, answer in zip(together, answers, strict=True)
        ]
        return (done, None) if before is None else (done[1:], done[0])

    async def _again(self, post: Post, answer: Exception) -> int | None:
        """What did not go in at once: another was first, or nobody answered."""
        if isinstance(answer, Refused):
            if answer.code == Code.WRONG_SEQUENCE:
                return await self._written(post)
            if answer.code not in NO_ROOM or not await self._reserve.give_up():
                raise answer
            return await self._write_one(post)
        if not isinstance(answer, Lost | Nobody):
            raise answer
        return await self._write_one(post)

    async def _written(self, post: Post) -> int | None:
        """Its sequence, if it is there as we wrote it."""
        found = await self._last(post.subject)
        return found.sequence if found is not None and found.note(bytes) == post.data else None

    async def _write_one(self, post: Post) -> int | None:
        until = deadline.until(self._connection.options.operation_timeout)
        while True:
            try:
                with Ignored(Code.WRONG_SEQUENCE):
                    return (await self._connection.store([post]))[0]
                return await self._written(post)
            except (Lost, Nobody):
                if time.monotonic() >= until:
                    raise
                await asyncio.sleep(deadline.RETRY_S)
                await self._last(post.subject)  # waits for the connection, and says when the queue is gone

    async def _last(self, subject: str) -> Found | None:
        with of_queue(self._queue):
            return await self._reader.last_exact(self._stream, subject)
