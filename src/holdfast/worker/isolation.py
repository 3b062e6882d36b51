"""Isolation, one per open store: keeps messages that may have killed a process before from taking others with them.

While it is closed nobody claims; it stays closed until the dangerous message is settled. If that kills the process
again, nothing else was in flight. Messages whose lease had expired are suspects: while they run nothing is claimed, for
a while, so that few others run when they strike again, and none of those is on its last attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Protocol
from weakref import WeakKeyDictionary

from ..stores.base import Store
from .in_flight import Job

_CAUTION_S = 5.0  # a suspect keeps others from being claimed for so long


class Member(Protocol):
    """A worker, as others of its store see it."""

    def recall(self) -> None:
        """End a claim that only waits."""

    def quiet(self) -> bool:
        """No claim under way and nothing held, apart from the message that asks to be alone."""


class Isolation:
    """Open as long as nothing dangerous is at hand."""

    def __init__(self) -> None:
        self._members: set[Member] = set()
        self._opened = asyncio.Event()
        self._opened.set()
        self._changed = asyncio.Event()
        self._suspects: set[Job] = set()
        self._calm = asyncio.Event()
        self._calm.set()

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

    def suspect(self, jobs: Iterable[Job]) -> None:
        """These come from leases that had expired."""
        self._suspects.update(jobs)
        if self._suspects:
            self._calm.clear()

    def settled(self, jobs: Iterable[Job]) -> None:
        """These are over."""
        if self._suspects:
            self._suspects.difference_update(jobs)
            if not self._suspects:
                self._calm.set()
        if not self.is_open:
            self.changed()

    async def calm(self) -> None:
        """Wait until no suspect runs; not for ever, since most are innocent and some are slow."""
        try:
            async with asyncio.timeout(_CAUTION_S):
                await self._calm.wait()
        except TimeoutError:
            self._suspects.clear()
            self._calm.set()

    async def opened(self) -> None:
        """Wait until claims are allowed."""
        await self._opened.wait()

    def is_quiet(self) -> bool:
        """Nothing is held in this process, apart from the message that asks."""
        return all(member.quiet() for member in self._members)

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Close it, wait until every member is quiet, and keep it closed inside. One at a time: see `is_open`."""
        assert self.is_open
        self._opened.clear()
        try:
            for member in list(self._members):
                member.recall()
            while not self.is_quiet():
                self._changed.clear()
                await self._changed.wait()
            yield
        finally:
            self._opened.set()


def isolation_of(store: Store) -> Isolation:
    """What all workers of one open store share."""
    return _ISOLATIONS.setdefault(store, Isolation())


_ISOLATIONS: WeakKeyDictionary[Store, Isolation] = WeakKeyDictionary()
