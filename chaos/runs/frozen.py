"""Every verb of every store while its server is stopped, slow, full, read-only, restarted or gone; on a folder while a
process that holds its lock is stopped, or its disk is slow, full, read-only or does not answer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import holdfast

from ..frozen.places import STORES, Fault, Place, opened
from ..frozen.verbs import BROKER_VERBS, REMOVING, STEPS_UNANSWERED, STEPWISE, VERBS, Stock, stock
from ..settings import Settings
from ..verdict import Verdict

TIMEOUT_SECONDS = 2.0
_ALLOWED_EXCESS = 1.0  # seconds after its timeout until a call must have ended
_BACK_WITHIN = 5.0  # seconds after the fault until work must go on
_HANG = 60.0  # seconds after which a call counts as one that never ends
_TOUCHED = 0.25  # seconds: who took so long, or failed, was hit by the fault
_AT_ONCE = 6  # queues that are made at the same time
_TRIES = 5  # to make one, before the fault
_SILENT = ("stopped", "gone", "hung")
_BEFORE = 10  # quick calls before one that nobody answers: a store may have learned not to be careful
_OUT_OF_REACH = (*_SILENT, "slow", "restarted")
_AWAY = (holdfast.Unavailable, holdfast.UnknownOutcome)
_REFUSED = (holdfast.StoreError, holdfast.ConfigError)  # full, read-only: whatever says so
_OPTIONS: dict[str, Any] = {
    "operation_timeout": TIMEOUT_SECONDS, "connect_timeout": TIMEOUT_SECONDS, "poll_interval": 0.2,
}  # fmt: skip


@dataclass
class Row:
    """One fault of one store."""

    fault: str
    calls: int = 0
    hit: int = 0
    excess: float = float("-inf")  # seconds, of the slowest of those with one step
    longest: tuple[float, str] = (0.0, "")  # seconds, of those with more
    late: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    back: float = float("inf")  # seconds until work went on
    held: float = 0.0  # seconds, the longest that the event loop was late while it ran, or waited for something
    starved: float = 0.0  # the longest in which the system let others run instead


async def frozen(settings: Settings) -> Verdict:
    verdict = Verdict(run="frozen")
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)  # hundreds of refusals, which are counted here
    import_module("pyarrow.parquet")  # on a busy machine that takes seconds, which are no fault of a store
    for store in STORES if settings.store == "all" else [settings.store]:
        rows = await _of_store(store, settings)
        _judge(verdict, store, rows)
        for row in rows:
            verdict.notes[f"{store} {row.fault}"] = _told(row)
    return verdict


async def _of_store(store: str, settings: Settings) -> list[Row]:
    rows: list[Row] = []
    with opened(store) as place:
        broker = await _connected(place)
        try:
            for kind, fault in place.faults.items():
                if settings.fault not in ("", kind):
                    continue
                if settings.stops and len(rows) >= settings.stops:
                    break
                rows.append(await _round(store, place, broker, kind, fault, number=len(rows)))
                if not settings.quiet:
                    sys.stderr.write(f"frozen: {store} {rows[-1].fault}: {_told(rows[-1])}\n")
        finally:
            await asyncio.wait([asyncio.ensure_future(broker.close())], timeout=_HANG)
    return rows


async def _connected(place: Place) -> holdfast.Broker:
    broker = await holdfast.connect(place.url, **{**_OPTIONS, "connect_timeout": 30.0})
    await broker.install()
    await _works(broker)
    return broker


async def _works(broker: holdfast.Broker) -> str:
    queue = await broker.queue("back")
    id = await queue.enqueue("work")
    delivery = await queue.dequeue(wait=1)
    if delivery is not None:
        await delivery.complete()
    return id


# ---------------------------------------------------------------------- one fault


async def _round(store: str, place: Place, broker: holdfast.Broker, kind: str, fault: Fault, *, number: int) -> Row:
    row = Row(kind)
    stocks = await _stocks(broker, f"r{number}")
    other = None if store == "slatedb" else await _connected(place)  # one database has one broker
    ticking = asyncio.create_task(_tick(row))
    begin, end = fault
    for _ in range(_BEFORE if kind in _SILENT else 0):
        await _works(broker)
    beginning = asyncio.ensure_future(asyncio.to_thread(begin))
    if kind != "restarted":  # that one is over when it has begun: its calls begin with it
        await beginning
    results = []
    if kind in _SILENT:  # one alone first: a store may take another way for it
        results.append(await _timed("enqueue alone", lambda: VERBS["enqueue"](stocks["enqueue"])))
    results += await asyncio.gather(*(_timed(name, call) for name, call in _calls(place, broker, other, stocks)))
    await beginning
    ticking.cancel()
    _weigh(row, results)
    await asyncio.to_thread(end)
    row.back = await _back(broker)
    await _audit(row, stocks, [error for _, _, error in results])
    await _clear(row, broker)
    return row


async def _stocks(broker: holdfast.Broker, prefix: str) -> dict[str, Stock]:
    some = asyncio.Semaphore(_AT_ONCE)

    async def made(number: int) -> Stock:
        async with some:
            for again in range(_TRIES):  # short timeouts on a busy machine: this is not what is judged
                with contextlib.suppress(holdfast.StoreError):
                    return await stock(broker, f"{prefix}-{number}-{again}")
            return await stock(broker, f"{prefix}-{number}")

    names = [*VERBS, *BROKER_VERBS]
    return dict(zip(names, await asyncio.gather(*(made(number) for number in range(len(names)))), strict=True))


def _calls(
    place: Place, broker: holdfast.Broker, other: holdfast.Broker | None, stocks: dict[str, Stock]
) -> list[tuple[str, Callable[[], Awaitable[Any]]]]:
    calls: list[tuple[str, Callable[[], Awaitable[Any]]]] = [("connect", lambda: _connect(place))]
    if other is not None:
        calls.append(("close", other.close))
    for name, call in VERBS.items():
        calls.append((name, lambda call=call, name=name: call(stocks[name])))  # type: ignore[misc] # bound now
    for name, ask in BROKER_VERBS.items():
        calls.append((name, lambda ask=ask, name=name: ask(broker, stocks[name].queue.name)))  # type: ignore[misc]
    return calls


async def _connect(place: Place) -> None:
    broker = await holdfast.connect(place.url, **_OPTIONS)
    await broker.close()


Result = tuple[str, float, BaseException | None]


async def _timed(name: str, call: Callable[[], Awaitable[Any]]) -> Result:
    began = time.monotonic()
    try:
        await asyncio.wait_for(call(), _HANG)
    except BaseException as error:  # noqa: BLE001 - what it is, is judged
        return name, time.monotonic() - began, error
    return name, time.monotonic() - began, None


async def _tick(row: Row) -> None:
    while True:
        began, queued = time.monotonic(), _queued_seconds()
        await asyncio.sleep(0.01)
        lag, starved = time.monotonic() - began - 0.01, _queued_seconds() - queued
        row.held, row.starved = max(row.held, lag - starved), max(row.starved, starved)


def _queued_seconds() -> float:
    """How long this thread could run and did not, so far: a machine with much to do is no fault of a store's."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except OSError:  # not Linux
        return 0.0


