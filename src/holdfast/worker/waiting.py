"""A store that is not there yet: `holdfast worker run` and `serve` wait for it, with one line a minute."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from typing import Any

from ..errors import Unavailable
from ..escaping import logger_named
from .outage import AWAY
from .signals import caught

_LOG = logger_named("holdfast.worker")
LINE_S = 60.0  # seconds between two lines that say the same


async def opened(open: Callable[[], Awaitable[Any]], *, wait: bool) -> bool:
    """True once the store is open; False: SIGTERM or SIGINT came first. Unavailable unless `wait`."""
    stopping = asyncio.Event()
    with caught(stopping.set):
        opening = asyncio.ensure_future(_open(open) if wait else open())
        ending = asyncio.ensure_future(stopping.wait())
        await asyncio.wait({opening, ending}, return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if not opening.done():
            opening.cancel()
            await asyncio.wait({opening})
            return False
    opening.result()
    return True


async def _open(open: Callable[[], Awaitable[Any]]) -> None:
    next_line = time.monotonic()
    for attempt in itertools.count(1):
        try:
            await open()
        except Unavailable as error:
            if time.monotonic() >= next_line:
                _LOG.warning("waiting for the store (--no-wait ends instead): %s", error)
                next_line = time.monotonic() + LINE_S
        else:
            if attempt > 1:
                _LOG.warning("the store is there")
            return
        await asyncio.sleep(AWAY.after(attempt))
