"""What is wrong with a store's queues, worst first: what, since when, and what to press. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from ...checkup import OLD_MESSAGE_S
from ...queue_reports import QueueReport
from ..deaths import STILL_S, Deaths
from . import words

_LONG_WAIT_S = 60.0  # a message that waits for longer is worth a look


class Known(msgspec.Struct, frozen=True):
    """What the history, the letters and the workers tell of a queue, as far as anybody knows."""

    usual_oldest: float | None = None
    quiet_since: datetime | None = None  # when somebody last held or completed a message
    has_worker: bool | None = None  # None: workers do not report themselves here
    deaths: Deaths | None = None


class Button(msgspec.Struct, frozen=True):
    """`path` lies below the pages of the store."""

    word: str
    path: str
    needs: str = "read"


class Finding(msgspec.Struct, frozen=True):
    """One line of the overview. `tone` is `bad` for a problem and `warn` for something to watch."""

    tone: str
    queue: str
    what: str
    more: str
    buttons: tuple[Button, ...]  # the first is the one to press
    line: str = "pending"  # the count whose last hour is drawn


def of(
    reports: Sequence[QueueReport], known: Mapping[str, Known] | None = None, now: datetime | None = None
) -> list[Finding]:
    """What there is does not depend on what is known besides: only its words do."""
    found = [each for report in reports for each in _of(report, (known or {}).get(report.name, Known()), now)]
    return sorted(found, key=lambda one: one.tone)  # bad comes before warn


def _of(report: QueueReport, known: Known, now: datetime | None) -> list[Finding]:
    stats, name = report.stats, report.name
    found, look = [], Button("Look", f"/queues/{name}")
    if (stats.oldest_age or 0.0) > _LONG_WAIT_S and not report.paused:
        found.append(_waiting(report, known, now))
    if report.paused and stats.pending:
        said = f"{words.number(stats.pending)} ready messages wait until it is resumed."
        found.append(Finding("warn", name, "paused", said, (look,)))
    if stats.dead:
        found.append(_dead(report, known.deaths, now))
    if stats.retry:
        said = f"{words.plural(stats.retry, 'message')} will be tried again"
        button = Button("Look", f"/queues/{name}/messages?state=retry")
        found.append(Finding("warn", name, said, "Their last attempt failed.", (button,), "retry"))
    if stats.set_aside:
        said = f"{words.plural(stats.set_aside, 'message')} set aside"
        more = "Late copies are kept but not delivered: `holdfast recover`."
        found.append(Finding("warn", name, said, more, (look,)))
    return found


def _waiting(report: QueueReport, known: Known, now: datetime | None) -> Finding:
    stats, age = report.stats, report.stats.oldest_age or 0.0
    tone = "bad" if age > OLD_MESSAGE_S or not stats.processing else "warn"
    usual = f" (usual {words.duration(known.usual_oldest)})" if known.usual_oldest is not None else ""
    since = f" since {words.when(known.quiet_since, now)}" if known.quiet_since else ""
    if stats.processing:
        held = f"{words.number(stats.processing)} running"
    elif known.has_worker is False:
        held = f"no worker{since}"
    else:
        held = f"nobody holds one{since}"
    buttons = (Button("Look", f"/queues/{report.name}"), Button("Workers", "/workers"))
    said = f"oldest waiting {words.duration(age)}{usual}"
    return Finding(tone, report.name, said, f"{words.number(stats.pending)} ready, {held}.", buttons)


def _dead(report: QueueReport, deaths: Deaths | None, now: datetime | None) -> Finding:
    name, count = report.name, report.stats.dead
    look = Button("By reason", f"/dead?queue={name}")
    if deaths is None:
        more = "They stay until somebody replays or deletes them."
        return Finding("bad", name, words.plural(count, "dead letter"), more, (look,), "dead")
    why = deaths.cause.kind or deaths.cause.reason
    said = f"{words.plural(deaths.lately, 'dead letter')} in the last hour: {why}"
    still = now is not None and (now - deaths.last).total_seconds() < STILL_S
    more = (
        f"First {words.when(deaths.first, now)}, {'still coming' if still else f'last {words.when(deaths.last, now)}'}."
    )
    more += f" {words.number(count)} dead in all." if count > deaths.lately else ""
    path = f"/dead/{name}/{deaths.cause.fingerprint}?ask=replay"
    replay = Button(f"Replay {words.number(deaths.letters)}…", path, "operate")
    return Finding("bad", name, said, more, (look, replay), "dead")


def worst_first(reports: Sequence[QueueReport]) -> list[QueueReport]:
    """Those with findings before those without, then by name."""
    tones = {one.queue: one.tone for one in reversed(of(reports))}
    return sorted(reports, key=lambda report: (tones.get(report.name, "~"), report.name))
