"""A store that is not there yet: `holdfast worker run` waits for it, with one line a minute."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any, Protocol

from ..errors import Unavailable
from ..escaping import logger_named
from .outage import AWAY
from .signals import caught

_LOG = logger_named("holdfast.worker")
LINE_S = 60.0  # seconds between two lines that say the same


class Opens(Protocol):
    """A `holdfast.App`, which stands above its workers."""

    async def open(self) -> Any: ...

    async def close(self) -> None: ...


async def opened(app: Opens, *, wait: bool) -> bool:
    """True once the app's store is open; False: SIGTERM or SIGINT came first. Unavailable unless `wait`."""
    stopping = asyncio.Event()
    with caught(stopping.set):
        opening = asyncio.ensure_future(_open(app) if wait else app.open())
        ending = asyncio.ensure_future(stopping.wait())
        await asyncio.wait({opening, ending}, return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if not opening.done():
            opening.cancel()
            await asyncio.wait({opening})
            return False
    opening.result()
    return True


async def _open(app: Opens) -> None:
    next_line = time.monotonic()
    for attempt in itertools.count(1):
        try:
            await app.open()
        except Unavailable as error:
            if time.monotonic() >= next_line:
                _LOG.warning("waiting for the store (--no-wait ends instead): %s", error)
                next_line = time.monotonic() + LINE_S
        else:
            if attempt > 1:
                _LOG.warning("the store is there")
            return
        await asyncio.sleep(AWAY.after(attempt))
