"""What requests and answers of the API look like, and how messages become and come from them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from .. import config, limits
from ..codecs import RAW
from ..deliveries import Attempt, Delivery, Record
from ..errors import CodecError, ConfigError, HoldfastError
from ..messages import sealed, terms
from ..queue import Queue
from ..stores.records import JSON, Dedup, Enqueued, Envelope, Status

MASK = "***"  # instead of a field that is not shown

Priority = Annotated[int, Meta(ge=0, le=255)]
Seconds = Annotated[float, Meta(ge=0)]


class Terms(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A message: `value` is any JSON value, or `payload` the bytes (base64 in JSON) of a `content_type`."""

    value: Any = UNSET
    payload: bytes | UnsetType = UNSET
    content_type: str | UnsetType = UNSET
    priority: Priority = 0
    delay: Seconds = 0.0
    at: datetime | None = None
    headers: dict[str, str] | None = None
    dedup_key: str | None = None
    max_attempts: int | None = None
    expires: Annotated[float, Meta(gt=0)] | datetime | None = None  # seconds, or an instant


class Enqueue(Terms, kw_only=True, forbid_unknown_fields=True):
    """One message, or `messages`: all of them or none."""

    messages: list[Terms] | UnsetType = UNSET
    dedup: Dedup = "window"  # how long the dedup_key of one message holds
    replace: bool = False
    report: bool = False


class Ids(msgspec.Struct):
    """In the order of the messages; with `report` also whether each is new, and whether it replaced another."""

    ids: list[str]
    enqueued: list[Enqueued] | UnsetType = UNSET


