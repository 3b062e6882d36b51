"""A second connection in a thread of its own, so that leases can be extended while the event loop is busy."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from ...config import StoreOptions
from ...escaping import logger_named
from .address import Address
from .deadline import TRY_S

if TYPE_CHECKING:
    from .store import NatsStore

_LOG = logger_named("holdfast.nats")


class LeaseThread:
    """Starts when it is first needed."""

    def __init__(self, address: Address, options: StoreOptions) -> None:
        self._address = address
        self._options = options
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._store: NatsStore | None = None
        self._closed = False
        self._ending: asyncio.Task[None] | None = None

    def extend(self, queue: str, leases: Sequence[tuple[str, str]], seconds: float) -> list[float | None] | None:
        """Blocking, from any thread; None once the store is closed."""
        with self._lock:
            if self._closed:
                return None
            loop = self._running()
        asked = asyncio.run_coroutine_threadsafe(self._extend(queue, leases, seconds), loop)
        try:
            return asked.result(2 * self._options.operation_timeout + TRY_S)  # it has its own deadlines
        except TimeoutError:
            return None  # the thread was told to end meanwhile

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_run, args=(self._loop,), name="holdfast-nats", daemon=True)
            self._thread.start()
        return self._loop

    async def _extend(self, queue: str, leases: Sequence[tuple[str, str]], seconds: float) -> list[float | None]:
        from .store import NatsStore  # above us: it holds one of these

        if self._store is None:
            store = NatsStore(self._address, self._short())
            self._store = await store.open()
        return await self._store.extend(queue, leases, seconds)

    def _short(self) -> StoreOptions:
        """A lease is not waiting for a connection: the next try comes soon."""
        timeout = min(self._options.connect_timeout, self._options.operation_timeout)
        return msgspec.structs.replace(self._options, connect_timeout=timeout)

    def close(self) -> None:
        """End the connection and the thread, if there are any."""
        with self._lock:
            self._closed = True
            loop, self._loop = self._loop, None
        if loop is None or self._thread is None:
            return
        loop.call_soon_threadsafe(self._end)
        self._thread.join(TRY_S)  # else it ends with the process

    def abandon(self) -> None:
        """The same without waiting and without the lock: it may be called in the middle of anything."""
        self._closed = True
        loop, self._loop = self._loop, None
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it is closed
                loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        """In the thread."""
        self._ending = asyncio.get_running_loop().create_task(self._finish())

    async def _finish(self) -> None:
        try:
            if self._store is not None:
                await asyncio.wait_for(self._store.close(), TRY_S)
        except Exception as error:  # noqa: BLE001 - there is nobody to tell but the log
            _LOG.debug("nats: closing: %s", type(error).__name__)
        finally:
            asyncio.get_running_loop().stop()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()
