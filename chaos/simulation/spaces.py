"""The simulated spaces by policy: what a scene asks of each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from holdfast.config import StoreOptions
from holdfast.stores import log
from holdfast.stores.log.bucket import address, clock, probe

from . import seams
from .baton import World
from .bucket import Bucket, Door
from .database import OnDatabase
from .faults import Dice
from .heads import Heads
from .plan import Plan
from .workload import MOVED, QUEUE

_MAY_STAY = ("/dead/", "/parts/", "/late/")  # dead letters, parts of what was given up, what waits for `recover`
_PROBED: dict[str, Callable[..., Any]] = {  # what is known of the simulated server; a third of all requests else
    "_must_refuse": lambda *_: None,
    "_replace": lambda wire, key, tag, until: tag,
    "_race": lambda *_: None,
}
Watch = Callable[[str, bytes | None, bytes | None], None]


class Simulated(Protocol):
    """One per seed."""

    watchers: list[Watch]
    request_made: Callable[[int], None]
    slack: float  # seconds by which the clocks of processes may differ

    @property
    def requests(self) -> int: ...

    def in_place(self) -> contextlib.AbstractContextManager[None]:
        """Meanwhile the shipped code that opens a store finds this space."""

    async def open(self, name: str, options: StoreOptions) -> Any:
        """A store as the shipped code makes it, for the process that asks."""

    def gone(self, name: str) -> None:
        """A process has ended, or was killed."""

    def rewrite(self, share: float, *, keep_tags: bool) -> None: ...

    async def recover(self, client: Any) -> None:
        """As an operator does who has rewritten the dates of objects."""

    def empty(self) -> None:
        """After a drain: whatever should be gone is."""


def simulated(plan: Plan, world: World, dice: Dice, breach: Callable[[str], None]) -> Simulated:
    return (OnBucket if plan.policy == "bucket" else OnDatabase)(plan, world, dice, breach)


class _ByProcess(dict[Any, Any]):
    """What real processes keep to themselves because each has its own memory."""

    def setdefault(self, key: Any, default: Any = None) -> Any:
        return super().setdefault((seams.world().process.name, key), default)


class OnBucket:
    """The real CloudSpace and LateStore on a simulated server."""

    slack = 1.0  # dates are whole seconds

    def __init__(self, plan: Plan, world: World, dice: Dice, breach: Callable[[str], None]) -> None:
        self._plan = plan
        self._bucket = Bucket(world, dice)
        self._bucket.trip = plan.trip
        self._is_rewritten = False
        self._breach = breach
        self._heads = Heads(self._bucket.objects, breach)
        self._bucket.watchers.append(self._heads.changed)
        self.watchers = self._bucket.watchers

    @property
    def request_made(self) -> Callable[[int], None]:
        return self._bucket.request_made

    @request_made.setter
    def request_made(self, call: Callable[[int], None]) -> None:
        self._bucket.request_made = call

    @property
    def requests(self) -> int:
        return self._bucket.requests

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        door = Door(self._bucket, timeout=self._plan.timeout)
        before = address.bucket, clock._clocks
        address.bucket, clock._clocks = lambda *_: door, _ByProcess()
        tests = {name: vars(probe)[name] for name in _PROBED}
        for name, answer in _PROBED.items():
            setattr(probe, name, answer)
        try:
            yield
        finally:
            address.bucket, clock._clocks = before
            for name, test in tests.items():
                setattr(probe, name, test)

    async def open(self, name: str, options: StoreOptions) -> Any:
        return await log.open_cloud("s3://simulated", options)

    def gone(self, name: str) -> None:
        """What it has sent may still arrive."""

    def rewrite(self, share: float, *, keep_tags: bool) -> None:
        self._is_rewritten = True
        self._bucket.rewrite(share, keep_tags=keep_tags)

    async def recover(self, client: Any) -> None:
        if self._is_rewritten:
            for queue in (QUEUE, MOVED) if client.plan.moves else (QUEUE,):
                await client.call("recover", client.store.recover(queue))

    def empty(self) -> None:
        for part in ("/inbox/", "/later/"):
            if left := [key for key in self._bucket.named(part) if not any(part in key for part in _MAY_STAY)]:
                self._breach(f"left after the drain: {left[:3]}")
        for key in self._bucket.named("/head"):
            head = self._heads.head(key)
            if (
                head is not None
                and not key.endswith("/dead/head")
                and (head.blocks or head.beyond.graveyard or head.leases)
            ):
                self._breach(f"{key} is not empty: {len(head.blocks)} blocks, {len(head.beyond.graveyard)} buried")
