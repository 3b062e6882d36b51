"""Connections that are waited for without end would fill the server: clients that are too slow are cut off."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

SLOW_S = 75  # without progress; more than the minute after which clients and proxies give up an idle connection


class Connection(HttpToolsProtocol):
    """One that is aborted when its client, whose turn it is, gets no further between two looks.

    A head of a request counts when it is whole, so that nobody keeps a connection with a byte now and then.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as theirs
        super().connection_made(transport)
        self._heads = self._body_bytes = 0
        self._seen: tuple[int, int, int] | None = None
        self._next_look = self.loop.call_later(SLOW_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._next_look.cancel()
        super().connection_lost(exc)

    def on_headers_complete(self) -> None:
        self._heads += 1
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def _look(self) -> None:
        came = (self._heads, self._body_bytes, self.transport.get_write_buffer_size())
        if self._is_their_turn() and came == self._seen:
            self.transport.abort()
            return
        self._seen = came
        self._next_look = self.loop.call_later(SLOW_S, self._look)

    def _is_their_turn(self) -> bool:
        cycle: Any = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body or self.flow.write_paused
