"""Blocks of payloads as bytes, written and read without pyarrow.

Most blocks have one column. As an Arrow stream that is a schema, a header with a few lengths, where each payload ends,
and the payloads. pyarrow takes a fifth of a second and 40 MB to load, and copies every payload twice; here schema and
header are its very bytes with the lengths set. What looks different in any way is left to pyarrow.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise

# The schema: one column `payload` of bytes, metadata `holdfast` = "1" and `content_type`. Offsets lead over the text.
_SCHEMA_START = struct.Struct("<4sI44s I8s I4s i I4s I")
_SCHEMA_PARTS = (
    b"\xff\xff\xff\xff",
    bytes.fromhex("1000000000000a000e000600050008000a000000000104001000000000000a000c000000040008000a000000"),
    bytes.fromhex("0400000002000000"),
    bytes.fromhex("04000000"),
    bytes.fromhex("04000000"),
)
_SCHEMA_REST = bytes.fromhex(
    "0c000000636f6e74656e745f747970650000000008000c0004000800080000001000000004000000010000003100000008000000"
    "686f6c6466617374000000000100000014000000100014000800060007000c00000010001000000000000104100000001c000000"
    "0400000000000000070000007061796c6f6164000400040004000000"
)
_FIXED = _SCHEMA_START.size + len(_SCHEMA_REST)
_PREFIX = 8  # bytes before what the schema's length counts
_LONGEST_TYPE = 4096  # bytes; a longer content type is pyarrow's

# The header of the rows; the lengths in it are multiples of eight away from its start.
_HEADER = struct.Struct("<40s q 24s q 32s qqq 8s q 8s")
_HEADER_PARTS = (
    bytes.fromhex("ffffffff9800000014000000000000000c0016000600050008000c000c0000000003040018000000"),
    bytes.fromhex("00000a0018000c00040008000a0000004c00000010000000"),
    bytes.fromhex("0000000003000000") + bytes(24),
    bytes.fromhex("0000000001000000"),
    bytes(8),
)
_END = b"\xff\xff\xff\xff\0\0\0\0"  # of a stream


def encode(payloads: Sequence[bytes], content_type: str) -> bytes:
    """The stream of a block of these."""
    ends = array("i", list(accumulate(map(len, payloads), initial=0)))
    schema, start = _schema(content_type), _padded(4 * len(ends))
    header = _header(len(payloads), 4 * len(ends), ends[-1])
    return b"".join((schema, header, ends, bytes(start - 4 * len(ends)), *payloads, bytes(-ends[-1] % 8), _END))


def decode(data: bytes) -> tuple[list[bytes], str] | None:
    """Payloads and content type; None: not of `encode`, or damaged."""
    found = _content_type(data)
    if found is None:
        return None
    content_type, at = found
    if len(data) < at + _HEADER.size:
        return None
    _, _, _, count, _, size, start, length, _, _, _ = _HEADER.unpack_from(data, at)
    first = at + _HEADER.size
    whole = first + start + _padded(length) + len(_END)
    if not 0 <= count < len(data) or size != 4 * (count + 1) or start != _padded(size) or length < 0:
        return None
    if data[at:first] != _header(count, size, length) or len(data) != whole or not data.endswith(_END):
        return None
    ends = list(array("i", data[first : first + size]))
    if ends[0] != 0 or ends[-1] != length or ends != sorted(ends):
        return None
    base = first + start
    return [data[base + begin : base + end] for begin, end in pairwise(ends)], content_type


def is_known(data: bytes) -> bool:
    """Whether it begins as a stream of `encode` does."""
    return _content_type(data) is not None


def _padded(size: int) -> int:
    return size + -size % 8


def _header(count: int, size: int, length: int) -> bytes:
    """Of so many rows, whose ends take `size` bytes and payloads `length`."""
    first, second, third, fourth, fifth = _HEADER_PARTS
    start = _padded(size)
    return _HEADER.pack(first, start + _padded(length), second, count, third, size, start, length, fourth, count, fifth)


@lru_cache(maxsize=64)
def _schema(content_type: str) -> bytes:
    text = content_type.encode()
    room = len(text) + 4 - len(text) % 4  # it ends with a zero, and what follows begins at a multiple of four
    first, second, third, fourth, fifth = _SCHEMA_PARTS
    size = _FIXED + room
    # 100, 52, -36 and 12 are pyarrow's own offsets with no text; those that lead over the text grow by its room.
    start = _SCHEMA_START.pack(
        first,
        _padded(size) - _PREFIX,
        second,
        100 + room,
        third,
        52 + room,
        fourth,
        -36 - room,
        12 + room,
        fifth,
        len(text),
    )
    return b"".join((start, text, bytes(room - len(text)), _SCHEMA_REST, bytes(-size % 8)))


def _content_type(data: bytes) -> tuple[str, int] | None:
    """It, and where the schema ends."""
    if len(data) < _FIXED:
        return None
    *_, length = _SCHEMA_START.unpack_from(data)
    if length > _LONGEST_TYPE:
        return None
    try:
        text = data[_SCHEMA_START.size : _SCHEMA_START.size + length].decode()
    except UnicodeDecodeError:
        return None
    schema = _schema(text)
    return (text, len(schema)) if data.startswith(schema) else None
