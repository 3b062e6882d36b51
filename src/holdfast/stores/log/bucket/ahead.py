"""Claims ahead for a caller that takes, completes and takes again, where processes take turns at a head.

Its next claim goes with the completion, in the same replacement: else each batch would need two of them, and while
others have their turn the caller would have nothing to do. What is not asked for at once is given back.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from ...records import Claims, Expired, Settlement

KEPT = 0.3  # seconds for which messages are held that nobody has asked for
_SOON = 0.1  # seconds after a completion in which a caller that goes on claims again
_HABIT = 1  # times it was seen to do so


class Habit:
    """What the callers of one queue do: nothing is claimed ahead unless there is one, and it goes on."""

    def __init__(self) -> None:
        self._asked = (0, 0.0)  # messages and lease of the last claim
        self._open: set[str] = set()  # what it gave
        self._claiming = 0
        self._times = 0
        self._settled_at = float("-inf")

    def claims(self, limit: int, lease: float) -> None:
        """A claim begins."""
        goes_on = not self._claiming and not self._open and time.monotonic() - self._settled_at < _SOON
        self._times = self._times + 1 if goes_on and self._asked == (limit, lease) else 0
        self._asked = limit, lease
        self._claiming += 1

    def claimed(self, claims: Claims | None) -> None:
        """It is over."""
        self._claiming -= 1
        messages = claims.messages if claims is not None else []
        self._open = {each.id for each in messages}
        if len(messages) < self._asked[0]:
            self._times = 0

    def next(self, settlements: Sequence[Settlement]) -> tuple[int, float] | None:
        """These are about to be settled: messages and lease of the claim that will follow, most likely."""
        if self._claiming or not self._open or self._times < _HABIT:
            return None
        ended = {each.id for each in settlements if each.action == "complete"}
        return self._asked if self._open <= ended else None

    def settled(self, settlements: Sequence[Settlement]) -> None:
        self._open.difference_update(each.id for each in settlements)
        self._settled_at = time.monotonic()

    def broken(self) -> None:
        """It did not go on."""
        self._times = 0


class _Held(msgspec.Struct, frozen=True, eq=False):
    """A claim that nobody has asked for yet."""

    asked: tuple[int, float]
    claim: asyncio.Task[Claims]


class Ahead:
    """One per store; `claim` and `settle` are the store's own."""

    def __init__(
        self,
        claim: Callable[[str, int, float], Awaitable[tuple[Claims, Any]]],
        settle: Callable[[str, Sequence[Settlement]], Awaitable[Any]],
    ) -> None:
        self._claim = claim
        self._settle = settle
        self._habits: dict[str, Habit] = {}
        self._held: dict[str, _Held] = {}
        self._gone: dict[str, list[Expired]] = {}  # told to whoever claims next
        self._returning: set[asyncio.Task[None]] = set()

    def habit(self, queue: str) -> Habit:
        return self._habits.setdefault(queue, Habit())

    def begin(self, queue: str, settlements: Sequence[Settlement]) -> None:
        """These are about to be settled: claim with them what will be asked for next."""
        asked = self.habit(queue).next(settlements)
        if asked is None or queue in self._held:
            return
        held = self._held[queue] = _Held(asked, asyncio.create_task(self._claimed(queue, *asked)))
        held.claim.add_done_callback(partial(self._keep, queue, held))

    async def _claimed(self, queue: str, limit: int, lease: float) -> Claims:
        return (await self._claim(queue, limit, lease))[0]

    async def take(self, queue: str, limit: int, lease: float) -> Claims | None:
        """What was claimed ahead for this call, if anything was."""
        held = self._held.get(queue)
        if held is not None and held.asked == (limit, lease):
            try:
                claims = await asyncio.shield(held.claim)
            except asyncio.CancelledError:
                raise  # it is kept, then given back
            except Exception:  # noqa: BLE001  the call claims for itself, and learns what is wrong
                claims = Claims([])
            if self._held.pop(queue, None) is held and (claims.messages or claims.expired):
                return claims
        elif held is not None:
            self._give_back(queue, held)
        gone = self._gone.pop(queue, None)
        return Claims([], gone) if gone else None

    def _keep(self, queue: str, held: _Held, claim: asyncio.Task[Claims]) -> None:
        if claim.cancelled() or claim.exception() is not None:
            if self._held.get(queue) is held:
                del self._held[queue]
        else:
            asyncio.get_running_loop().call_later(KEPT, self._give_back, queue, held)

    def _give_back(self, queue: str, held: _Held) -> None:
        """Nobody came: the messages go back without costing an attempt."""
        if self._held.get(queue) is held:
            del self._held[queue]
            self.habit(queue).broken()
            task = asyncio.ensure_future(self._returned(queue, held))
            self._returning.add(task)
            task.add_done_callback(self._over)

    async def _returned(self, queue: str, held: _Held) -> None:
        claims = await held.claim
        self._gone.setdefault(queue, []).extend(claims.expired)
        if claims.messages:
            await self._settle(queue, [Settlement(each.id, each.token, "release") for each in claims.messages])

    def _over(self, task: asyncio.Task[None]) -> None:
        self._returning.discard(task)
        if not task.cancelled():
            task.exception()  # their leases will expire

    async def close(self) -> None:
        for queue, held in list(self._held.items()):
            self._give_back(queue, held)
        if self._returning:
            await asyncio.wait(self._returning)
