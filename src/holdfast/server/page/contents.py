"""What a message carries, as people read it: JSON in lines, other text as it is, bytes in hex. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from ...deliveries import Record
from ..bodies import Shown, masked, shown

SHOWN_BYTES = 64 * 1024  # of a payload on one page: more is for a program
_LINE_BYTES = 16  # of a row of hex


class Content(msgspec.Struct, frozen=True):
    """Text to show, and what it is."""

    kind: str
    text: str
    size: int
    is_whole: bool = True


def opened(record: Record[Any], *, content: bool, hidden: Sequence[str]) -> Shown:
    """As the API shows it: masked, and without content for those who may not see it."""
    return shown(record, content=content, hidden=hidden)


def of(one: Shown) -> Content | None:
    """The payload; None: it is not shown."""
    if one.value is not UNSET:
        return written("JSON", _json(one.value))
    return None if not isinstance(one.payload, bytes) else _raw(one.payload, one.content_type)


def result_of(one: Shown) -> Content | None:
    return None if one.result is UNSET or one.result is None else written("JSON", _json(one.result))


def brief(one: Shown, chars: int = 120) -> str:
    """In one line, for a table."""
    found = of(one)
    if found is None:
        return ""
    text = msgspec.json.encode(one.value).decode(errors="replace") if one.value is not UNSET else found.text
    text = " ".join(text[: chars * 2].split())
    return text if len(text) <= chars else f"{text[:chars]}…"


def written(kind: str, text: str) -> Content:
    size = len(text.encode(errors="replace"))
    return Content(kind, text[:SHOWN_BYTES], size, len(text) <= SHOWN_BYTES)


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode(errors="replace")


def _raw(payload: bytes, content_type: str) -> Content:
    part = payload[:SHOWN_BYTES]
    try:
        text = part.decode()
        if all(each.isprintable() or each in "\n\r\t" for each in text):
            return Content(content_type, text, len(payload), len(part) == len(payload))
    except UnicodeDecodeError:
        pass
    return Content(f"{content_type}, as hex", _hex(part), len(payload), len(part) == len(payload))


def _hex(data: bytes) -> str:
    rows = []
    for start in range(0, len(data), _LINE_BYTES):
        part = data[start : start + _LINE_BYTES]
        letters = "".join(chr(each) if 32 <= each < 127 else "." for each in part)
        rows.append(f"{start:08x}  {part.hex(' '):<{_LINE_BYTES * 3}} {letters}")
    return "\n".join(rows)


def plain(value: Any, hidden: Sequence[str]) -> Content:
    """A value that is no message's."""
    return written("JSON", _json(masked(value, hidden)))
