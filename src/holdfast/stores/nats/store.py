"""JetStream as a store: every method of the seam. See `stores/base.py` for the promises."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager

from ...config import QueueOptions, StoreOptions
from ...errors import ConfigError, QueueNotEmpty, StoreError, UnsafeStore
from ...ids import Ids
from .. import formats
from ..base import DEAD, Check, Ordinary, QueueInfo, Reread
from ..capabilities import Capabilities
from ..formats import Format
from ..records import Answer, Change, Claims, Dedup, Enqueued, Envelope, Settlement, Stats, Stored, View
from ..scheduling import counted
from . import deadline, doctor, faults, names, scrub, state, stream_ends
from .address import Address
from .backups import NatsBackups
from .blobs import RECORD_BYTES, Blobs
from .connection import Connection
from .fast_reader import Incoming
from .faults import Nobody, mapped, missing, of_queue
from .lease_thread import LeaseThread
from .names import check_prefix
from .partition import Partition
from .parts import Parts
from .queues import Register, stray
from .reading import Reader
from .reserve import NOTE, Reserve
from .schedules import NatsSchedules
from .settling import Settler
from .several import Several
from .values import NatsValues
from .worker_reports import NatsWorkerReports

_OPENS_WITHIN = 0.95  # of `connect_timeout`: whoever opens us gives up at its end without knowing why


class NatsStore(Ordinary):
    """One connection to a NATS server or cluster with JetStream."""

    capabilities = Capabilities(changes_messages=False, keeps_values=True)

    def __init__(self, address: Address, options: StoreOptions) -> None:
        self.options = options
        self.prefix = check_prefix(options.prefix)
        self.connection = Connection(address, options)
        self.reader = Reader(self.connection)
        self.register = Register(self.connection, self.reader, self.prefix)
        self.blobs = Blobs(self.connection, self.reader, self.prefix)
        self.reserve = Reserve(self.connection, self.prefix)
        self.ids = Ids()
        self._schedules = NatsSchedules(self.connection, self.reader, self.register, self.parts)
        self._worker_reports = NatsWorkerReports(self.connection, self.reader, self.register)
        self._values = NatsValues(self.connection, self.reader, self.register)
        self._parts: dict[str, Parts] = {}
        self._several = Several(self._partition_of)
        self._lease_thread = LeaseThread(address, options)
        self._backups = NatsBackups(
            self.register, self._schedules, self._partition_of, timeout=options.operation_timeout
        )

    async def open(self) -> NatsStore:
        """Connect and make sure that JetStream is there; our own errors."""
        with deadline.within(_OPENS_WITHIN * self.options.connect_timeout), mapped("opening"):
            await self.connection.open()
            try:
                await self._first_look()
            except BaseException:
                await self.connection.close()
                raise
        return self

    async def _first_look(self) -> None:
        if not self.connection.is_at_least(2, 12):
            raise StoreError(f"nats: {faults.TOO_OLD.format(self.connection.version)}")
        if not self.connection.client._server_info.get("jetstream"):
            raise Nobody
        least = 2 * RECORD_BYTES  # room for a record, and as much for a task
        if self.connection.max_payload < least:
            raise UnsafeStore(
                f"nats: the server takes messages of {self.connection.max_payload} bytes, and Holdfast needs "
                f"{least}; set max_payload in its configuration"
            )
        await self.connection.listen(f"{self.prefix}._.note.*", self._noted)
        self.register.unconverted = await doctor.refuse_dangerous(self.connection, self.prefix)
        await self.register.read_format()
        doctor.warn_once(self.connection)

    @contextmanager
    def _verb(self, doing: str, wait: float = 0.0) -> Iterator[None]:
        """Around every call of the seam: it ends in time, with our own errors."""
        timeout = self.options.operation_timeout
        with deadline.within(max(timeout, wait + min(timeout, deadline.TRY_S))), mapped(doing):
            yield

    def parts(self, queue: str) -> Parts:
        self.connection.check_open()
        if (found := self._parts.get(queue)) is None:
            shared = (self.connection, self.reader, self.register, self.blobs, self.reserve)
            found = self._parts[queue] = Parts(Partition(queue, *shared), self.ids, self.parts)
        return found

    def _settler_of(self, queue: str) -> Settler:
        return self.parts(queue).settler

    def _partition_of(self, queue: str) -> Partition:
        return self.parts(queue).partition

    def _partitions(self, queue: str) -> list[Partition]:
        return [self._parts[name].partition for name in (queue, queue + DEAD) if name in self._parts]

    def _noted(self, message: Incoming) -> None:
        """Another client, or this one, has changed something."""
        if message.data == NOTE:
            self.reserve.heard()
        queue = message.subject.rsplit(".", 1)[1].replace("~", ".")
        if message.data != b"done":
            self._several.changed(queue)
        for partition in self._partitions(queue):
            if message.data == b"config":
                self.register.forget(partition.queue)
            if message.data != b"done":
                partition.consumers.look_soon()
            partition.wake()

    # ------------------------------------------------------------------ the store as a whole

    async def install(self, *, dry_run: bool = False) -> list[str]:
        with self._verb("installing"):
            upgraded: list[str] = []
            if not dry_run:
                await self.register.install(again=True)
                for info in await self.register.all():
                    upgraded += await self.parts(info.name).upgrade()
        return [
            f"streams {', '.join(names.shared_streams(self.prefix))}",
            "three streams for every queue, when it is made",
            *upgraded,
        ]

    @property
    def schedules(self) -> NatsSchedules:
        return self._schedules

    @property
    def worker_reports(self) -> NatsWorkerReports:
        return self._worker_reports

    @property
    def values(self) -> NatsValues:
        return self._values

    @property
    def backups(self) -> NatsBackups:
        return self._backups

    @property
    def format(self) -> Format:
        return Format(self.register.format, formats.NATS)

    async def raise_format(self) -> None:
        with mapped("raising the format"):
            await self.register.raise_format()

    async def uninstall(self) -> list[str]:
        with self._verb("uninstalling"):
            self._close_parts(list(self._parts))
            return [*await self.register.uninstall(), *await self.blobs.drop()]

    async def close(self) -> None:
        with deadline.within(self.options.operation_timeout):
            await asyncio.gather(*[parts.partition.cleaned() for parts in self._parts.values()])
        self._close_parts(list(self._parts))
        await asyncio.to_thread(self._lease_thread.close)
        await self.connection.close()

    def _close_parts(self, queues: Sequence[str]) -> None:
        for name in queues:
            self._several.close(name)
            if (parts := self._parts.pop(name, None)) is not None:
                parts.close()

    async def check(self) -> list[Check]:
        with self._verb("checking"):
            found = await doctor.checks(self.connection, self.prefix)
            found.append(await self._ends())
            return [*found, await scrub.check(self.register, self.connection.now())]

    async def _ends(self) -> Check:
        queues = await self.register.all()
        said = [one for queue in queues for one in await stream_ends.check(self._partition_of(queue.name))]
        strays = await self.register.all_strays()
        strays = {name: count for name, count in strays.items() if not await self.register.is_restored(name)}
        said += [f"queue {name!r}: {stray(count)}" for name, count in strays.items()]
        return Check("ends", "fail" if said else "ok", "; ".join(said) or "no stream is gone or shorter than it was")

    def scrub(self, queue: str | None, *, quarantine: bool) -> AsyncIterator[Reread]:
        shared = (self.connection, self.reader, self.register, self.blobs)
        return scrub.Scrub(*shared, self._partition_of, self._settler_of, quarantine=quarantine).run(queue)

    async def clock(self) -> float:
        with self._verb("reading the clock"):
            if self.connection.must_ask_clock():
                await self.reserve.look()
        return self.connection.now()

    # ------------------------------------------------------------------ queues

    async def create_queue(self, name: str, options: QueueOptions) -> QueueInfo:
        with self._verb(f"creating {name!r}"):
            self.connection.check_open()
            info = await self.register.create(name, options)
            await self.parts(name).partition.consumers.ensure(0, options.lease)
            return info

    async def configure(self, name: str, options: QueueOptions) -> QueueInfo:
        with self._verb(f"configuring {name!r}"):
            info = await self.register.change(name, options=options)
            for partition in (self.parts(name).partition, self.parts(name + DEAD).partition):
                await partition.consumers.set_lease(options.lease)
            await self.parts(name).partition.note(b"config")
            return info

    async def queues(self) -> list[QueueInfo]:
        with self._verb("listing queues"):
            self.connection.check_open()
            return await self.register.all()

    async def queue(self, name: str) -> QueueInfo | None:
        with self._verb(f"looking up {name!r}"):
            self.connection.check_open()
            return await self.register.find(name)

    async def delete_queue(self, name: str, *, force: bool = False) -> None:
        with self._verb(f"deleting {name!r}"):
            known = await self.register.find(name) is not None
            if not known and not (force and await self.register.strays(name)):
                raise missing(name)
            if not force:
                stats = await self.stats(name)
                if stats.total > stats.archived:
                    raise QueueNotEmpty(f"queue {name!r} still holds {stats.total - stats.archived} messages")
            await self._schedules.forget_queue(name)
            partition = self.parts(name).partition
            await partition.note(b"config")
            self._close_parts([name, name + DEAD])
            await self.register.delete(name)
            await partition.note(b"config")  # again: who looked meanwhile has seen its entry

    async def pause(self, name: str, paused: bool) -> None:
        with self._verb(f"pausing {name!r}"):
            await self.register.change(name, paused=paused)
            partition = self.parts(name).partition
            await partition.note(b"config")
            partition.consumers.look_soon()
            partition.wake()

    async def purge(self, queue: str) -> int:
        with self._verb(f"purging {queue!r}"):
            return await self.parts(queue).letters.purge()

    # ------------------------------------------------------------------ messages in and out

    async def append(self, queue: str, messages: Sequence[Envelope]) -> list[str]:
        with self._verb(f"enqueueing to {queue!r}"):
            return await self.parts(queue).appender.append(messages)

    async def append_once(
        self, queue: str, messages: Sequence[Envelope], dedup: Dedup = "window", *, replace: bool = False
    ) -> list[Enqueued]:
        with self._verb(f"enqueueing to {queue!r}"):
            if dedup == "window":
                return await self.parts(queue).appender.append_once(messages)
            return [await self.parts(queue).living_keys.append(messages[0], dedup, replace=replace)]

    async def claim(
        self, queue: str, limit: int, lease: float, *, wait: float = 0.0, worker: str | None = None
    ) -> Claims:
        with self._verb(f"claiming from {queue!r}", wait=wait):
            claims = await self.parts(queue).claimer.claim(limit, lease, wait=wait, worker=worker)
        if queue in self._several:
            if claims.messages or claims.expired:
                self._several.found(queue)
            else:
                self._several.empty(queue)
        return claims

    async def ready(self, queues: Sequence[str], *, wait: float = 0.0) -> list[str]:
        with self._verb("waiting", wait=wait):
            return await self._several.ready(queues, wait=wait)

    async def extend(self, queue: str, leases: Sequence[tuple[str, str]], seconds: float) -> list[float | None]:
        with self._verb(f"extending leases of {queue!r}"):
            return await self.parts(queue).claimer.extend(leases, seconds)

    def extend_from_thread(
        self, queue: str, leases: Sequence[tuple[str, str]], seconds: float
    ) -> list[float | None] | None:
        return self._lease_thread.extend(queue, leases, seconds)

    def abandon(self) -> None:
        self._lease_thread.abandon()

    async def settle(self, queue: str, settlements: Sequence[Settlement]) -> list[Answer]:
        with self._verb(f"settling in {queue!r}"):
            return await self.parts(queue).settler.settle(settlements)

    async def cancel(self, queue: str, id: str, *, running: bool = False) -> bool:
        with self._verb(f"cancelling in {queue!r}"):
            return await self.parts(queue).letters.cancel(id, running=running)

    async def change(self, queue: str, id: str, change: Change) -> bool:
        raise ConfigError("a message on NATS cannot be changed: cancel it and enqueue another")

    async def take_back(self, queue: str, ids: Sequence[str] | None, *, worker: str | None = None) -> int:
        with self._verb(f"taking back in {queue!r}"):
            parts = self.parts(queue)
            if ids is None:
                ids = await parts.looker.held_by(state.kept_name(worker or ""))
            return await parts.letters.take_back(ids)

    # ------------------------------------------------------------------ looking

    async def get(self, queue: str, ids: Sequence[str]) -> list[Stored | None]:
        with self._verb(f"reading {queue!r}"):
            return await self.parts(queue).looker.get(ids)

    async def scan(self, queue: str, view: View, *, after: str | None = None, limit: int = 100) -> list[Stored]:
        with self._verb(f"scanning {queue!r}"):
            return await self.parts(queue).looker.scan(view, after=after, limit=limit)

    async def upcoming(
        self, queue: str, view: View, *, after: tuple[float, str] | None = None, limit: int = 100
    ) -> list[Stored]:
        with self._verb(f"listing {queue!r}"):
            return await self.parts(queue).looker.upcoming(view, after=after, limit=limit)

    async def peek(self, queue: str, limit: int) -> list[Stored]:
        with self._verb(f"looking into {queue!r}"):
            return await self.parts(queue).looker.peek(limit)

    async def replay(self, queue: str, view: View, ids: Sequence[str]) -> int:
        with self._verb(f"replaying in {queue!r}"):
            return await self.parts(queue).letters.replay(view, ids)

    async def discard(
        self, queue: str, view: View, ids: Sequence[str] | None = None, *, before: float | None = None
    ) -> int:
        with self._verb(f"discarding in {queue!r}"):
            return await self.parts(queue).letters.discard(view, ids, before=before)

    async def stats(self, queue: str) -> Stats:
        with self._verb(f"counting {queue!r}"), of_queue(queue):  # somebody may be deleting it
            try:
                stats = await self.parts(queue).looker.stats()
            except Nobody:
                stream = self.register.names(queue.removesuffix(DEAD)).task_stream
                if await self.register.config(stream) is None:
                    raise missing(queue) from None
                raise
            marks = {} if queue.endswith(DEAD) else (await self._schedules.marks_of(queue))[0]
            return counted(stats, marks.values())

    async def watch(self, queue: str, timeout: float) -> None:
        try:
            await asyncio.wait_for(self.parts(queue).partition.changed.wait(), timeout)
        except TimeoutError:
            pass

    async def maintain(self, queue: str) -> dict[str, int]:
        with self._verb(f"maintaining {queue!r}"):
            return await self.parts(queue).maintain()

    def is_resting(self, queue: str) -> bool:
        return self.parts(queue).is_resting
