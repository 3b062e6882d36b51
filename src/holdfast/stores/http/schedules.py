"""Schedules of a served store. What is to change travels as a comparison: functions do not travel."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ...errors import Unavailable
from ...schedules import Plan
from ..scheduling import Change, Fire, Scheduled

# mypy: no-warn-return-any
# What comes back is of the type that `wire.VERBS` reads it as.


class HttpSchedules:
    """See `stores/scheduling.py` for the promises."""

    def __init__(self, ask: Callable[..., Awaitable[Any]], *, timeout: float) -> None:
        self._ask = ask
        self._timeout = timeout

    async def find(self, name: str) -> Scheduled | None:
        return next((each for each in await self.all() if each.plan.name == name), None)

    async def of(self, queue: str) -> list[Scheduled]:
        return await self._ask("schedules_of", queue)

    async def all(self) -> list[Scheduled]:
        return await self._ask("schedules")

    async def queues(self) -> set[str]:
        return {each.plan.queue for each in await self.all()}

    def seen(self, queue: str) -> list[Scheduled] | None:
        return None

    async def change(self, name: str, queue: str, change: Change) -> Plan | None:
        deadline = time.monotonic() + self._timeout
        while time.monotonic() < deadline:
            seen = next((each.plan for each in await self.of(queue) if each.plan.name == name), None)
            plan = change(seen)
            if await self._ask("change_schedule", queue, name, seen, plan):
                return plan
        raise Unavailable(f"others changed the schedule {name!r} all the time; nothing was done")

    async def fire(self, queue: str, fires: Sequence[Fire]) -> list[bool]:
        return await self._ask("fire_schedules", queue, fires)
