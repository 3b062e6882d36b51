"""The answers of a stream to a publish, and to the removal or reading of a message."""

from __future__ import annotations

from typing import Any

import msgspec

from . import faults
from .fast_reader import Word
from .faults import Nobody, Refused


class _Stored(msgspec.Struct):
    """The answer to a publish."""

    seq: int = 0
    error: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_Stored).decode


def read_answer(reply: Word) -> int | Exception:
    """The sequence in the answer to a publish, or Refused or Nobody."""
    if (headers := reply.headers) and headers.get("Status") == "503":
        return Nobody()
    said = _decode(reply.data)
    return said.seq if said.error is None else faults.refusal(said.error)


def sequence(reply: Word) -> int:
    """The sequence in the answer to a publish; Refused."""
    found = read_answer(reply)
    if isinstance(found, Exception):
        raise found
    return found


_NOT_THERE = (10043, 10057, faults.MESSAGE_NOT_FOUND)


def read_there(reply: Word) -> bool | Exception:
    """Whether a message that was to be removed or read was there; Refused or Nobody."""
    found = read_answer(reply)
    if isinstance(found, Refused) and found.code in _NOT_THERE:
        return False
    return found if isinstance(found, Exception) else True
