"""How long a call may still take. Every wait below it asks here, so that no sum of waits passes the call's end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context, ContextVar
from typing import Any, TypeVar

from .faults import Lost

T = TypeVar("T")


class _Deadline:
    """Shared by everything that one call starts."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.at = time.monotonic() + seconds


_current: ContextVar[_Deadline | None] = ContextVar("holdfast_nats_deadline", default=None)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """A call that ends by then; a call inside another has the outer one's end."""
    if _current.get() is not None:
        yield
        return
    token = _current.set(_Deadline(seconds))
    try:
        yield
    finally:
        _current.reset(token)


def left(most: float) -> float:
    """Seconds that a wait may take: so many at most, none when the call's time is over."""
    found = _current.get()
    return most if found is None else max(0.0, min(most, found.at - time.monotonic()))


def until(most: float) -> float:
    """The same as an instant of `time.monotonic`."""
    return time.monotonic() + left(most)


def is_over() -> bool:
    return left(1.0) <= 0


def renew() -> None:
    """A slice of a call that handles any number of messages or bytes is done: the next one has the whole time."""
    if (found := _current.get()) is not None:
        found.at = max(found.at, time.monotonic() + found.seconds)


async def answer(future: asyncio.Future[T], until: float) -> T:
    """What comes by then, and by the call's end, which other answers may move meanwhile; Lost."""
    while not future.done():
        seconds = left(until - time.monotonic())
        if seconds <= 0:
            raise Lost("no answer in time")
        await asyncio.wait((future,), timeout=seconds)
    return future.result()


@asynccontextmanager
async def holding(lock: asyncio.Lock | asyncio.Semaphore, most: float) -> AsyncIterator[None]:
    """`async with lock`, but no wait for it beyond the call's end; Lost."""
    try:
        async with asyncio.timeout(left(most)):
            await lock.acquire()
    except TimeoutError:
        raise Lost("no answer in time") from None
    try:
        yield
    finally:
        lock.release()


def apart(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task that outlives the call that starts it, so with no deadline of that call."""
    return asyncio.get_running_loop().create_task(work, context=Context())
