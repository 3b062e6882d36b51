"""The log engine as a store: every method of the seam, over one space."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar, cast

import msgspec
from msgspec.structs import replace

from ... import ids
from ...config import QueueOptions, StoreOptions
from ...errors import MessageNotFound, QueueNotEmpty, QueueNotFound
from ...ids import Ids
from .. import formats
from ..base import DEAD, EMPTY_S, RESTS_S, CallName, Check, Ordinary, QueueInfo, Reread, SingleAppend, stats_one_by_one
from ..capabilities import Capabilities
from ..formats import Format
from ..records import Answer, Change, Claims, Dedup, Enqueued, Envelope, Settlement, Stats, Stored, View
from . import counting, drafts, inspect, letters, living_keys, maintenance, names, operating, queues, scrub, tokens
from .backups import LogBackups
from .cache import BlockCache
from .edit import Session
from .head.machine import EXPIRED
from .head.state import Claim, Expire, Taken
from .partition import Log
from .pipeline.batches import LogBatches
from .queue_view import Finder
from .repeat_window import Home, RepeatWindow
from .schedules import LogSchedules
from .space import Reading, Shrinking, Space, Stale, Transaction, Watched, Watchful
from .topics import done_topic, work_topic
from .values import LogValues
from .worker_reports import LogWorkerReports

T = TypeVar("T")


class Empty(msgspec.Struct, frozen=True, gc=False):
    """A claim found nothing: the ticket from before, when something is due by the space's clock, and how long that is
    believed by our own."""

    ticket: int
    next_due: float | None
    until: float


def _rest(empty: Empty, ticket: int, now: float) -> float:
    """Seconds for which nothing is expected of a queue that was found empty; `now` is of the space's clock."""
    if ticket != empty.ticket:
        return 0.0
    pause = empty.until - time.monotonic()
    return pause if empty.next_due is None else min(pause, empty.next_due - now)


