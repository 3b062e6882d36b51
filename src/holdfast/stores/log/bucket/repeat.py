"""Waiting until what was born at an instant can be created by nobody any more: only then its absence means anything."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from ....errors import UnknownOutcome
from ..head import repeat
from ..space import Unclear

if TYPE_CHECKING:
    from .space import CloudSpace

T = TypeVar("T")
_NAP = 1.0  # seconds after which the clock is looked at again


async def outlast(space: CloudSpace, birth: float) -> None:
    over = birth + space.window + repeat.MARGIN
    while space.clock() < over:  # noqa: ASYNC110 - what is waited for is the store's clock, which nobody signals
        await asyncio.sleep(min(over - space.clock(), _NAP))


class Repeat:
    """`UnknownOutcome.retry` of an append: what never arrived is added, under the ids it was to have.

    Its own write can get lost, too. So repeats go one by one, each after the window of the one before.
    `write` begins to write messages by their places, and answers the birth of their blocks and the writing.
    """

    def __init__(
        self,
        space: CloudSpace,
        ids: list[str],
        birth: float,
        *,
        found: Callable[[Sequence[str]], Awaitable[list[bool]]],
        write: Callable[[list[int]], tuple[float, Awaitable[object]]],
    ) -> None:
        self._space = space
        self._ids = ids
        self._birth = birth
        self._found = found
        self._write = write
        self._turn = asyncio.Lock()

    async def __call__(self) -> list[str]:
        async with self._turn:
            await outlast(self._space, self._birth)
            there = await self._found(self._ids)
            missing = [place for place, is_there in enumerate(there) if not is_there]
            if missing:
                self._birth, writing = self._write(missing)
                try:
                    await writing
                except Unclear as error:
                    raise UnknownOutcome(str(error), ids=self._ids, retry=self) from error
        return self._ids
