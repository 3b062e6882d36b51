"""The driver's side of a consumer: owning it, staying alive, and giving it up."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from types import FrameType
from typing import Any

from ..errors import Fenced, HoldfastError
from ..escaping import logger_named
from ..lifetime import CLOSING_S
from ..loop_thread import portal
from ..stores.base import LOOK_AGAIN_S
from ..stores.batches import Ownership, Taken
from . import holder
from .link import Link
from .options import Streaming

logger = logger_named("holdfast.spark")
_OWNER_GRACE_S = 5.0  # beyond the lease of an owner that may be dead


class Owner:
    """An ownership that is kept alive in the background until it is given up."""

    def __init__(self, at: Link, options: Streaming) -> None:
        self._at = at
        self._options = options
        self._lock = threading.Lock()
        self.ownership = self._own()
        self._beating = asyncio.run_coroutine_threadsafe(self._beat(), portal().loop())
        self._given_up = False
        _on_sigterm(self)

    def _own(self) -> Ownership:
        """Own the consumer; an owner that died without a word is waited for."""
        deadline = time.monotonic() + self._options.lease + _OWNER_GRACE_S
        instead_of: str | None = None
        while True:
            try:
                return self._at.run(
                    self._at.batches.own(
                        self._options.place.named,
                        self._options.consumer,
                        holder=holder.myself(),
                        lease=self._options.lease,
                        release_after=self._options.release_after,
                        instead_of=instead_of,
                    )
                )
            except Taken as taken:
                instead_of = taken.holder if holder.is_gone(taken.holder) else None
                if instead_of is None:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(LOOK_AGAIN_S)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._options.lease / 3)
            try:
                await self._at.batches.beat(self.ownership, self._options.lease)
            except Fenced as error:
                logger.error("%s", error)
                return  # the next claim or settle says so too
            except HoldfastError as error:
                logger.warning("consumer %s: no heartbeat: %s", self._options.consumer, error)

    def give_up(self) -> None:
        """Let the next owner in at once."""
        with self._lock:
            if self._given_up:
                return
            self._given_up = True
        self._beating.cancel()
        with contextlib.suppress(HoldfastError, TimeoutError):
            asyncio.run_coroutine_threadsafe(self._last_words(), portal().loop()).result(CLOSING_S)

    async def _last_words(self) -> None:
        """Also archive what the last batch ended: this process may be the last that looks at the queue for long."""
        await self._at.batches.beat(self.ownership, 0.0)
        await self._at.batches.flush(self.ownership.queue)


def _on_sigterm(owner: Owner) -> None:
    """Spark ends the process of a source by a signal; give the consumer up first."""
    if threading.current_thread() is not threading.main_thread():
        return
    before: Any = signal.getsignal(signal.SIGTERM)

    def handle(number: int, frame: FrameType | None) -> None:
        owner.give_up()
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)

    signal.signal(signal.SIGTERM, handle)
