"""Sums: an object ends with a CRC-32 of its key and its bytes, written and verified where it enters or leaves a space.

The sum covers the key. Keys are never used for two contents, so an object that matches its key is the one that whoever
names it means: one that was swapped with another does not match, although it is sound. Only heads and options change
under their key.

An archive file must stay a Parquet file for everybody, so there the sum lies before the footer, where no reader looks.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from threading import Lock
from typing import Any
from zlib import crc32

from ...errors import Damaged
from .. import formats
from . import names
from .space import Buffer

_SEAL = struct.Struct("<4sI")
_KNOWN_MOST = 64  # objects: heads and options of the queues in use
_UNKNOWN: tuple[None, bytes] = (None, b"")
_CRC32 = b"\x9acrc"  # names the algorithm; the first byte begins no text, so options do not end like this
_PARQUET_END = struct.Struct("<I4s")  # the length of the footer before it, and PAR1


class Mismatch(Damaged):
    """An object whose bytes do not match its sum, or that lost it; `left` are those bytes."""

    def __init__(self, key: str, why: str, left: bytes) -> None:
        queue = names.queue_of(key)
        what = f"the object {key} of queue {queue!r} is damaged ({why})"
        advice = "restore it from a backup; `holdfast scrub` looks for others"
        super().__init__(f"{what}: {advice}", queue=queue, key=key, why=why)
        self.left = left
        self.tag: Any = None  # on a bucket, what a replacement is conditional on


class Sums:
    """What a space does about them; set when it is opened."""

    written = False  # the format of the store has them
    required = False  # and had them from its beginning: an object without has lost it
    without: set[str] | None = None  # while a scrub counts them: keys of objects that were read and have none

    def __init__(self) -> None:
        self._known: dict[str, tuple[Buffer | None, bytes]] = {}  # by key: as it is stored, and what is in it

    def set(self, format: int, born: int | None = None) -> None:
        """By the store's format, and the one it was made with."""
        self.written = format >= formats.SUMS
        self.required = self.written and (self.required or (born or formats.FIRST) >= formats.SUMS)

    def sealed(self, key: str, data: Buffer) -> Buffer:
        """The bytes to store under a key."""
        stored = seal(key, data) if self.written else data
        if key in self._known:
            self._known[key] = (stored, bytes(data))
        return stored

    def begin(self, key: str, data: Buffer) -> Sealing:
        """The same in parts, to be written one after the other: joining a large block takes longer than its sum."""
        return Sealing(key, data, written=self.written)

    def opened(self, key: str, data: bytes) -> bytes:
        """The bytes that were stored; Mismatch."""
        at = _place(key, data, len(data) - _SEAL.size)
        if not _has(data, at):
            if self.required:
                raise Mismatch(key, "its sum is gone", data)
            if self.without is not None:
                self.without.add(key)
            return data
        behind = at + _SEAL.size
        view = memoryview(data)
        if _SEAL.unpack_from(data, at)[1] != crc32(view[behind:], crc32(view[:at], crc32(key.encode()))):
            raise Mismatch(key, "its bytes do not match its sum", data)
        return data[:at] if behind == len(data) else data[:at] + data[behind:]

    def reopened(self, key: str, stored: bytes) -> bytes:
        """The same for what every commit reads: bytes that matched, or were written here, are not summed up again."""
        known, data = self._known.get(key, _UNKNOWN)
        if known != stored:
            data = self.opened(key, stored)
            if len(self._known) >= _KNOWN_MOST:
                self._known.clear()
            self._known[key] = (stored, data)
        return data


class Sealing:
    """An object's bytes in the parts that are stored; its sum is worked out by the thread that comes to it first."""

    __slots__ = ("_footer", "_front", "_key", "_sum", "_turn")

    def __init__(self, key: str, data: Buffer, *, written: bool = True) -> None:
        at = _place(key, data, len(data))
        self._key = key
        self._front, self._footer = (data, b"") if at == len(data) else (data[:at], data[at:])
        self._sum = None if written else b""
        self._turn = Lock()

    def sum(self) -> bytes:
        with self._turn:
            if self._sum is None:
                self._sum = _sum(self._key, self._front, self._footer)
            return self._sum

    def __iter__(self) -> Iterator[Buffer]:
        yield self._front
        yield self.sum()
        yield self._footer


def seal(key: str, data: Buffer) -> bytes:
    """The bytes with their sum."""
    at = _place(key, data, len(data))
    front, footer = data[:at], data[at:]
    return b"".join((front, _sum(key, front, footer), footer))


def _sum(key: str, front: Buffer, footer: Buffer) -> bytes:
    return _SEAL.pack(_CRC32, crc32(footer, crc32(front, crc32(key.encode()))))


def is_sealed(key: str, data: bytes) -> bool:
    """Whether stored bytes have a sum at all."""
    return _has(data, _place(key, data, len(data) - _SEAL.size))


def _has(data: bytes, at: int) -> bool:
    return at >= 0 and data[at : at + len(_CRC32)] == _CRC32


def _place(key: str, data: Buffer, size: int) -> int:
    """Where the sum of `size` bytes lies, which `data` ends with: behind them, or before the footer."""
    if not key.endswith(names.PARQUET) or size < _PARQUET_END.size:
        return size
    length, _ = _PARQUET_END.unpack_from(data, len(data) - _PARQUET_END.size)
    return max(0, size - int(length) - _PARQUET_END.size)
