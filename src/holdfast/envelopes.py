"""What is sent: a message of the user becomes an envelope for the store. Everything is checked here, before any I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

from . import config
from .codecs import Codec
from .errors import ConfigError, HoldfastError, InvalidPriority, MessageTooLarge
from .messages import Envelope, Terms, Uniform

T = TypeVar("T")

_MOST_ATTEMPTS = 2**31 - 1


class _Valued(msgspec.Struct, Generic[T], frozen=True):
    value: T


class Message(_Valued[T], Generic[T], frozen=True, kw_only=True):
    """A value with terms of its own, for `enqueue_many`."""

    priority: int = 0  # 0 to 255, higher first
    delay: float = 0.0  # seconds until it may be delivered
    at: datetime | None = None  # instead of `delay`: the instant, with a time zone
    headers: Mapping[str, str] | None = None
    dedup_key: str | None = None  # a second message with this key within the queue's window adds nothing
    max_attempts: int | None = None  # None: the queue's


def terms(
    *,
    priority: int = 0,
    delay: float = 0.0,
    at: datetime | None = None,
    headers: Mapping[str, str] | None = None,
    dedup_key: str | None = None,
    max_attempts: int | None = None,
) -> Terms:
    """Checked terms; ConfigError or InvalidPriority."""
    if type(priority) is not int or not 0 <= priority <= 255:
        priority = _priority(priority)
    if delay != 0 or type(delay) is bool:
        delay = config.seconds("delay", delay)
        if at is not None:
            raise ConfigError("give `delay` or `at`, not both")
    if dedup_key is not None:
        _text("dedup_key", dedup_key)
        if not dedup_key:
            raise ConfigError("dedup_key must not be empty")
    if max_attempts is not None:
        config.whole("max_attempts", max_attempts, most=_MOST_ATTEMPTS)
    return (
        None if headers is None else _headers(headers),
        priority,
        delay,
        None if at is None else instant("at", at),
        dedup_key,
        max_attempts,
    )


def envelope(codec: Codec[T], limit: int, value: T | Message[T], travel: Terms) -> Envelope:
    """One envelope; CodecError, MessageTooLarge. The terms of a `Message` are its own."""
    payload, content_type, travel = sealed(codec, limit, value, travel)
    return Envelope(payload, content_type, *travel)


def sealed(codec: Codec[T], limit: int, value: T | Message[T], travel: Terms) -> tuple[bytes, str, Terms]:
    """What an envelope is made of."""
    if type(value) is Message:  # isinstance on a struct takes five times as long
        travel, value = _terms_of(value), value.value
    payload, content_type = codec.encode(value)  # type: ignore[arg-type]  # no Message, as just seen
    if len(payload) > limit:
        raise _too_large(len(payload), limit)
    if codec.headers is not None:
        travel = ({**codec.headers, **(travel[0] or {})}, *travel[1:])
    return payload, content_type, travel


def envelopes(codec: Codec[T], limit: int, values: Iterable[T | Message[T]], travel: Terms) -> Sequence[Envelope]:
    """One envelope each, or an error that names the index of the bad one."""
    values = values if isinstance(values, list | tuple) else list(values)
    if codec.headers is None:
        encoded = codec.encode_many(values, unless=Message)
        if encoded is not None and max(map(len, encoded[0])) <= limit:
            return Uniform(*encoded, travel)
    made: list[Envelope] = []
    try:
        for value in values:
            made.append(envelope(codec, limit, value, travel))  # noqa: PERF401  the error needs to know how far it came
    except HoldfastError as error:
        error.args = (f"message {len(made)}: {error}",)
        raise
    return made


def _too_large(actual: int, limit: int) -> MessageTooLarge:
    return MessageTooLarge(f"the payload has {actual} bytes, the limit is {limit}", actual=actual, limit=limit)


def instant(name: str, value: object) -> float:
    """Seconds since 1970 of an aware datetime."""
    if not isinstance(value, datetime):
        raise ConfigError(f"{name}: a datetime, not {value!r}")
    if value.tzinfo is None or value.utcoffset() is None:
        raise ConfigError(f"{name}: {value!r} has no time zone; write datetime.now(UTC) or .astimezone()")
    return value.timestamp()


def _terms_of(message: Message[Any]) -> Terms:
    return terms(
        priority=message.priority,
        delay=message.delay,
        at=message.at,
        headers=message.headers,
        dedup_key=message.dedup_key,
        max_attempts=message.max_attempts,
    )


def _priority(value: object) -> int:
    """A priority that is not a plain int in range: some other integer type, or an error."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 255:
        raise InvalidPriority(f"a priority is a whole number from 0 to 255, not {value!r}")
    return int(value)


def _headers(headers: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(headers, Mapping):
        raise ConfigError(f"headers: a mapping of text to text, not {type(headers).__qualname__}")
    for key, value in headers.items():
        _text("headers", key)
        _text(f"headers[{key!r}]", value)
    return dict(headers)


def _text(name: str, value: object) -> None:
    """Text that every store can keep."""
    if not isinstance(value, str):
        raise ConfigError(f"{name}: text, not {type(value).__qualname__}")
    if "\0" in value:
        raise ConfigError(f"{name}: NUL is not allowed")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{name}: not valid Unicode text: {error.reason}") from error