def _weigh(row: Row, results: list[Result]) -> None:
    allowed = _AWAY if row.fault in _OUT_OF_REACH else _REFUSED
    for name, seconds, error in results:
        row.calls += 1
        row.hit += seconds > _TOUCHED or error is not None
        excess = seconds - _steps(row, name) * TIMEOUT_SECONDS - row.starved  # where the machine was late, so were all
        row.late += [f"{name} ended {excess:.2f} s after its timeout"] * (excess > _ALLOWED_EXCESS)
        if name in STEPWISE:
            row.longest = max(row.longest, (seconds, name))
        else:
            row.excess = max(row.excess, excess)
        is_right = error is None or isinstance(error, allowed) or (name == "wait" and type(error) is TimeoutError)
        if not is_right:
            row.wrong.append(f"{name}: {type(error).__name__}: {error}"[:200])


def _steps(row: Row, name: str) -> int:
    """How many timeouts this verb may take."""
    steps = STEPWISE.get(name, 1)
    return min(steps, STEPS_UNANSWERED) if row.fault in _SILENT else steps


async def _back(broker: holdfast.Broker) -> float:
    """Seconds until a message goes through again."""
    began = time.monotonic()
    while time.monotonic() - began < _HANG:
        try:
            await _works(broker)
            return time.monotonic() - began
        except holdfast.StoreError:
            await asyncio.sleep(0.05)
    return float("inf")


