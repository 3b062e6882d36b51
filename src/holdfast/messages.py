"""What is sent: a message of the user becomes an envelope for the store. Everything is checked here, before any I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

from . import config, limits
from .codecs import Codec
from .errors import ConfigError, HoldfastError, InvalidPriority, MessageTooLarge
from .stores.records import JSON, Change, Envelope, Terms, Uniform

T = TypeVar("T")


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
    expires: float | datetime | None = None  # seconds from now, or an instant, after which nobody gets it


def terms(
    *,
    priority: int = 0,
    delay: float = 0.0,
    at: datetime | None = None,
    headers: Mapping[str, str] | None = None,
    dedup_key: str | None = None,
    max_attempts: int | None = None,
    expires: float | datetime | None = None,
) -> Terms:
    """Checked terms; ConfigError, InvalidPriority or MessageTooLarge."""
    if type(priority) is not int or not 0 <= priority <= 255:
        priority = _priority(priority)
    if delay != 0 or type(delay) is bool:
        delay = config.seconds("delay", delay)
        if at is not None:
            raise ConfigError("give `delay` or `at`, not both")
    if dedup_key is not None:
        limits.check_dedup_key(_text("dedup_key", dedup_key))
        if not dedup_key:
            raise ConfigError("dedup_key must not be empty")
    if max_attempts is not None:
        config.whole("max_attempts", max_attempts, most=config.MOST_ATTEMPTS)
    return (
        None if headers is None else _headers(headers),
        priority,
        delay,
        None if at is None else instant("at", at),
        dedup_key,
        max_attempts,
        *((None, None) if expires is None else _expires(expires)),
    )


def _expires(value: float | datetime) -> tuple[float | None, float | None]:
    """As an instant, or as seconds from now."""
    if isinstance(value, datetime):
        return instant("expires", value), None
    return None, config.positive("expires", value)


def envelope(codec: Codec[T], limit: int, value: T | Message[T], travel: Terms) -> Envelope:
    """One envelope; CodecError, MessageTooLarge. The terms of a `Message` are its own."""
    payload, content_type, travel = sealed(codec, limit, value, travel)
    return Envelope(payload, content_type, *travel)


def sealed(codec: Codec[T], limit: int, value: T | Message[T], travel: Terms) -> tuple[bytes, str, Terms]:
    """What an envelope is made of."""
    if type(value) is Message:  # isinstance on a struct takes five times as long
        travel, value = _terms_of(value), value.value
    payload, content_type = codec.encode(value)  # type: ignore[arg-type]  # no Message, as just seen
    if (size := len(payload)) > limit or size > limits.SURE_BYTES:
        limits.check_payload(payload, limit, is_json=content_type == JSON)
    if codec.headers is not None:
        travel = ({**codec.headers, **(travel[0] or {})}, *travel[1:])
    return payload, content_type, travel


def envelopes(codec: Codec[T], limit: int, values: Iterable[T | Message[T]], travel: Terms) -> Sequence[Envelope]:
    """One envelope each, or an error that names the index of the bad one."""
    values = values if isinstance(values, list | tuple) else list(values)
    if codec.headers is None:
        encoded = codec.encode_many(values, unless=Message)
        if encoded is not None and _fit(*encoded, limit):
            return Uniform(*encoded, travel)
    made: list[Envelope] = []
    try:
        for value in values:
            made.append(envelope(codec, limit, value, travel))  # noqa: PERF401  the error needs to know how far it came
    except HoldfastError as error:
        error.args = (f"message {len(made)}: {error}",)
        raise
    return made


def _fit(payloads: list[bytes], content_type: str, limit: int) -> bool:
    """Whether all are within their limits; if not, one by one tells which is not."""
    longest = max(map(len, payloads))
    if longest > limit:
        return False
    if longest > limits.SURE_BYTES and content_type == JSON:
        try:
            for payload in payloads:
                limits.check_nesting(payload)
        except MessageTooLarge:
            return False
    return True


def changed(*, priority: int | None, delay: float | None, at: datetime | None) -> Change:
    """What shall be other than it is; ConfigError, InvalidPriority."""
    if delay is not None and at is not None:
        raise ConfigError("give `delay` or `at`, not both")
    return Change(
        None if priority is None else _priority(priority),
        None if delay is None else config.seconds("delay", delay),
        None if at is None else instant("at", at),
    )


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
        expires=message.expires,
    )


def _priority(value: object) -> int:
    """A priority that is not a plain int in range: some other integer type, or an error."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 255:
        raise InvalidPriority(f"a priority is a whole number from 0 to 255, not {value!r}")
    return int(value)


def _headers(headers: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(headers, Mapping):
        raise ConfigError(f"headers: a mapping of text to text, not {type(headers).__qualname__}")
    size = 0
    for key, value in headers.items():
        size += _text("headers", key)
        size += _text(f"headers[{key[: limits.SHOWN_CHARS]!r}]", value)
    limits.check_headers(size)
    return dict(headers)


def _text(name: str, value: object) -> int:
    """Text that every store can keep; how many bytes it has."""
    if not isinstance(value, str):
        raise ConfigError(f"{name}: text, not {type(value).__qualname__}")
    if "\0" in value:
        raise ConfigError(f"{name}: NUL is not allowed")
    try:
        return len(value.encode())
    except UnicodeEncodeError as error:
        raise ConfigError(f"{name}: not valid Unicode text: {error.reason}") from error
