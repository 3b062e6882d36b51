"""Who waits, and who wakes them: this process at once, others by LISTEN/NOTIFY, everybody by polling."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

from ...errors import HoldfastError
from ...escaping import logger_named
from . import faults
from .pool import Pool

_LOG = logger_named("holdfast.postgres")
_EDGE = 0.005  # seconds between two notifications of one queue
_QUIET = 0.01  # seconds without one after which an append carries the notification itself
_PROBE = 3.0  # seconds a notification of our own may take
_PAUSES = (0.05, 5.0)  # seconds between tries to listen again: first, longest
_ALIVE = 30.0  # seconds between looks whether the listening connection is still there
_PROBING = "?"  # begins the payload of a probe: no queue's name does


class Bell:
    """Waiters of this process, by queue. A ticket taken before looking makes sure that nothing is missed."""

    def __init__(self) -> None:
        self._rings: dict[str, int] = {}
        self._last: dict[str, float] = {}
        self._all = 0
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}

    def ticket(self, queue: str) -> int:
        return self._rings.get(queue, 0) + self._all

    def rang(self, queue: str) -> float:
        """When it last rang for the queue, by the monotonic clock."""
        return self._last.get(queue, float("-inf"))

    def waiting(self, queue: str) -> int:
        return len(self._waiting.get(queue, ()))

    def ring(self, queue: str) -> None:
        self._rings[queue] = self._rings.get(queue, 0) + 1
        self._last[queue] = time.monotonic()
        _wake(self._waiting.pop(queue, set()))

    def ring_all(self) -> None:
        self._all += 1
        waiting, self._waiting = self._waiting, {}
        for futures in waiting.values():
            _wake(futures)

    async def wait(self, queue: str, timeout: float, *, since: int) -> None:
        """Until it rings for the queue; at once when it has since the ticket was taken."""
        if self.ticket(queue) != since or timeout <= 0:
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        futures = self._waiting.setdefault(queue, set())
        futures.add(future)
        timer = loop.call_later(timeout, _wake, {future})
        try:
            await future
        finally:
            timer.cancel()
            futures.discard(future)


def _wake(futures: set[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


class Notifier:
    """Tells other processes of new messages: at the first, and at the end of every 5 ms with more of them.

    A transaction that notifies keeps all others that do from committing until it is on disk. So only the first append
    after some quiet is such a transaction, which saves a round trip; under load notifications travel alone.
    """

    def __init__(self, send: Callable[[str], Awaitable[None]]) -> None:
        self._send = send
        self._open_from: dict[str, float] = {}
        self._trailing: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.sent = 0

    def lead(self, queue: str) -> bool:
        """Whether the append that is about to be sent shall carry the notification; then it need not be told."""
        now = time.monotonic()
        if queue in self._trailing or now < self._open_from.get(queue, 0.0) + _QUIET - _EDGE:
            return False
        self._open_from[queue] = now + _EDGE
        self.sent += 1
        return True

    def tell(self, queue: str) -> None:
        if queue in self._trailing:
            return
        now = time.monotonic()
        wait = self._open_from.get(queue, 0.0) - now
        if wait <= 0:
            self._open_from[queue] = now + _EDGE
            self._start(queue)
        else:
            self._trailing.add(queue)
            asyncio.get_running_loop().call_later(wait, self._trail, queue)

    def _trail(self, queue: str) -> None:
        if queue in self._trailing:  # else it was sent by close
            self._trailing.discard(queue)
            self.tell(queue)

    def _start(self, queue: str) -> None:
        self.sent += 1
        task = asyncio.get_running_loop().create_task(self._quietly(queue))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _quietly(self, queue: str) -> None:
        try:
            await self._send(queue)
        except HoldfastError as error:  # the others find it by polling
            _LOG.debug("notification of %s failed: %s", queue, error)

    async def close(self) -> None:
        """What is still to be told is told now: a program that sends and ends is the usual producer."""
        trailing, self._trailing = self._trailing, set()
        for queue in trailing:
            self._start(queue)
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=1.0)


class Listener:
    """The one listening connection of this process; it starts with the first who waits, and comes back by itself."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], pool: Pool, bell: Bell, *, schema: str) -> None:
        self._connect = connect
        self._pool = pool
        self._bell = bell
        self.channel = f"holdfast_{schema}"[:63]
        self._probe = ""
        self._answered = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.works: bool | None = None  # None: not tried yet
        self._said = False
        self.backend: int | None = None  # of the listening connection

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="holdfast-postgres-listener")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=2.0)

    async def tried(self) -> bool:
        """Whether notifications arrive, once that is known."""
        self.start()
        deadline = time.monotonic() + 2 * _PROBE
        while self.works is None and time.monotonic() < deadline:
            await self._bell.wait(_PROBING, 0.05, since=self._bell.ticket(_PROBING))
        return bool(self.works)

    async def notify(self, payload: str) -> None:
        await self._pool.fetch("SELECT pg_notify($1, $2)", self.channel, payload)

    async def _run(self) -> None:
        first, longest = _PAUSES
        pause = first
        while True:
            try:
                await self._listen()
                pause = first
            except Exception as error:  # noqa: BLE001 - whatever ends the listening, polling goes on and we come back
                _LOG.debug("the listening connection is gone: %s", faults.first_line(error))
            self.backend = None
            self._bell.ring_all()  # what was notified meanwhile is found by looking
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(longest, pause * 2)

    async def _listen(self) -> None:
        """Until the connection is gone."""
        connection = await self._connect()
        gone = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _: gone.set())
            await connection.add_listener(self.channel, self._heard)
            self.backend = connection.get_server_pid()
            self._bell.ring_all()
            await self._try_out()
            while not gone.is_set():
                try:
                    await asyncio.wait_for(gone.wait(), _ALIVE)
                except TimeoutError:
                    await asyncio.wait_for(connection.execute("SELECT 1"), _ALIVE)
        finally:
            connection.terminate()

    def _heard(self, connection: Any, pid: int, channel: str, payload: object) -> None:
        queue = str(payload)
        if queue.startswith(_PROBING):
            if queue == self._probe:
                self._answered.set()
            return
        self._bell.ring(queue)

    async def _try_out(self) -> None:
        """Do notifications arrive? Behind a pooler in transaction mode LISTEN succeeds and nothing ever comes."""
        self._probe = f"{_PROBING}{os.urandom(8).hex()}"
        self._answered.clear()
        await self.notify(self._probe)
        try:
            await asyncio.wait_for(self._answered.wait(), _PROBE)
        except TimeoutError:
            self.works = False
            if not self._said:
                self._said = True
                _LOG.warning(
                    "notifications do not arrive (a pooler in transaction mode?); new messages are found by polling"
                )
        else:
            self.works = True
