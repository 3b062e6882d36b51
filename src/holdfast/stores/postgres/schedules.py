"""Schedules in PostgreSQL: a row each. A fire is one transaction that holds the rows, adds messages and moves marks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from ... import ids as makers
from ...errors import ConfigError, QueueNotFound
from ...schedules import Mark, Plan
from ..base import PAGE_ROWS
from ..consumers import missing_queue
from ..scheduling import Change, Fire, Scheduled, taken
from .appending import Batch
from .partition import Topic
from .pool import Pool
from .schema import Schema
from .statements import Statements

TABLE_FORMAT = 8  # the migration that makes the table
_plan = msgspec.json.Decoder(Plan).decode
_mark = msgspec.json.Decoder(Mark).decode


def must_have_schedules(schema: Schema) -> None:
    """ConfigError where the schema's format is too old."""
    if schema.format.number < TABLE_FORMAT:
        raise ConfigError("this schema has no schedules yet: `holdfast install` raises its format")


async def read(
    fetch: Callable[..., Awaitable[Any]], schema: Schema, queue: str | None = None, name: str | None = None
) -> list[Scheduled]:
    """All of them, or those of a queue or a name."""
    if schema.format.number < TABLE_FORMAT:
        return []
    found = await fetch(Statements(schema.name)["schedules"], queue, name)
    return [Scheduled(_plan(plan), _mark(mark)) for plan, mark in found]


async def restore(connection: Any, schema: Schema, queue: int, some: Sequence[Scheduled]) -> None:
    """Schedules and their marks, for the queue of this id."""
    plans = [msgspec.json.encode(each.plan).decode() for each in some]
    marks = [msgspec.json.encode(each.mark).decode() for each in some]
    names = [each.plan.name for each in some]
    await connection.fetch(Statements(schema.name)["restore_schedules"], queue, names, plans, marks)


class PostgresSchedules:
    """See `stores/scheduling.py` for the promises."""

    def __init__(
        self,
        pool: Pool,
        schema: Schema,
        topic: Callable[[str], Topic],
        *,
        number: Callable[[], int],
        changed: Callable[[str], None],
    ) -> None:
        self._pool = pool
        self._schema = schema
        self._sql = Statements(schema.name)
        self._topic = topic
        self._number = number
        self._changed = changed  # there may be messages

    # Looking.

    async def find(self, name: str) -> Scheduled | None:
        return next(iter(await self._read(None, name)), None)

    async def of(self, queue: str) -> list[Scheduled]:
        return await self._read(queue, None)

    async def all(self) -> list[Scheduled]:
        return await self._read(None, None)

    async def queues(self) -> set[str]:
        return {each.plan.queue for each in await self.all()}

    def seen(self, queue: str) -> list[Scheduled] | None:
        return None

    async def _read(self, queue: str | None, name: str | None) -> list[Scheduled]:
        try:
            return await read(partial(self._pool.fetch, queue=queue or ""), self._schema, queue, name)
        except QueueNotFound:  # nothing is installed
            return []

    # Changing.

    async def change(self, name: str, queue: str, change: Change) -> Plan | None:
        must_have_schedules(self._schema)

        async def step(connection: Any) -> Plan | None:
            found = await connection.fetch(self._sql["schedule_hold"], name)
            if found and found[0][0] not in (None, queue):
                raise taken(name, found[0][0])
            plan = change(_plan(found[0][1]) if found else None)
            if plan is None:
                await connection.fetch(self._sql["schedule_delete"], name)
            elif not await connection.fetch(self._sql["schedule_put"], name, queue, msgspec.json.encode(plan).decode()):
                raise missing_queue(queue)
            return plan

        return await self._pool.transact(step, queue=queue)

    # Firing.

    async def fire(self, queue: str, fires: Sequence[Fire]) -> list[bool]:
        tries = 0

        async def step(connection: Any) -> list[bool]:
            nonlocal tries
            tries += 1
            return await self._fire(connection, queue, fires, again=tries > 1)

        done = await self._pool.transact(step, queue=queue)
        if any(done):
            self._changed(queue)
        return done

    async def _fire(self, connection: Any, queue: str, fires: Sequence[Fire], *, again: bool) -> list[bool]:
        """`again`: an earlier try may have been carried out, its answer lost; then the marks are ours already."""
        held = await connection.fetch(self._sql["schedules_take"], queue, sorted({each.name for each in fires}))
        marks = {name: _mark(mark) for name, mark in held}
        chosen = [marks.get(each.name) == each.seen for each in fires]
        new = [each for each, is_chosen in zip(fires, chosen, strict=True) if is_chosen]
        messages = [message for each in new for message in each.messages]
        appender = self._topic(queue).appender
        for start in range(0, len(messages), PAGE_ROWS):
            part = messages[start : start + PAGE_ROWS]
            batch = Batch([each for _, each in part], [id for id, _ in part], makers.text(self._number()))
            await appender.insert(connection, batch)
        if new:
            moved = [msgspec.json.encode(each.mark).decode() for each in new]
            await connection.fetch(self._sql["schedules_move"], [each.name for each in new], moved)
        ours = [again and marks.get(each.name) == each.mark for each in fires]
        return [a or b for a, b in zip(chosen, ours, strict=True)]