class Claim(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Up to `limit` messages, held for `lease` seconds (the queue's, unless given); `wait` is a long poll."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 1
    lease: Annotated[float, Meta(gt=0)] | None = None
    wait: Annotated[float, Meta(ge=0)] = 0.0
    worker: Annotated[str, Meta(min_length=1, max_length=256)] | None = None  # who holds them; None: the server


class Held(msgspec.Struct, kw_only=True):
    """A message in your hands: settle it by its receipt."""

    id: str
    receipt: str
    attempt: int
    max_attempts: int
    priority: int
    headers: dict[str, str]
    enqueued_at: datetime
    expires_at: datetime  # the lease
    content_type: str
    expires: datetime | None = None  # the message
    value: Any = UNSET
    payload: bytes | UnsetType = UNSET


class Deliveries(msgspec.Struct):
    deliveries: list[Held]


class Settle(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`complete {result, keep}`, `fail {error, retry_in}`, `release {delay}`, `kill {reason}`, `extend {seconds}`."""

    receipt: str
    outcome: Literal["complete", "fail", "release", "kill", "extend"] = "complete"
    result: Any = None
    keep: bool | None = None
    error: str = ""
    retry_in: Seconds | None = None
    delay: Seconds = 0.0
    reason: str = ""
    seconds: Seconds = 0.0


class Settlements(msgspec.Struct, forbid_unknown_fields=True):
    settlements: list[Settle]


class Settled(msgspec.Struct, omit_defaults=True):
    """`error` is the name of ours: LeaseLost, MessageNotFound."""

    ok: bool
    error: str | None = None
    expires_at: datetime | None = None


class Results(msgspec.Struct):
    """In the order of the settlements."""

    results: list[Settled]


class Shown(msgspec.Struct, kw_only=True):
    """What is known of a message; `value` and `payload` are left out for those who may not see them."""

    id: str
    status: Status
    priority: int
    attempts: int
    max_attempts: int
    enqueued_at: datetime
    visible_at: datetime | None
    expires: datetime | None
    claimed_at: datetime | None
    finished_at: datetime | None
    error: str | None
    worker: str | None
    history: tuple[Attempt, ...]  # the last 10 attempts that are over, the newest last
    content_type: str
    headers: dict[str, str] | UnsetType = UNSET
    value: Any = UNSET
    payload: bytes | UnsetType = UNSET
    result: Any = UNSET


class Page(msgspec.Struct):
    """Records in id order; `next` is the `after` of the following page, if there may be one.

    A search says how many messages it has looked at: `scanned`.
    """

    messages: list[Shown]
    next: str | None
    scanned: int | UnsetType = UNSET


class Chosen(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Ids; for a replay of the archive also what ended from `since` until before `until`."""

    ids: list[str] | None = None
    since: datetime | None = None
    until: datetime | None = None


class Changed(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What becomes of a waiting message; what is left out stays."""

    value: Any | UnsetType = UNSET
    priority: int | None = None
    delay: float | None = None
    at: datetime | None = None


class Count(msgspec.Struct):
    count: int


def envelopes(queue: Queue[Any], given: Sequence[Terms]) -> list[Envelope]:
    """Checked and encoded, or an error that names the index of the bad one."""
    made: list[Envelope] = []
    try:
        for each in given:
            made.append(_envelope(queue, each))  # noqa: PERF401  the error needs to know how far it came
    except HoldfastError as error:
        if len(given) > 1:
            error.args = (f"message {len(made)}: {error}",)
        raise
    return made


def _envelope(queue: Queue[Any], given: Terms) -> Envelope:
    travel = terms(
        priority=given.priority,
        delay=given.delay,
        at=given.at,
        headers=given.headers,
        dedup_key=given.dedup_key,
        max_attempts=given.max_attempts,
        expires=given.expires,
    )
    limit = queue.options.max_message_size
    if isinstance(given.payload, UnsetType):
        if isinstance(given.value, UnsetType) or not isinstance(given.content_type, UnsetType):
            raise ConfigError("a message has a `value`, or a `payload` with its `content_type`")
        return Envelope(*_flat(sealed(queue.codec, limit, given.value, travel)))
    if not isinstance(given.value, UnsetType):
        raise ConfigError("a message has a `value` or a `payload`, not both")
    content_type = RAW if isinstance(given.content_type, UnsetType) else given.content_type
    if not content_type or not content_type.isprintable():
        raise ConfigError("content_type: printable text")
    limits.check_content_type(len(content_type.encode(errors="replace")))
    limits.check_payload(given.payload, limit, is_json=content_type == JSON)
    return Envelope(given.payload, content_type, *travel)


def _flat(sealed: tuple[bytes, str, Any]) -> tuple[Any, ...]:
    payload, content_type, travel = sealed
    return payload, content_type, *travel


def held(delivery: Delivery[Any]) -> Held:
    value, payload = _content(delivery.payload, delivery.content_type)
    return Held(
        id=delivery.id,
        receipt=delivery.receipt,
        attempt=delivery.attempt,
        max_attempts=delivery.max_attempts,
        priority=delivery.priority,
        headers=delivery.headers,
        enqueued_at=delivery.enqueued_at,
        expires_at=delivery.expires_at,
        expires=delivery.expires,
        content_type=delivery.content_type,
        value=value,
        payload=payload,
    )


def shown(record: Record[Any], *, content: bool, hidden: Sequence[str] = ()) -> Shown:
    """A record, with its content where that may be seen, without the fields that are hidden."""
    one = Shown(
        id=record.id,
        status=record.status,
        priority=record.priority,
        attempts=record.attempts,
        max_attempts=record.max_attempts,
        enqueued_at=record.enqueued_at,
        visible_at=record.visible_at,
        expires=record.expires,
        claimed_at=record.claimed_at,
        finished_at=record.finished_at,
        error=record.error,
        worker=record.worker,
        history=record.history,
        content_type=record.content_type,
    )
    if content:
        value, one.payload = _content(record.payload, record.content_type)
        one.value, one.headers = masked(value, hidden), masked(record.headers, hidden)
        one.result = masked(_result(record), hidden)
    return one


def _content(payload: bytes, content_type: str) -> tuple[Any, bytes | UnsetType]:
    """A JSON value, or bytes: what is called JSON and is none goes as it is."""
    if content_type == JSON:
        try:
            return msgspec.json.decode(payload), UNSET
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass
    return UNSET, payload


def _result(record: Record[Any]) -> Any:
    try:
        return record.result
    except CodecError:
        return None


def masked(value: Any, fields: Sequence[str]) -> Any:
    """The value without the content of these fields, however deep they lie."""
    if not fields:
        return value
    if isinstance(value, dict):
        return {key: MASK if key in fields else masked(each, fields) for key, each in value.items()}
    return [masked(each, fields) for each in value] if isinstance(value, list) else value


def unmasked(value: Any, before: Any, fields: Sequence[str]) -> Any:
    """What somebody made of a masked value, with the content of these fields as it was; ConfigError where none was."""
    if isinstance(value, dict):
        was = before if isinstance(before, dict) else {}
        return {
            key: _content_of(key, was) if key in fields and each == MASK else unmasked(each, was.get(key), fields)
            for key, each in value.items()
        }
    if isinstance(value, list):
        rows = before if isinstance(before, list) else []
        return [unmasked(each, rows[at] if at < len(rows) else None, fields) for at, each in enumerate(value)]
    return value


def _content_of(field: str, before: dict[str, Any]) -> Any:
    if field not in before:
        raise ConfigError(f"{field}: {MASK} stands for a content that was not there")
    return before[field]


def page(records: Sequence[Record[Any]], limit: int, **how: Any) -> Page:
    config.whole("limit", limit)
    return Page([shown(each, **how) for each in records], records[-1].id if len(records) == limit else None)
