"""Operations for people, under command line, dashboard and metrics: plain values in, plain values out, no printing."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Protocol, get_args

import msgspec

from . import config
from .broker import Broker, connect
from .checkup import look_into as look_into
from .cron import Times, zone
from .deliveries import Attempt
from .errors import CodecError, ConfigError, HoldfastError, MessageNotFound, QueueNotFound, StoreError
from .once import PLAIN, Once
from .queue import Queue
from .queue_reports import ConsumerReport as ConsumerReport
from .queue_reports import QueueReport as QueueReport
from .queue_reports import consumers as consumers
from .queue_reports import overview as overview
from .queue_reports import report as report
from .stores import base, opening
from .stores.base import PAGE_ROWS, Check, Reread, Scrubbing
from .stores.formats import Format
from .stores.opening import Location, locate, unmade
from .stores.records import Enqueued, Status, View


class ScrubReport(msgspec.Struct, frozen=True):
    """What a scrub has read, and what was wrong."""

    objects: int
    bytes: int
    without_sums: int
    seconds: float
    wrong: list[Reread]


class MessageReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a message. `value` is its payload as bytes when it is not JSON."""

    id: str
    status: Status
    value: Any
    priority: int
    attempts: int
    max_attempts: int
    headers: dict[str, str]
    enqueued_at: datetime
    visible_at: datetime | None = None
    expires: datetime | None = None
    claimed_at: datetime | None = None
    finished_at: datetime | None = None
    result: Any = None
    worker: str | None = None  # who holds it, or held it last
    error: str | None = None
    history: tuple[Attempt, ...] = ()  # the last 10 attempts that are over


class HeldReport(msgspec.Struct, frozen=True, kw_only=True):
    """A message this call leased; the receipt settles it, from any process."""

    id: str
    receipt: str
    value: Any
    priority: int
    attempt: int
    max_attempts: int
    headers: dict[str, str]
    enqueued_at: datetime
    expires_at: datetime  # the lease
    expires: datetime | None = None  # the message


class Letters(Protocol):
    """`queue.dead` or `queue.archive`."""

    async def list(self, limit: int = 100, after: str | None = None) -> Sequence[Any]: ...


async def maintain(broker: Broker, names: Sequence[str] | None = None) -> dict[str, dict[str, int]]:
    """Housekeeping now, of these queues or of all; what was done in each."""
    if not names:
        return await broker.maintain()
    return {name: await broker.store.maintain(name) for name in names}


async def scrub(
    broker: Broker,
    queue: str | None = None,
    *,
    rate: float | None = None,
    quarantine: bool = False,
    on_progress: Callable[[int], None] = lambda count: None,
) -> ScrubReport:
    """Read everything again, at most `rate` bytes a second; what is wrong. `quarantine` moves what nobody can read.

    A store that verifies what it keeps by itself (PostgreSQL) is read message by message.
    """
    store, began = broker.store, time.monotonic()
    objects = size = without = 0
    missing = queue is not None and queue not in await _known(store)
    wrong: list[Reread] = []
    found = store.scrub(queue, quarantine=quarantine) if isinstance(store, Scrubbing) else _rereading(broker, queue)
    async for each in found:
        objects, size, without = objects + bool(each.size), size + each.size, without + (not each.has_sum)
        if each.problem:
            wrong.append(each)
        on_progress(1)
        if rate is not None:
            await asyncio.sleep(max(0.0, size / rate - (time.monotonic() - began)))
    if missing and not objects and not wrong:
        raise QueueNotFound(f"there is no queue {queue!r}")
    return ScrubReport(objects, size, without, time.monotonic() - began, wrong)


async def _known(store: base.Store) -> list[str]:
    """The names of the queues; of none where their options are damaged, which the scrub tells."""
    try:
        return [info.name for info in await store.queues()]
    except StoreError:
        return []


async def _rereading(broker: Broker, queue: str | None) -> AsyncIterator[Reread]:
    """Every message of every view, as the store gives them; what it cannot give ends its view."""
    names = [info.name for info in await broker.queues()] if queue is None else [queue]
    for name, view in itertools.product(names, get_args(View)):
        after: str | None = None
        try:
            while page := await broker.store.scan(name, view, after=after, limit=PAGE_ROWS):
                after = page[-1].id
                for each in page:
                    yield Reread(name, each.id, len(each.payload) + len(each.result or b""))
        except StoreError as error:
            yield Reread(name, view, 0, problem=str(error))


