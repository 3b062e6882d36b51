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
from ..records import Answer, Change, Claims, Dedup, Enqueued, Envelope, Settlement, Stats, Stored, Uniform, View
from . import wire
from .client import Client, Unanswered
from .schedules import HttpSchedules
from .values import HttpValues
from .wire import Append, AppendOnce, Columns, Hello
from .worker_reports import HttpWorkerReports

# mypy: no-warn-return-any
# What comes back is of the type that `wire.VERBS` reads it as.


class HttpStore(Ordinary):
    """See `stores/base.py` for the promises: they are those of the store that is served."""

    def __init__(self, place: str, options: StoreOptions) -> None:
        self._client = Client(place, options)
        self._options = options
        self._hello = Hello(0, "", 0, 100, False, False)
        self._schedules = HttpSchedules(self._ask, timeout=options.operation_timeout)
        self._worker_reports = HttpWorkerReports(self._ask)
        self._values = HttpValues(self._ask)

    async def open(self) -> None:
        """Meet the server."""
        self._hello = await self._client.call("open", wire.encode(()), timeout=self._options.connect_timeout)
        if self._hello.version != wire.VERSION:
            raise StoreError("the server is of another version of Holdfast: use the same on both sides")

    @property
    def capabilities(self) -> Capabilities:  # type: ignore[override]  # what the server says, not the class
        hello = self._hello
        return Capabilities(
            prefetch=hello.prefetch,
            batch_size=max(hello.batch_size, 1000),
            keeps_values=hello.keeps_values,
            remembers_calls=hello.remembers_calls,
        )

    @property
    def schedules(self) -> HttpSchedules:
        return self._schedules

    @property
    def worker_reports(self) -> HttpWorkerReports | None:
        return self._worker_reports if self._hello.keeps_worker_reports else None

    @property
    def values(self) -> HttpValues | None:
        return self._values if self._hello.keeps_values else None

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

    async def append_once(
        self, queue: str, messages: Sequence[Envelope], dedup: Dedup = "window", *, replace: bool = False
    ) -> list[Enqueued]:
        """A server that was restarted meanwhile may take for known what the first try has added."""
        name = os.urandom(12).hex()
        return await self._append(AppendOnce(queue, name, None, None, list(messages), "", dedup, replace))

    async def _append(self, asked: Append) -> Any:
        server, verb = self._hello.server, "append_once" if isinstance(asked, AppendOnce) else "append"

        def body(is_first: bool) -> bytes:
            return wire.encode(asked if is_first else replace(asked, after=asked.after or server))

        try:
            return await self._client.call_with(verb, body)
        except (Unanswered, UnknownOutcome) as error:
            again = partial(self._append, replace(asked, after=asked.after or server))
            ids = error.ids if isinstance(error, UnknownOutcome) else []
            raise UnknownOutcome(str(error), ids=ids, retry=again) from error

    async def claim(
        self, queue: str, limit: int, lease: float, *, wait: float = 0.0, worker: str | None = None
    ) -> Claims:
        deadline = time.monotonic() + wait
        while True:
            left = min(max(0.0, deadline - time.monotonic()), LONG_POLL_S)
            claims: Claims = await self._ask("claim", queue, limit, lease, left, worker, wait=left)
            if claims.messages or claims.expired or time.monotonic() >= deadline:
                return claims

    async def ready(self, queues: Sequence[str], *, wait: float = 0.0) -> list[str]:
        wait = min(wait, LONG_POLL_S)
        return await self._ask("ready", queues, wait, wait=wait)

    async def extend(self, queue: str, leases: Sequence[tuple[str, str]], seconds: float) -> list[float | None]:
        return await self._ask("extend", queue, leases, seconds)

    def extend_from_thread(
        self, queue: str, leases: Sequence[tuple[str, str]], seconds: float
    ) -> list[float | None] | None:
        return self._client.call_from_thread("extend", wire.encode((queue, leases, seconds)))

    async def settle(self, queue: str, settlements: Sequence[Settlement]) -> list[Answer]:
        return await self._ask("settle", queue, settlements)

    async def cancel(self, queue: str, id: str, *, running: bool = False) -> bool:
        return await self._ask("cancel", queue, id, running)

    async def change(self, queue: str, id: str, change: Change) -> bool:
        return await self._ask("change", queue, id, change)

    async def take_back(self, queue: str, ids: Sequence[str] | None, *, worker: str | None = None) -> int:
        return await self._ask("take_back", queue, ids, worker)

    # Looking.

    async def get(self, queue: str, ids: Sequence[str]) -> list[Stored | None]:
        return await self._ask("get", queue, ids)

    async def find_queue(self, queues: Sequence[str], id: str) -> str | None:
        return await self._ask("find_queue", queues, id)

    async def scan(self, queue: str, view: View, *, after: str | None = None, limit: int = 100) -> list[Stored]:
        return await self._ask("scan", queue, view, after, limit)

    async def upcoming(
        self, queue: str, view: View, *, after: tuple[float, str] | None = None, limit: int = 100
    ) -> list[Stored]:
        return await self._ask("upcoming", queue, view, after, limit)

    async def peek(self, queue: str, limit: int) -> list[Stored]:
        return await self._ask("peek", queue, limit)

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
