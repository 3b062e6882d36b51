"""Schedules in the log engine: what was said lies in the queue's options, the mark in the head of one shard.

Whoever looks for messages reads both anyway. A fire replaces the head once: it takes the block of messages in and moves
the marks. On a bucket the block is written where nobody looks, so that only this step can make it messages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from ...errors import ConfigError, QueueNotFound, UnknownOutcome
from ...ids import Ids
from ...schedules import Mark, Plan
from .. import formats
from ..records import Envelope
from ..scheduling import Change, Fire, Scheduled, taken
from . import drafts, names, queues, rows
from .calendar import Calendar
from .edit import Session
from .head.state import Absorb
from .names import BlockName
from .partition import Log
from .queues import Config
from .rows import Rows
from .space import Buffer, Reading, Space, Transaction, Unclear
from .topics import work_topic

if TYPE_CHECKING:
    from .head.state import Head

_PAGE = 50  # names of one read
_UNKNOWN_KEPT_S = 7 * 86400.0  # a mark whose schedule is gone: somebody may still believe in it, and not for so long


class LogSchedules:
    """See `stores/scheduling.py` for the promises."""

    def __init__(
        self,
        space: Space,
        log: Callable[[str], Log],
        maker: Ids,
        *,
        timeout: float,
        changed: Callable[[str], Awaitable[None]],
    ) -> None:
        self._space = space
        self._log = log
        self._ids = maker
        self._timeout = timeout
        self._changed = changed  # the options of this queue

    def _shard(self, queue: str, name: str, config: Config) -> str:
        """Where the mark is: of the parts that the queue has here, whatever its options say."""
        return queues.shard(queue, shard_of(name, self._log(queue).window.partitions(config)))

    # Looking.

    async def find(self, name: str) -> Scheduled | None:
        found = await self._space.read(lambda view: view.get(names.schedule_key(name)), deadline=self._timeout)
        if found is None:
            return None
        return next((each for each in await self.of(found.data.decode()) if each.plan.name == name), None)

    async def of(self, queue: str) -> list[Scheduled]:
        try:
            config = await self._space.read(lambda view: queues.read_current(view, queue), deadline=self._timeout)
        except QueueNotFound:
            return []
        marks: dict[str, Mark] = {}
        for shard in sorted({self._shard(queue, name, config) for name in config.schedules}):
            committer = self._log(shard).committer
            marks |= (await self._space.read(committer.look, deadline=self._timeout)).head.schedules
        return [Scheduled(plan, marks.get(name, Mark())) for name, plan in sorted(config.schedules.items())]

    async def all(self) -> list[Scheduled]:
        found = [each for queue in await self.queues() for each in await self.of(queue)]
        return sorted(found, key=lambda each: each.plan.name)

    async def queues(self) -> set[str]:
        return await self._space.read(_queues_of_names, deadline=self._timeout)

    def seen(self, queue: str) -> list[Scheduled] | None:
        if not self._space.request_costs:
            return None
        first = self._log(queue)
        known = first.committer.known_config
        if known is None:
            return None
        for number in range(1, first.window.partitions(known[1])):  # a worker looks at one of them most of the time
            other = self._log(queues.shard(queue, number)).committer.known_config
            known = max(known, other or known, key=lambda each: each[0])
        config = known[1]
        return [
            Scheduled(plan, self._known_head(queue, name, config).schedules.get(name, Mark()))
            for name, plan in sorted(config.schedules.items())
        ]

    def _known_head(self, queue: str, name: str, config: Config) -> Head:
        committer = self._log(self._shard(queue, name, config)).committer
        return committer.stored(committer.root)

    # Changing.

    async def change(self, name: str, queue: str, change: Change) -> Plan | None:
        must_have_schedules(self._space)
        await self._space.transact(lambda tx: _begin_change(tx, name, queue), deadline=self._timeout)
        plan = await self._space.transact(lambda tx: _change(tx, name, queue, change), deadline=self._timeout)
        await self._changed(queue)
        if plan is None:
            await self._space.transact(lambda tx: _give_name(tx, name, queue), deadline=self._timeout)
        return plan

    # Firing.

    async def fire(self, queue: str, fires: Sequence[Fire]) -> list[bool]:
        config = await self._space.read(lambda view: queues.read(view, queue), deadline=self._timeout)
        done = dict.fromkeys(range(len(fires)), False)
        by_shard: dict[str, list[int]] = {}
        for at, each in enumerate(fires):
            by_shard.setdefault(self._shard(queue, each.name, config), []).append(at)
        for shard, places in by_shard.items():
            step = _Step(self._ids, [fires[at] for at in places], work_topic(shard))
            try:
                fired = await self._log(shard).committer.edit(step)
            except Unclear as error:  # messages may be there: who fires again finds out
                raise UnknownOutcome(str(error)) from error
            for at, happened in zip(places, fired, strict=True):
                done[at] = happened
        return list(done.values())


class _Step:
    """Takes the messages in and moves the marks. What it makes has the same names and bytes whenever it runs."""

    def __init__(self, maker: Ids, fires: list[Fire], topic: str) -> None:
        self._ids = maker
        self._fires = fires
        self._topic = topic
        self._made: dict[tuple[bool, ...], list[tuple[str, Buffer]]] = {}

    def __call__(self, session: Session) -> list[bool]:
        head, tx = session.head, session.tx
        chosen = [
            each.name in session.seen.config.schedules and head.schedules.get(each.name, Mark()) == each.seen
            for each in self._fires
        ]
        if not any(chosen):
            return chosen
        fires = [each for each, is_chosen in zip(self._fires, chosen, strict=True) if is_chosen]
        blocks = self._blocks(tuple(chosen), fires, session)
        for key, data in blocks:
            tx.create(session.seen.root + key, data)
        if blocks and session.seen.window.staging.folder(0):  # where nobody looks
            session.do([Absorb([key for key, _ in blocks], "own")])
        marks = _kept(session) | {each.name: each.mark for each in fires}
        session.head = msgspec.structs.replace(session.head, schedules=marks)
        session.changed = True
        tx.signal(self._topic)
        return chosen

    def _blocks(self, chosen: tuple[bool, ...], fires: list[Fire], session: Session) -> list[tuple[str, Buffer]]:
        if chosen not in self._made:
            tx = session.tx
            messages = [message for each in fires for message in each.messages]
            base = self._ids.block(tx.now, carried=True) if messages else 0
            folder = session.seen.window.staging.folder(base)
            self._made[chosen] = [(folder + key, data) for key, data in blocks_of(messages, base, tx.now, tx.calendar)]
        return self._made[chosen]


def blocks_of(
    messages: Sequence[tuple[str, Envelope]], base: int, now: float, calendar: Calendar
) -> list[tuple[str, Buffer]]:
    """Blocks that carry the ids of their messages, by what a block's key says; numbers from `base` on."""
    kinds: dict[drafts.Kind, list[tuple[str, Envelope]]] = {}
    for id, message in sorted(messages, key=lambda each: each[0]):
        kinds.setdefault(drafts.kind(message, now, calendar), []).append((names.plain(id), message))
    parts = [
        (kind, some[start : start + drafts.BLOCK_MESSAGES])
        for kind, some in kinds.items()
        for start in range(0, len(some), drafts.BLOCK_MESSAGES)
    ]
    made: list[tuple[str, Buffer]] = []
    for at, ((priority, due, attempts, until), part) in enumerate(parts):
        first, last = part[0][0], part[-1][0]
        name = BlockName(f"{base + (at << 20):032x}", len(part), priority, attempts, 0, False, first, last, until)
        columns = Rows(
            [message.payload for _, message in part],
            [message.content_type for _, message in part],
            [message.headers for _, message in part],
            [id for id, _ in part],
            [calendar.wall(now)] * len(part),
        )
        made.append((name.later_key(due) if due else name.inbox_key(), rows.encode_at_once(columns)))
    return made


