"""Payloads above the server's `max_payload`: a claim check through one object store bucket.

What lies there is what any client of NATS's object store reads and writes. We go past the driver's own: its reads need
a consumer with flow control, one chunk after the other, and wait without an end.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec

from ...errors import Damaged
from ...ids import number
from ...v1.task_pb2 import Task
from . import deadline
from .connection import Connection
from .faults import Code, Ignored, Lost, Nobody, Refused
from .reading import Found, Reader
from .wire import Post

RECORD_BYTES = 32 << 10  # of a message that are not its payload: its record, an error of 8 KiB, a worker's name
RESULT = ".result"  # after the id, in the name of a result
_CHUNK_BYTES = 128 << 10  # as NATS's own object store cuts: other clients read it
_CHUNKS_AT_ONCE = 16  # sent or asked for at once: 2 MiB must pass within one timeout
_ROLLUP = "Nats-Rollup: sub\r\n"


class _Info(msgspec.Struct, omit_defaults=True):
    """What an object store says of an object."""

    name: str
    bucket: str = ""
    nuid: str = ""
    size: int = 0
    chunks: int = 0
    mtime: str = ""
    digest: str = ""
    deleted: bool = False
    options: dict[str, Any] = {}


class Blobs:
    """Large bytes by name."""

    def __init__(self, connection: Connection, reader: Reader, prefix: str) -> None:
        self._connection = connection
        self._reader = reader
        self._bucket = f"{prefix}-blobs"
        self._stream = f"OBJ_{self._bucket}"
        self._meta = f"$O.{self._bucket}.M."
        self._chunks = f"$O.{self._bucket}.C."

    @property
    def most(self) -> int:
        """Bytes of a task that can be sent as it is."""
        return self._connection.max_payload - RECORD_BYTES

    def fits(self, size: int) -> bool:
        """Whether a message of so many bytes can be sent as it is."""
        return size <= self.most

    # ------------------------------------------------------------------ one object

    async def put(self, name: str, data: bytes) -> str:
        """Keep the bytes; the name. The same name again replaces them."""
        old = await self._find(name, create=True)
        size, nuid = min(_CHUNK_BYTES, self._connection.max_payload // 2), os.urandom(11).hex()
        chunks = [Post(self._chunks + nuid, data[at : at + size]) for at in range(0, len(data), size)]
        now, how = datetime.now(UTC).isoformat(), {"max_chunk_size": size}
        info = _Info(name, self._bucket, nuid, len(data), len(chunks), now, _digest(data), options=how)
        try:
            for start in range(0, len(chunks), _CHUNKS_AT_ONCE):
                await self._store(chunks[start : start + _CHUNKS_AT_ONCE])
                deadline.renew()
            await self._store([self._about(info)])
        except (Refused, Lost, Nobody):
            if not deadline.is_over():
                await self._purge(nuid)
            raise
        if old is not None and not old.deleted:
            await self._purge(old.nuid)
        return name

    async def get(self, name: str) -> bytes:
        info = await self._find(name)
        if info is None or info.deleted:
            raise self._missing(name)
        parts: list[bytes] = []
        start = 1
        while len(parts) < info.chunks:
            page = await self._page(info, start, min(_CHUNKS_AT_ONCE, info.chunks - len(parts)))
            if not page:  # a copy of the stream that is behind, or it was replaced or deleted just now
                if await self._find(name) != info:
                    return await self.get(name)
                if deadline.is_over():
                    raise Lost("the object store does not give all of a payload")
                continue
            parts += [one.data for one in page]
            start = page[-1].sequence + 1
            deadline.renew()
        data = b"".join(parts)
        if len(data) != info.size:
            raise _damaged(name, "it is not as long as it was")
        if info.digest and info.digest != _digest(data):
            raise _damaged(name, "its bytes do not match its digest")
        return data

    async def payload(self, task: Task) -> bytes:
        """The data of a task, wherever it lies."""
        return await self.get(task.blob) if task.blob else task.data

    async def fitted(self, task: Task, raw: bytes) -> tuple[Task, bytes]:
        """A task and its bytes that a record has room for: of days when the server took more, its data lies elsewhere.

        Headers that are too large even so are left out: the message must be able to end.
        """
        if self.fits(len(raw)):
            return task, raw
        small = Task()
        small.CopyFrom(task)
        if small.data:
            small.blob, small.data = await self.put(task.id, task.data), b""
        if not self.fits(small.ByteSize()):
            small.headers.clear()
        return small, small.SerializeToString()

    async def copy(self, old: str, new: str) -> str:
        return await self.put(new, await self.get(old))

    async def delete(self, names: Sequence[str]) -> None:
        """Forget these; what is not there is no mistake."""
        for name in names:
            info = await self._find(name)
            if info is not None and not info.deleted:
                await self._store([self._about(_Info(name, self._bucket, info.nuid, deleted=True))])
                await self._purge(info.nuid)
                deadline.renew()

    # ------------------------------------------------------------------ the bucket

    async def drop(self) -> list[str]:
        """Remove all payloads and results, and the bucket when nothing else is in it; what is left, in words."""
        try:
            found = await self._reader.last(self._stream, [f"{self._meta}*"])
        except Nobody:
            return []
        infos = [info for one in found.values() if not (info := _info(one)).deleted]
        own = [info.name for info in infos if number(info.name.partition(".")[0]) is not None]
        if len(own) < len(infos):
            await self.delete(own)
            return [f"object store {self._bucket}, {len(infos) - len(own)} objects"]
        with suppress(Refused):
            await self._connection.api(f"STREAM.DELETE.{self._stream}")
        return []

    async def _create(self) -> None:
        config = {
            "name": self._stream,
            "subjects": [f"{self._chunks}>", f"{self._meta}>"],
            "storage": "file",
            "num_replicas": self._connection.options.replicas,
            "discard": "new",
            "allow_rollup_hdrs": True,
            "allow_direct": True,
        }
        with Ignored(Code.STREAM_EXISTS):
            await self._connection.api(f"STREAM.CREATE.{self._stream}", config)

    # ------------------------------------------------------------------ pieces

    def _about(self, info: _Info) -> Post:
        name = base64.urlsafe_b64encode(info.name.encode()).decode()
        return Post(self._meta + name, msgspec.json.encode(info), _ROLLUP)

    async def _find(self, name: str, *, create: bool = False) -> _Info | None:
        """What is said of an object, by the leader; None: there is none."""
        with Ignored(Code.STREAM_NOT_FOUND):
            found = await self._reader.last_exact(self._stream, self._about(_Info(name)).subject)
            return None if found is None else _info(found)
        if create:
            await self._create()
        return None

    async def _page(self, info: _Info, start: int, limit: int) -> list[Found]:
        try:
            return await self._reader.run(self._stream, self._chunks + info.nuid, start, limit)
        except Nobody:
            raise self._missing(info.name) from None

    async def _store(self, posts: Sequence[Post]) -> None:
        for answer in await self._connection.store_each(posts):
            if isinstance(answer, Exception):
                raise answer

    async def _purge(self, nuid: str) -> None:
        await self._connection.api(f"STREAM.PURGE.{self._stream}", {"filter": self._chunks + nuid})

    def _missing(self, name: str) -> Damaged:
        return _damaged(name, "it is gone")


def _damaged(name: str, why: str) -> Damaged:
    advice = "restore it from a backup; `holdfast scrub` looks for others"
    return Damaged(f"nats: the payload {name!r} in the object store is damaged ({why}): {advice}", key=name, why=why)


def _digest(data: bytes) -> str:
    return "SHA-256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()


_decode = msgspec.json.Decoder(_Info).decode


def _info(found: Found) -> _Info:
    return found.read(_decode)