class LogStore(Ordinary):
    """See `stores/base.py` for the promises."""

    capabilities = Capabilities(remembers_calls=True, keeps_values=True)

    def __init__(
        self, space: Space, options: StoreOptions, *, steps: Callable[[str], Awaitable[None]] | None = None
    ) -> None:
        self._space = space
        self._options = options
        self._timeout = options.operation_timeout
        self._steps = steps  # tests stop the engine at named steps; nobody else does
        self._cache = BlockCache()
        self._ids = Ids()
        self._logs: dict[str, Log] = {}
        self._pulse = cast(Watchful, space) if hasattr(space, "watch_log") else None
        self._swept_until = 0.0
        self._found_idle: dict[str, float] = {}  # by queue: when, by `time.monotonic`
        self._watched: dict[str, Empty | None] = {}  # queues that `ready` was asked about, and which gave nothing
        self._empty: dict[str, Empty] = {}  # queues in which somebody waited in vain until now
        self._looked: dict[str, int] = {}  # by queue: the ticket before the last look
        self._batches = LogBatches(space, self._finder, self._fresh, self._log, options)
        self._schedules = LogSchedules(
            space, self._log, self._ids, timeout=self._timeout, changed=self._options_changed
        )
        self._worker_reports = LogWorkerReports(space, timeout=self._timeout)
        self._values = LogValues(space, timeout=self._timeout)
        self._backups = LogBackups(space, self._fresh, self._logs_of, self._log)

    def _log(self, queue: str) -> Log:
        log = self._logs.get(queue)
        if log is None:
            log = self._logs[queue] = Log(
                self._space,
                queues.address(queue),
                self._cache,
                self._ids,
                self._window(queue),
                timeout=self._timeout,
                step=self._steps,
                linger=self._options.linger if self._space.request_costs else 0.0,
            )
        return log

    def _window(self, queue: str) -> RepeatWindow:
        found = partial(self._found, queue)
        home = Home(queues.address(queue), self._cache, self._ids, self._timeout, found)
        return self._space.repeat_window(home)

    async def _logs_of(self, queue: str) -> list[Log]:
        """All logs of a queue, without its dead letters."""
        return [self._log(queue)]

    # The store as a whole.

    @property
    def space(self) -> Space:
        """What the engine stands on, for those who measure it alone."""
        return self._space

    async def install(self, *, dry_run: bool = False) -> list[str]:
        return await self._space.install(dry_run=dry_run)

    @property
    def batches(self) -> LogBatches:
        return self._batches

    @property
    def schedules(self) -> LogSchedules:
        return self._schedules

    @property
    def worker_reports(self) -> LogWorkerReports:
        return self._worker_reports

    @property
    def values(self) -> LogValues:
        return self._values

    async def _options_changed(self, queue: str) -> None:
        """Somebody else may have to be told."""

    @property
    def backups(self) -> LogBackups:
        return self._backups

    @property
    def format(self) -> Format:
        return Format(self._space.format, formats.LOG)

    async def raise_format(self) -> None:
        await self._space.raise_format()

    async def uninstall(self) -> list[str]:
        return await self._space.uninstall()

    async def close(self) -> None:
        until = time.monotonic() + self._timeout
        for log in self._logs.values():
            await log.close(until)
        self._logs.clear()
        await self._space.close(within=max(0.0, until - time.monotonic()))

    def abandon(self) -> None:
        """A space whose threads end with it has nothing to do."""
        does = getattr(self._space, "abandon", None)
        if does is not None:
            does()

    async def check(self) -> list[Check]:
        return [*await self._space.check(), await inspect.damaged(self._space), await scrub.check(self._space)]

    def scrub(self, queue: str | None, *, quarantine: bool) -> AsyncIterator[Reread]:
        """As `base.Scrubbing`."""
        return scrub.scrub(self._space, queue, quarantine=quarantine)

    async def clock(self) -> float:
        return self._space.calendar().wall(self._space.clock())

    # Queues.

    async def create_queue(self, name: str, options: QueueOptions) -> QueueInfo:
        create = partial(queues.create, queue=name, options=options, store_id=self._space.store_id, heads=True)
        return await self._created(name, create)

    async def _created(self, name: str, create: Callable[[Transaction], queues.Config]) -> QueueInfo:
        while True:
            try:
                config = await self._space.transact(create, deadline=self._timeout)
            except queues.Closing as closing:
                await asyncio.sleep(closing.seconds)
            else:
                return queues.info(name, config)

    async def configure(self, name: str, options: QueueOptions) -> QueueInfo:
        config = await self._space.transact(lambda tx: queues.change(tx, name, options=options), deadline=self._timeout)
        return queues.info(name, config)

    async def queues(self) -> list[QueueInfo]:
        found = await self._space.read(queues.all_of, deadline=self._timeout)
        return [queues.info(name, config) for name, config in found]

    async def queue(self, name: str) -> QueueInfo | None:
        found = await self._space.read(lambda view: view.get(names.config_key(name)), deadline=self._timeout)
        config = queues.decode(found.data, name) if found else None
        return queues.info(name, config) if config is not None and config.closing is None else None

    async def delete_queue(self, name: str, *, force: bool = False) -> None:
        if not force:  # else a queue that cannot be read can go, too
            stats = await self.stats(name)
            left = stats.total - stats.archived + stats.set_aside
            if left:
                raise QueueNotEmpty(f"queue {name!r} still holds {left} messages; use force=True")
        window = self._log(name).window
        root = await self._space.transact(lambda tx: window.unregister(tx, name), deadline=self._timeout)
        for text in [each for each in self._logs if queues.address(each).queue == name]:
            await self._logs.pop(text).close(time.monotonic() + self._timeout)
        self._watched.pop(name, None)
        self._empty.pop(name, None)
        await asyncio.sleep(window.closing_s)  # nobody believes in it any more: what is sent to it is refused
        for spared in ("/head", "/"):  # heads last: without one, whoever comes late would begin with the old blocks
            delete = partial(queues.delete_some, prefix=root, spared=spared)
            while await self._space.transact(delete, deadline=self._timeout):
                pass
        await self._shrink()

    async def pause(self, name: str, paused: bool) -> None:
        def step(tx: Transaction) -> None:
            queues.change(tx, name, paused=paused)
            tx.signal(work_topic(name))

        await self._space.transact(step, deadline=self._timeout)

    async def purge(self, queue: str) -> int:
        dropped = 0
        for log in await self._logs_of(queue):
            count = None
            while count is None:
                await log.flusher.thaw()
                count = await log.committer.edit(lambda session: letters.purge_thawed(session, self._cache))
            dropped += count
        await self._shrink()
        return dropped

    async def _shrink(self) -> None:
        """After much was deleted."""
        if hasattr(self._space, "shrink"):
            await cast(Shrinking, self._space).shrink()

    # Messages in and out.

    async def append(self, queue: str, messages: Sequence[Envelope]) -> list[str]:
        self._check(messages)
        return await self._log(queue).appender.append(messages)

    def _check(self, messages: Sequence[Envelope]) -> None:
        if self._space.format < formats.EXPIRES:
            drafts.refuse_expiring(messages)

    async def append_call(self, queue: str, messages: Sequence[Envelope], call: CallName) -> list[str]:
        self._check(messages)
        return await self._log(queue).appender.append(messages, call)

    async def append_once(
        self, queue: str, messages: Sequence[Envelope], dedup: Dedup = "window", *, replace: bool = False
    ) -> list[Enqueued]:
        self._check(messages)
        log = self._log(queue)
        if dedup == "window":
            return await log.appender.append_once(messages)
        return [await living_keys.append(log, messages[0], self._ids, dedup=dedup, replace=replace)]

    def single_append(self, queue: str) -> SingleAppend | None:
        return self._log(queue).appender.append_one

    async def claim(
        self, queue: str, limit: int, lease: float, *, wait: float = 0.0, worker: str | None = None
    ) -> Claims:
        if not wait:
            return await self._claim_now(queue, limit, lease, worker)
        deadline = time.monotonic() + wait
        while True:
            ticket = self._space.ticket(work_topic(queue))
            empty = self._empty.pop(queue, None)
            if empty is not None and _rest(empty, ticket, self._space.clock()) > 0:
                claims, next_due = Claims([], []), empty.next_due
            else:
                claims, next_due = await self._claim(queue, limit, lease, worker)
                empty = Empty(ticket, next_due, deadline - wait + EMPTY_S)
            left = deadline - time.monotonic()
            if claims.messages or claims.expired or left <= 0:
                return claims
            pause = left if next_due is None else min(left, max(0.001, next_due - self._space.clock()))
            if not await self._await_work(queue, pause, ticket) and pause == left:
                if limit:  # the next wait goes on with this one: it need not begin with a claim
                    self._empty[queue] = empty
                return claims

    async def _await_work(self, queue: str, timeout: float, ticket: int) -> bool:
        """Until there may be something to claim; False: there is nothing, and nobody needs to look again."""
        topic, poll_interval = work_topic(queue), self._options.poll_interval
        if self._pulse is None:  # who cannot rely on being told looks every poll interval
            await self._space.watch(topic, min(timeout, poll_interval), since=ticket)
            return True
        root = self._log(queue).committer.root
        return await self._pulse.watch_log(topic, timeout, since=ticket, root=root) or timeout < poll_interval

    async def _claim_now(self, queue: str, limit: int, lease: float, worker: str | None) -> Claims:
        if queue not in self._watched:
            return (await self._claim(queue, limit, lease, worker))[0]
        ticket = self._space.ticket(work_topic(queue))
        claims, next_due = await self._claim(queue, limit, lease, worker)
        is_empty = not claims.messages and not claims.expired
        self._watched[queue] = Empty(ticket, next_due, time.monotonic() + EMPTY_S) if is_empty else None
        return claims

    async def ready(self, queues: Sequence[str], *, wait: float = 0.0) -> list[str]:
        deadline = time.monotonic() + wait
        for queue in queues:
            self._watched.setdefault(queue, None)
        topics = [work_topic(queue) for queue in queues]
        while True:
            tickets = self._space.tickets(topics)
            pauses = [self._pause(queue, ticket) for queue, ticket in zip(queues, tickets, strict=True)]
            left = deadline - time.monotonic()
            if left <= 0 or not pauses or min(pauses) <= 0:
                return [queue for queue, pause in zip(queues, pauses, strict=True) if pause <= 0]
            roots = [self._log(queue).committer.root for queue in queues]
            await self._space.watch_any(list(map(Watched, topics, tickets, roots)), min(left, *pauses))

    def _pause(self, queue: str, ticket: int) -> float:
        """Seconds for which nothing is expected of a queue that was found empty."""
        known = self._watched.get(queue)
        return 0.0 if known is None else _rest(known, ticket, self._space.clock())

    def requests(self) -> dict[str, int] | None:
        """On a bucket: what was asked of it."""
        tally = getattr(self._space, "tally", None)
        return None if tally is None else tally.read()

    async def _claim(self, queue: str, limit: int, lease: float, worker: str | None) -> tuple[Claims, float | None]:
        log = self._log(queue)
        token = log.window.token()
        answer = await log.committer.ask(Claim(token, limit, lease, worker))
        taken = cast(list[Taken], answer.results[0])
        gone = tokens.expired(answer, EXPIRED) if answer.expired else []
        claims = Claims(tokens.claimed(answer, taken, token), gone)
        return claims, None if taken else answer.next_due()

    async def extend(self, queue: str, held: Sequence[tuple[str, str]], seconds: float) -> list[float | None]:
        intents, where = tokens.extend_intents(held, seconds)
        return tokens.extended(await self._log(queue).committer.ask(*intents), intents, where)

    def extend_from_thread(
        self, queue: str, held: Sequence[tuple[str, str]], seconds: float
    ) -> list[float | None] | None:
        intents, where = tokens.extend_intents(held, seconds)
        return tokens.extended(self._log(queue).committer.ask_from_thread(*intents), intents, where)

    async def settle(self, queue: str, settlements: Sequence[Settlement]) -> list[Answer]:
        if queue.endswith(DEAD):  # what is dead stays dead: it only waits again
            settlements = [replace(each, action="retry") if each.action == "dead" else each for each in settlements]
        return [answer for part in tokens.parts(settlements) for answer in await self._settle(queue, part)]

    async def _settle(self, queue: str, settlements: Sequence[Settlement]) -> list[Answer]:
        log, batch = self._log(queue), tokens.settle_intents(settlements)
        then = tokens.keep_results(batch.large) if batch.large else None
        answer = await log.committer.ask(*batch.intents, then=then)
        await log.lighten()
        answers = tokens.settled(answer, batch)
        doubtful = [place for place, each in enumerate(answers) if each == "lost"]
        if doubtful:
            judged = await self._judge(queue, [settlements[place] for place in doubtful])
            for place, kind in zip(doubtful, judged, strict=True):
                answers[place] = kind
        return answers

    async def _judge(self, queue: str, refused: Sequence[Settlement]) -> list[Answer]:
        """Refused settlements: a repeat of what is archived by now, somebody else's message, or none at all."""
        finder = self._finder(queue)
        found = await self._read(finder, lambda view: [finder.find_with_token(view, each.id) for each in refused])
        return [tokens.judged(each, *pair) for each, pair in zip(refused, found, strict=True)]

    async def cancel(self, queue: str, id: str, *, running: bool = False) -> bool:
        answer = None
        for log in await self._logs_of(queue):
            await log.flusher.thaw()
            change = partial(operating.cancel, cache=self._cache, id=id, running=running)
            answer = await log.committer.edit(change)
            if answer is not None:
                break
        if answer is None:
            if (await self.get(queue, [id]))[0] is None:
                raise MessageNotFound(f"queue {queue!r} has no message {id!r}")
            return False
        return answer

    async def change(self, queue: str, id: str, change: Change) -> bool:
        for log in await self._logs_of(queue):
            done = "leaving"
            while done == "leaving":
                await log.flusher.thaw()
                done = await log.committer.edit(partial(self._change, log=log, id=id, change=change))
            if done != "absent":
                return done == "changed"
        if (await self.get(queue, [id]))[0] is None:
            raise MessageNotFound(f"queue {queue!r} has no message {id!r}")
        return False

    def _change(self, session: Session, *, log: Log, id: str, change: Change) -> str:
        """The step may run again: every run makes a block of its own."""
        number = self._ids.block(session.tx.now, carried=True)
        return operating.change(session, self._cache, id, change, number=number, token=log.window.token())

    async def take_back(self, queue: str, ids: Sequence[str] | None, *, worker: str | None = None) -> int:
        taken = 0
        for log in await self._logs_of(queue):
            token = log.window.token()
            change = partial(operating.take_back, cache=self._cache, wanted=ids, worker=worker, token=token)
            taken += await log.committer.edit(change)
        return taken

    # Looking.

    def _finder(self, queue: str) -> Finder:
        dead = None if queue.endswith(DEAD) else self._log(queue + DEAD).committer
        return Finder(self._log(queue).committer, dead, self._cache)

    async def get(self, queue: str, ids: Sequence[str]) -> list[Stored | None]:
        self._looked[queue] = self._space.ticket(done_topic(queue))
        return await self._look(queue, lambda finder, view: [finder.find(view, id) for id in ids])

    async def _found(self, queue: str, ids: Sequence[str]) -> list[bool]:
        return [each is not None for each in await self.get(queue, ids)]

    async def find_queue(self, queues: Sequence[str], id: str) -> str | None:
        if self._space.request_costs or (number := ids.number(id)) is None:
            return await super().find_queue(queues, id)
        look = partial(counting.knowing, self._cache, self._window(""), f"{number:032x}", queues)
        return await self._space.read(look, deadline=self._timeout)

    async def scan(self, queue: str, view: View, *, after: str | None = None, limit: int = 100) -> list[Stored]:
        return await self._look(queue, lambda finder, reading: finder.page(reading, view, after=after, limit=limit))

    async def upcoming(
        self, queue: str, view: View, *, after: tuple[float, str] | None = None, limit: int = 100
    ) -> list[Stored]:
        return await self._look(queue, lambda finder, reading: finder.upcoming(reading, view, after, limit))

    async def peek(self, queue: str, limit: int) -> list[Stored]:
        return await self._look(queue, lambda finder, reading: finder.next_in_line(reading, limit))

    async def stats(self, queue: str) -> Stats:
        return await self._look(queue, lambda finder, view: finder.stats(view))

    async def stats_of_all(self) -> list[tuple[QueueInfo, Stats]]:
        """Many queues in one read, where a look costs no request."""
        if self._space.request_costs:
            return await stats_one_by_one(self)
        found: list[tuple[QueueInfo, Stats]] = []
        after: str | None = None
        while after != "":
            look = partial(counting.counted, self._cache, self._window(""), after or "")
            some, after = await self._space.read(look, deadline=self._timeout)
            for name, config, counts in some:
                with suppress(QueueNotFound):
                    found.append((queues.info(name, config), counts or await self.stats(name)))
        return found

    async def _fresh(self, queue: str) -> Finder:
        """A finder for later looks, after messages with no attempt left have ended."""
        await self._look(queue, lambda finder, view: None)
        return self._finder(queue)

    async def _look(self, queue: str, look: Callable[[Finder, Reading], T]) -> T:
        """Look, after messages with no attempt left have ended: that must not wait for the next claim."""
        logs = await self._logs_of(queue)
        finder = self._finder(queue)
        found = await self._read(finder, lambda view: None if finder.has_exhausted(view) else (look(finder, view),))
        if found is None:
            for log in logs:
                await log.committer.ask(Expire())
            return await self._read(finder, lambda view: look(finder, view))
        return found[0]

    async def _read(self, finder: Finder, look: Callable[[Reading], T]) -> T:
        """Look; again when something has left in the middle. What a later look misses too is gone for good."""
        gone: set[str] = set()
        until = time.monotonic() + self._timeout
        while True:
            try:
                return await self._space.read(look, deadline=self._timeout)
            except Stale as stale:
                finder.again = time.monotonic() <= until
                finder.sure = str(stale) in gone or not finder.again
                gone.add(str(stale))

    async def watch(self, queue: str, timeout: float) -> None:
        # What ended since somebody looked counts, so that the usual "get, then watch" misses nothing.
        since = self._looked.get(queue)
        await self._space.watch(done_topic(queue), min(timeout, self._options.poll_interval), since=since)

    # Dead letters and archive.

    async def replay(self, queue: str, view: View, ids: Sequence[str]) -> int:
        if view == "dead":
            for log in await self._logs_of(queue):
                await log.flusher.flush_all()
            dead = self._log(queue + DEAD)
            return await dead.window.replay_dead(dead, ids)
        await self._flush_all(queue)
        found = await self._space.read(lambda reading: letters.archived(reading, queue, ids), deadline=self._timeout)
        return await self._log(queue).window.replay_archived(queue, found)

    async def discard(
        self, queue: str, view: View, ids: Sequence[str] | None = None, *, before: float | None = None
    ) -> int:
        await self._flush_all(queue)
        if view == "archive":
            return await letters.discard_archived(self._space, queue, ids, before)
        dead = self._log(queue + DEAD).committer
        if ids is None and before is None:
            count = await dead.edit(lambda session: letters.purge(session, self._cache))
            await self._shrink()
            return count
        return await dead.edit(lambda session: letters.discard_dead(session, self._cache, ids, before))

    async def _flush_all(self, queue: str) -> None:
        """Everything that has ended is in the archive or the dead letters after this."""
        for log in (*await self._logs_of(queue), self._log(queue + DEAD)):
            await log.flusher.flush_all()

    async def maintain(self, queue: str) -> dict[str, int]:
        orphans = 0
        if not self._space.request_costs:
            orphans = await self._sweep()
            looked = time.monotonic()
            look = partial(maintenance.is_idle, queue, self._log(queue).window, self._cache)
            if await self._space.read(look, deadline=self._timeout):
                self._found_idle[queue] = looked
                return maintenance.NOTHING_DONE | {"orphans": orphans}
        live, *others = await self._logs_of(queue)
        done = await maintenance.maintain(self._space, live, self._log(queue + DEAD), self._cache, others=others)
        if not done:
            return done
        return done | {"orphans": done["orphans"] + orphans} | {"released": await self._batches.give_back(queue)}

    def is_resting(self, queue: str) -> bool:
        """Nothing has changed since upkeep found nothing to do; by and by time alone makes some."""
        idle = self._found_idle.get(queue)
        if idle is None or self._pulse is None or time.monotonic() - idle > RESTS_S:
            return False
        return self._pulse.is_unchanged(work_topic(queue), self._log(queue).committer.root, since=idle)

    async def _sweep(self) -> int:
        """Once for all queues of the space, and for all who share it."""
        if self._space.clock() < self._swept_until:
            return 0
        self._swept_until = self._space.clock() + maintenance.SWEEP_SECONDS
        await self._shrink()
        return await maintenance.sweep_space(self._space)
