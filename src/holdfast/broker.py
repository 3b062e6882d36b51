"""A broker: an open store and its queues."""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from . import config, reporter
from .codecs import Codec, Format, codec_for
from .config import QueueOptions, Settings, StoreOptions
from .deliveries import Delivery
from .errors import ConfigError, QueueExists, QueueNotFound
from .escaping import logger_named
from .events import Callback, Emitter
from .lifetime import CLOSING_S, Lifetime
from .queue import Queue
from .queue_state import Opened
from .scheduling import Schedules
from .sending import listed
from .stores import base
from .stores.base import Check, QueueInfo, Store, sharing
from .stores.opening import in_time, locate, open_store, redact, store_options
from .stores.records import Stats
from .upkeep import Upkeep
from .worker.choice import Choice, Wanted

if TYPE_CHECKING:
    from .worker import Worker

T = TypeVar("T")

_LOG = logger_named("holdfast.broker")


def connect(url: str | os.PathLike[str] | None = None, *, pool: Any = None, **options: Any) -> Connecting:
    """Open a store: `async with connect(url) as broker`, or `broker = await connect(url)`.

    Without a URL: `HOLDFAST_URL`, then `holdfast.yaml`, then ./holdfast-data. Options are those of `StoreOptions`.
    `pool` (PostgreSQL): a pool of asyncpg of your own, whose connections are used instead of others.
    """
    return Connecting(url, options, pool)


class Connecting:
    """A broker about to be opened: await it, or enter it."""

    def __init__(self, url: str | os.PathLike[str] | None, options: Mapping[str, Any], pool: Any = None) -> None:
        self._url = url
        self._pool = pool
        self._options = options
        self._broker: Broker | None = None

    def __await__(self) -> Generator[Any, None, Broker]:
        return self._open().__await__()

    async def __aenter__(self) -> Broker:
        self._broker = await self._open()
        return self._broker

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._broker is not None:
            await self._broker.close()

    async def _open(self) -> Broker:
        settings = config.load()
        settings.apply_log_level()
        url = self._url if self._url is not None else settings.url or config.DEFAULT_URL
        location = locate(url)
        options = store_options(settings.store, location.options, self._options)
        store = await open_store(location, options, pool=self._pool)
        place = (location.scheme, location.place, options) if location.place else None
        return Broker(store, url=os.fspath(url), settings=settings, options=options, place=place)


class Broker:
    """An open store. `connect` makes one; store authors and tests may build it around a store of theirs."""

    url: str  # as given, without credentials
    options: StoreOptions
    schedules: Schedules

    def __init__(
        self,
        store: Store,
        *,
        url: str = "",
        settings: Settings | None = None,
        options: StoreOptions | None = None,
        place: object = None,
    ) -> None:
        """`place` is equal for brokers of this process on one store; None: there is only this one."""
        self.events = Emitter()
        self._life = Lifetime(store, self.events.ends)
        self._kind = type(store).__name__
        self._closing: asyncio.Future[None] | None = None
        self._closers: set[asyncio.Task[Any] | None] = set()  # who waits for that
        self._place = os.urandom(16) if place is None else place
        self.url = redact(url)
        self.options = options or StoreOptions()
        if self.options.maintenance:
            self._life.upkeep = Upkeep(self._life, self.options.maintenance_interval)
        if reporter.is_wanted(store, self.options):
            self._life.reporter = reporter.Reporter(self._life)
        self._settings = settings or Settings()
        self._queues: dict[str, Opened] = {}
        self.schedules = Schedules(
            self._life, self.events, self._settings.schedules,
            timeout=self.options.operation_timeout, place=self.url or self._kind,
        )  # fmt: skip
        _open_brokers.add(self)

    @property
    def store(self) -> Store:
        """The open store; ConfigError in another event loop than the broker's, and once the broker is closed."""
        return self._life.store

    @property
    def workers(self) -> list[Worker]:
        """Those that run."""
        return list(self._life.workers)

    @property
    def gone(self) -> str | None:
        """Why it cannot be used any more."""
        return self._life.gone

    # ------------------------------------------------------------------ queues

    @overload
    async def queue(
        self, name: str, type: None = None, *, codec: str | Format | None = None, create: bool = True, **options: Any
    ) -> Queue[Any]: ...

    @overload
    async def queue(
        self, name: str, type: type[T], *, codec: str | Format | None = None, create: bool = True, **options: Any
    ) -> Queue[T]: ...

    @overload
    async def queue(
        self, name: str, type: Any, *, codec: str | Format | None = None, create: bool = True, **options: Any
    ) -> Queue[Any]: ...

    async def queue(
        self, name: str, type: Any = None, *, codec: str | Format | None = None, create: bool = True, **options: Any
    ) -> Queue[Any]:
        """The queue of this name; created when absent, unless `create=False`: QueueNotFound.

        `type` and `codec` say how values are read and written here; the options are stored with the queue.
        """
        config.queue_name(name)
        made = codec_for(type, codec)
        opened = self._queues.get(name)
        if opened is None or not create or not opened.is_known(options):
            config.options(QueueOptions, options, where=f"queue {name}")
            opened = self._open(await self._in_time(self._up_to_date(name, options, create=create)), options)
        return Queue(opened, made, worker_options=self._settings.worker)

    @overload
    async def create_queue(
        self, name: str, type: None = None, *, codec: str | Format | None = None, **options: Any
    ) -> Queue[Any]: ...

    @overload
    async def create_queue(
        self, name: str, type: type[T], *, codec: str | Format | None = None, **options: Any
    ) -> Queue[T]: ...

    @overload
    async def create_queue(
        self, name: str, type: Any, *, codec: str | Format | None = None, **options: Any
    ) -> Queue[Any]: ...

    async def create_queue(
        self, name: str, type: Any = None, *, codec: str | Format | None = None, **options: Any
    ) -> Queue[Any]:
        """A new queue; QueueExists."""
        config.queue_name(name)
        made = codec_for(type, codec)
        opened = self._open(await self.store.create_queue(name, self._initial(name, options)), options)
        return Queue(opened, made, worker_options=self._settings.worker)

    async def dequeue(
        self,
        queues: Sequence[str],
        type: Any = None,
        *,
        codec: str | Format | None = None,
        lease: float | None = None,
        wait: float = 0,
    ) -> Delivery[Any] | None:
        """One message of the first of these queues that has one, under a lease, or None; `wait` seconds for it.

        One wait for all of them; `Delivery.queue` says whose it is. Queues are created when absent; `type` and `codec`
        say how their values are read.
        """
        names = [config.queue_name(name) for name in listed("queues", queues)]
        if not names:
            raise ConfigError("queues: at least one name")
        seconds = config.seconds("wait", wait)
        opened = {name: await self.queue(name, type, codec=codec) for name in names}
        deadline, look = time.monotonic() + seconds, names
        while True:
            for name in look:
                if (found := await opened[name].dequeue(lease=lease)) is not None:
                    return found
            if (left := deadline - time.monotonic()) <= 0:
                return None
            look = await self.store.ready(names, wait=left)

    def worker(
        self,
        handler: Callable[..., Any],
        queues: Wanted,
        type: Any = None,
        *,
        codec: str | Format | None = None,
        **options: Any,
    ) -> Worker:
        """A worker that runs `handler` for the messages of several queues: names and patterns such as `"tenant-*"`.

        Of a list, the first that has something goes first; a mapping gives each its weight. Queues given by name are
        created when absent, those that a pattern fits are noticed within a minute. Nothing runs yet.
        """
        from .worker import Worker

        made = codec_for(type, codec)

        async def opened(names: Sequence[str], everything: bool) -> list[Queue[Any]]:
            infos = await self.store.queues() if everything else []
            known = {info.name for info in infos}
            asked = [await self.queue(name, type, codec=codec) for name in names if name not in known]
            return [*asked, *(self._handle(info, made) for info in infos)]

        choice = Choice(queues, opened, codec=made, life=self._life, events=self.events)
        rounds = {"maintenance_interval": self.options.maintenance_interval}
        return Worker(choice, handler, **{**rounds, **self._settings.worker, **options})

    def _handle(self, info: QueueInfo, codec: Codec[Any]) -> Queue[Any]:
        opened = self._queues.get(info.name) or self._open(info, {})
        return Queue(opened, codec, worker_options=self._settings.worker)

    async def queues(self) -> list[QueueInfo]:
        """All queues, by name."""
        return await self.store.queues()

    async def configure_queue(self, name: str, **options: Any) -> QueueInfo:
        """Change some of the options stored with a queue."""
        config.queue_name(name)
        config.options(QueueOptions, options, where=f"queue {name}")
        info = await self._in_time(self._up_to_date(name, options, create=False))
        return self._open(info, options).info

    async def delete_queue(self, name: str, force: bool = False) -> None:
        """Delete a queue; QueueNotEmpty while it keeps live messages or dead letters, unless forced."""
        await self.store.delete_queue(config.queue_name(name), force=force)
        self._queues.pop(name, None)

    async def stats(self) -> dict[str, Stats]:
        """Counts of every queue."""
        return {info.name: stats for info, stats in await self.store.stats_of_all()}

    def _initial(self, name: str, options: Mapping[str, Any]) -> QueueOptions:
        """What a queue is created with: the code's word, the environment's, the file's, the defaults."""
        made = config.options(QueueOptions, self._settings.for_queue(name), options, where=f"queue {name}")
        _refuse_circle(name, made)
        return made

    async def _found(self, name: str, options: Mapping[str, Any], *, create: bool) -> QueueInfo:
        """The stored queue, created when that is wanted."""
        info = await self.store.queue(name)
        if info is None and create:
            try:
                return await self.store.create_queue(name, self._initial(name, options))
            except QueueExists:  # somebody else was faster
                info = await self.store.queue(name)
        if info is None:
            raise QueueNotFound(f"there is no queue {name!r}")
        return info

    async def _up_to_date(self, name: str, options: Mapping[str, Any], *, create: bool) -> QueueInfo:
        return await self._brought_up_to(await self._found(name, options, create=create), options)

    async def _in_time(self, work: Awaitable[T]) -> T:
        return await in_time(work, self.options.operation_timeout, self.url or self._kind)

    async def _brought_up_to(self, info: QueueInfo, options: Mapping[str, Any]) -> QueueInfo:
        """The stored queue with what the code says about it."""
        wanted = config.changed(info.options, options, where=f"queue {info.name}") if options else info.options
        if wanted == info.options:
            return info
        if wanted.shards != info.options.shards:
            raise ConfigError(
                f"queue {info.name} was created with shards={info.options.shards}, which cannot be changed"
            )
        _refuse_circle(info.name, wanted)
        info = await self.store.configure(info.name, wanted)
        _LOG.info("queue %s: options changed: %s", info.name, ", ".join(sorted(options)))
        return info

    def _open(self, info: QueueInfo, options: Mapping[str, Any]) -> Opened:
        """What all handles of this queue share, knowing what the store and the code have just said."""
        opened = self._queues.get(info.name)
        if opened is None:
            opened = self._queues[info.name] = Opened(
                self._life, info, self.events, store_options=self.options, place=self._place
            )
        opened.learn(info, options)
        return opened

    # ------------------------------------------------------------------ the store as a whole

    def on(self, event: str, callback: Callback) -> Callable[[], None]:
        """Call back, sync or async, for what this process does; the returned function ends that."""
        return self.events.on(event, callback)

    async def install(
        self, dry_run: bool = False, *, shared_schema: bool = False, raise_format: bool = False
    ) -> list[str]:
        """Make what the store needs, idempotently; the steps (to be) taken, in words.

        `shared_schema` (PostgreSQL): also in a schema where others have tables, which is refused otherwise.
        `raise_format`: all processes on this store are of this version, so it may be written in the newest format.
        """
        if shared_schema:
            steps = await sharing(self.store).install(dry_run=dry_run, shared_schema=True)
        else:
            steps = await self.store.install(dry_run=dry_run)
        return [*steps, *await base.raise_format(self.store, dry_run=dry_run)] if raise_format else steps

    async def uninstall(self) -> list[str]:
        """Remove everything of Holdfast from the store, and nothing else; what was left, in words."""
        left = await self.store.uninstall()
        self._queues.clear()
        return left or []

    async def check(self) -> list[Check]:
        """The store's own lines for `holdfast doctor`."""
        return await self.store.check()

    async def maintain(self) -> dict[str, dict[str, int]]:
        """Retention, merging, sweeping of every queue, now; what was done in each."""
        return await self._each(lambda name: self.store.maintain(name))

    async def _each(self, ask: Callable[[str], Awaitable[T]]) -> dict[str, T]:
        """The answer for every queue; one that somebody deletes meanwhile has none."""
        answers: dict[str, T] = {}
        for info in await self.store.queues():
            with suppress(QueueNotFound):
                answers[info.name] = await ask(info.name)
        return answers

    async def close(self) -> None:
        """Give everything back; calling it twice is harmless.

        Workers that run are stopped without a grace: their messages are released, without costing an attempt.
        """
        if self.gone is not None:
            return
        if self._closing is None:
            _ = self.store  # refuses another event loop
            # A task of its own: a handler that closes its own worker's broker is cancelled and waited for there.
            self._closing = asyncio.ensure_future(self._close())
        self._closers.add(asyncio.current_task())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            await self._stop_workers()
            if self._life.upkeep is not None:
                await self._life.upkeep.close(CLOSING_S)
            if self._life.reporter is not None:
                await self._life.reporter.close(CLOSING_S)
            await self.events.drain(CLOSING_S, besides=self._closers)
            store = self._retire("this broker is closed")
            await store.close()
        finally:
            self._life.end()

    async def _stop_workers(self) -> None:
        """Those of a store that is away get no longer than any other call."""
        stopping = [asyncio.ensure_future(worker.stop(0.0)) for worker in self._life.workers]
        if stopping:
            await asyncio.wait(stopping, timeout=self.options.operation_timeout)

    def _retire(self, reason: str) -> Store:
        """From now on every use of the store says why it cannot be."""
        for opened in self._queues.values():
            opened.retire()
        self._queues.clear()  # a handle keeps its own; nobody gets another
        return self._life.retire(reason)

    async def __aenter__(self) -> Broker:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"Broker({self.url!r})" if self.url else f"Broker({self._kind})"


def _refuse_circle(name: str, options: QueueOptions) -> None:
    """A queue that is its own dead letter queue would run what fails for ever."""
    if options.dead_letter == name:
        raise ConfigError(f"queue {name}: dead_letter names the queue itself; True keeps dead letters with it")


# The one thing of a process that no object can own: which brokers a fork takes along, to its child's harm.
_open_brokers: weakref.WeakSet[Broker] = weakref.WeakSet()


def _retire_after_fork() -> None:
    for broker in list(_open_brokers):
        broker._retire("this broker was opened before a fork; open another one in the child process")


os.register_at_fork(after_in_child=_retire_after_fork)
