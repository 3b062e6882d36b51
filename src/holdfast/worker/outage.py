"""Calls to a store that may be away: repeated until they work, with growing pauses, logged once per outage."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..errors import ConfigError, Fenced, HoldfastError, MessageError, Unavailable, UnknownOutcome, UnsafeStore
from ..escaping import logger_named
from ..retry import Exponential

AWAY = Exponential(base=0.05, cap=5.0)  # seconds: a store that is back is used again after 5 s at most
_LOG = logger_named("holdfast.worker")
PASSING = (Unavailable, UnknownOutcome, OSError, TimeoutError)  # the store is away, whatever it was asked
FINAL = (ConfigError, Fenced, UnsafeStore, MessageError)  # trying again cannot help
T = TypeVar("T")


class Refused(Exception):
    """The store is there and said no: to one of the things it was asked, or to all."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Outage:
    """What all loops of a worker know about the store: an outage is logged when it begins and when it is over."""

    def __init__(self) -> None:
        self._failing: set[str] = set()

    def failed(self, doing: str, error: Exception) -> None:
        if not self._failing:
            # our own errors say what is wrong in a sentence; anything else is a surprise and shows where it comes from
            surprise = None if isinstance(error, HoldfastError | OSError) else error
            _LOG.warning("cannot %s, trying again: %s: %s", doing, type(error).__name__, error, exc_info=surprise)
        self._failing.add(doing)

    def worked(self, doing: str) -> None:
        if doing in self._failing:
            self._failing.discard(doing)
            if not self._failing:
                _LOG.info("the store is back: can %s again", doing)


class Retrying:
    """One loop's dealings with the store."""

    def __init__(self, outage: Outage, doing: str) -> None:
        self._outage = outage
        self._doing = doing
        self._failures = 0
        self.well = asyncio.Event()
        self.well.set()

    async def until_done(self, call: Callable[[], Awaitable[T]]) -> T:
        """The answer of the call, however many tries it takes."""
        while True:
            try:
                answer = await call()
            except (*FINAL, Refused):
                raise
            except Exception as error:  # noqa: BLE001 - a store that breaks must not end the worker
                await self.pause(error)
            else:
                if self._failures:
                    self._recover()
                return answer

    async def pause(self, error: Exception) -> None:
        """Nothing works now: others hear of it, and a while passes."""
        self._outage.failed(self._doing, error)
        self._failures += 1
        self.well.clear()
        await asyncio.sleep(AWAY.after(self._failures))

    def _recover(self) -> None:
        self._outage.worked(self._doing)
        self._failures = 0
        self.well.set()
