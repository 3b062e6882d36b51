"""The fence: one subject per message, written only by whoever knows its last sequence. The current holder wins."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from .faults import WRONG_SEQUENCE, Lost, Nobody, Refused
from .link import Link
from .queues import missing
from .reading import Found, Reader
from .wire import Post


class Fence:
    """Conditional writes to the stream of records, safe to repeat after a lost answer."""

    def __init__(self, link: Link, reader: Reader, stream: str, queue: str) -> None:
        self._link = link
        self._reader = reader
        self._stream = stream
        self._queue = queue

    async def write(self, posts: Sequence[Post], extra: Post | None = None) -> tuple[list[int | None], int | None]:
        """The new sequence of each, None where another was first; and that of `extra` when it went in with them.

        Every post must be unlike any other, so that our own write is known again when its answer was lost.
        """
        if not posts:
            return [], None
        try:
            together = [*posts, extra] if extra is not None and self._link.features.batches else list(posts)
            stored = await self._link.store(together)
            return list(stored[: len(posts)]), stored[-1] if len(together) > len(posts) else None
        except Refused as error:
            if error.code != WRONG_SEQUENCE:
                raise
        except (Lost, Nobody):
            written = await self._written(posts)
            if None not in written:
                with_them = await self._written([extra]) if extra is not None else [None]
                return written, with_them[0]
        return list(await asyncio.gather(*[self._write_one(post) for post in posts])), None

    async def _written(self, posts: Sequence[Post]) -> list[int | None]:
        """Which of these are there, as we wrote them."""
        found = await asyncio.gather(*[self._last(post.subject) for post in posts])
        return [
            one.sequence if one is not None and one.data == post.data else None
            for post, one in zip(posts, found, strict=True)
        ]

    async def _write_one(self, post: Post) -> int | None:
        deadline = time.monotonic() + self._link.options.operation_timeout
        while True:
            try:
                return (await self._link.store([post]))[0]
            except Refused as error:
                if error.code != WRONG_SEQUENCE:
                    raise
                return (await self._written([post]))[0]
            except (Lost, Nobody):
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.05)
                await self._last(post.subject)  # waits for the connection, and says when the queue is gone

    async def _last(self, subject: str) -> Found | None:
        try:
            return await self._reader.last_exact(self._stream, subject)
        except Refused as error:
            if error.code == 10059:
                raise missing(self._queue) from None
            raise
