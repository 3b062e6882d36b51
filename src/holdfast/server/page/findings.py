"""What is wrong with a store's queues, worst first: what, since when, and what to press. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...checkup import OLD_MESSAGE_S
from ...queue_reports import QueueReport
from . import words

_LONG_WAIT_S = 60.0  # a message that waits for longer is worth a look


class Finding(msgspec.Struct, frozen=True):
    """One line of the overview. `tone` is `bad` for a problem and `warn` for something to watch."""

    tone: str
    queue: str
    what: str
    more: str
    look: str  # the part of the path behind /queues/NAME, or /dead
    button: str


def of(reports: Sequence[QueueReport]) -> list[Finding]:
    found = [each for report in reports for each in _of(report)]
    return sorted(found, key=lambda one: one.tone)  # bad comes before warn


def _of(report: QueueReport) -> list[Finding]:
    stats, name = report.stats, report.name
    found = []
    age = stats.oldest_age or 0.0
    if age > _LONG_WAIT_S and not report.paused:
        held = f"{words.number(stats.processing)} running" if stats.processing else "nobody holds one"
        tone = "bad" if age > OLD_MESSAGE_S or not stats.processing else "warn"
        said = f"oldest waiting {words.duration(age)}"
        found.append(Finding(tone, name, said, f"{words.number(stats.pending)} ready, {held}.", "", "Look"))
    if report.paused and stats.pending:
        said = f"{words.number(stats.pending)} ready messages wait until it is resumed."
        found.append(Finding("warn", name, "paused", said, "", "Look"))
    if stats.dead:
        said = f"{words.plural(stats.dead, 'dead letter')}"
        found.append(
            Finding("bad", name, said, "They stay until somebody replays or deletes them.", "dead", "By reason")
        )
    if stats.retry:
        said = f"{words.plural(stats.retry, 'message')} will be tried again"
        found.append(Finding("warn", name, said, "Their last attempt failed.", "messages?state=retry", "Look"))
    if stats.set_aside:
        said = f"{words.plural(stats.set_aside, 'message')} set aside"
        found.append(
            Finding("warn", name, said, "Late copies are kept but not delivered: `holdfast recover`.", "", "Look")
        )
    return found


def worst_first(reports: Sequence[QueueReport]) -> list[QueueReport]:
    """Those with findings before those without, then by name."""
    tones = {one.queue: one.tone for one in reversed(of(reports))}
    return sorted(reports, key=lambda report: (tones.get(report.name, "~"), report.name))
