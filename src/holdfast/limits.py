"""How large the parts of a message may be: the same on every store, and checked before any I/O.

What comes in is refused beyond its limit. Error text is cut instead: an attempt that failed must be able to say so.
The payload's limit is the queue's own (`max_message_size`), and so is that of a result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from .errors import CodecError, ConfigError, MessageTooLarge

T = TypeVar("T")

HEADERS_BYTES = 64 * 1024  # of all keys and values together, in UTF-8
DEDUP_KEY_BYTES = 1024  # in UTF-8
CONTENT_TYPE_BYTES = 1024  # a media type with its parameters; twice the name of any protobuf message
TEXT_BYTES = 8 * 1024  # kept of an error or a reason, in UTF-8
CUT_MARK = " … (cut)"
HISTORY_ATTEMPTS = 10  # that a message remembers: enough to see a pattern, and some 4 KiB at most
HISTORY_TEXT_BYTES = 200  # of the error, and of the worker's name, in each of them

_READER_FRAMES = 100  # who reads JSON is deeper in calls than who wrote it; the parser counts these as well
_SURE_LEVELS = 512  # what every parser reads, wherever it is called: half of Python's usual 1,000 levels
SURE_BYTES = 2 * _SURE_LEVELS  # a payload that is no longer has not the brackets to be nested deeper
SHOWN_CHARS = 100  # of a name or an id that is not ours to know, in an error
_SHOWN_NAMES = 5  # in one line for people
_skim = msgspec.json.Decoder(msgspec.Raw).decode  # finds the end of a value and makes nothing of it


class TooDeep(MessageTooLarge, CodecError):
    """A value nested deeper than a parser can read. `actual` and `limit` are levels; `actual` is the least it has."""


def listed(names: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = len(names) - _SHOWN_NAMES
    return ", ".join(names[:_SHOWN_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def check_size(what: str, actual: int, limit: int) -> None:
    """Raises MessageTooLarge with both numbers, which are bytes."""
    if actual > limit:
        raise MessageTooLarge(f"{what} has {actual} bytes, the limit is {limit}", actual=actual, limit=limit)


def check_payload(payload: bytes, limit: int, *, is_json: bool) -> None:
    """Its size, and for JSON how deep it is nested; MessageTooLarge."""
    check_size("the payload", len(payload), limit)
    if is_json:
        check_nesting(payload)


def check_result(result: bytes, limit: int) -> None:
    """A result as it is stored, which is JSON; MessageTooLarge."""
    check_size("the result", len(result), limit)
    check_nesting(result)


def check_headers(size: int) -> None:
    """The bytes of all keys and values; MessageTooLarge."""
    check_size("the headers (keys and values in all)", size, HEADERS_BYTES)


def check_dedup_key(size: int) -> None:
    """The bytes of the key; MessageTooLarge."""
    check_size("dedup_key", size, DEDUP_KEY_BYTES)


def check_content_type(size: int) -> None:
    """The bytes of it; ConfigError: it is the codec's, not the message's."""
    if size > CONTENT_TYPE_BYTES:
        raise ConfigError(f"the content type has {size} bytes, the limit is {CONTENT_TYPE_BYTES}")


def check_nesting(payload: bytes) -> None:
    """That JSON can be read again by somebody who is deeper in calls than we are; TooDeep."""
    if len(payload) <= SURE_BYTES or payload.count(b"[") + payload.count(b"{") <= _SURE_LEVELS:
        return
    try:
        _below(_READER_FRAMES, lambda: _skim(payload))
    except RecursionError:
        raise too_deep() from None
    except (msgspec.DecodeError, ValueError):
        return  # a codec of the user's own calls it JSON; its reader will say what is wrong with it


def too_deep() -> TooDeep:
    """The error, with the levels that can be read."""
    limit = _deepest()
    return TooDeep(
        f"cannot encode a value nested deeper than can be read back, the limit is {limit} levels",
        actual=limit + 1,
        limit=limit,
    )


def kept_text(text: str) -> str:
    """Text that every store can keep: no NUL, no lone surrogates; what is beyond the limit is cut, with a mark."""
    data = text.replace("\0", "\\0").encode("utf-8", "backslashreplace")
    if len(data) <= TEXT_BYTES:
        return data.decode()
    return data[: TEXT_BYTES - len(CUT_MARK.encode())].decode("utf-8", "ignore") + CUT_MARK


def remembered(text: str | None) -> str | None:
    """As much of an error or a worker's name as the history of a message keeps."""
    if text is None or len(text) <= HISTORY_TEXT_BYTES // 4:
        return text
    return text.encode("utf-8", "backslashreplace")[:HISTORY_TEXT_BYTES].decode("utf-8", "ignore")


def in_ascii(text: str | None) -> str | None:
    """The text in letters that every store has, with escapes for all others; kept as any text is."""
    return None if text is None else kept_text(text.encode("ascii", "backslashreplace").decode())


def _below(frames: int, call: Callable[[], T]) -> T:
    """The call, made from so many frames further down."""
    return call() if frames <= 0 else _below(frames - 1, call)


def _deepest() -> int:
    """How many levels of JSON can be read from here. Only for words: it is asked when something is too deep."""
    fits, fails = 0, _SURE_LEVELS
    while _reads(fails):
        fits, fails = fails, 2 * fails
    while fails - fits > 1:
        levels = (fits + fails) // 2
        fits, fails = (levels, fails) if _reads(levels) else (fits, levels)
    return fits


def _reads(levels: int) -> bool:
    try:
        _below(_READER_FRAMES, lambda: _skim(b"[" * levels + b"]" * levels))
    except RecursionError:
        return False
    return True
