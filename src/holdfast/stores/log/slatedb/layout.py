"""Which rows of SlateDB an object is.

k<key>   the object: its tag, and its bytes when they are few or often replaced
d<tag>   bytes that lie apart: written once, never changed, so that whoever reads an older state still finds them
g<tag>   bytes that are to go: a file nobody has adopted yet, or what a deleted object left
m<name>  what belongs to the database as a whole
"""

from __future__ import annotations

import struct

from ....errors import ConfigError, StoreError
from ... import formats
from .index import Entry

OBJECTS, GONE = b"k", b"g"
FORMAT_ROW, CLOCK_ROW = b"mformat", b"mclock"
BORN_ROW = b"mborn"  # the format it was made with; databases from before this was noted have none
STORE_ROW = b"mstore"  # the id of the store; the same
APART_ROW = b"mclock-apart"  # how far the clock was ahead of the wall clock then
SMALL = 512  # bytes an object keeps beside its key: more would make opening read the messages, too
LARGEST_KEPT = 1 << 20  # bytes of a head or another object that is replaced again and again

_AT_HAND, _APART = b"\0", b"\1"
_TAG = struct.Struct(">Q")
_INSTANT = struct.Struct(">d")


def object_row(key: str) -> bytes:
    return OBJECTS + key.encode()


def data_row(tag: int) -> bytes:
    return b"d" + _TAG.pack(tag)


def gone_row(tag: int) -> bytes:
    return GONE + _TAG.pack(tag)


def tag_of(row: bytes) -> int:
    """The tag of a `g` row."""
    tag: int = _TAG.unpack(row[1:])[0]
    return tag


def encode(entry: Entry) -> bytes:
    if entry.data is None:
        return _APART + _TAG.pack(entry.tag)
    return _AT_HAND + _TAG.pack(entry.tag) + entry.data


def decode(row: bytes, value: bytes) -> tuple[str, Entry]:
    if value[:1] not in (_AT_HAND, _APART) or len(value) < 9:
        raise StoreError(f"the SlateDB database is damaged: the row {row!r} cannot be read")
    return row[1:].decode(), Entry(_TAG.unpack(value[1:9])[0], value[9:] if value[:1] == _AT_HAND else None)


def encode_instant(now: float) -> bytes:
    return _INSTANT.pack(now)


def decode_instant(value: bytes | None) -> float:
    return 0.0 if value is None else float(_INSTANT.unpack(value)[0])


def check_format(value: bytes | None, *, empty: bool, place: str) -> bool:
    """True: the database is new and needs its format noted."""
    if value is None:
        if not empty:
            raise ConfigError(f"{place} is a SlateDB database of something else")
        return True
    formats.checked(int(value), formats.LOG, place, oldest=formats.FIRST)
    return False
