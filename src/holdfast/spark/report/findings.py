"""What a report says first: what is wrong now, and what went wrong in its time. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

from . import words
from .figures import Figures, QueueFigures, Reason
from .present import QueueNow, StreamNow

Tone: TypeAlias = Literal["bad", "warn"]


class Usual(NamedTuple):
    """What nobody has to look at; what is beyond it is said."""

    left_share: float = 0.1  # of what came, that is left over: a backlog breathes
    messages: int = 100  # few are gone before somebody looks, and say nothing of a queue or a worker
    slower: float = 2.0  # times the p95 of the period before
    retried_share: float = 0.05  # of what ended
    behind: float = 7200.0  # seconds: a lake that is filled every hour
    idle: float = 60.0  # seconds that a message waits for a worker
    deaths: int = 3  # reasons that are problems of their own; the others are one
    slow_worker: float = 3.0  # times the run of all together
    wrong_worker: float = 2.0  # times the share of all that ended badly


USUAL = Usual()


class Finding(NamedTuple):
    """A problem, or what is to be watched; `link` is the part of the page that tells more."""

    tone: Tone
    what: str
    why: str
    link: str = ""


def findings(figures: Figures) -> list[Finding]:
    """The worst first: what is so now, then what happened."""
    found = [*_now(figures), *_deaths(figures), *_period(figures)]
    return sorted(found, key=lambda one: one.tone != "bad")


def heading(found: list[Finding]) -> str:
    bad = sum(one.tone == "bad" for one in found)
    watch = len(found) - bad
    parts = [words.plural(bad, "problem")] * bool(bad)
    parts += [f"{words.number(watch)} {'thing' if watch == 1 else 'things'} to watch"] * bool(watch)
    return ", ".join(parts) or "Nothing to worry about"


def _now(figures: Figures) -> Iterator[Finding]:
    for queue in figures.present.queues:
        yield from _waiting(queue)
        yield from _behind(queue, figures.present.at)
    for stream in figures.present.streams:
        yield from _stream(stream)


def _waiting(queue: QueueNow) -> Iterator[Finding]:
    if not queue.ready:
        return
    oldest = f", the oldest for {words.duration(queue.oldest)}" if queue.oldest is not None else ""
    if queue.paused:
        yield Finding("warn", f"{queue.queue}: paused", f"{words.number(queue.ready)} are ready{oldest}.", "now")
    elif not queue.running and (queue.oldest or 0.0) >= USUAL.idle:
        yield Finding(
            "bad", f"{queue.queue}: nobody works on it", f"{words.number(queue.ready)} are ready{oldest}.", "now"
        )


def _behind(queue: QueueNow, now: float) -> Iterator[Finding]:
    if queue.unseen and queue.seen is not None and now - queue.seen > USUAL.behind:
        said = f"{words.number(queue.unseen)} ended since {words.when(queue.seen)}, which this report does not know."
        yield Finding("warn", f"{queue.queue}: the lake is behind", said, "now")


def _stream(stream: StreamNow) -> Iterator[Finding]:
    name = f"{stream.queue}: stream {stream.consumer}"
    if stream.claimed and not stream.owner:
        said = f"It holds {words.plural(stream.claimed, 'message')}, and no query runs."
        yield Finding("bad", f"{name} has no owner", said, "now")
    elif stream.tries > 1:
        said = f"It holds {words.plural(stream.claimed, 'message')}; the lag is {words.number(stream.lag)}."
        yield Finding("warn", f"{name} is on try {stream.tries} of a batch", said, "now")


def _deaths(figures: Figures) -> Iterator[Finding]:
    dead = [one for one in figures.reasons if one.status == "dead"]
    for one in dead[: USUAL.deaths]:
        yield Finding("bad", f"{one.queue}: {words.plural(one.count, 'dead letter')}", _course(one, figures), "reasons")
    if others := dead[USUAL.deaths :]:
        count = sum(one.count for one in others)
        said = f"{words.plural(count, 'message')} in {words.plural(len({one.queue for one in others}), 'queue')}."
        yield Finding("warn", f"{words.plural(len(others), 'other reason')} of death", said, "reasons")
    failed = sum(one.failed for one in figures.queues)
    if failed:
        said = (
            f"Of {words.number(figures.ended)} that ended. They expired, were cancelled, or nobody keeps dead letters."
        )
        yield Finding("warn", f"{words.plural(failed, 'message')} failed", said, "reasons")


def _course(one: Reason, figures: Figures) -> str:
    earlier = words.number(one.before) if one.before else "none"
    before = f", {earlier} in the period before" if figures.before_is_whole else ""
    assert figures.period is not None
    first, last = (words.clock(at, figures.period) for at in (one.first, one.last))
    return f"{one.reason}. First {first}, last {last}{before}."


def _period(figures: Figures) -> Iterator[Finding]:
    for queue in figures.queues:
        yield from _grown(queue)
        yield from _slower(figures, queue)
        if queue.retried > USUAL.retried_share * queue.ended and queue.retried >= USUAL.messages:
            said = f"{words.number(queue.retried)} of {words.number(queue.ended)} took more than one attempt."
            yield Finding("warn", f"{queue.queue}: many retries", said, "retries")


def _grown(queue: QueueFigures) -> Iterator[Finding]:
    more = queue.backlog_last - queue.backlog_first
    if more >= USUAL.messages and more > USUAL.left_share * queue.arrived:
        left = f"From {words.number(queue.backlog_first)} to {words.number(queue.backlog_last)}"
        said = f"{left}: {words.number(queue.arrived)} came, {words.number(queue.ended)} ended."
        yield Finding("warn", f"{queue.queue}: the backlog grew", said, "queues")


def _slower(figures: Figures, queue: QueueFigures) -> Iterator[Finding]:
    before = figures.of_before(queue.queue)
    if (
        before
        and before.p95
        and queue.ended >= USUAL.messages
        and queue.p95 > USUAL.slower * before.p95
        and queue.p95 >= 1.0
    ):
        said = (
            f"p95 from enqueue to end {words.duration(queue.p95)}, {words.duration(before.p95)} in the period before."
        )
        yield Finding("warn", f"{queue.queue}: slower", said, "latency")
