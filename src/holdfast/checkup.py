"""The doctor's look into a store that is open: clock, format, queues, streams, schedules."""

from __future__ import annotations

import time
from collections.abc import Sequence

from .broker import Broker
from .errors import StoreError
from .limits import listed
from .queue_reports import QueueReport, consumers, overview
from .stores.base import Check

CLOCK_TOLERANCE_S = 2.0  # a wrong clock of a machine is off by more, a slow answer by less
OLD_MESSAGE_S = 3600.0  # a message may wait so long before the doctor wonders whether a worker runs


async def look_into(broker: Broker) -> list[Check]:
    """The checks of a store that is open."""
    own = await broker.check()
    checks = own if any(check.name == "clock" for check in own) else [*own, await _clock(broker)]
    checks += _format(broker)
    try:
        reports = await overview(broker)
    except StoreError as error:  # one that cannot be read; the lines of the store say more
        return [*checks, Check("queues", "fail", str(error))]
    return [
        *checks,
        *(_queue_check(reports)),
        _age(reports),
        _dead(reports),
        *await _consumers(broker),
        *await _schedules(broker),
    ]


async def _schedules(broker: Broker) -> list[Check]:
    if broker.store.schedules is None or not (found := await broker.schedules.list()):
        return []
    missed = [f"{each.schedule.name} ({each.missed:,})" for each in found if each.missed]
    orphans = [each.schedule.name for each in found if each.orphaned]
    said = [f"missed slots: {listed(missed)}"] if missed else []
    said += [f"no longer declared, and still firing: {listed(orphans)}"] if orphans else []
    return [Check("schedules", "warn" if said else "ok", "; ".join(said) or f"{len(found):,}, none missed a slot")]


def _format(broker: Broker) -> list[Check]:
    format = broker.store.format
    if format is None:
        return []
    if not format.can_rise:
        return [Check("format", "ok", f"{format.number}, the newest that this version knows")]
    how = f"once every process is of this version, {format.step} with `holdfast install`"
    return [Check("format", "warn", f"{format.number}, which versions before this one read too; {how}")]


async def _clock(broker: Broker) -> Check:
    ahead = await broker.store.clock() - time.time()
    state = "ok" if abs(ahead) <= CLOCK_TOLERANCE_S else "warn"
    return Check("clock", state, f"the store's clock is {ahead:+.3f} s from the wall clock")


def _queue_check(reports: Sequence[QueueReport]) -> list[Check]:
    counts = sum(report.stats.total for report in reports)
    checks = [Check("queues", "ok", f"{len(reports)} queues keep {counts:,} messages")]
    if paused := [report.name for report in reports if report.paused]:
        checks.append(Check("paused", "warn", f"{', '.join(paused)}: resume with `holdfast queue resume NAME`"))
    return checks


def _age(reports: Sequence[QueueReport]) -> Check:
    waiting = [(report.stats.oldest_age, report.name) for report in reports if report.stats.oldest_age is not None]
    if not waiting:
        return Check("oldest message", "ok", "nothing waits")
    age, name = max(waiting)
    if age > OLD_MESSAGE_S:
        return Check("oldest message", "warn", f"one in {name} waits for {age:,.0f} s: does a worker run?")
    return Check("oldest message", "ok", f"one in {name} waits for {age:,.1f} s")


async def _consumers(broker: Broker) -> list[Check]:
    """Streams that hold messages which no query works on; no line where there are no streams."""
    found = await consumers(broker) if broker.store.batches is not None else []
    if not found:
        return []
    left = [each for each in found if each.claimed and not each.owner]
    if left:
        listed = ", ".join(f"{each.consumer} holds {each.claimed:,} of {each.queue}" for each in left)
        way = "start its query, or give them back with `holdfast pipeline release QUEUE CONSUMER`"
        return [Check("consumers", "warn", f"{listed} and no query runs: {way}")]
    running, lag = sum(1 for each in found if each.owner), max(each.lag for each in found)
    return [Check("consumers", "ok", f"{len(found)} streams, {running} running; at most {lag:,} messages behind")]


def _dead(reports: Sequence[QueueReport]) -> Check:
    dead = {report.name: report.stats.dead for report in reports if report.stats.dead}
    if not dead:
        return Check("dead letters", "ok", "none")
    listed = ", ".join(f"{count:,} in {name}" for name, count in dead.items())
    return Check("dead letters", "warn", f"{listed}: look with `holdfast dead list QUEUE`")
