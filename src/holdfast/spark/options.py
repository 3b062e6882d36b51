"""The options of the format `holdfast`, checked before anything is opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias, TypeVar, get_args
from urllib.parse import parse_qsl, urlsplit

import msgspec

from .. import config, limits
from ..errors import ConfigError
from ..stores.batches import NOT_SERVED, VIEWS, Filter, Sizing
from ..stores.opening import Scheme, locate, redact
from ..stores.records import Status, View

T = TypeVar("T")
SUMMARIES = ("stats", "consumers")  # views with a row for each queue, or each of its streams
Use: TypeAlias = Literal["all", "write", "work"]  # of a store: everything, the sink, ordinary workers

_WHERE = ("url", "path", "queue")
_SIZES = ("minPartitions", "partitionBytes")
_FILTERS: dict[str, tuple[str, str]] = {
    "ids": ("id", "in"),
    "status": ("status", "in"),
    "minPriority": ("priority", ">="),
    "maxPriority": ("priority", "<="),
    "enqueuedSince": ("enqueued_at", ">="),
    "enqueuedUntil": ("enqueued_at", "<"),
    "finishedSince": ("finished_at", ">="),
    "finishedUntil": ("finished_at", "<"),
}
READ = (*_WHERE, "view", *_SIZES, "failOnDataLoss", *_FILTERS)
STREAM = (
    *_WHERE,
    *_SIZES,
    "consumer",
    "maxMessagesPerTrigger",
    "maxOffsetsPerTrigger",
    "maxBatchAttempts",
    "ownerLease",
    "releaseAfter",
    "failOnDataLoss",
    "newCheckpoint",
    "withReceipts",
)
LAKE = ("lake", "path", "queue", "versionAsOf", "finishedSince", "finishedUntil")
TABLE = ("table", "versionAsOf")
WRITE = (*_WHERE, "idempotencyKey", "contentType")
# Spark hands a stream's own settings over among the options of its sink.
STREAM_WRITE = (*_WHERE, "contentType", "checkpointLocation", "queryName", "outputMode")
TRIGGER_ROWS = 100_000  # that a micro-batch claims when nobody says how many
_INSTANT = "an instant such as 2026-11-16T08:00:00+00:00"
_SETTLED_ONLY = ("status", "finishedSince", "finishedUntil")
_PROVIDER = "provider"  # among the options when Spark asks for the schema of a table of its catalog
NO_TABLES = (
    "Spark keeps the options of a table of its catalog to itself, and gives a Python data source none of them, so that "
    "no such table can be of this format: use CREATE TEMPORARY VIEW … USING holdfast OPTIONS (…), or spark.read and "
    "df.write"
)


class Place(msgspec.Struct, frozen=True):
    """Which store, and which queues (none: all); without a URL the one that the environment of each process names."""

    url: str | None
    queues: tuple[str, ...]

    @property
    def queue(self) -> str | None:
        """The one that is named."""
        return self.queues[0] if len(self.queues) == 1 else None

    @property
    def named(self) -> str:
        if self.queue is None:
            raise ConfigError('which queue? Name it: load("emails"), save("emails") or start("emails")')
        return self.queue


class Reading(msgspec.Struct, frozen=True):
    """A batch read."""

    place: Place
    view: View
    summary: str | None  # instead of a view of messages: one of SUMMARIES
    sizing: Sizing
    filters: list[Filter]
    lenient: bool


def reading(options: Mapping[str, str]) -> Reading:
    """What `spark.read` was told; ConfigError."""
    if not options:
        raise ConfigError(f'read what? load("emails"), or option("view", "ready") for all queues. {NO_TABLES}')
    given = Given(options, READ, "read")
    view = given.text("view") or "ready"
    if view not in (*VIEWS, *SUMMARIES):
        raise ConfigError(config.unknown("view: unknown view", view, (*VIEWS, *SUMMARIES)))
    wrong = [name for name in _SETTLED_ONLY if given.text(name) is not None and view not in ("dead", "archive")]
    if wrong:
        raise ConfigError(f"{wrong[0]}: only the views dead and archive have it, not {view}")
    return Reading(
        given.place(several=True),
        "ready" if view in SUMMARIES else view,  # type: ignore[arg-type]  # one of VIEWS
        view if view in SUMMARIES else None,
        given.sizing(),
        [found for name in _FILTERS if (found := _filter(given, name)) is not None],
        not given.flag("failOnDataLoss", otherwise=True),
    )


class LakeReading(msgspec.Struct, frozen=True):
    """A read of a lake; times are seconds since 1970."""

    lake: str
    view: str | None
    version: int | None
    queues: tuple[str, ...] | None
    since: float | None
    until: float | None


def lake_reading(options: Mapping[str, str]) -> LakeReading:
    """What `spark.read.option("lake", …)` was told; ConfigError."""
    given = Given(options, LAKE, "read a lake")
    queues = given.text("queue")
    times = [given.parsed(name, instant, _INSTANT) for name in ("finishedSince", "finishedUntil")]
    return LakeReading(
        given.text("lake") or "",
        given.text("path"),
        given.parsed("versionAsOf", int, "a whole number"),
        None if queues is None else tuple(config.queue_name(each.strip()) for each in queues.split(",")),
        *(None if at is None else at / 1e6 for at in times),
    )


class TableReading(msgspec.Struct, frozen=True):
    """A read of a Delta table."""

    table: str
    version: int | None


def table_reading(options: Mapping[str, str]) -> TableReading:
    """What `spark.read.option("table", …)` was told; ConfigError."""
    given = Given(options, TABLE, "read a table")
    return TableReading(given.text("table") or "", given.parsed("versionAsOf", int, "a whole number"))


class Streaming(msgspec.Struct, frozen=True):
    """A stream source."""

    place: Place
    consumer: str
    sizing: Sizing
    limit: int
    most_tries: int
    lease: float
    release_after: float
    lenient: bool
    new_checkpoint: bool
    receipts: bool


def streaming(options: Mapping[str, str]) -> Streaming:
    """What `spark.readStream` was told; ConfigError."""
    given = Given(options, STREAM, "stream")
    place = given.place(several=True)
    consumer = given.text("consumer")
    if not consumer:
        raise ConfigError(
            'a stream needs option("consumer", "a-name"): under it the store keeps what this query has claimed. Every '
            "query on a queue takes a name of its own, and keeps it as long as its checkpoint"
        )
    if given.text("maxMessagesPerTrigger") and given.text("maxOffsetsPerTrigger"):
        raise ConfigError("maxOffsetsPerTrigger is another name of maxMessagesPerTrigger: give one of them")
    limit = given.whole("maxOffsetsPerTrigger", otherwise=TRIGGER_ROWS)
    if not place.queues:
        raise ConfigError('which queue? Name it: load("emails"), or several: load("emails,orders")')
    return Streaming(
        place,
        config.queue_name(consumer, what="bad name of a consumer"),
        given.sizing(),
        given.whole("maxMessagesPerTrigger", otherwise=limit),
        given.whole("maxBatchAttempts", otherwise=5),
        given.seconds("ownerLease", otherwise=30.0),
        given.seconds("releaseAfter", otherwise=0.0),
        not given.flag("failOnDataLoss", otherwise=True),
        given.flag("newCheckpoint", otherwise=False),
        given.flag("withReceipts", otherwise=False),
    )


class Writing(msgspec.Struct, frozen=True):
    """A batch or stream write; `key` makes a batch write happen once, `content_type` is of rows that say none."""

    place: Place
    key: str | None = None
    content_type: str | None = None


def writing(options: Mapping[str, str], *, stream: bool) -> Writing:
    """What `df.write` or `df.writeStream` was told; ConfigError."""
    if not options:
        raise ConfigError(f"write where? Give the queue's name, or an option, such as url. {NO_TABLES}")
    given = Given(options, STREAM_WRITE if stream else WRITE, "write a stream" if stream else "write")
    key, kind = given.text("idempotencyKey"), given.text("contentType")
    if key is not None and not 1 <= len(key.encode()) <= 200:
        raise ConfigError("idempotencyKey: 1 to 200 bytes of text")
    if kind is not None:
        limits.check_content_type(len(kind.encode()))
        if not kind or "\0" in kind:
            raise ConfigError("contentType: text such as application/json, without NUL")
    return Writing(given.place("write"), key, kind)


class Given:
    """Options as Spark hands them over: text under names without case."""

    def __init__(self, options: Mapping[str, str], known: Sequence[str], verb: str) -> None:
        if _PROVIDER in options:
            raise ConfigError(NO_TABLES)
        self._names = {name.lower(): name for name in known}
        unknown = [key for key in options if key.lower() not in self._names]
        if unknown:
            raise ConfigError(
                config.unknown(f"option: format holdfast has no option to {verb} called", unknown[0], known)
            )
        self._values = {key.lower(): value for key, value in options.items()}

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def parsed(self, name: str, parse: Callable[[str], T], what: str) -> T | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            return parse(text)
        except ValueError as error:
            raise ConfigError(f"{name}: {what}, not {text!r}") from error

    def whole(self, name: str, *, otherwise: int, least: int = 1) -> int:
        found = self.parsed(name, int, "a whole number")
        return otherwise if found is None else config.whole(name, found, least=least)

    def seconds(self, name: str, *, otherwise: float) -> float:
        found = self.parsed(name, float, "a number of seconds")
        return otherwise if found is None else config.positive(name, found)

    def flag(self, name: str, *, otherwise: bool) -> bool:
        found = self.parsed(name, _flag, "true or false")
        return otherwise if found is None else found

    def place(self, use: Use = "all", *, several: bool = False) -> Place:
        url, path, queue = self.text("url"), self.text("path"), self.text("queue")
        if path and queue and path != queue:
            raise ConfigError(f"the queue is named twice: {path!r} and {queue!r}")
        check_url(url, use)
        named = path or queue
        if not named:
            return Place(url, ())
        names = [each.strip() for each in named.split(",")] if several else [named]
        return Place(url, tuple(dict.fromkeys(config.queue_name(each) for each in names)))

    def sizing(self) -> Sizing:
        return Sizing(
            target=self.whole("partitionBytes", otherwise=Sizing().target),
            least=self.whole("minPartitions", otherwise=os.cpu_count() or 1),
        )


def check_url(url: str | None, use: Use = "all") -> None:
    """Options are pickled and logged, so a URL must carry no secret; and the store serves this; ConfigError."""
    if url is None:
        return
    location = locate(url)
    check_use(location.kind, use)
    if "://" in url and _has_secret(url):
        variables = location.kind.credentials
        shown = redact(url).split("?")[0]
        raise ConfigError(
            f"{shown}: this URL has a secret in it, and options are pickled and logged. Leave it out, set {variables} "
            "in the environment of driver and executors; or set HOLDFAST_URL there, and leave the option out"
        )


def check_use(kind: Scheme, use: Use) -> None:
    """Where nothing is planned or staged, any store will do that other processes can open; ConfigError."""
    writes, works = use == "write" and kind.sink is not None, use == "work" and kind.owner != "process"
    if not (kind.serves_spark or writes or works):
        raise ConfigError(NOT_SERVED)


def _has_secret(url: str) -> bool:
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    words = [f"{key}=x" for key, _ in query if key != "sslkey"]  # a path
    return parts.password is not None or any(redact(word) != word for word in words)


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()] if text.lower() in ("true", "false") else _wrong(text)


def _wrong(text: str) -> Any:
    raise ValueError(text)


def _filter(given: Given, name: str) -> Filter | None:
    """An option that chooses rows, as the filter it stands for."""
    column, op = _FILTERS[name]
    if column.endswith("_at"):
        value: Any = given.parsed(name, instant, _INSTANT)
    elif column == "priority":
        value = given.parsed(name, int, "a whole number")
    else:
        text = given.text(name)
        value = None if text is None else [each.strip() for each in text.split(",") if each.strip()]
    if value is None:
        return None
    if column == "status":
        for each in value:
            if each not in get_args(Status):
                raise ConfigError(config.unknown("status: unknown status", each, get_args(Status)))
    return Filter(column, op, value)  # type: ignore[arg-type]  # one of the table above


def instant(value: str | datetime) -> int:
    """Microseconds since 1970; without a zone it is UTC."""
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds
