"""Connections: a bounded pool, and calls that are repeated on a new connection when the old one breaks."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, TypeVar

import asyncpg

from ...errors import ConfigError, HoldfastError, Unavailable
from ...retry import Exponential
from . import faults

T = TypeVar("T")

RECONNECT = Exponential(base=0.02, cap=1.0)  # seconds: a server that is back is used again after 1 s at most
_IDLE_S = 60.0  # after which an unused connection is given back


class Pool:
    """At most `size` connections, made when needed. Every call on it is one that may be repeated."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], *, size: int, timeout: float) -> None:
        self._connect = connect
        self._timeout = timeout
        self._slots = asyncio.Semaphore(size)
        self._idle: list[tuple[Any, float]] = []
        self.made = 0  # connections ever made
        self.closed = False
        self.refusal: HoldfastError | None = None  # why nothing is done for now

    async def fetch(self, sql: str, *args: Any, queue: str | None = None) -> list[Any]:
        """The rows of one statement."""

        async def ask(connection: Any) -> list[Any]:
            return list(await connection.fetch(sql, *args))

        return await self.run(ask, queue=queue)

    async def fetch_doubting(self, sql: str, *args: Any, queue: str | None = None) -> tuple[list[Any], bool]:
        """The rows, and whether an earlier try, whose answer was lost, may have done the same before."""
        tries = 0

        async def ask(connection: Any) -> list[Any]:
            nonlocal tries
            tries += 1
            return list(await connection.fetch(sql, *args))

        return await self.run(ask, queue=queue), tries > 1

    async def transact(self, step: Callable[[Any], Awaitable[T]], *, queue: str | None = None) -> T:
        """What the step answers, in one transaction; the step may run more than once."""

        async def whole(connection: Any) -> T:
            transaction = connection.transaction()
            await transaction.start()
            try:
                answer = await step(connection)
            except asyncio.CancelledError:
                connection.terminate()  # whose time is over cannot wait for the answer to a rollback too
                raise
            except BaseException:
                await transaction.rollback()
                raise
            await transaction.commit()
            return answer

        return await self.run(whole, queue=queue)

    async def run(self, step: Callable[[Any], Awaitable[T]], *, queue: str | None = None) -> T:
        """What the step answers on some connection; repeated while the server is away, until the deadline."""
        if self.refusal is not None:
            raise self.refusal
        tries = _Tries()
        last: BaseException | None = None
        try:
            async with asyncio.timeout(self._timeout):
                while True:
                    try:
                        async with self.connection() as connection:
                            with tries:
                                return await step(connection)
                    except Exception as error:
                        if not faults.passes(error):
                            raise
                        last = error
                    # Old connections die together; an idle one left over from before is tried at once.
                    await asyncio.sleep(0 if self._idle else tries.pause())
        except Exception as error:
            ours = self._too_late(last) if isinstance(error, TimeoutError) else faults.translated(error, queue)
            if tries.doubtful and isinstance(ours, Unavailable):
                ours = faults.Unanswered(str(ours))
            raise ours from error

    def _too_late(self, last: BaseException | None) -> Unavailable:
        because = "" if last is None else f": {faults.words(last)}"
        return Unavailable(f"PostgreSQL did not answer within {self._timeout:g} s{because}")

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """A connection for a moment. It is kept only when we know that it is well."""
        async with self._slots:
            connection = await self._take()
            try:
                yield connection
            except BaseException as error:
                if not faults.spares_connection(error) or connection.is_closed():
                    connection.terminate()
                else:
                    self.give(connection)
                raise
            self.give(connection)

    async def _take(self) -> Any:
        while self._idle:
            connection, _ = self._idle.pop()
            if not connection.is_closed():
                return connection
        self.made += 1
        return await self._connect()

    def give(self, connection: Any) -> None:
        """One that nobody uses now; kept for the next who asks."""
        now = time.monotonic()
        if self.closed or connection.is_closed():
            connection.terminate()
            return
        self._idle.append((connection, now))
        if now - self._idle[0][1] > _IDLE_S and len(self._idle) > 1:
            self._idle.pop(0)[0].terminate()

    async def close(self) -> None:
        self.closed = True
        idle, self._idle = self._idle, []
        for connection, _ in idle:
            try:
                await connection.close(timeout=1)
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                connection.terminate()


class LentPool(Pool):
    """The caller's own pool of asyncpg: a connection is taken for one call and given back as it was."""

    def __init__(self, lender: Any, settings: str, *, timeout: float) -> None:
        if not isinstance(lender, asyncpg.Pool):
            raise ConfigError(f"pool: one of asyncpg, not {type(lender).__qualname__}")
        if getattr(lender, "_loop", None) is not asyncio.get_running_loop():
            raise ConfigError("pool: it belongs to another event loop than the broker's, so holdfast.sync can use none")
        super().__init__(lender.acquire, size=lender.get_max_size(), timeout=timeout)
        self._lender = lender
        self._settings = settings  # of the session, undone by the lender's own reset

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        async with self._lender.acquire(timeout=self._timeout) as connection:
            await connection.execute(self._settings)
            yield connection

    def give(self, connection: Any) -> None:
        """It was opened to look at the server, and is not the lender's."""
        connection.terminate()

    async def close(self) -> None:
        """Theirs stays open."""
        self.closed = True


class _Tries:
    """The tries of one call: how long to pause between them, and whether one of them may have taken effect unseen."""

    def __init__(self) -> None:
        self.doubtful = False
        self._failed = 0

    def pause(self) -> float:
        self._failed += 1
        return RECONNECT.after(self._failed)

    def __enter__(self) -> None:
        """Something is being sent."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not faults.spares_connection(error):
            self.doubtful = True


class ThreadPool:
    """For threads that cannot wait for the event loop, as when a handler blocks it while its lease must be extended.

    An event loop that runs only while somebody calls, with a pool of one connection.
    """

    def __init__(self, connect: Callable[[], Awaitable[Any]], timeout: float) -> None:
        self._connect = connect
        self._timeout = timeout
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pool: Pool | None = None

    def run(self, work: Callable[[Pool], Awaitable[T]]) -> T:
        """What the work answers, in the calling thread."""
        with self._lock:
            if self._loop is None or self._pool is None:
                self._loop = asyncio.new_event_loop()
                self._pool = Pool(self._connect, size=1, timeout=self._timeout)
            return self._loop.run_until_complete(_await(work(self._pool)))

    def close(self) -> None:
        with self._lock:
            if self._loop is not None and self._pool is not None:
                self._loop.run_until_complete(self._pool.close())
                self._loop.close()
            self._loop = self._pool = None


async def _await(work: Awaitable[T]) -> T:
    return await work
