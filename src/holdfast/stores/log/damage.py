"""Objects that cannot be read: what is said of them, and what stands for their messages so that others can go on."""

from __future__ import annotations

from collections.abc import Callable, Sized
from types import ModuleType
from typing import TypeVar

import msgspec

from ...errors import Damaged, HoldfastError, Unavailable
from ...escaping import logger_named
from . import names
from .rows import RAW, Rows
from .space import Reading
from .sums import Mismatch

KEPT = "damaged/"  # below a log's root: the bytes of blocks that could not be read
HEADER = "damaged_block"  # of the messages that were in one: its key
T = TypeVar("T")
S = TypeVar("S", bound=Sized)
logger = logger_named("holdfast.stores.log")


class Substitute(Rows, gc=False):
    """Rows in place of a block that cannot be read: the ids its key tells, and no payloads."""

    why: str = ""


def read(key: str, decode: Callable[[bytes], T], data: bytes, *, queue: str = "") -> T:
    """Decode an object; whatever a decoder says of rubbish, Damaged names the object."""
    try:
        return decode(data)
    except (HoldfastError, MemoryError, ImportError):  # a newer format, or our own want: not rubbish
        raise
    except Exception as error:
        if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
            raise Unavailable(f"{key} could not be read while a library is loaded ({error}): try again") from error
        raise damaged(key, f"{type(error).__name__}: {error}", queue=queue) from error


def read_block(key: str, decode: Callable[[bytes], S], data: bytes, *, queue: str = "") -> S:
    """The same for a block, whose key tells how many messages there are."""

    def counted(data: bytes) -> S:
        found, count = decode(data), names.parse_block(key).count
        if len(found) != count:
            raise ValueError(f"{len(found)} messages instead of {count}")
        return found

    return read(key, counted, data, queue=queue)


def damaged(key: str, why: str, *, queue: str = "") -> Damaged:
    queue = queue or names.queue_of(key)
    what = f"the object {key} of queue {queue!r} is damaged ({why[:200]})"
    advice = "restore it from a backup; `holdfast scrub` looks for others"
    return Damaged(f"{what}: {advice}", queue=queue, key=key, why=why)


def left(view: Reading, key: str) -> bytes | None:
    """The bytes of an object as they are, whether they match their sum or not."""
    try:
        found = view.get(key)
    except Mismatch as error:
        return error.left
    return found.data if found is not None else None


def note(view: Reading, key: str, type: type[T]) -> T | None:
    """What a small object says that the work can go on without; None: nothing, or it is damaged, which is told."""
    try:
        found = view.get(key)
        return read(key, lambda data: msgspec.msgpack.decode(data, type=type), found.data) if found else None
    except Damaged as error:
        logger.error("%s", error)
        return None


def missing(key: str) -> Damaged:
    return damaged(key, "its bytes are gone")


def substitute(key: str, error: Damaged) -> Substitute:
    """For the messages of a block, so that they can end."""
    name = names.parse_block(key)
    count = name.count
    rows = Substitute([b""] * count, RAW, [{HEADER: key}] * count, error=[str(error)] * count, why=str(error))
    if name.first:  # it had its ids in a column: the ends are known, the others are spread between them
        first, span = int(name.first, 16), int(name.last, 16) - int(name.first, 16)
        rows.id = [f"{first + span * place // max(1, count - 1):032x}" for place in range(count)]
        born = names.birth_of(key) or 0.0
        rows.enqueued_at, rows.priority = [born] * count, [name.priority] * count
        rows.attempts = [name.attempts] * count
    return rows


def tell(error: Damaged) -> None:
    """A worker goes on, so this is how people learn of it."""
    logger.error("%s. Its messages end as dead, its bytes are kept below %s", error, KEPT)
