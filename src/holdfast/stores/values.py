"""Small named values next to the queues, for integrations of ours: results, bindings, marks. Private.

A value is there or not; it has a version, which changes with every write, and may expire. Keys are any text. Nothing
of a queue depends on values, and backups leave them out.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Protocol
from uuid import uuid4

import msgspec

from ..errors import ConfigError, Damaged
from ..limits import check_size
from ..validate import positive

KEY_BYTES = 1024  # of a key, in UTF-8: ids of others with a word or two before them
ABSENT = ""  # as the expected version: nothing is there
_HEAD = struct.Struct("<B16sd")  # format, version, expiry
_FORMAT = 1  # of these bytes


class Value(msgspec.Struct, frozen=True):
    """What is kept under a key, and its version: opaque, another after each write."""

    data: bytes
    version: str


class Values(Protocol):
    """What a store that keeps values has as its `values`."""

    async def get(self, keys: Sequence[str]) -> list[Value | None]:
        """In input order; None: nothing is there, or it has expired."""

    async def put(
        self, key: str, data: bytes, *, expected: str | None = None, expires_in: float | None = None
    ) -> str | None:
        """Keep these bytes; their version. None: what is there is not of the version `expected`, nothing changed.

        `expected`: ABSENT where nothing may be there; without, whatever is there is replaced. After a lost answer None
        may also be said of a write that was done and replaced since; who compares must be able to do it twice.
        """

    async def delete(self, keys: Sequence[str]) -> None:
        """Forget these; harmless where nothing is there."""

    async def sweep(self) -> int:
        """Give back the room of what has expired; of how many values. Harmless to leave out for a while."""


class Kept(msgspec.Struct, frozen=True):
    """A value as stores without a place for its parts keep it: one run of bytes."""

    version: str
    expires_at: float  # by the store's clock; infinite: never
    data: bytes

    def value(self, now: float) -> Value | None:
        return Value(self.data, self.version) if now < self.expires_at else None

    def packed(self) -> bytes:
        return _HEAD.pack(_FORMAT, bytes.fromhex(self.version), self.expires_at) + self.data


def unpacked(data: bytes, key: str = "") -> Kept:
    """Damaged, where it is none of ours."""
    if len(data) < _HEAD.size or data[0] != _FORMAT:
        raise Damaged(f"the value {key!r} is not as it was written", queue="", key=key)
    _, version, expires_at = _HEAD.unpack_from(data)
    return Kept(version.hex(), expires_at, data[_HEAD.size :])


def new_version() -> str:
    """By the writer, so that it knows its own write again when an answer was lost."""
    return uuid4().hex


def check_keys(keys: Sequence[str]) -> None:
    """ConfigError, MessageTooLarge."""
    for key in keys:
        if not isinstance(key, str) or not key or "\0" in key:
            raise ConfigError(f"the key of a value is text without NUL, not {key!r}")
        try:
            check_size("the key of a value", len(key.encode()), KEY_BYTES)
        except UnicodeEncodeError as error:
            raise ConfigError(f"the key of a value: not valid Unicode text: {error.reason}") from error


def checked_expiry(expires_in: float | None) -> float | None:
    return None if expires_in is None else positive("expires_in", expires_in)
