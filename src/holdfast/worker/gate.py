"""One gate per broker: lets a message that may have killed its process before run alone in this one.

While the gate is closed nobody claims; it stays closed until the dangerous message is settled. If it kills the process
again, nothing else was in its hands.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol
from weakref import WeakKeyDictionary

from ..stores.base import Store


class Member(Protocol):
    """A worker, as the gate sees it."""

    def recall(self) -> None:
        """End a claim that only waits."""

    def quiet(self) -> bool:
        """No claim under way and nothing held, apart from the message that asks to be alone."""


class Gate:
    """Open as long as nothing dangerous is at hand."""

    def __init__(self) -> None:
        self._members: set[Member] = set()
        self._opened = asyncio.Event()
        self._opened.set()
        self._changed = asyncio.Event()

    @property
    def is_open(self) -> bool:
        return self._opened.is_set()

    def join(self, member: Member) -> None:
        self._members.add(member)

    def leave(self, member: Member) -> None:
        self._members.discard(member)
        self.changed()

    def changed(self) -> None:
        """A member may have become quiet."""
        self._changed.set()

    async def opened(self) -> None:
        """Wait until claims are allowed."""
        await self._opened.wait()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Close the gate, wait until every member is quiet, and keep it closed inside. One at a time: see `is_open`."""
        assert self.is_open
        self._opened.clear()
        try:
            for member in list(self._members):
                member.recall()
            while not all(member.quiet() for member in self._members):
                self._changed.clear()
                await self._changed.wait()
            yield
        finally:
            self._opened.set()


def gate_of(store: Store) -> Gate:
    """The gate that all workers of one open store share."""
    return _GATES.setdefault(store, Gate())


_GATES: WeakKeyDictionary[Store, Gate] = WeakKeyDictionary()
