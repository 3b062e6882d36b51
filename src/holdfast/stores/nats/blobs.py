"""Payloads above the server's `max_payload`: a claim check through one object store bucket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nats.errors
from nats.js.api import ObjectStoreConfig
from nats.js.errors import APIError, BucketNotFoundError, NotFoundError, ObjectNotFoundError

from ...errors import StoreError
from .faults import Lost
from .link import Link

ROOM = 32768  # bytes of a message that are not its payload, at least: its record, and an error of 8 KiB


class Blobs:
    """Large bytes by name."""

    def __init__(self, link: Link, prefix: str) -> None:
        self._link = link
        self._bucket = f"{prefix}-blobs"
        self._open: Any = None

    def fits(self, size: int) -> bool:
        """Whether a message of so many bytes can be sent as it is."""
        return size + ROOM <= self._link.max_payload

    async def put(self, name: str, data: bytes) -> str:
        """Keep the bytes; the name. The same name again replaces them."""
        bucket = await self._store(create=True)
        try:
            await bucket.put(name, data)
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

    async def drop(self) -> None:
        """Remove the bucket."""
        self._open = None
        try:
            await self._link.client.jetstream().delete_object_store(self._bucket)
        except (BucketNotFoundError, NotFoundError, APIError):
            pass

    async def _store(self, *, create: bool = False) -> Any:
        if self._open is None:
            js = self._link.client.jetstream(timeout=10)
            try:
                self._open = await js.object_store(self._bucket)
            except (BucketNotFoundError, NotFoundError):
                if not create:
                    raise
                config = ObjectStoreConfig(bucket=self._bucket, replicas=self._link.options.replicas)
                self._open = await js.create_object_store(self._bucket, config=config)
        return self._open
