"""JetStream as a store: every method of the seam. See `stores/base.py` for the promises."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ...config import QueueOptions, StoreOptions
from ...errors import QueueNotEmpty, StoreError, UnsafeStore
from ...ids import Ids
from .. import formats
from ..base import DEAD, Check, Ordinary, QueueInfo
from ..formats import Format
from ..records import Answer, Claims, Envelope, Settlement, Stats, Stored, View
from . import deadline, doctor, faults, limits, maintenance, reserve, upgrading
from .address import Address
from .appending import Appender
from .beside import Beside
from .blobs import LEAST_PAYLOAD, Blobs
from .claiming import Claimer
from .connection import Link
from .fast_reader import Word
from .faults import Nobody, mapped
from .letters import Letters
from .lookup import Looker
from .moving import Mover
from .names import check_prefix
from .partition import Log
from .queues import Register, missing
from .reading import Reader
from .reserve import Reserve
from .settling import Settler

_OPENS_WITHIN = 0.95  # of `connect_timeout`: whoever opens us gives up at its end without knowing why
_LAST_LOOK = 5.0  # seconds for the look at the end of a wait


class _Parts:
    """Everything that works on one queue, or on its dead letters."""

    def __init__(self, store: NatsStore, name: str) -> None:
        self.log = Log(name, store.link, store.reader, store.register, store.blobs, store.reserve)
        self.mover = Mover(self.log, lambda other: store.parts(other).log)
        self.settler = Settler(self.log, self.mover, self._expect)
        self.claimer = Claimer(self.log, self.settler)
        self.appender = Appender(self.log, store.ids, expect=self.claimer.expect, stored=self.claimer.stored)
        self.looker = Looker(self.log)
        self.letters = Letters(self.log, self.looker, self.mover, self.settler)

    def _expect(self, instant: float) -> None:
        self.claimer.expect(instant)


class NatsStore(Ordinary):
    """One connection to a NATS server or cluster with JetStream."""

    def __init__(self, address: Address, options: StoreOptions) -> None:
        self.options = options
        self.prefix = check_prefix(options.prefix)
        self.link = Link(address, options)
        self.reader = Reader(self.link)
        self.register = Register(self.link, self.reader, self.prefix)
        self.blobs = Blobs(self.link, self.reader, self.prefix)
        self.reserve = Reserve(self.link, self.prefix)
        self.ids = Ids()
        self._parts: dict[str, _Parts] = {}
        self._beside = Beside(address, options)

    async def open(self) -> NatsStore:
        """Connect and make sure that JetStream is there; our own errors."""
        with deadline.within(_OPENS_WITHIN * self.options.connect_timeout), mapped("opening"):
            await self.link.open()
            try:
                await self._first_look()
            except BaseException:
                await self.link.close()
                raise
        return self

    async def _first_look(self) -> None:
        if self.link.features.old:
            raise StoreError(f"nats: {faults.TOO_OLD.format(self.link.features.version)}")
        if not self.link.client._server_info.get("jetstream"):
            raise Nobody
        if self.link.max_payload < LEAST_PAYLOAD:
            raise UnsafeStore(
                f"nats: the server takes messages of {self.link.max_payload} bytes, and Holdfast needs "
                f"{LEAST_PAYLOAD}; set max_payload in its configuration"
            )
        await self.link.listen(f"{self.prefix}._.note.*", self._noted)
        self.register.unconverted = await limits.refuse_dangerous(self.link, self.prefix)
        await self.register.read_format()
        doctor.warn_once(self.link)

    @contextmanager
    def _verb(self, doing: str, wait: float = 0.0) -> Iterator[None]:
        """Around every call of the seam: it ends in time, with our own errors."""
        timeout = self.options.operation_timeout
        with deadline.within(max(timeout, wait + min(timeout, _LAST_LOOK))), mapped(doing):
            yield

    def parts(self, queue: str) -> _Parts:
        self.link.check_open()
        found = self._parts.get(queue)
        if found is None:
            found = self._parts[queue] = _Parts(self, queue)
        return found

    def _logs(self, queue: str) -> list[Log]:
        return [self._parts[name].log for name in (queue, queue + DEAD) if name in self._parts]

    def _noted(self, message: Word) -> None:
        """Another client, or this one, has changed something."""
        if message.data == reserve.NOTE:
            self.reserve.heard()
        for log in self._logs(message.subject.rsplit(".", 1)[1].replace("~", ".")):
            if message.data == b"config":
                self.register.forget(log.queue)
            if message.data != b"done":
                log.lanes.look_soon()
            log.wake()

    # ------------------------------------------------------------------ the store as a whole

    async def install(self, *, dry_run: bool = False) -> list[str]:
        with self._verb("installing"):
            upgraded: list[str] = []
            if not dry_run:
                self.register.forget_installed()
                await self.register.install()
                for info in await self.register.all():
                    upgraded += await upgrading.upgrade(self.parts(info.name).log)
        return [
            f"streams {self.prefix}=queues, {self.prefix}=gone and {self.prefix}=reserve",
            "three streams for every queue, when it is made",
            *upgraded,
        ]

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
            await asyncio.gather(*[parts.log.cleaned() for parts in self._parts.values()])
        self._close_parts(list(self._parts))
        await asyncio.to_thread(self._beside.close)
        await self.link.close()

    def _close_parts(self, queues: Sequence[str]) -> None:
        for name in queues:
            if (parts := self._parts.pop(name, None)) is not None:
                parts.log.lanes.close()
                parts.log.wake()

    async def check(self) -> list[Check]:
        with self._verb("checking"):
            return await doctor.checks(self.link, self.prefix)

    async def clock(self) -> float:
        with self._verb("reading the clock"):
            if self.link.must_ask_clock():
                await self.reserve.look()
        return self.link.now()

    # ------------------------------------------------------------------ queues

    async def create_queue(self, name: str, options: QueueOptions) -> QueueInfo:
        with self._verb(f"creating {name!r}"):
            self.link.check_open()
            info = await self.register.create(name, options)
            await self.parts(name).log.lanes.ensure(0, options.lease)
            return info

    async def configure(self, name: str, options: QueueOptions) -> QueueInfo:
        with self._verb(f"configuring {name!r}"):
            info = await self.register.change(name, options=options)
            for log in (self.parts(name).log, self.parts(name + DEAD).log):
                await log.lanes.set_lease(options.lease)
            await self.parts(name).log.note(b"config")
            return info

    async def queues(self) -> list[QueueInfo]:
        with self._verb("listing queues"):
            self.link.check_open()
            return await self.register.all()

    async def queue(self, name: str) -> QueueInfo | None:
        with self._verb(f"looking up {name!r}"):
            self.link.check_open()
            return await self.register.find(name)

    async def delete_queue(self, name: str, *, force: bool = False) -> None:
        with self._verb(f"deleting {name!r}"):
            if await self.register.find(name) is None:
                raise missing(name)
            if not force:
                stats = await self.stats(name)
                if stats.total > stats.archived:
                    raise QueueNotEmpty(f"queue {name!r} still holds {stats.total - stats.archived} messages")
            await self.parts(name).log.note(b"config")
            self._close_parts([name, name + DEAD])
            await self.register.delete(name)

    async def pause(self, name: str, paused: bool) -> None:
        with self._verb(f"pausing {name!r}"):
            await self.register.change(name, paused=paused)
            log = self.parts(name).log
            await log.note(b"config")
            log.lanes.look_soon()
            log.wake()

    async def purge(self, queue: str) -> int:
        with self._verb(f"purging {queue!r}"):
            return await self.parts(queue).letters.purge()

    # ------------------------------------------------------------------ messages in and out

    async def append(self, queue: str, messages: Sequence[Envelope]) -> list[str]:
        with self._verb(f"enqueueing to {queue!r}"):
            return await self.parts(queue).appender.append(messages)

    async def claim(self, queue: str, limit: int, lease: float, *, wait: float = 0.0) -> Claims:
        with self._verb(f"claiming from {queue!r}", wait=wait):
            return await self.parts(queue).claimer.claim(limit, lease, wait=wait)

    async def extend(self, queue: str, leases: Sequence[tuple[str, str]], seconds: float) -> list[float | None]:
        with self._verb(f"extending leases of {queue!r}"):
            return await self.parts(queue).claimer.extend(leases, seconds)

    def extend_from_thread(
        self, queue: str, leases: Sequence[tuple[str, str]], seconds: float
    ) -> list[float | None] | None:
        return self._beside.extend(queue, leases, seconds)

    def abandon(self) -> None:
        self._beside.abandon()

    async def settle(self, queue: str, settlements: Sequence[Settlement]) -> list[Answer]:
        with self._verb(f"settling in {queue!r}"):
            return await self.parts(queue).settler.settle(settlements)

    async def cancel(self, queue: str, id: str) -> bool:
        with self._verb(f"cancelling in {queue!r}"):
            return await self.parts(queue).letters.cancel(id)

    # ------------------------------------------------------------------ looking

    async def get(self, queue: str, ids: Sequence[str]) -> list[Stored | None]:
        with self._verb(f"reading {queue!r}"):
            return await self.parts(queue).looker.get(ids)

    async def scan(self, queue: str, view: View, *, after: str | None = None, limit: int = 100) -> list[Stored]:
        with self._verb(f"scanning {queue!r}"):
            return await self.parts(queue).looker.scan(view, after=after, limit=limit)

    async def replay(self, queue: str, view: View, ids: Sequence[str]) -> int:
        with self._verb(f"replaying in {queue!r}"):
            return await self.parts(queue).letters.replay(view, ids)

    async def discard(
        self, queue: str, view: View, ids: Sequence[str] | None = None, *, before: float | None = None
    ) -> int:
        with self._verb(f"discarding in {queue!r}"):
            return await self.parts(queue).letters.discard(view, ids, before=before)

    async def stats(self, queue: str) -> Stats:
        with self._verb(f"counting {queue!r}"):
            return await self.parts(queue).looker.stats()

    async def watch(self, queue: str, timeout: float) -> None:
        try:
            await asyncio.wait_for(self.parts(queue).log.changed.wait(), timeout)
        except TimeoutError:
            pass

    async def maintain(self, queue: str) -> dict[str, int]:
        with self._verb(f"maintaining {queue!r}"):
            parts = self.parts(queue)
            return await maintenance.maintain(parts.log, parts.letters, parts.mover)
