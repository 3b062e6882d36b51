"""A second connection in a thread of its own, so that leases can be extended while the event loop is busy."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from ...config import StoreOptions
from .address import Address

if TYPE_CHECKING:
    from .store import NatsStore

_CLOSE = 10.0  # seconds for the connection, and for the thread


class Beside:
    """Starts when it is first needed."""

    def __init__(self, address: Address, options: StoreOptions) -> None:
        self._address = address
        self._options = options
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._store: NatsStore | None = None
        self._closed = False

    def extend(self, queue: str, leases: Sequence[tuple[str, str]], seconds: float) -> list[float | None] | None:
        """Blocking, from any thread; None once the store is closed."""
        with self._lock:
            if self._closed:
                return None
            loop = self._running()
        return asyncio.run_coroutine_threadsafe(self._extend(queue, leases, seconds), loop).result()

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="holdfast-nats", daemon=True)
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
        if self._store is not None:
            try:
                asyncio.run_coroutine_threadsafe(self._store.close(), loop).result(_CLOSE)
            except TimeoutError:
                pass  # the thread ends with the process
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join(_CLOSE)
        if not self._thread.is_alive():
            loop.close()
