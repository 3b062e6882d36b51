"""The bytes of a block of payloads, put together in one copy.

Most blocks have one column. As an Arrow stream that is a schema, a header with a few lengths, where each payload ends,
and the payloads. pyarrow copies these twice to get there, and copies are most of what a large block costs besides the
disk. Schema and header are taken as pyarrow writes them; only the lengths in the header are set here.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from itertools import accumulate

import msgspec

_HEADER = struct.Struct("<40s q 24s q 32s qqq 8s q 8s")  # the lengths in it are multiples of eight away from its start
_END = b"\xff\xff\xff\xff\0\0\0\0"  # of a stream


class Frame(msgspec.Struct, frozen=True):
    """What blocks have in common that differ in their payloads only."""

    schema: bytes
    kept: tuple[bytes, bytes, bytes, bytes, bytes]  # of the header, around its lengths

    @classmethod
    def of(cls, schema: bytes, batch: bytes) -> Frame | None:
        """As in a batch that pyarrow wrote; None: it is shorter than any we know."""
        if len(batch) < _HEADER.size:
            return None
        first, _, second, _, third, _, _, _, fourth, _, fifth = _HEADER.unpack_from(batch)
        return cls(schema, (first, second, third, fourth, fifth))

    def fill(self, payloads: Sequence[bytes]) -> bytes:
        """The stream of a block of these."""
        ends = array("i", list(accumulate(map(len, payloads), initial=0)))
        count, size, data = len(payloads), 4 * len(ends), ends[-1]
        start = size + -size % 8
        first, second, third, fourth, fifth = self.kept
        header = _HEADER.pack(
            first, start + data + -data % 8, second, count, third, size, start, data, fourth, count, fifth
        )
        return b"".join((self.schema, header, ends, bytes(start - size), *payloads, bytes(-data % 8), _END))
