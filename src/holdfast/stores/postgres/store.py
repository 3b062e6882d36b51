"""PostgreSQL as a store: every method of the seam."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...config import QueueOptions, StoreOptions
from ...errors import HoldfastError, QueueNotFound
from ...ids import Ids, is_id
from ..base import DEAD, CallName, Check, Ordinary, QueueInfo
from ..capabilities import Capabilities
from ..records import Answer, Change, Claims, Dedup, Enqueued, Envelope, Settlement, Stats, Stored, View
from ..scheduling import counted
from . import doctor, maintenance
from .backups import PostgresBackups
from .batches import PostgresBatches
from .first_connection import first_connection
from .idle import Idle
from .notify import Bell, Endings, Listener, Notifier
from .partition import Topic
from .pool import LentPool, Pool, ThreadPool
from .registry import Registry
from .schedules import PostgresSchedules
from .schema import Schema
from .several import Several
from .statements import Statements
from .values import PostgresValues
from .worker_reports import PostgresWorkerReports

if TYPE_CHECKING:
    from ..formats import Format
    from .address import Address

_HEARD_S = 10.0  # after which a smaller lead is believed too: the server's clock may have been set back


class PostgresStore(Ordinary):
    """See `stores/base.py` for the promises."""

    capabilities = Capabilities(
        transactional=True,
        shares_schema=True,
        grants_roles=True,
        batch_size=1000,
        keeps_values=True,
        remembers_calls=True,
    )

    def __init__(self, address: Address, options: StoreOptions, *, pool: Any = None) -> None:
        """`pool`: the caller's own, of asyncpg; what listens, and what threads need, is opened by the address."""
        self._options = options
        self._address = address
        if pool is None:
            self._pool = Pool(address.connect, size=options.max_connections, timeout=options.operation_timeout)
        else:
            self._pool = LentPool(pool, address.settings(), timeout=options.operation_timeout)
        self._schema = Schema(self._pool, options.schema)
        self._registry = Registry(self._pool, self._schema)
        self._bell = Bell()
        self._listener = (
            Listener(address.connect, self._pool, self._bell, schema=options.schema) if options.notify else None
        )
        self._notifier = Notifier(self._listener.notify) if self._listener else None
        self._endings = Endings(self._bell, self._listener, self._notifier, poll=options.poll_interval)
        self._several = Several(self._pool, Statements(options.schema), self._bell, poll_interval=options.poll_interval)
        self._idle = Idle(self._pool, Statements(options.schema), self._bell, poll_interval=options.poll_interval)
        self._thread_pool = ThreadPool(address.connect, options.operation_timeout)
        self._topics: dict[str, Topic] = {}
        self._ids = Ids()
        self._ahead = 0.0  # seconds the store's clock is ahead of our monotonic one
        self._heard_at = float("-inf")  # when that was learnt
        self._background: set[asyncio.Task[Any]] = set()
        self._batches = PostgresBatches(
            self._pool, self._registry, self._topic, self._bell, poll_interval=options.poll_interval,
            number=self._number, connect=address.connect, changed=self._changed,
        )  # fmt: skip
        self._schedules = PostgresSchedules(
            self._pool, self._schema, self._topic, number=self._number, changed=self._fired
        )
        self._values = PostgresValues(self._pool, self._schema)
        self._worker_reports = PostgresWorkerReports(self._pool, options.schema)
        self._backups = PostgresBackups(self._schema, address.connect, self._changed)

    async def open(self) -> None:
        """Connect, and see that server and schema fit."""
        self._pool.give(await first_connection(self._address, self._options.connect_timeout))
        await self._schema.open()
        if self._pool.refusal is None:
            await self.clock()

    def _topic(self, queue: str) -> Topic:
        name = queue.removesuffix(DEAD)
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = Topic(
                self._pool, self._registry, name, schema=self._schema, number=self._number, heard=self._heard,
                news=self, find=self._topic,
            )  # fmt: skip
        return topic

    def _number(self) -> int:
        return self._ids.block(time.monotonic() + self._ahead)

    def _heard(self, now: float) -> None:
        """An answer that comes late tells too little, as after a stop: the most of the last seconds counts."""
        here = time.monotonic()
        if now - here >= self._ahead or here - self._heard_at > _HEARD_S:
            self._ahead, self._heard_at = now - here, here

    def channel(self, queue: str) -> str | None:
        """Where an append of its own shall notify; see `News`."""
        if self._listener is None or self._notifier is None or not self._notifier.lead(queue):
            return None
        return self._listener.channel

    def tell(self, queue: str) -> None:
        """Other processes hear of new messages."""
        if self._notifier is not None:
            self._notifier.tell(queue)

    def _changed(self, queue: str) -> None:
        """There may be something to claim."""
        self._bell.ring(queue)
        self.tell(queue)

    # The store as a whole.

    async def install(self, *, dry_run: bool = False, shared_schema: bool = False) -> list[str]:
        return await self._schema.install(dry_run=dry_run, shared=shared_schema)

    async def grant(self, role: str) -> None:
        await self._schema.grant(role)

    @property
    def batches(self) -> PostgresBatches:
        return self._batches

    @property
    def schedules(self) -> PostgresSchedules:
        return self._schedules

    @property
    def values(self) -> PostgresValues:
        return self._values

    def _fired(self, queue: str) -> None:
        self._topic(queue).claimer.bounds.reset()
        self._changed(queue)

    @property
    def worker_reports(self) -> PostgresWorkerReports:
        return self._worker_reports

    @property
    def backups(self) -> PostgresBackups:
        return self._backups

    @property
    def format(self) -> Format:
        return self._schema.format

    async def raise_format(self) -> None:
        await self._schema.raise_format()
        self._topics.clear()  # their statements are of the format before

    async def uninstall(self) -> list[str]:
        left = await self._schema.uninstall()
        self._registry.infos.clear()
        self._topics.clear()
        return left

    async def close(self) -> None:
        if self._background:
            await asyncio.wait(set(self._background), timeout=2.0)
        if self._notifier is not None:
            await self._notifier.close()
        if self._listener is not None:
            await self._listener.close()
        await self._batches.close()
        await self._idle.close()
        await asyncio.to_thread(self._thread_pool.close)  # an event loop of its own cannot run in this thread
        await self._pool.close()

    async def check(self) -> list[Check]:
        return await doctor.check(self._pool, self._schema, self._listener)

    async def clock(self) -> float:
        now = await self._schema.clock(installed=bool(self._registry.infos))
        self._heard(now)
        return now

    # Queues.

    async def create_queue(self, name: str, options: QueueOptions) -> QueueInfo:
        return await self._registry.create(name, options)

    async def configure(self, name: str, options: QueueOptions) -> QueueInfo:
        info = await self._registry.configure(name, options)
        self._changed(name)
        return info

    async def queues(self) -> list[QueueInfo]:
        return await self._registry.all()

    async def queue(self, name: str) -> QueueInfo | None:
        return await self._registry.find(name)

    async def delete_queue(self, name: str, *, force: bool = False) -> None:
        await self._registry.delete(name, force=force)
        self._topics.pop(name, None)
        self._several.forget(name)
        self._idle.forget(name)
        self._bell.ring(name)

    async def pause(self, name: str, paused: bool) -> None:
        await self._registry.pause(name, paused)
        self._changed(name)

    async def purge(self, queue: str) -> int:
        return await self._topic(queue).letters.purge(dead=queue.endswith(DEAD))

    # Messages in and out.

    async def append_call(self, queue: str, messages: Sequence[Envelope], call: CallName) -> list[str]:
        if not messages:
            await self._registry.must(queue)
            return []
        ids = await self._topic(queue).named_calls.append(messages, call)
        self._appended(queue)
        return ids

    def _appended(self, queue: str) -> None:
        self._topic(queue).claimer.bounds.reset()
        self._bell.ring(queue)

    async def append(
        self, queue: str, messages: Sequence[Envelope], *, connection: Any = None, notify: bool = False
    ) -> list[str]:
        """With a connection of the caller's, the messages are part of its transaction, and so is a notification."""
        appender = self._topic(queue).appender
        if not messages:
            await self._registry.must(queue)
            return []
        if connection is not None:
            channel = self._listener.channel if notify and self._listener is not None else None
            return await appender.append_within(connection, messages, channel)
        ids = await appender.append(messages)
        self._appended(queue)
        return ids

    async def append_once(
        self,
        queue: str,
        messages: Sequence[Envelope],
        dedup: Dedup = "window",
        *,
        replace: bool = False,
        connection: Any = None,
        notify: bool = False,
    ) -> list[Enqueued]:
        topic = self._topic(queue)
        channel = self._listener.channel if notify and self._listener is not None else None
        if dedup != "window":
            await self._registry.known(queue)
        if connection is not None and dedup == "window":
            return await topic.appender.append_once_within(connection, messages, channel)
        if connection is not None:
            within = partial(topic.living_keys.append_within, connection, messages[0], dedup)
            return [await within(replace=replace, channel=channel)]
        if dedup == "window":
            made = await topic.appender.append_once(messages)
        else:
            made = [await topic.living_keys.append(messages[0], dedup, replace=replace)]
            self.tell(queue)
        self._appended(queue)
        return made

    async def claim(
        self, queue: str, limit: int, lease: float, *, wait: float = 0.0, worker: str | None = None
    ) -> Claims:
        started = time.monotonic()
        if wait > 0 and self._listener is not None:
            self._listener.start()  # also while there is much to do: others may wish to hear what we end
        if wait <= 0 and queue in self._several:
            return await self._claim_watched(queue, limit, lease, worker)
        # A wait with a look in it may go on with the one before; what it answers in the end is never older than it is.
        enough = self._idle.recent() if wait > 2 * self._options.poll_interval else started
        while True:
            ticket, due, claims = self._bell.ticket(queue), None, Claims([])
            if is_asked := self._idle.seen(queue) < enough:
                claims = await self._claim(queue, limit, lease, worker, dead=queue.endswith(DEAD))
            left, enough = started + wait - time.monotonic(), started
            if claims.messages or claims.expired or (left <= 0 and (is_asked or self._idle.seen(queue) >= started)):
                return claims
            if is_asked:
                due = await self._topic(queue).claimer.next_due(dead=queue.endswith(DEAD))
            await self._await_work(queue, left, due, ticket)

    async def _await_work(self, queue: str, seconds: float, due: float | None, ticket: int) -> None:
        """Until there may be something; one that waits for its time, or dead letters, are looked at by the clock."""
        if due is None and not queue.endswith(DEAD):
            await self._idle.wait(queue, seconds, since=ticket)
            return
        pause = min(seconds, self._options.poll_interval)
        await self._bell.wait(queue, pause if due is None else min(pause, max(0.001, due)), since=ticket)

    async def ready(self, queues: Sequence[str], *, wait: float = 0.0) -> list[str]:
        if wait > 0 and self._listener is not None:
            self._listener.start()
        return await self._several.ready(queues, wait=wait)

    async def _claim_watched(self, queue: str, limit: int, lease: float, worker: str | None) -> Claims:
        """Of a queue that is waited for together with others: what a claim shows is remembered."""
        ticket = self._bell.ticket(queue)
        claims = await self._claim(queue, limit, lease, worker, dead=False)
        if claims.messages or claims.expired:
            self._several.found(queue)
        else:
            self._several.empty(queue, ticket, await self._topic(queue).claimer.next_due(dead=False))
        return claims

    async def _claim(self, queue: str, limit: int, lease: float, worker: str | None, *, dead: bool) -> Claims:
        """Once sent, a claim is not left alone: what it brings to a caller that is gone is given back."""
        claimer = self._topic(queue).claimer
        asking = asyncio.create_task(claimer.claim(limit, lease, worker, dead=dead))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            self._later(self._give_back(queue, asking))
            raise

    async def _give_back(self, queue: str, asking: asyncio.Task[Claims]) -> None:
        try:
            claims = await asking
            if claims.messages:
                await self.settle(queue, [Settlement(m.id, m.token, "release") for m in claims.messages])
        except HoldfastError:  # their leases run out
            pass

    def _later(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def extend(self, queue: str, leases: Sequence[tuple[str, str]], seconds: float) -> list[float | None]:
        topic, dead = self._topic(queue), queue.endswith(DEAD)
        await self._registry.must_unless_ours(queue.removesuffix(DEAD), (id for id, _ in leases))
        return await topic.settler.extend(self._pool, leases, seconds, dead=dead)

    def extend_from_thread(
        self, queue: str, leases: Sequence[tuple[str, str]], seconds: float
    ) -> list[float | None] | None:
        topic, dead = self._topic(queue), queue.endswith(DEAD)
        return self._thread_pool.run(lambda pool: topic.settler.extend(pool, leases, seconds, dead=dead))

    async def settle(self, queue: str, settlements: Sequence[Settlement]) -> list[Answer]:
        topic = self._topic(queue)
        await self._registry.must_unless_ours(queue.removesuffix(DEAD), (s.id for s in settlements))
        answers = await topic.settler.settle(settlements, dead=queue.endswith(DEAD))
        if any(s.action != "complete" for s in settlements):
            topic.claimer.bounds.reset()
            self._changed(queue)
            if any(s.action in ("retry", "dead") for s in settlements):
                self._changed(queue.removesuffix(DEAD) + DEAD)
        self._endings.ended(queue)
        return answers

    async def change(self, queue: str, id: str, change: Change) -> bool:
        await self._registry.must_unless_ours(queue.removesuffix(DEAD), (id,))
        topic = self._topic(queue)
        done = await topic.letters.change(id, change)
        topic.claimer.bounds.reset()
        self._changed(queue)
        return done

    async def take_back(self, queue: str, ids: Sequence[str] | None, *, worker: str | None = None) -> int:
        await self._registry.known(queue.removesuffix(DEAD))
        letters = (topic := self._topic(queue)).letters
        taken = await (letters.take_back(ids) if ids is not None else letters.take_back_from(worker))
        topic.claimer.bounds.reset()
        self._changed(queue)
        return taken

    async def cancel(self, queue: str, id: str, *, running: bool = False) -> bool:
        await self._registry.must_unless_ours(queue.removesuffix(DEAD), (id,))
        done = await self._topic(queue).letters.cancel(id, running=running)
        self._endings.ended(queue)
        return done

    # Looking.

    async def get(self, queue: str, ids: Sequence[str]) -> list[Stored | None]:
        await self._registry.must_unless_ours(queue.removesuffix(DEAD), ids)
        self._endings.looking(queue)
        return await self._topic(queue).letters.get(ids)

    async def find_queue(self, queues: Sequence[str], id: str) -> str | None:
        if not queues or not is_id(id):
            return None
        asked = " UNION ALL ".join(self._topic(name).sql["knows"] for name in queues)
        try:
            found = await self._pool.fetch(f"{asked} LIMIT 1", id, queue=queues[0])
        except QueueNotFound:  # one of them: only the others can be asked
            return await super().find_queue(queues, id)
        return str(found[0][0]) if found else None

    async def scan(self, queue: str, view: View, *, after: str | None = None, limit: int = 100) -> list[Stored]:
        return await self._topic(queue).letters.scan(view, after=after, limit=limit, dead=queue.endswith(DEAD))

    async def upcoming(
        self, queue: str, view: View, *, after: tuple[float, str] | None = None, limit: int = 100
    ) -> list[Stored]:
        await self._registry.known(queue.removesuffix(DEAD))
        return await self._topic(queue).letters.upcoming(view, after=after, limit=limit, dead=queue.endswith(DEAD))

    async def peek(self, queue: str, limit: int) -> list[Stored]:
        await self._registry.known(queue.removesuffix(DEAD))
        return await self._topic(queue).letters.peek(limit, dead=queue.endswith(DEAD))

    async def stats(self, queue: str) -> Stats:
        await self._registry.known(queue.removesuffix(DEAD))
        stats = await self._topic(queue).letters.stats(dead=queue.endswith(DEAD))
        found = [] if queue.endswith(DEAD) else await self._schedules.of(queue)
        return counted(stats, [each.mark for each in found])

    async def watch(self, queue: str, timeout: float) -> None:
        await self._endings.watch(queue, timeout)

    # Dead letters and archive.

    async def replay(self, queue: str, view: View, ids: Sequence[str]) -> int:
        topic = self._topic(queue)
        await self._registry.must_unless_ours(queue.removesuffix(DEAD), ids)
        count = await topic.letters.replay(view, ids)
        topic.claimer.bounds.reset()
        self._changed(queue.removesuffix(DEAD))
        return count

    async def discard(
        self, queue: str, view: View, ids: Sequence[str] | None = None, *, before: float | None = None
    ) -> int:
        await self._registry.must_unless_ours(queue.removesuffix(DEAD), () if ids is None else ids)
        return await self._topic(queue).letters.discard(view, ids, before)

    async def maintain(self, queue: str) -> dict[str, int]:
        name = queue.removesuffix(DEAD)
        topic, since = self._topic(name), self._idle.ticket(name)
        info = await self._registry.must(name)
        done = await maintenance.maintain(self._pool, topic.sql, name, info.options)
        if not done:
            return done
        lapsed = await topic.claimer.lapse_all()
        if lapsed:
            self._endings.ended(name)
        done |= {"expired": lapsed} | await self._batches.maintain(name)
        if not any(done.values()):
            self._idle.maintained(name, since)
        return done

    def is_resting(self, queue: str) -> bool:
        """Nothing was there since upkeep had nothing to do, and we would hear of other options."""
        return self._listener is not None and bool(self._listener.works) and self._idle.is_resting(queue)
