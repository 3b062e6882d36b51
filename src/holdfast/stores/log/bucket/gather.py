"""How calls reach a bucket: gathered while what came before is under way, since every request is expensive."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from ....errors import Unavailable
from ..entries import DONE, Entry

T = TypeVar("T")


class Group(list[Any]):
    """Entries that are carried out together; more join while nothing was written."""

    def __init__(self, gather: Gather) -> None:
        super().__init__()
        self._gather = gather
        self._is_over = False  # its callers have been told; nobody else may join

    def join(self) -> None:
        """Take what waits; from any thread."""
        with self._gather.joining:
            if self._is_over:
                raise Unavailable("nobody waits for this commit any more")
            self.extend(entry for entry in self._gather.take() if not entry.is_cancelled)

    def end(self, count: int) -> None:
        """So many were carried out: whoever joined a run that did not count waits again."""
        self._gather.waiting[:0] = self[count:]
        del self[count:]

    def close(self) -> None:
        with self._gather.joining:  # a step that outlived its deadline may still be running
            self._is_over = True


class Gather:
    """As `Commits`, for one owner in one event loop; `most` groups at a time, each after a pause."""

    def __init__(
        self, carry_out: Callable[[Group], Awaitable[None]], *, most: int, pause: Callable[[], float] = lambda: 0.0
    ) -> None:
        self.waiting: list[Entry[Any]] = []
        self.joining = threading.Lock()  # held while a group takes what waits, or is over
        self._carry_out = carry_out
        self._most = most
        self._pause = pause
        self._under_way = 0
        self._scheduled = False

    def put(self, entry: Entry[T], within: float) -> asyncio.Future[T]:
        """How long it may take is known to whoever carries it out."""
        future = entry.future = asyncio.get_running_loop().create_future()
        self.post(entry)
        return future

    def post(self, entry: Entry[Any]) -> None:
        self.waiting.append(entry)
        self._begin_soon()

    def gathered(self, loop: asyncio.AbstractEventLoop) -> None:
        """Nobody joins a call: each has an outcome of its own when an answer is lost."""

    def take(self) -> list[Entry[Any]]:
        taken, self.waiting = self.waiting, []
        return taken

    def _begin_soon(self) -> None:
        if self.waiting and not self._scheduled and self._under_way < self._most:
            self._scheduled = True
            asyncio.get_running_loop().call_later(self._pause(), self._begin)

    def _begin(self) -> None:
        self._scheduled = False
        self._under_way += 1
        group = Group(self)
        carried = asyncio.ensure_future(self._carry_out(group))
        if isinstance(carried, asyncio.Task):  # what is given back while its loop ends comes too late: say nothing
            carried._log_destroy_pending = False  # type: ignore[attr-defined] # as `asyncio.gather` does
        carried.add_done_callback(partial(self._ended, group))

    def _ended(self, group: Group, carried: asyncio.Future[None]) -> None:
        self._under_way -= 1
        group.close()
        unknown = "the call was cancelled; whether it took effect is unknown"
        error = Unavailable(unknown) if carried.cancelled() else carried.exception()
        for entry in group if group or error is None else self.take():
            entry.error = entry.error or error
            entry.state = DONE
            if entry.future is not None:
                entry.tell()
        self._begin_soon()
