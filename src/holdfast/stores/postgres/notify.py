"""Who waits, and who wakes them: this process at once, others by LISTEN/NOTIFY, everybody by polling."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from ...errors import HoldfastError
from ...escaping import logger_named
from ..base import DEAD
from . import faults
from .names import IDENTIFIER_BYTES
from .pool import RECONNECT, Pool

_LOG = logger_named("holdfast.postgres")
_NOTIFY_S = 0.005  # between two notifications of one queue: half of what a listener may notice
_PROBE_S = 3.0  # a notification of our own may take so long
_LISTENING_S = 30.0  # between looks whether a listening connection is there; for so long ends are told to who asked
_SPREAD_S = 0.001  # for each of those who wait for the same: not all of them look at once
_FIRST_LOOK_S = _NOTIFY_S  # at what another process may have settled; doubled each time
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
        await self.wait_any({queue: since}, timeout)

    async def wait_any(self, tickets: Mapping[str, int], timeout: float) -> None:
        """Until it rings for one of these queues; at once when it has since its ticket was taken."""
        if timeout <= 0 or any(self.ticket(queue) != since for queue, since in tickets.items()):
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        for queue in tickets:
            self._waiting.setdefault(queue, set()).add(future)
        timer = loop.call_later(timeout, _wake, {future})
        try:
            await future
        finally:
            timer.cancel()
            for queue in tickets:
                self._waiting.get(queue, set()).discard(future)


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
        if queue in self._trailing or now < self._open_from.get(queue, 0.0) + _NOTIFY_S:
            return False
        self._open_from[queue] = now + _NOTIFY_S
        self.sent += 1
        return True

    def tell(self, queue: str) -> None:
        if queue in self._trailing:
            return
        now = time.monotonic()
        wait = self._open_from.get(queue, 0.0) - now
        if wait <= 0:
            self._open_from[queue] = now + _NOTIFY_S
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
        """Send pending notifications now: a program that enqueues and exits is the usual producer."""
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
        self.channel = f"holdfast_{schema}"[:IDENTIFIER_BYTES]
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
        deadline = time.monotonic() + 2 * _PROBE_S
        while self.works is None and time.monotonic() < deadline:
            await self._bell.wait(_PROBING, 0.05, since=self._bell.ticket(_PROBING))
        return bool(self.works)

    async def notify(self, payload: str) -> None:
        await self._pool.fetch("SELECT pg_notify($1, $2)", self.channel, payload)

    async def _run(self) -> None:
        failed = 0
        while True:
            try:
                await self._listen()
                failed = 0
            except Exception as error:  # noqa: BLE001 - whatever ends the listening, polling goes on and we come back
                _LOG.debug("the listening connection is gone: %s", faults.first_line(error))
            self.backend = None
            self._bell.ring_all()  # what was notified meanwhile is found by looking
            failed += 1
            await asyncio.sleep(RECONNECT.after(failed))

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
                    await asyncio.wait_for(gone.wait(), _LISTENING_S)
                except TimeoutError:
                    await asyncio.wait_for(connection.execute("SELECT 1"), _LISTENING_S)
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
            await asyncio.wait_for(self._answered.wait(), _PROBE_S)
        except TimeoutError:
            self.works = False
            if not self._said:
                self._said = True
                _LOG.warning(
                    "notifications do not arrive (a pooler in transaction mode?); new messages are found by polling"
                )
        else:
            self.works = True


class _Looker(msgspec.Struct):
    """A task that waits: the ticket from before its last look, and how often it looked in vain."""

    queue: str
    ticket: int
    looks: int = 0


class Endings:
    """Ends of messages, by queue. NOTIFY costs every commit of the database a little: without a wish, none is sent."""

    def __init__(self, bell: Bell, listener: Listener | None, notifier: Notifier | None, *, poll: float) -> None:
        self._bell = bell
        self._listener = listener
        self._notifier = notifier
        self._poll = poll
        self._asked: dict[str, float] = {}
        self._lookers: WeakKeyDictionary[asyncio.Task[Any], _Looker] = WeakKeyDictionary()

    def ended(self, queue: str) -> None:
        """Messages of the queue have changed their state."""
        name = _done(queue)
        self._bell.ring(name)
        if self._notifier is not None and time.monotonic() - self._bell.rang(_wish(queue)) < _LISTENING_S:
            self._notifier.tell(name)

    def looking(self, queue: str) -> None:
        """This task is about to look: what rings from now on must not be missed by a watch that follows."""
        task = asyncio.current_task()
        if task is None:
            return
        name = _done(queue)
        looker = self._lookers.get(task)
        if looker is None or looker.queue != name:
            looker = self._lookers[task] = _Looker(name, 0)
        looker.ticket = self._bell.ticket(name)

    async def watch(self, queue: str, timeout: float) -> None:
        """Until something may have ended; looks at what was not told grow rarer."""
        name, task = _done(queue), asyncio.current_task()
        looker = None if task is None else self._lookers.get(task)
        if looker is None or looker.queue != name:
            looker = _Looker(name, self._bell.ticket(name))
        self._ask(queue)
        looker.looks += 1
        pause = min(timeout, self._poll, _FIRST_LOOK_S * 2.0 ** min(looker.looks, 20))
        others = self._bell.waiting(name)
        await self._bell.wait(name, pause, since=looker.ticket)
        if self._bell.ticket(name) != looker.ticket:
            looker.looks = 0
            if others:  # not all of them at once, whenever anything ends
                await asyncio.sleep(min(pause, random.uniform(0, others * _SPREAD_S)))

    def _ask(self, queue: str) -> None:
        """The others shall tell us."""
        now = time.monotonic()
        if self._listener is None or self._notifier is None or now < self._asked.get(queue, 0.0):
            return
        self._listener.start()
        if self._listener.works:
            self._asked[queue] = now + _LISTENING_S / 3
            self._notifier.tell(_wish(queue))


def _done(queue: str) -> str:
    """What rings when messages of a queue end; no queue is called so."""
    return f"{queue.removesuffix(DEAD)}/done"


def _wish(queue: str) -> str:
    """What rings when somebody wants to be told of ends."""
    return f"{queue.removesuffix(DEAD)}/wish"
