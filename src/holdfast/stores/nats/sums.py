"""Sums: what is stored under a subject ends with a CRC-32 of the subject and the bytes, written by the connection and
verified by whoever reads.

The sum covers the subject, so what was stored under another one does not match although it is sound. It is a field of
Protocol Buffers that no message of ours has: whoever reads tasks with another program need not know of it. What lies
in the object store has NATS's own digest instead: others read it too.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from zlib import crc32

from ...errors import Damaged
from .. import formats
from . import names
from .wire import Post

_SEAL = struct.Struct("<2sI")
_CRC32 = b"\xa5\x06"  # field 100, four bytes: names the algorithm
OBJECTS = "$"  # subjects of the object store begin with it, and no prefix does


class Sums:
    """What a connection does about them; set by the format of the store."""

    written = False
    required = False  # the store had them from its beginning: what is without has lost it

    def set(self, format: int, born: int) -> None:
        """By the store's format, and the one it was made with."""
        self.written = format >= formats.SUMS
        self.required = self.written and born >= formats.SUMS

    def sealed(self, subject: str, data: bytes) -> bytes:
        """The bytes to store under a subject."""
        if not self.written or subject[0] == OBJECTS:
            return data
        return data + _SEAL.pack(_CRC32, crc32(data, crc32(subject.encode())))

    def posts(self, posts: Sequence[Post]) -> Sequence[Post]:
        """The same for many."""
        if not self.written:
            return posts
        return [Post(each.subject, self.sealed(each.subject, each.data), each.headers, each.expect) for each in posts]

    def opened(self, subject: str, data: bytes) -> bytes:
        """The bytes that were stored; Damaged."""
        if not is_sealed(data) or subject[0] == OBJECTS:
            if self.required and subject[0] != OBJECTS:
                raise damaged(subject, "its sum is gone")
            return data
        at = len(data) - _SEAL.size
        data, seal = data[:at], data[at:]
        if _SEAL.unpack(seal)[1] != crc32(data, crc32(subject.encode())):
            raise damaged(subject, "its bytes do not match its sum")
        return data


def is_sealed(data: bytes) -> bool:
    """Whether stored bytes have a sum at all."""
    return data[-_SEAL.size : -4] == _CRC32


def damaged(subject: str, why: str) -> Damaged:
    queue = names.queue_of_subject(subject)
    what = f"the message {subject} of queue {queue!r} is damaged ({why})"
    advice = "restore it from a backup; `holdfast scrub` looks for others"
    return Damaged(f"{what}: {advice}", queue=queue, key=subject, why=why)