def shard_of(name: str, shards: int) -> int:
    """Which head has the mark of a schedule."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest()) % shards


def _kept(session: Session) -> dict[str, Mark]:
    """Marks without those whose schedule is long gone."""
    known, oldest = session.seen.config.schedules, session.tx.calendar.wall(session.tx.now) - _UNKNOWN_KEPT_S
    return {name: mark for name, mark in session.head.schedules.items() if name in known or mark.slot > oldest}


def _queues_of_names(view: Reading) -> set[str]:
    found: set[str] = set()
    after = ""
    while page := view.list(names.SCHEDULES, after=after, limit=_PAGE):
        after = page[-1]
        found.update(data.decode() for data in view.survey(page, [])[0] if data is not None)
    return found


def take_name(tx: Transaction, name: str, queue: str) -> None:
    """One schedule of a name in a store; that of a queue that is gone does not count."""
    key = names.schedule_key(name)
    found = tx.get(key)
    holder = found.data.decode() if found is not None else None
    if holder == queue:
        return
    if holder is not None:
        try:
            if name in queues.read_current(tx, holder).schedules:
                raise taken(name, holder)
        except QueueNotFound:
            pass
    tx.put(key, queue.encode())


def must_have_schedules(space: Space) -> None:
    """ConfigError where the store's format is too old."""
    if space.format < formats.SCHEDULES:
        raise ConfigError("this store's format has no schedules yet: `holdfast install` raises it")


def _begin_change(tx: Transaction, name: str, queue: str) -> None:
    queues.read_current(tx, queue)
    take_name(tx, name, queue)


def _change(tx: Transaction, name: str, queue: str, change: Change) -> Plan | None:
    config = queues.read_current(tx, queue)
    before = config.schedules.get(name)
    plan = change(before)
    if plan != before:
        kept = {key: each for key, each in config.schedules.items() if key != name}
        queues.store(tx, queue, msgspec.structs.replace(config, schedules={**kept, name: plan} if plan else kept))
    return plan


def _give_name(tx: Transaction, name: str, queue: str) -> None:
    found = tx.get(names.schedule_key(name))
    if found is not None and found.data.decode() == queue:
        tx.delete(names.schedule_key(name))
