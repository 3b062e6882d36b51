"""A served store: every method of the seam is a request."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from ...config import StoreOptions
from ...errors import StoreError, UnknownOutcome
from ..base import LONG_POLL_S, CallName, Check, Ordinary, QueueInfo, Recovered
from ..capabilities import Capabilities
from ..records import Answer, Claims, Envelope, Settlement, Stats, Stored, Uniform, View
from . import wire
from .client import Client, Unanswered
from .schedules import HttpSchedules
from .wire import Append, Columns, Hello

# mypy: no-warn-return-any
# What comes back is of the type that `wire.VERBS` reads it as.


class HttpStore(Ordinary):
    """See `stores/base.py` for the promises: they are those of the store that is served."""

    def __init__(self, place: str, options: StoreOptions) -> None:
        self._client = Client(place, options)
        self._options = options
        self._hello = Hello(0, "", 0, 100, False)
        self._schedules = HttpSchedules(self._ask, timeout=options.operation_timeout)

    async def open(self) -> None:
        """Meet the server."""
        self._hello = await self._client.call("open", wire.encode(()), timeout=self._options.connect_timeout)
        if self._hello.version != wire.VERSION:
            raise StoreError("the server is of another version of Holdfast: use the same on both sides")

    @property
    def capabilities(self) -> Capabilities:  # type: ignore[override]  # what the server says, not the class
        hello = self._hello
        return Capabilities(
            prefetch=hello.prefetch, batch_size=max(hello.batch_size, 1000), remembers_calls=hello.remembers_calls
        )

    @property
    def schedules(self) -> HttpSchedules:
        return self._schedules

    async def _ask(self, verb: str, *arguments: Any, **how: Any) -> Any:
        return await self._client.call(verb, wire.encode(arguments), **how)

    # The store as a whole.

    async def install(self, *, dry_run: bool = False) -> list[str]:
        return await self._ask("install", dry_run)

    async def uninstall(self) -> list[str] | None:
        return await self._ask("uninstall")

    async def close(self) -> None:
        await self._client.close()

    def abandon(self) -> None:
        self._client.abandon()

    async def check(self) -> list[Check]:
        return await self._ask("check")

    async def clock(self) -> float:
        return await self._ask("clock")

    # Queues.

    async def create_queue(self, name: str, options: Any) -> QueueInfo:
        return await self._ask("create_queue", name, options)

    async def configure(self, name: str, options: Any) -> QueueInfo:
        return await self._ask("configure", name, options)

    async def queues(self) -> list[QueueInfo]:
        return await self._ask("queues")

    async def queue(self, name: str) -> QueueInfo | None:
        return await self._ask("queue", name)

    async def delete_queue(self, name: str, *, force: bool = False) -> None:
        await self._ask("delete_queue", name, force)

    async def pause(self, name: str, paused: bool) -> None:
        await self._ask("pause", name, paused)

    async def purge(self, queue: str) -> int:
        return await self._ask("purge", queue)

    # Messages in and out.

    async def append(self, queue: str, messages: Sequence[Envelope]) -> list[str]:
        return await self.append_call(queue, messages, CallName(os.urandom(12).hex()))

    async def append_call(self, queue: str, messages: Sequence[Envelope], call: CallName) -> list[str]:
        """Repeats bear the same name, so that nothing is added twice, whatever happened to the server."""
        asked = Append(queue, call.name, None, *_packed(messages), call.digest)
        return await self._append(asked)

    async def _append(self, asked: Append) -> list[str]:
        server = self._hello.server

        def body(is_first: bool) -> bytes:
            return wire.encode(asked if is_first else replace(asked, after=asked.after or server))

        try:
            return await self._client.call_with("append", body)
        except (Unanswered, UnknownOutcome) as error:
            again = partial(self._append, replace(asked, after=asked.after or server))
            ids = error.ids if isinstance(error, UnknownOutcome) else []
            raise UnknownOutcome(str(error), ids=ids, retry=again) from error

    async def claim(self, queue: str, limit: int, lease: float, *, wait: float = 0.0) -> Claims:
        deadline = time.monotonic() + wait
        while True:
            left = min(max(0.0, deadline - time.monotonic()), LONG_POLL_S)
            claims: Claims = await self._ask("claim", queue, limit, lease, left, wait=left)
            if claims.messages or claims.expired or time.monotonic() >= deadline:
                return claims

    async def extend(self, queue: str, leases: Sequence[tuple[str, str]], seconds: float) -> list[float | None]:
        return await self._ask("extend", queue, leases, seconds)

    def extend_from_thread(
        self, queue: str, leases: Sequence[tuple[str, str]], seconds: float
    ) -> list[float | None] | None:
        return self._client.call_from_thread("extend", wire.encode((queue, leases, seconds)))

    async def settle(self, queue: str, settlements: Sequence[Settlement]) -> list[Answer]:
        return await self._ask("settle", queue, settlements)

    async def cancel(self, queue: str, id: str) -> bool:
        return await self._ask("cancel", queue, id)

    # Looking.

    async def get(self, queue: str, ids: Sequence[str]) -> list[Stored | None]:
        return await self._ask("get", queue, ids)

    async def scan(self, queue: str, view: View, *, after: str | None = None, limit: int = 100) -> list[Stored]:
        return await self._ask("scan", queue, view, after, limit)

    async def replay(self, queue: str, view: View, ids: Sequence[str]) -> int:
        return await self._ask("replay", queue, view, ids)

    async def discard(
        self, queue: str, view: View, ids: Sequence[str] | None = None, *, before: float | None = None
    ) -> int:
        return await self._ask("discard", queue, view, ids, before)

    async def stats(self, queue: str) -> Stats:
        return await self._ask("stats", queue)

    async def stats_of_all(self) -> list[tuple[QueueInfo, Stats]]:
        return await self._ask("stats_of_all")

    async def watch(self, queue: str, timeout: float) -> None:
        wait = min(timeout, LONG_POLL_S)
        await self._ask("watch", queue, wait, wait=wait)

    async def maintain(self, queue: str) -> dict[str, int]:
        return await self._ask("maintain", queue)

    async def recover(
        self, queue: str, *, delete: bool = False, on_progress: Callable[[int], None] | None = None
    ) -> Recovered:
        done: Recovered = await self._ask("recover", queue, delete)
        if on_progress is not None:
            on_progress(done.recovered + done.known + done.deleted)
        return done


def _packed(messages: Sequence[Envelope]) -> tuple[Columns | None, list[Envelope]]:
    if isinstance(messages, Uniform):
        return Columns(messages.payloads, messages.content_type, messages.terms), []
    return None, list(messages)
