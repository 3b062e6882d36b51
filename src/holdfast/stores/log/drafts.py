"""Calls become blocks: messages that follow each other and travel alike, up to a block's budget. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TypeAlias

import msgspec

from ...errors import ConfigError
from ..records import Envelope, Uniform
from .calendar import Calendar
from .names import DATED
from .rows import Rows

BLOCK_MESSAGES = 1000
BLOCK_BYTES = 4 << 20

_payload = attrgetter("payload")
_travel = attrgetter("priority", "delay", "at", "max_attempts", "expires", "lifetime", "content_type")

Kind: TypeAlias = tuple[int, float, int, int]  # priority, due time, attempts, expiry


class Run(msgspec.Struct, gc=False):
    """Messages in a row that differ only in payload and headers, by column."""

    payloads: list[bytes]
    content_type: str
    headers: list[dict[str, str] | None] | None = None

    def __len__(self) -> int:
        return len(self.payloads)

    def cut(self, start: int, end: int) -> Run:
        return Run(self.payloads[start:end], self.content_type, self.headers and self.headers[start:end])


class Draft(msgspec.Struct, gc=False):
    """A block that is being filled: messages that share priority, due time and attempts."""

    priority: int
    due: float  # as `BlockName.later_key` takes it
    max_attempts: int
    expires: int = 0  # as `BlockName` has it
    runs: list[Run] = []
    count: int = 0
    size: int = 0

    @property
    def kind(self) -> Kind:
        return self.priority, self.due, self.max_attempts, self.expires

    def fill(self, run: Run, drafts: list[Draft]) -> Draft:
        """Add messages of this kind, opening further drafts as they fill up; the last one."""
        sizes = list(map(len, run.payloads))
        whole = sum(sizes)
        if self._fits(len(sizes), whole):
            self._add(run, whole)
            return self
        draft, start, size = self, 0, 0
        for place, each in enumerate(sizes):
            held = draft.count + place - start
            if held and not draft._fits(place - start + 1, size + each):
                draft._add(run.cut(start, place), size)
                draft = Draft(*self.kind)
                drafts.append(draft)
                start, size = place, 0
            size += each
        draft._add(run.cut(start, len(sizes)), size)
        return draft

    def rows(self) -> Rows:
        runs = self.runs
        if len(runs) == 1:
            return Rows(runs[0].payloads, runs[0].content_type, runs[0].headers)
        payloads = [payload for run in runs for payload in run.payloads]
        kinds = [run.content_type for run in runs for _ in run.payloads]
        headers = [each for run in runs for each in run.headers or [None] * len(run)]
        return Rows(payloads, kinds[0] if len(set(kinds)) == 1 else kinds, headers if any(headers) else None)

    def _fits(self, count: int, size: int) -> bool:
        return self.count + count <= BLOCK_MESSAGES and self.size + size <= BLOCK_BYTES

    def _add(self, run: Run, size: int) -> None:
        self.runs.append(run)
        self.count += len(run)
        self.size += size


def drafts(calls: Sequence[Sequence[Envelope]], now: float, calendar: Calendar) -> list[Draft]:
    """Messages in blocks of a bounded size that share everything the key says.

    Within a priority another kind starts another block, so that ids and order follow the input.
    """
    current: dict[int, Draft] = {}
    made: list[Draft] = []
    for kind, run in _runs(calls, now, calendar):
        draft = current.get(kind[0])
        if draft is None or draft.kind != kind:
            draft = Draft(*kind)
            made.append(draft)
        current[kind[0]] = draft.fill(run, made)
    return made


def _runs(calls: Sequence[Sequence[Envelope]], now: float, calendar: Calendar) -> Iterator[tuple[Kind, Run]]:
    for type_, group in groupby(calls, key=type):
        if type_ is Uniform:
            for call in group:
                yield _uniform_run(call, now, calendar)  # type: ignore[arg-type]  # as the group says
            continue
        messages = [message for call in group for message in call]  # of all calls: most have one
        for (priority, delay, at, attempts, expires, lifetime, content_type), alike in groupby(messages, key=_travel):
            found = list(alike)
            headers = [each.headers for each in found]
            run = Run(list(map(_payload, found)), content_type, headers if any(headers) else None)
            until = end(expires, lifetime, now, calendar)
            yield (priority, due(delay, at, now, calendar), attempts or 0, until), run


def _uniform_run(call: Uniform, now: float, calendar: Calendar) -> tuple[Kind, Run]:
    headers, priority, delay, at, _, attempts, expires, lifetime = call.terms
    run = Run(call.payloads, call.content_type, [headers] * len(call) if headers else None)
    return (priority, due(delay, at, now, calendar), attempts or 0, end(expires, lifetime, now, calendar)), run


def due(delay: float, at: float | None, now: float, calendar: Calendar) -> float:
    """When it is visible, as `BlockName.later_key` takes it; 0: at once."""
    if at is None:
        return now + delay if delay > 0 else 0.0
    if at <= calendar.wall(now):
        return 0.0
    return -at if calendar.keyed else at


def end(expires: float | None, lifetime: float | None, now: float, calendar: Calendar) -> int:
    """When it is over, as `BlockName` has it, and not later; 0: never."""
    if expires is not None:
        return (DATED if calendar.keyed else 0) + max(1, math.floor(1000 * expires))
    return math.floor(1000 * (now + lifetime)) if lifetime is not None else 0


def refuse_expiring(messages: Sequence[Envelope]) -> None:
    """ConfigError where some expire: for stores whose format is too old."""
    terms = [messages[:1][0]] if isinstance(messages, Uniform) and len(messages) else messages
    if any(each.expires is not None or each.lifetime is not None for each in terms):
        raise ConfigError("this store's format has no `expires` yet: `holdfast install` raises it")


def kind(message: Envelope, now: float, calendar: Calendar) -> Kind:
    """What decides which blocks a message can lie in."""
    until = end(message.expires, message.lifetime, now, calendar)
    return message.priority, due(message.delay, message.at, now, calendar), message.max_attempts or 0, until
