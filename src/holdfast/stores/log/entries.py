"""What callers queue for a commit, and how they wait for it; what one owner's entries become in a group."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, cast

from ...escaping import logger_named

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

WAITING, RUNNING, DONE, GONE = range(4)  # GONE: its caller gave up

logger = logger_named("holdfast.stores.log")


class Owner(Protocol):
    """Whose entries share one step: it looks at all that wait, and writes once."""

    def step(self, tx: Any, entries: Sequence[Any]) -> None:
        """Inside the transaction, which may fail or be undone after it; sets the result of each entry."""

    def committed(self, entries: Sequence[Any]) -> None:
        """What they did is there; in the leader's thread, before anybody is told."""

    def abandoned(self, entry: Any) -> None:
        """It took effect, and nobody is there any more to take its result; from any thread."""


class Entry(Generic[T]):
    """What one caller wants done, and how it waits: a future of its event loop, or a gate; neither: nobody waits."""

    __slots__ = ("before", "durable", "error", "future", "gate", "owner", "result", "state", "until", "within")

    def __init__(self, owner: Owner, *, durable: bool = True, before: Callable[[], None] | None = None) -> None:
        self.owner = owner
        self.durable = durable  # must be on the disk when it is answered
        self.before = before  # done by its leader before it takes the space's lock; such an entry is a group alone
        self.state = WAITING
        self.within = 0.0  # seconds its caller waits
        self.until = float("inf")
        self.future: asyncio.Future[T] | None = None
        self.gate: threading.Lock | None = None
        self.result: T = cast(T, None)
        self.error: BaseException | None = None

    @property
    def is_cancelled(self) -> bool:
        return self.future is not None and self.future.cancelled()

    @property
    def is_over(self) -> bool:
        """Nobody waits for it in an event loop, or any more."""
        return self.future is None or self.future.done()

    @property
    def has_company(self) -> bool:
        """It is of several callers."""
        return False

    @property
    def is_told(self) -> bool:
        """Its caller's future has the result, whether the caller took it or not."""
        future = self.future
        return future is not None and future.done() and not future.cancelled() and future.exception() is None

    def outcome(self) -> T:
        """Of one that is done."""
        if self.error is not None:
            raise self.error
        return self.result

    def tell(self) -> None:
        """In the event loop of its future, perhaps twice."""
        future = cast("asyncio.Future[T]", self.future)
        if future.done():
            if not self.is_told and self.error is None:  # cancelled, or past its deadline
                self.owner.abandoned(self)
        elif self.error is None:
            future.set_result(self.result)
        else:
            future.set_exception(self.error)


    def refuse(self, error: BaseException) -> None:
        """In the event loop of its future: its caller waits no longer."""
        if not self.is_over:
            cast("asyncio.Future[T]", self.future).set_exception(error)


class Step(Entry[T]):
    """A step that shares nothing but the commit."""

    __slots__ = ("_step",)

    def __init__(
        self, step: Callable[[Any], T], *, durable: bool = True, before: Callable[[], None] | None = None
    ) -> None:
        super().__init__(self, durable=durable, before=before)
        self._step = step

    def step(self, tx: Any, entries: Sequence[Any]) -> None:
        self.result = self._step(tx)

    def committed(self, entries: Sequence[Any]) -> None: ...

    def abandoned(self, entry: Any) -> None: ...


class Ready(Generic[T_co]):
    """An answer that is there already, for those who await it."""

    __slots__ = ("_value",)

    def __init__(self, value: T_co) -> None:
        self._value = value

    def __await__(self) -> Generator[Any, None, T_co]:
        yield from ()
        return self._value


class Work:
    """What one owner does in a group: one step for all its entries."""

    __slots__ = ("_mutex", "entries", "error", "owner", "taken")

    def __init__(self, owner: Owner, mutex: threading.Lock) -> None:
        self.owner = owner
        self.entries: list[Entry[Any]] = []
        self.taken = self.entries  # also those that had given up when it began
        self.error: BaseException | None = None
        self._mutex = mutex

    @property
    def durable(self) -> bool:
        return any(entry.durable for entry in self.entries)

    def begin(self) -> bool:
        """From here on its callers cannot take it back. False: all have given up."""
        now = time.monotonic()
        with self._mutex:
            begun = []
            for entry in self.taken:
                if entry.state is WAITING and now < entry.until and not entry.is_cancelled:
                    entry.state = RUNNING
                    begun.append(entry)
                else:
                    entry.state = GONE  # past its deadline: its caller finds that it waited in vain
            self.entries = begun
        return bool(begun)

    def step(self, tx: Any) -> None:
        self.owner.step(tx, self.entries)

    def fail(self, error: BaseException) -> None:
        self.error = error

    def answer(self) -> None:
        """It is over, but nobody is told yet who does not look by himself."""
        if self.error is None and self.entries:
            safely(partial(self.owner.committed, self.entries))
        lost: list[Entry[Any]] = []
        with self._mutex:
            for entry in self.entries:
                entry.error = entry.error or self.error
                if entry.state is not GONE:
                    entry.state = DONE
                elif entry.error is None:
                    lost.append(entry)
        for entry in lost:
            self.owner.abandoned(entry)


def grouped(entries: Sequence[Entry[Any]], mutex: threading.Lock) -> list[Work]:
    """By owner, in the order in which they came."""
    works: dict[Owner, Work] = {}
    for entry in entries:
        work = works.get(entry.owner)
        if work is None:
            work = works[entry.owner] = Work(entry.owner, mutex)
        work.entries.append(entry)
    return list(works.values())


def safely(call: Callable[[], None]) -> None:
    """After a commit: it has happened, whatever this raises."""
    try:
        call()
    except Exception:
        logger.exception("what follows a commit failed")
