"""The seam of schedules: where a store keeps them, and the one step that adds messages and moves a mark.

A mark is compared and replaced: `fire` adds the messages of a schedule if and only if its mark is the one that was
seen, and then the new one is there. So a slot becomes a message once, however many processes, crashes and late
writers there are. A schedule belongs to its queue and goes with it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection, Sequence
from typing import Protocol, TypeAlias

import msgspec

from ..errors import ConfigError
from ..schedules import Mark, Plan
from .records import Envelope, Stats

Change: TypeAlias = Callable[[Plan | None], Plan | None]  # what is kept of a schedule, and what shall be; None: nothing

_LOOKED_S = 15.0  # seconds that a look at which queues have schedules is good for


class Scheduled(msgspec.Struct, frozen=True):
    """A schedule and how far it has come."""

    plan: Plan
    mark: Mark


class Fire(msgspec.Struct, frozen=True):
    """What shall become of one schedule: messages under ids of their own, and its mark."""

    name: str
    seen: Mark
    mark: Mark
    messages: list[tuple[str, Envelope]]


class Schedules(Protocol):
    """Of one open store. Names are checked before they get here."""

    async def find(self, name: str) -> Scheduled | None:
        """One schedule, as it is now."""

    async def of(self, queue: str) -> list[Scheduled]:
        """Those of a queue, as they are now, by name; none where there is no such queue."""

    async def all(self) -> list[Scheduled]:
        """Every schedule, by name."""

    async def queues(self) -> set[str]:
        """The names of the queues that have schedules; it may name one that had some a moment ago."""

    def seen(self, queue: str) -> list[Scheduled] | None:
        """Those of a queue as the looks for messages have shown them, without asking; None: ask `of`, it is cheap."""

    async def change(self, name: str, queue: str, change: Change) -> Plan | None:
        """Make, replace or remove a schedule of a queue in one step; its mark stays. What it is then.

        The change may be asked several times. QueueNotFound; ConfigError where another queue has a schedule of that
        name.
        """

    async def fire(self, queue: str, fires: Sequence[Fire]) -> list[bool]:
        """Which of these were carried out, each whole or not at all; False: its mark is another, or it is gone.

        QueueNotFound.
        """


class ScheduledQueues:
    """Which queues have schedules, by one look for all who share this: a process may have workers on a thousand."""

    def __init__(self) -> None:
        self._looking = asyncio.Lock()
        self._looked = -math.inf  # when, by the monotonic clock
        self._queues: set[str] = set()  # that had schedules then

    def forget(self) -> None:
        """Something has changed: the next who asks has it looked up."""
        self._looked = -math.inf

    async def queues(self, stored: Schedules) -> set[str]:
        """Those that had some when they were last looked up, which is not long ago."""
        async with self._looking:
            if time.monotonic() - self._looked >= _LOOKED_S:
                self._looked = time.monotonic()  # a look that fails is not repeated by everyone who waits for it
                self._queues = await stored.queues()
        return self._queues


def counted(stats: Stats, marks: Collection[Mark]) -> Stats:
    """The counts of a queue with those of its schedules."""
    if not marks:
        return stats
    fired, missed = sum(mark.fired for mark in marks), sum(mark.missed for mark in marks)
    return msgspec.structs.replace(stats, slots_fired=fired, slots_missed=missed)


def taken(name: str, queue: str) -> ConfigError:
    """The error for a name that another queue's schedule has."""
    return ConfigError(f"there is a schedule {name!r} of queue {queue!r} already; delete it first, or choose a name")
