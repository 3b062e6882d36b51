"""Exactly once by name, where a space has no transactions: a promise holds the block that it stands for.

Whoever wants to add a block under a name (a dedup key, a replayed message) first writes the promise: what it says,
and the block's key and bytes. Then the block is created, then the promise is confirmed and holds no bytes any more.
Whoever finds an unconfirmed promise creates the block; being there already is proof. After the repeat window nobody
can create it any more: then the messages themselves tell whether it ever was.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from ....errors import HoldfastError, Unavailable
from .. import names
from ..space import Transaction
from .repeat import outlast

if TYPE_CHECKING:
    from .space import CloudSpace

_SURE = 5.0  # seconds before the end of the window in which a block is still created


class Promise(msgspec.Struct, frozen=True, array_like=True):
    """`said` is what the name stands for; without a key it is confirmed."""

    at: float
    said: Any
    key: str = ""
    data: bytes = b""
    by: str = ""  # whoever made it, by whose clock `at` is


Decide = Callable[[Transaction, Promise | None], Promise | None]


def decode(data: bytes) -> Promise:
    return msgspec.msgpack.decode(data, type=Promise)


class Promises:
    """Keeps promises of one queue and process."""

    def __init__(self, space: CloudSpace, *, timeout: float, topic: str) -> None:
        self._space = space
        self._timeout = timeout
        self._topic = topic

    async def keep(
        self,
        name: str,
        decide: Decide,
        was_kept: Callable[[Promise], Awaitable[bool]],
        *,
        within: float | None = None,
    ) -> Promise:
        """What the name stands for in the end. `decide` gets the promise that holds and answers a new one, or None.

        A promise that was never kept does not hold: `was_kept` looks for its messages when nothing else can tell.
        `within` seconds, for all requests together; the store's timeout when left out.
        """
        broken: Promise | None = None
        until = time.monotonic() + (self._timeout if within is None else within)
        while True:
            before, promise = await self._space.transact(
                lambda tx, broken=broken: _decide(tx, name, decide, broken),  # type: ignore[misc]  # bound now
                deadline=_left(until),
            )
            if not promise.key:
                return promise
            if promise is not before or self._is_timely(promise):
                await self._space.transact(
                    lambda tx, kept=promise: self._create(tx, kept),  # type: ignore[misc]  # bound now
                    deadline=_left(until),
                )
            else:
                await outlast(self._space, names.birth_of(promise.key) or 0.0)
                until = time.monotonic() + self._timeout  # that was no request
                if not await was_kept(promise):
                    broken = promise
                    continue
            await self._confirm(name, promise, _left(until))
            if promise is not before:
                return promise
            if not _left(until):
                raise Unavailable(f"the store took longer than {self._timeout:g} s; nothing was done")

    async def _confirm(self, name: str, promise: Promise, seconds: float) -> None:
        """Not needed, so only where time is left: whoever comes next can tell as we could."""
        if seconds:
            with contextlib.suppress(HoldfastError):
                await self._space.transact(lambda tx: _confirm(tx, name, promise), deadline=seconds)

    def _is_timely(self, promise: Promise) -> bool:
        return self._space.clock() - (names.birth_of(promise.key) or 0.0) < self._space.window - _SURE

    def _create(self, tx: Transaction, promise: Promise) -> None:
        tx.create(promise.key, promise.data)
        tx.signal(self._topic)


def _left(until: float) -> float:
    return max(0.0, until - time.monotonic())


def _decide(tx: Transaction, name: str, decide: Decide, broken: Promise | None) -> tuple[Promise | None, Promise]:
    """The promise as found, and the one to keep: that one, or a new one that is written here."""
    found = tx.get(name)
    before = decode(found.data) if found is not None else None
    holds = None if before is not None and broken is not None and before.key == broken.key else before
    if holds is not None and holds.key:
        return holds, holds  # first see to it that this one is kept
    new = decide(tx, holds)
    if new is None:
        assert holds is not None
        return holds, holds
    tx.put(name, msgspec.msgpack.encode(new), proof=lambda data: data is not None and decode(data).said == new.said)
    return before, new


def _confirm(tx: Transaction, name: str, promise: Promise) -> None:
    found = tx.get(name)
    if found is not None and decode(found.data).key == promise.key:
        tx.put(name, msgspec.msgpack.encode(Promise(promise.at, promise.said, by=promise.by)))
