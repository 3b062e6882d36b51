"""Named steps of several clients, forced into one order: for races that must be tried and not hoped for.

    await interleave(
        a=[("claim", claim_a), ("complete", complete_a)],
        b=[("claim", claim_b)],
        order="a.claim b.claim a.complete",
    )

A client that has points inside its calls reports them through `Stage.hook(client)`; a point that the order names waits
for its turn, every other one is passed. A turn ends when its step is over or waits at such a point.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

Script: TypeAlias = Sequence[tuple[str, Callable[[], Awaitable[Any] | Any]]]


async def interleave(*, order: str, **clients: Script) -> dict[str, Any]:
    """Run the scripts in this order; what each step gave, or the exception it raised, by `client.step`."""
    return await Stage(order).run(**clients)


class Stage:
    """One run: whose turn it is, and what came of it."""

    def __init__(self, order: str, *, patience: float = 10.0) -> None:
        self._left = deque(order.split())
        self._patience = patience
        self._acting: str | None = None  # the client whose turn it is
        self._moved = asyncio.Condition()
        self._results: dict[str, Any] = {}

    def hook(self, client: str) -> Callable[[str], Awaitable[None]]:
        """What a client awaits at each of its inner points, with the point's name."""

        async def reach(point: str) -> None:
            name = f"{client}.{point}"
            if name in self._left:
                await self._end_turn(client)
                await self._take_turn(client, name)

        return reach

    async def run(self, **clients: Script) -> dict[str, Any]:
        """Run the scripts; AssertionError when the order cannot go on."""
        for client, script in clients.items():
            for step, _ in script:
                if f"{client}.{step}" not in self._left:
                    raise ValueError(f"the order does not name {client}.{step}")
        async with asyncio.TaskGroup() as group:
            for client, script in clients.items():
                group.create_task(self._play(client, script))
        if self._left:
            raise AssertionError(f"nobody came to {self._left[0]}")
        return self._results

    async def _play(self, client: str, script: Script) -> None:
        for step, function in script:
            name = f"{client}.{step}"
            await self._take_turn(client, name)
            try:
                answer = function()
                self._results[name] = await answer if inspect.isawaitable(answer) else answer
            except Exception as error:  # noqa: BLE001 - what a step raises is its result
                self._results[name] = error
            finally:
                await self._end_turn(client)

    async def _take_turn(self, client: str, name: str) -> None:
        def is_mine() -> bool:
            return self._acting is None and bool(self._left) and self._left[0] == name

        async with self._moved:
            try:
                await asyncio.wait_for(self._moved.wait_for(is_mine), self._patience)
            except TimeoutError:
                raise AssertionError(f"{name} waits, but the order stands before {self._left[0]}") from None
            self._left.popleft()
            self._acting = client

    async def _end_turn(self, client: str) -> None:
        async with self._moved:
            if self._acting == client:
                self._acting = None
                self._moved.notify_all()
