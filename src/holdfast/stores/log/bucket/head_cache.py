"""The objects that change, as last read: the heads and the options of queues. Everything else is read when needed."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec

from ..names import CONFIGS
from .clock import StoreClock, ticks
from .faults import Unchanged
from .requests import Got, Tag, Wire

_AT_ONCE = 48  # objects read together
CONFIG_AGE = 2.0  # seconds a queue's options may be old; whoever makes a queue anew waits longer than this

_SOON = 0.4  # seconds: no read is too long before
_TIMES = 5
_WEIGHT = 0.05  # of the newest observation

SETTLE_AGE = 10.0  # the same for whoever changes a head: if the queue is gone, so is the head
HINTED_AGE = 180.0  # the same for whoever sees that nobody has changed them since


class Known(msgspec.Struct, frozen=True):
    """What was read (None: absent), and by the monotonic clock since when that is known."""

    got: Got | None
    since: float


class Shelf:
    """Shared by the threads of a space; a later entry replaces an earlier one whole."""

    def __init__(self, wire: Wire, clock: StoreClock | None) -> None:
        self.wire = wire
        self.pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="holdfast-get")
        self.clock = clock  # None: a test's own clock, which dates of the server say nothing about
        self._known: dict[str, Known] = {}
        self._fetching: dict[str, Future[Got | None]] = {}
        self._usual = 0.0  # seconds a read takes
        self._lock = threading.Lock()
        self.hints: dict[str, list[str | None] | None] = {}  # as last shown by a list
        self._written: dict[str, tuple[Tag, float, float]] = {}  # our last write of a key, and when it was under way

    def known(self, key: str) -> Known | None:
        return self._known.get(key)

    def config(self, key: str, until: float, *, age: float) -> Got | None:
        """Options of a queue, at most `age` seconds old. That a queue is absent is never taken from memory."""
        known = self._known.get(key)
        if known is not None and known.got is not None and time.monotonic() - known.since < age:
            return known.got
        return self.refresh(key, until)

    def refresh(self, key: str, until: float) -> Got | None:
        """The object as it is now; its bytes travel only when they have changed."""
        known = self._known.get(key)
        got = known.got if known is not None else None
        since = time.monotonic()
        try:
            got = self.wire.get(key, until, unless=got.tag if got is not None else None)
        except Unchanged:
            pass
        self._known[key] = Known(got, since)
        return got

    def fetch(self, key: str, until: float) -> Future[Got | None]:
        """An object that never changes, read once however many ask for it meanwhile."""
        with self._lock:
            if key not in self._fetching:
                self._fetching[key] = self.pool.submit(self._fetch, key, until)
            return self._fetching[key]

    def _fetch(self, key: str, until: float) -> Got | None:
        began = time.monotonic()
        try:
            got = self.wire.get(key, until)
        finally:
            with self._lock:
                self._fetching.pop(key, None)
        self._usual += _WEIGHT * (time.monotonic() - began - self._usual)
        return got

    @property
    def patience(self) -> float:
        """Seconds after which a read takes longer than it should: a few times as long as others have."""
        return max(_SOON, _TIMES * self._usual)

    def fetch_again(self, key: str, until: float, first: Future[Got | None]) -> Future[Got | None]:
        """The same once more, beside a read that takes too long: whichever answers first."""
        either: Future[Got | None] = Future()
        reads = (first, self.pool.submit(self.wire.get, key, until))
        left = set(reads)

        def answered(read: Future[Got | None]) -> None:
            error = read.exception()
            with self._lock:
                left.discard(read)
                if either.running() or either.done() or (error is not None and left):
                    return
                either.set_running_or_notify_cancel()
            either.set_result(read.result()) if error is None else either.set_exception(error)

        for read in reads:
            read.add_done_callback(answered)
        return either

    def wrote(self, key: str, data: bytes, tag: Tag, began: tuple[float, float]) -> None:
        """Our own write is the current version as far as anybody knows; it began by the monotonic clock and `ticks`."""
        self._known[key] = Known(Got(data, tag, 0.0), began[0])
        self._written[key] = (tag, began[1], ticks())

    def dated(self, key: str, tag: Tag, made: float) -> None:
        """A list says when an object was written: if that was us, it sets the clock."""
        written = self._written.get(key)
        if written is not None and self.clock is not None and written[0].bare == tag.bare:
            self.clock.sample(written[1], written[2], made)
            del self._written[key]

    def forget(self, key: str) -> None:
        self._known.pop(key, None)


def is_head(key: str) -> bool:
    return key.endswith("/head")


def is_kept(key: str) -> bool:
    """Whether the shelf holds such keys."""
    return key.startswith(CONFIGS) or is_head(key)
