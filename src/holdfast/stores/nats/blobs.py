"""Payloads above the server's `max_payload`: a claim check through one object store bucket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nats.errors
from nats.js.api import ObjectMeta, ObjectMetaOptions, ObjectStoreConfig
from nats.js.errors import APIError, BucketNotFoundError, NotFoundError, ObjectNotFoundError

from ...errors import StoreError
from ...ids import number
from .faults import Lost
from .link import Link

LEAST_PAYLOAD = 65536  # bytes that a server must take in one message: room for a record, and as much for a task
ROOM = 32768  # bytes of a message that are not its payload, at least: its record, and an error of 8 KiB
RESULT = ".result"  # after the id, in the name of a result
_CHUNK_BYTES = 128 << 10


class Blobs:
    """Large bytes by name."""

    def __init__(self, link: Link, prefix: str) -> None:
        self._link = link
        self._bucket = f"{prefix}-blobs"
        self._open: Any = None
        self._client: Any = None  # the connection that it is open on

    @property
    def most(self) -> int:
        """Bytes of a task that can be sent as it is."""
        return self._link.max_payload - ROOM

    def fits(self, size: int) -> bool:
        """Whether a message of so many bytes can be sent as it is."""
        return size <= self.most

    async def put(self, name: str, data: bytes) -> str:
        """Keep the bytes; the name. The same name again replaces them."""
        bucket = await self._store(create=True)
        chunk = min(_CHUNK_BYTES, self._link.max_payload // 2)
        try:
            await bucket.put(name, data, ObjectMeta(options=ObjectMetaOptions(max_chunk_size=chunk)))
        except (nats.errors.Error, OSError) as error:
            raise Lost("the object store did not take it") from error
        return name

    async def get(self, name: str) -> bytes:
        try:
            found = await (await self._store()).get(name)
        except (ObjectNotFoundError, NotFoundError, BucketNotFoundError) as error:
            raise StoreError(f"nats: the payload {name!r} is not in the object store any more") from error
        except (nats.errors.Error, OSError) as error:
            raise Lost("the object store did not answer") from error
        return bytes(found.data or b"")

    async def copy(self, old: str, new: str) -> str:
        return await self.put(new, await self.get(old))

    async def delete(self, names: Sequence[str]) -> None:
        """Forget these; what is not there is no mistake."""
        for name in names:
            try:
                await (await self._store()).delete(name)
            except (ObjectNotFoundError, NotFoundError, BucketNotFoundError):
                pass
            except (nats.errors.Error, OSError) as error:
                raise Lost("the object store did not answer") from error

    async def drop(self) -> list[str]:
        """Remove all payloads and results, and the bucket when nothing else is in it; what is left, in words."""
        try:
            found = [info.name for info in await (await self._store()).list(ignore_deletes=True)]
        except BucketNotFoundError:
            return []
        except NotFoundError:
            found = []
        own = [name for name in found if number(name.removesuffix(RESULT)) is not None]
        self._open = None
        if len(own) < len(found):
            await self.delete(own)
            return [f"object store {self._bucket}, {len(found) - len(own)} objects"]
        try:
            await self._link.client.jetstream().delete_object_store(self._bucket)
        except (BucketNotFoundError, NotFoundError, APIError):
            pass
        return []

    async def _store(self, *, create: bool = False) -> Any:
        if self._open is None or self._client is not self._link.client:
            self._client = self._link.client
            js = self._client.jetstream(timeout=10)
            try:
                self._open = await js.object_store(self._bucket)
            except (BucketNotFoundError, NotFoundError):
                if not create:
                    raise
                config = ObjectStoreConfig(bucket=self._bucket, replicas=self._link.options.replicas)
                self._open = await js.create_object_store(self._bucket, config=config)
        return self._open
