"""Server-sent events: what this server does as it happens, and counts of queues when they change.

Events of the contract are those of the server's own broker, so of what clients of the API do; counts are the store's,
and do not depend on who did the work. A slow client loses events, never counts, and learns how many.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from typing import Annotated, Any

import msgspec
from litestar import Request, get
from litestar.params import QueryParameter
from litestar.response import Stream

from ..errors import HoldfastError, Unavailable
from ..events import LEVELS, Event
from ..stores.base import LONG_POLL_S, PAGE_ROWS
from .replies import holder_of, served_of
from .served import OPEN_WAITS, SAMPLE_S, Served
from .tokens import Holder
from .watch import LOOKS_S

_UNTOLD = ("result",)  # a user's data


@get("/events", opt={"role": "read"}, media_type="text/event-stream", include_in_schema=False)
async def events(
    request: Request[Any, Any, Any], queue: Annotated[list[str] | None, QueryParameter()] = None
) -> Stream:
    """Events and counts of these queues, or of all that the token reaches, until the client goes."""
    served = served_of(request)
    if served.closing.is_set() or served.streams >= OPEN_WAITS:
        raise Unavailable("the server is about to stop, or has too many streams")
    told = told_to(served, holder_of(request), frozenset(queue or ()))
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return Stream(told, media_type="text/event-stream", headers=headers)


async def told_to(served: Served, holder: Holder, queues: Collection[str]) -> AsyncIterator[bytes]:
    """The lines of one stream; it ends with the server, or with the store it was opened on."""
    broker, listener = served.broker, _Listener(holder, queues)
    ends = [broker.on(name, listener.hear) for name in LEVELS]
    closing = asyncio.ensure_future(served.closing.wait())
    served.streams += 1
    try:
        yield b"retry: 2000\n\n"
        every = LOOKS_S if broker.store.requests() is None else SAMPLE_S  # where requests cost money
        due = time.monotonic()
        while not closing.done() and served.broker is broker:
            if time.monotonic() >= due:
                for line in await _counts(served, listener):
                    yield line
                due = time.monotonic() + every
            for line in listener.lines():
                yield line
            news = asyncio.ensure_future(listener.news.wait())
            await asyncio.wait(
                {closing, news}, timeout=max(0.0, due - time.monotonic()), return_when=asyncio.FIRST_COMPLETED
            )
            news.cancel()
    finally:
        served.streams -= 1
        closing.cancel()
        for end in ends:
            end()


async def _counts(served: Served, listener: _Listener) -> list[bytes]:
    try:
        return listener.changed({each.name: each.stats for each in await served.watch.reports()})
    except (HoldfastError, TimeoutError) as error:
        return listener.away(str(error) or "the store does not answer")


class _Listener:
    """What one client is still to be told."""

    def __init__(self, holder: Holder, queues: Collection[str]) -> None:
        self._holder = holder
        self._queues = queues
        self._events: list[Event] = []
        self._dropped = 0
        self._counts: dict[str, Any] = {}
        self._is_away = False
        self._said_at = time.monotonic()
        self.news = asyncio.Event()

    def _is_wanted(self, queue: str) -> bool:
        return (not self._queues or queue in self._queues) and self._holder.reaches(queue)

    def hear(self, event: Event) -> None:
        if not self._is_wanted(event.queue):
            return
        if len(self._events) >= PAGE_ROWS:  # it does not read
            self._dropped += 1
        else:
            self._events.append(event)
        self.news.set()

    def lines(self) -> list[bytes]:
        """Everything that was heard; a comment when there was nothing for long."""
        self.news.clear()
        heard, self._events = self._events, []
        made = [_line(each.name, {k: v for k, v in each.items() if k not in _UNTOLD}) for each in heard]
        if self._dropped:
            made.append(_line("dropped", {"count": self._dropped}))
            self._dropped = 0
        if made:
            self._said_at = time.monotonic()
        elif time.monotonic() - self._said_at >= LONG_POLL_S:  # or a proxy cuts the connection
            self._said_at = time.monotonic()
            made.append(b": nothing new\n\n")
        return made

    def changed(self, counts: dict[str, Any]) -> list[bytes]:
        """Queues whose counts are not those that were told, and those that are gone."""
        now = {name: _plain(stats) for name, stats in counts.items() if self._is_wanted(name)}
        new = [
            _line("counts", {"queue": name, **stats}) for name, stats in now.items() if stats != self._counts.get(name)
        ]
        gone = [_line("deleted", {"queue": name}) for name in self._counts if name not in now]
        self._counts, self._is_away = now, False
        return [*new, *gone]

    def away(self, why: str) -> list[bytes]:
        """Once, until the store is back; then all counts are told again."""
        if self._is_away:
            return []
        self._counts, self._is_away = {}, True
        return [_line("unavailable", {"detail": why})]


def _plain(stats: Any) -> dict[str, Any]:
    """Without what changes by itself."""
    fields = msgspec.structs.asdict(stats)
    for name in ("oldest_age", "usage"):
        fields.pop(name)
    return fields


def _line(name: str, fields: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(fields))


ROUTES = [events]
