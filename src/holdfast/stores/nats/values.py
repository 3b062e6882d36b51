"""Values on JetStream: a message each in a stream of their own. The sequence of the message is the value's version."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress

from ...errors import Damaged
from ..values import ABSENT, Kept, Value, check_keys, checked_expiry, new_version, unpacked
from . import deadline, names
from .connection import Connection
from .faults import Code, Ignored, Nobody, mapped
from .queues import Register
from .reading import Found, Reader
from .wire import Post


class NatsValues:
    """See `stores/values.py` for the promises."""

    def __init__(self, connection: Connection, reader: Reader, register: Register) -> None:
        self._connection = connection
        self._reader = reader
        self._register = register
        self._stream = names.values_stream(register.prefix)
        self._made = False  # the stream, as far as we know

    def _subject(self, key: str) -> str:
        return names.value_subject(self._register.prefix, key)

    def _timeout(self) -> float:
        return self._connection.options.operation_timeout

    async def get(self, keys: Sequence[str]) -> list[Value | None]:
        check_keys(keys)
        with deadline.within(self._timeout()), mapped("reading values"):
            if len(keys) == 1:
                return [self._value(await self._read(self._subject(keys[0])))]
            found: dict[str, Found] = {}
            subjects = [self._subject(key) for key in keys]
            with Ignored(Code.STREAM_NOT_FOUND), suppress(Nobody):
                found = await self._reader.last(self._stream, sorted(set(subjects)))
            return [self._value(found.get(subject)) for subject in subjects]

    async def put(
        self, key: str, data: bytes, *, expected: str | None = None, expires_in: float | None = None
    ) -> str | None:
        check_keys([key])
        seconds = checked_expiry(expires_in)
        with deadline.within(self._timeout()), mapped("keeping a value"):
            if not self._made:
                await self._register.install(again=True)
                self._made = True
            until = math.inf if seconds is None else self._connection.now() + seconds
            ttl = "" if seconds is None else f"Nats-TTL: {math.ceil(seconds) + 1}s\r\n"
            kept = Kept(new_version(), until, data)
            expect = None if expected is None else int(expected or 0)
            return await self._put(Post(self._subject(key), kept.packed(), ttl, expect), kept, expected)

    async def _put(self, post: Post, kept: Kept, expected: str | None) -> str | None:
        while True:
            with Ignored(Code.WRONG_SEQUENCE):
                [sequence] = await self._connection.store([post])
                return str(sequence)
            found = await self._read(post.subject)
            if found is None:
                if expected != ABSENT:
                    return None
                continue  # it has just gone
            there = _kept(found)
            if there is not None and there.version == kept.version:
                return str(found.sequence)  # our own write, its answer was lost
            if expected != ABSENT or self._value(found) is not None:
                return None
            post = Post(post.subject, post.data, post.headers, found.sequence)  # over, and not removed yet

    async def delete(self, keys: Sequence[str]) -> None:
        check_keys(keys)
        with deadline.within(self._timeout()), mapped("forgetting values"):
            for key in keys:
                with Ignored(Code.STREAM_NOT_FOUND):
                    await self._connection.api(f"STREAM.PURGE.{self._stream}", {"filter": self._subject(key)})

    async def sweep(self) -> int:
        """The server does it by itself."""
        return 0

    async def _read(self, subject: str) -> Found | None:
        with Ignored(Code.STREAM_NOT_FOUND):
            return await self._reader.last_exact(self._stream, subject)
        return None

    def _value(self, found: Found | None) -> Value | None:
        kept = None if found is None else _kept(found)
        there = None if kept is None else kept.value(self._connection.now())
        return None if there is None or found is None else Value(there.data, str(found.sequence))


def _kept(found: Found) -> Kept | None:
    """None: it is damaged; the next write replaces it."""
    try:
        return unpacked(found.data, found.subject)
    except Damaged:
        return None
