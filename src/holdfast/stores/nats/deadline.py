"""How long a call may still take. Every wait below it asks here, so that no sum of waits passes the call's end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

# A server that is well answers in milliseconds; these are for one that is not. Seconds.
TRY_S = 5.0  # an unanswered request is asked again: less repeats what a busy server has not got to yet
ANSWER_S = 2.0  # what a call can do without is not awaited longer: a stopped server must not cost the whole call
RETRY_S = 0.1  # pause after a failure: less is a busy loop against a server that is down
POLL_S = 0.002  # pause between two looks at something that changes within milliseconds
RECOVERY_S = 10.0  # after a reconnect a missing stream may just not be back yet: a cluster elects its leaders first
FRESH_S = 1.0  # what was looked up is believed: so late is a change seen that no note told of


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


def apart(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task that outlives the call that starts it, so with no deadline of that call."""
    return asyncio.get_running_loop().create_task(work, context=Context())
