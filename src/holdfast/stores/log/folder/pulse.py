"""Looking for what nobody told us of, such as the last commit of a process that was killed before it could wake others.

Every poll interval, one look for all who wait: has anybody written to the database since, and if so, below what is
waited for? A look of its own for each of a thousand idle queues would take a quarter of a core.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeAlias, cast

import apsw

from ..calendar import Calendar
from ..space import Reading
from .database import Snapshot

_MOST_KEYS = 1000  # of a folder that are counted; a fuller one may have changed
_COUNT = "(SELECT count(*) FROM (SELECT 1 FROM objects WHERE key >= root || '{0}/' AND key < root || '{0}0' LIMIT ?1))"
_MARKS = (
    "SELECT root, (SELECT tag FROM objects WHERE key = root || 'head'), "  # nosec B608 # nothing of others is in it
    "(SELECT tag FROM objects WHERE key = 'queues/' || substr(root, 1, instr(root, '@') - 1)), "
    f"{_COUNT.format('inbox')}, {_COUNT.format('later')} FROM (SELECT value AS root FROM json_each(?2))"
)
Mark: TypeAlias = tuple[int | None, int | None, int, int]
Read: TypeAlias = Callable[[Callable[[Reading], list[str]]], "asyncio.Future[list[str]]"]
Watched: TypeAlias = tuple[str, str]  # a topic, and the root of the log that it is about


class Pulse:
    """One for a space; each event loop that waits has its own beat.

    What a log looked like is kept from one wait to the next, so that nothing can happen between a look and a wait: a
    mark is always older than the last look of whoever waits.
    """

    def __init__(self, read: Read, wake: Callable[[list[str]], None]) -> None:
        self._read = read
        self._wake = wake
        self._watched: dict[asyncio.AbstractEventLoop, Counter[Watched]] = {}
        self._marks: dict[str, Mark] = {}
        self._changed_at: dict[str, float] = {}
        self._seen: tuple[apsw.Connection | None, int, Calendar | None] = (None, 0, None)

    @contextmanager
    def watching(self, logs: Sequence[Watched], interval: float) -> Iterator[None]:
        """Whoever waits for a topic is woken when something below its root has changed, for as long as this lasts."""
        loop = asyncio.get_running_loop()
        watched = self._watched.get(loop)
        if watched is None:
            watched = self._watched[loop] = Counter()
            loop.call_later(interval, self._beat, loop, interval)
        watched.update(logs)
        try:
            yield
        finally:
            for each in logs:
                watched[each] -= 1
                if not watched[each]:
                    del watched[each]

    def is_unchanged(self, topic: str, root: str, *, since: float) -> bool:
        """As `stores.log.space.Watchful`."""
        is_watched = any((topic, root) in watched for watched in list(self._watched.values()))
        return is_watched and self._changed_at.get(root, math.inf) < since

    def _beat(self, loop: asyncio.AbstractEventLoop, interval: float) -> None:
        watched = self._watched[loop]
        if not watched:
            del self._watched[loop]  # the next who waits begins anew
            return
        try:
            looked = self._read(partial(self._changed, list(watched)))
        except Exception:  # noqa: BLE001 - closed, or opened before a fork: whoever waits finds out
            del self._watched[loop]
            self._wake([topic for topic, _ in watched])
            return
        looked.add_done_callback(partial(self._looked, loop, interval))

    def _looked(self, loop: asyncio.AbstractEventLoop, interval: float, looked: asyncio.Future[list[str]]) -> None:
        failed = looked.cancelled() or looked.exception() is not None
        topics = [topic for topic, _ in self._watched[loop]] if failed else looked.result()
        if topics:
            self._wake(topics)
        if not loop.is_closed():
            loop.call_later(interval, self._beat, loop, interval)

    def _changed(self, watched: list[Watched], view: Reading) -> list[str]:
        """In the reading thread: the topics whose logs are not as they were, or were never looked at."""
        snapshot = cast(Snapshot, view)
        ((version,),) = snapshot.execute("PRAGMA data_version")
        before, self._seen = self._seen, (snapshot.connection, version, view.calendar)
        if self._seen[0] is before[0] and self._seen[1:] == before[1:]:
            watched = [each for each in watched if each[1] not in self._marks]
        if not watched:
            return []
        calendar_moved = before[2] != view.calendar  # what is due by the wall clock may be due now
        rows = snapshot.execute(_MARKS, (_MOST_KEYS, json.dumps(list({root for _, root in watched}))))
        changed = {root for root, *mark in rows if self._is_new(root, cast(Mark, tuple(mark))) or calendar_moved}
        return [topic for topic, root in watched if root in changed]

    def _is_new(self, root: str, mark: Mark) -> bool:
        before, self._marks[root] = self._marks.get(root), mark
        if mark == before and max(mark[2:]) < _MOST_KEYS:
            return False
        self._changed_at[root] = time.monotonic()
        return True