async def recover(
    broker: Broker,
    names: Sequence[str] | None = None,
    *,
    delete: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> dict[str, base.Recovered]:
    """Bring back, or delete, what was set aside in these queues or in all; tells how many messages more are done."""
    known = [info.name for info in await broker.store.queues()]
    for name in names or ():
        if name not in known:
            raise QueueNotFound(f"there is no queue {name!r}")
    return {name: await broker.store.recover(name, delete=delete, on_progress=on_progress) for name in names or known}


async def send(
    queue: Queue[Any], values: Iterable[Any], how: Once = PLAIN, *, dedup_key: str | None = None, **terms: Any
) -> list[Enqueued]:
    """Enqueue plain values in one call, all or none; a `dedup_key` is for one."""
    if dedup_key is not None:
        terms |= {"dedup_key": dedup_key, "dedup": how.dedup, "replace": how.replace}
        return [await queue.enqueue(value, report=True, **terms) for value in values]
    made: list[Enqueued] = await queue.enqueue_many(values, report=True, **terms)
    return made


async def read(queue: Queue[Any], count: int, *, lease: float | None, wait: float) -> list[HeldReport]:
    """Lease up to `count` messages; they stay leased after this broker is closed."""
    return [
        HeldReport(
            id=one.id,
            receipt=one.receipt,
            value=_value(one),
            priority=one.priority,
            attempt=one.attempt,
            max_attempts=one.max_attempts,
            headers=one.headers,
            enqueued_at=one.enqueued_at,
            expires_at=one.expires_at,
            expires=one.expires,
        )
        for one in await queue.dequeue_many(count, lease=lease, wait=wait)
    ]


async def message(queue: Queue[Any], id: str) -> MessageReport:
    """What is known of a message; MessageNotFound."""
    record = await queue.get(id)
    if record is None:
        raise MessageNotFound(f"there is no message {id!r} in {queue.name!r}")
    return _message(record)


async def page(letters: Letters, *, limit: int, after: str | None = None) -> list[MessageReport]:
    """One page of dead letters or of the archive, in id order."""
    return [_message(record) for record in await letters.list(limit, after)]


async def live(queue: Queue[Any], state: Any, *, limit: int, after: str | None = None) -> list[MessageReport]:
    """One page of messages that wait or are held; nothing is claimed."""
    return [_message(record) for record in await queue.list(state, limit, after)]


async def next_in_line(queue: Queue[Any], limit: int) -> list[MessageReport]:
    """The next messages in claim order; nothing is claimed."""
    return [_message(record) for record in await queue.peek(limit)]


async def replay_dead(
    queue: Queue[Any], ids: Sequence[str] | None = None, *, on_progress: Callable[[int], None] = lambda done: None
) -> int:
    """Move dead letters back, in steps that can be watched: these, or all that are dead now."""
    if ids is not None:
        return await queue.dead.replay(ids)
    left, moved, after = await queue.dead.count(), 0, None
    while left > 0:  # a count from the start: letters that die again meanwhile must not keep us here
        records = await queue.dead.list(limit=min(PAGE_ROWS, left), after=after)
        if not records:
            break
        moved += await queue.dead.replay([record.id for record in records])
        left, after = left - len(records), records[-1].id
        on_progress(len(records))
    return moved


def _message(record: Any) -> MessageReport:
    return MessageReport(
        id=record.id,
        status=record.status,
        value=_value(record),
        priority=record.priority,
        attempts=record.attempts,
        max_attempts=record.max_attempts,
        headers=record.headers,
        enqueued_at=record.enqueued_at,
        visible_at=record.visible_at,
        expires=record.expires,
        claimed_at=record.claimed_at,
        finished_at=record.finished_at,
        result=record.result,
        worker=record.worker,
        error=record.error,
        history=record.history,
    )


def _value(one: Any) -> Any:
    try:
        return one.value
    except CodecError:
        return one.payload


async def install(
    url: str | None = None,
    *,
    dry_run: bool = False,
    shared_schema: bool = False,
    agreed: Callable[[Format], bool] = lambda format: False,
) -> list[str]:
    """Make what the store needs; the steps in words. A dry run makes nothing, not even the folder it would open.

    `agreed` is asked where the store's format can be raised: whether all its processes are of this version.
    """
    location, _ = _where(url)
    if dry_run and (steps := unmade(location)):
        return steps
    async with connect(url) as broker:
        steps = await broker.install(dry_run=dry_run, shared_schema=shared_schema)
        format = broker.store.format
        if format is None or not format.can_rise:
            return steps
        if not agreed(format):
            return [*steps, f"left: {format.step}, with --yes once every process is of this version"]
        return [*steps, *await base.raise_format(broker.store, dry_run=dry_run)]


def install_sql(url: str | None = None) -> str:
    """The SQL of what `install` does in a database without Holdfast; ConfigError elsewhere."""
    location, _ = _where(url)
    return opening.install_sql(location, opening.store_options(config.load().store, location.options, {}))


async def grants(role: str, url: str | None = None, *, apply: bool = False) -> str:
    """The SQL that gives a role what producers and workers need; `apply` runs it, as the owner of the schema."""
    location, _ = _where(url)
    wanted = opening.grants(location, opening.store_options(config.load().store, location.options, {}), role)
    if apply:
        async with connect(url) as broker:
            await base.granting(broker.store).grant(role)
    return wanted


def must_be_there(url: str | None) -> None:
    """Where a command says what is wrong with a store: a mistyped path is none; ConfigError."""
    opening.must_be_there(_where(url)[0])


async def doctor(url: str | None = None) -> list[Check]:
    """One line per check: configuration, store, what survives what, queues. Never raises for what it finds."""
    try:
        location, origin = _where(url)
    except ConfigError as error:
        return [Check("configuration", "fail", str(error))]
    checks = [Check("configuration", "ok", origin)]
    started = time.monotonic()
    try:
        async with connect(url) as broker:
            took = (time.monotonic() - started) * 1000
            checks.append(Check("store", "ok", f"{broker.url or location.scheme} opened in {took:.0f} ms"))
            checks.append(_survives(location))
            checks += await look_into(broker)
    except HoldfastError as error:
        checks.append(Check("store", "fail", str(error) or type(error).__name__))
    return checks


def _where(url: str | None) -> tuple[Location, str]:
    """The store's place, and who said so."""
    said, written = config.load(), config.load(env={})
    if url is not None:
        return locate(url), "the argument names the store"
    if said.url is not None:
        return locate(said.url), f"{'HOLDFAST_URL' if said.url != written.url else config.FILE} names the store"
    return locate(config.DEFAULT_URL), f"nothing names a store, so it is {config.DEFAULT_URL}"


def _survives(location: Location) -> Check:
    process, system, disk = location.kind.survives
    detail = f"killed processes: {process}; a crash of the system: {system}; loss of the disk: {disk}"
    return Check("survives", "warn" if process.startswith("no") else "ok", detail)


def preview(
    *,
    cron: str | None,
    every: float | None = None,
    tz: str = "UTC",
    start: datetime | None = None,
    end: datetime | None = None,
    count: int = 10,
    after: datetime | None = None,
) -> list[dict[str, Any]]:
    """The next slots: as instants, in their time zone, and what daylight saving did to them. ConfigError."""
    ends = [None if each is None else each.timestamp() for each in (start, end)]
    times = Times(cron=cron, every=every, tz=tz, start=ends[0], end=ends[1])
    local, rows = zone(tz), []
    before = (after or datetime.now(UTC)).astimezone(local)
    for slot in islice(times.after(before.timestamp()), count):
        moment = datetime.fromtimestamp(slot, UTC).astimezone(local)
        changed = moment.utcoffset() != before.utcoffset()
        note = f"clocks have changed: UTC{moment:%z}" if changed else ""
        rows.append({"slot": moment.astimezone(UTC), "local": moment.isoformat(), "note": note})
        before = moment
    return rows
