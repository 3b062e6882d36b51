"""One connection of the driver: made in time or given up with its cause, and ended in time, whatever it does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ...config import StoreOptions
from ...escaping import logger_named
from . import faults
from .deadline import RETRY_S, TRY_S, apart
from .fast_reader import FastClient

_LOG = logger_named("holdfast.nats")
_letting_go: set[asyncio.Task[None]] = set()  # tasks need somebody who holds them


class Attempt:
    """Why there is no connection yet, by what the driver says while it tries one server after the other."""

    def __init__(self, servers: int) -> None:
        self._servers = servers
        self._useless = 0  # servers in a row that waiting does not help with
        self.cause: BaseException | None = None
        self.is_final = asyncio.Event()

    def heard(self, error: BaseException) -> None:
        if self.cause is None or not faults.is_final(self.cause):
            self.cause = error
        self._useless = self._useless + 1 if faults.is_useless(error) else 0
        if faults.is_final(error) or self._useless >= self._servers:
            self.is_final.set()


async def connect(
    client: FastClient, given: dict[str, Any], options: StoreOptions, within: float, **callbacks: Callable[..., Any]
) -> Attempt | None:
    """Connect; None, or why that did not work. `said` is called with every later word of the driver."""
    attempt, said = Attempt(len(given["servers"])), callbacks.pop("said")

    async def heard(error: Exception) -> None:
        _LOG.debug("nats: %s", type(error).__name__)
        attempt.heard(error)
        said(error)

    connecting = apart(_driver_connects(client, heard, given, options, callbacks))
    failing = asyncio.ensure_future(attempt.is_final.wait())
    try:
        await asyncio.wait({connecting, failing}, timeout=within, return_when="FIRST_COMPLETED")
        if connecting.done() and connecting.exception() is None:
            return None
        if connecting.done() and (raised := connecting.exception()) is not None:
            attempt.heard(raised)
        return attempt
    finally:
        failing.cancel()
        if not connecting.done() or connecting.exception() is not None:
            await _give_up(client, connecting)


async def _driver_connects(
    client: FastClient,
    heard: Callable[[Exception], Any],
    given: dict[str, Any],
    options: StoreOptions,
    callbacks: dict[str, Callable[..., Any]],
) -> None:
    await client.connect(
        error_cb=heard,
        disconnected_cb=callbacks["dropped"],
        reconnected_cb=callbacks["returned"],
        closed_cb=callbacks["given_up"],
        max_reconnect_attempts=-1,
        reconnect_time_wait=RETRY_S,  # type: ignore[arg-type]  # seconds; the driver's own default is a whole number
        connect_timeout=min(options.connect_timeout, TRY_S),  # type: ignore[arg-type]  # as above
        ping_interval=int(2 * TRY_S),
        pending_size=1 << 40,  # it would wait without a deadline: `wire.send` keeps the measure
        flush_timeout=2 * TRY_S,
        skip_subject_validation=True,
        name="holdfast",
        **given,
    )


async def _give_up(client: FastClient, connecting: asyncio.Task[None]) -> None:
    """The driver ignores a cancellation now and then: it is cancelled until it hears, and nobody waits for that."""
    ending = apart(_end_surely(client, connecting))
    _letting_go.add(ending)
    ending.add_done_callback(_letting_go.discard)
    await asyncio.wait({ending}, timeout=RETRY_S)


async def _end_surely(client: FastClient, connecting: asyncio.Task[None]) -> None:
    while not connecting.done():
        connecting.cancel()
        await asyncio.wait({connecting}, timeout=RETRY_S)
    await end(client, TRY_S)


async def end(client: FastClient, within: float) -> None:
    """Close a connection; what a server that does not read has not taken by then is dropped."""
    closing = apart(client.close())
    await asyncio.wait({closing}, timeout=min(within, TRY_S))
    if not closing.done():
        closing.cancel()
        _letting_go.add(closing)
        closing.add_done_callback(_letting_go.discard)
    elif not closing.cancelled() and (error := closing.exception()) is not None:
        _LOG.debug("nats: closing: %s", type(error).__name__)
    _abort(client)


def _abort(client: FastClient) -> None:
    """Without a flush: a server that is stopped reads nothing, and an open socket would outlive us."""
    writer = getattr(getattr(client, "_transport", None), "_io_writer", None)
    if writer is not None:
        writer.transport.abort()