async def _audit(row: Row, stocks: dict[str, Stock], errors: list[BaseException | None]) -> None:
    """What was acknowledged is still known, and what is in doubt can be cleared up."""
    for error in errors:
        if isinstance(error, holdfast.UnknownOutcome):
            try:
                await error.retry()
            except holdfast.StoreError as again:
                row.wrong.append(f"retry: {again}")
    for name, each in stocks.items():
        if name in REMOVING:
            continue
        for id in (*each.ids, each.dead, each.archived, *each.added):
            if await _status(each, id) is None:
                row.lost.append(f"{id} of {name}")


async def _clear(row: Row, broker: holdfast.Broker) -> None:
    """The next round finds as many queues as this one: what goes through the whole store has as much to do."""
    some = asyncio.Semaphore(_AT_ONCE)

    async def remove(name: str) -> None:
        async with some:
            for last in (False, True):  # short timeouts on a busy machine
                try:
                    return await broker.delete_queue(name, force=True)
                except holdfast.QueueNotFound:
                    return
                except (holdfast.Unavailable, holdfast.UnknownOutcome):
                    if last:
                        raise

    try:
        await asyncio.gather(*(remove(info.name) for info in await broker.queues()))
    except holdfast.StoreError as error:
        row.wrong.append(f"delete_queue afterwards: {error}")


async def _status(each: Stock, id: str) -> str | None:
    """Again, where the store has only just come back."""
    until = time.monotonic() + _HANG
    while True:
        try:
            return await each.queue.status(id)
        except holdfast.StoreError:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.2)


# ---------------------------------------------------------------------- the verdict


def _told(row: Row) -> str:
    return (
        f"{row.calls} verbs, {row.hit} hit, slowest {row.excess:+.2f} s, "
        f"of many steps {row.longest[0]:.1f} s ({row.longest[1]}), wrong errors {len(row.wrong)}, "
        f"lost {len(row.lost)}, back after {row.back:.1f} s, loop held up {row.held:.2f} s, "
        f"others ran for {row.starved:.2f} s"
    )


def _judge(verdict: Verdict, store: str, rows: list[Row]) -> None:
    verdict.expect(bool(rows), f"{store}: no fault could be made here")
    for row in rows:
        where = f"{store}, {row.fault}"
        verdict.attempted += row.calls
        verdict.acknowledged += row.calls - row.hit
        verdict.lost += len(row.lost)
        verdict.effective_kills += row.hit
        verdict.expect(row.hit > 0, f"{where}: no call noticed")
        verdict.failures += [f"{where}: {late}" for late in row.late]
        verdict.expect(row.back <= _BACK_WITHIN, f"{where}: work went on after {row.back:.1f} s")
        verdict.expect(row.held <= _ALLOWED_EXCESS, f"{where}: the event loop was held up for {row.held:.1f} s")
        verdict.failures += [f"{where}: {wrong}" for wrong in row.wrong]
        verdict.failures += [f"{where}: lost {lost}" for lost in row.lost[:5]]
