"""What differs where a write may be repeated or arrive late: one policy per partition, and one that adds nothing.

An atomic space never answers ambiguously and changes several keys in one step: `Atomic`. Buckets have a window of some
seconds: `bucket/repeat_window.py`. The engine is written once, and asks its policy where the two differ.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ...ids import Ids
from . import damage, intake, letters, names
from .head.state import Head, Intent, Result, Rules
from .intake import Absorbable, Survey
from .space import Space, Stale, Transaction

if TYPE_CHECKING:
    from .append import Call
    from .commit import Committer
    from .edit import Seen, Session
    from .head.state import Block
    from .rows import Rows

Proof: TypeAlias = Callable[[bytes | None], bool]  # whether some version of an object was the one that we wrote


class Asked(Protocol):
    """What one caller asks of a commit."""

    @property
    def intents(self) -> Sequence[Intent]: ...

    failure: Exception | None  # it was carried out, but its messages cannot be read


class RepeatWindow(Protocol):
    """Of one partition in one process."""

    reads_twice: bool  # what cannot be read is read again before it counts as damaged: the network may be to blame

    def serve(self, committer: Committer) -> None:
        """The partition's committer, once it is made."""

    def token(self) -> str:
        """For a claim."""

    def rules(self, rules: Rules, now: float) -> Rules:
        """What the window adds to the queue's rules; `now` is of the view that they are for."""

    def append(self, calls: list[Call]) -> asyncio.Future[None] | None:
        """Begin to write what was called for; None: one transaction does it, whatever it is."""

    async def replay_archived(self, queue: str, found: Sequence[letters.Original]) -> int:
        """Copy archived messages back, each once; how many were not copied before."""

    # Commits.

    def gather_s(self) -> float | None:
        """Seconds for which the next commit waits for further callers; None: it begins at once."""

    def begins(self, waiting: Sequence[Asked]) -> None:
        """A commit for those who wait is about to begin."""

    def intake(self, survey: Survey, tx: Transaction, demand: int, asked: Sequence[Asked] = ()) -> Absorbable:
        """The partition, the blocks to absorb for claims of so many messages, and when the next delayed one is due."""

    def tidying(self, head: Head) -> list[Intent]:
        """What a commit does besides what was asked for."""

    def sign(self, session: Session) -> Proof | None:
        """Mark the head that is about to be written, so that a lost answer can be found out."""

    def given(self, session: Session, asked: Sequence[Asked], results: Sequence[Result]) -> None:
        """A commit has decided which messages it gives."""

    def load(self, session: Session, request: Asked, numbers: set[int]) -> dict[int, tuple[Block, Rows]]:
        """The blocks that the answer to a request is about."""

    def ended(self, head: Head) -> None:
        """A commit that callers had asked for has written this head."""

    def committed(self, head: Head) -> None:
        """Some commit has written this head."""

    async def sweep_staged(self, older_than: float) -> int:
        """Remove staged messages that were never published, older than so many seconds; how many blocks."""

    async def maintain(self) -> int:
        """Upkeep that only a window needs; how many objects were removed that nothing speaks of."""

    async def close(self) -> None:
        """Finish what is under way."""

    # Blocks that are not there.

    def left(self, key: str, *, sure: bool) -> None:
        """Return when a block may have left since the look; Damaged when it is lost, Stale when nobody can tell yet.

        `sure`: an earlier look has missed it, too.
        """

    def confirm_lost(self, tx: Transaction, seen: Seen, block: Block) -> None:
        """Raise unless a block that the head gave and that is not there is lost."""


class Atomic:
    """Where the window is 0: everything happens in one transaction, or not at all. One for all partitions."""

    reads_twice = False

    def __init__(self, space: Space, maker: Ids, *, timeout: float) -> None:
        self._space = space
        self._ids = maker
        self._timeout = timeout

    def serve(self, committer: Committer) -> None:
        return None

    def token(self) -> str:
        return os.urandom(8).hex()

    def rules(self, rules: Rules, now: float) -> Rules:
        return rules

    def append(self, calls: list[Call]) -> asyncio.Future[None] | None:
        return None

    async def replay_archived(self, queue: str, found: Sequence[letters.Original]) -> int:
        return await self._space.transact(
            lambda tx: letters.replay_archived(tx, queue, found, self._ids), deadline=self._timeout
        )

    def gather_s(self) -> float | None:
        return None

    def begins(self, waiting: Sequence[Asked]) -> None:
        return None

    def intake(self, survey: Survey, tx: Transaction, demand: int, asked: Sequence[Asked] = ()) -> Absorbable:
        if not demand:
            return intake.unlisted(survey, tx)
        try:
            return intake.absorbable(survey, tx, demand)
        except names.BadKey:
            return intake.absorbable_named(survey, tx, demand)

    def tidying(self, head: Head) -> list[Intent]:
        return []

    def sign(self, session: Session) -> Proof | None:
        return None

    def given(self, session: Session, asked: Sequence[Asked], results: Sequence[Result]) -> None:
        return None

    def load(self, session: Session, request: Asked, numbers: set[int]) -> dict[int, tuple[Block, Rows]]:
        return {no: session.block(no) for no in numbers}

    def ended(self, head: Head) -> None:
        return None

    def committed(self, head: Head) -> None:
        return None

    async def sweep_staged(self, older_than: float) -> int:
        return await self._space.sweep(older_than)

    async def maintain(self) -> int:
        return 0

    async def close(self) -> None:
        return None

    def left(self, key: str, *, sure: bool) -> None:
        raise damage.missing(key) if sure else Stale(key)

    def confirm_lost(self, tx: Transaction, seen: Seen, block: Block) -> None:
        return None
