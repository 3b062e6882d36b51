"""What differs where a write may be repeated or arrive late: one policy per partition, and one that adds nothing.

An atomic space never answers ambiguously and changes several keys in one step: `Atomic`. Buckets have a window of some
seconds: `bucket/repeat_window.py`. The engine is written once, and asks its policy where the two differ.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

import msgspec

from ...ids import Ids
from . import damage, intake, letters, names, queues
from .cache import BlockCache
from .head.state import Frozen, Head, Intent, Purge, Result, Rules
from .intake import Absorbable, Survey
from .queues import Address, Config
from .space import Reading, Space, Transaction
from .staging import StagedInPlace, Staging

if TYPE_CHECKING:
    from .append import Call
    from .commit import Committer
    from .edit import Seen, Session
    from .head.state import Block
    from .lookup import Glance
    from .partition import Log
    from .rows import Rows

Proof: TypeAlias = Callable[[bytes | None], bool]  # whether some version of an object was the one that we wrote

# What a frozen set is written as, and under which rules; None: it is no longer there.
WrittenKeys: TypeAlias = Callable[[Reading], tuple[list[str], Rules] | None]


class Asked(Protocol):
    """What one caller asks of a commit."""

    @property
    def intents(self) -> Sequence[Intent]: ...

    failure: Exception | None  # it was carried out, but its messages cannot be read


class Home(msgspec.Struct, frozen=True):
    """The partition that a policy is for, and what it shares with the others of its store."""

    address: Address
    cache: BlockCache
    ids: Ids
    timeout: float
    found: Callable[[Sequence[str]], Awaitable[list[bool]]]  # which ids are messages of the queue, in whatever state


class RepeatWindow(Protocol):
    """Of one partition in one process."""

    staging: Staging
    has_bundles: bool  # several blocks of one call appear through a bundle, which lies in the inbox
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

    def intake(self, survey: Survey, tx: Transaction, demand: int) -> Absorbable:
        """The partition, the blocks to absorb for claims of so many messages, and when the next delayed one is due."""

    def tidying(self, head: Head) -> list[Intent]:
        """What a commit does besides what was asked for."""

    def sign(self, session: Session) -> Proof | None:
        """Mark the head that is about to be written, so that a lost answer can be found out."""

    def given(self, session: Session, results: Sequence[Result]) -> None:
        """A commit has decided which messages it gives."""

    def load(self, session: Session, request: Asked, numbers: set[int]) -> dict[int, tuple[Block, Rows]]:
        """The blocks that the answer to a request is about."""

    async def flush_name(self, frozen: Frozen, fresh: str, keys: WrittenKeys) -> str:
        """The name under which a set that somebody left frozen can still be written: its own, or a fresh one."""

    def archived(self, session: Session, key: str) -> None:
        """A flush that ends has written this archive file."""

    def committed(self, head: Head) -> None:
        """Some commit has written this head."""

    def purge(self, session: Session, glance: Glance) -> int:
        """Drop everything that is not held or settled; how many messages."""

    async def replay_dead(self, dead: Log, wanted: Sequence[str]) -> int:
        """Put dead letters back into their queue; how many."""

    # Queues.

    closing_s: float  # seconds for which others may believe in a queue that is deleted
    merge_after_s: float  # seconds after which nobody can write an archive file again

    def partitions(self, config: Config) -> int:
        """How many a queue has."""

    def unregister(self, tx: Transaction, queue: str) -> str:
        """Forget a queue; what lies under the root it answers belongs to nobody any more."""

    async def maintain(self) -> int:
        """Upkeep that only a window needs; how many objects were removed that nothing speaks of."""

    async def close(self) -> None:
        """Finish what is under way."""

    # Blocks that are not there.

    def left(self, view: Reading, root: str, block: Block) -> None:
        """Return when a block that two looks have missed may have left; Damaged when it is lost."""

    def confirm_lost(self, tx: Transaction, seen: Seen, block: Block) -> None:
        """Raise unless a block that the head gave and that is not there is lost."""


class Atomic:
    """Where the window is 0: everything happens in one transaction, or not at all."""

    has_bundles = False
    reads_twice = False
    closing_s = 0.0
    merge_after_s = 0.0

    def __init__(self, space: Space, home: Home) -> None:
        self.staging: Staging = StagedInPlace(space, home.ids)
        self._space = space
        self._home = home

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
            lambda tx: letters.replay_archived(tx, queue, found, self._home.ids), deadline=self._home.timeout
        )

    def gather_s(self) -> float | None:
        return None

    def begins(self, waiting: Sequence[Asked]) -> None:
        return None

    def intake(self, survey: Survey, tx: Transaction, demand: int) -> Absorbable:
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

    def given(self, session: Session, results: Sequence[Result]) -> None:
        return None

    def load(self, session: Session, request: Asked, numbers: set[int]) -> dict[int, tuple[Block, Rows]]:
        return {no: session.block(no) for no in numbers}

    async def flush_name(self, frozen: Frozen, fresh: str, keys: WrittenKeys) -> str:
        return frozen.flush

    def archived(self, session: Session, key: str) -> None:
        return None  # the database names it

    def committed(self, head: Head) -> None:
        return None

    def purge(self, session: Session, glance: Glance) -> int:
        dropped = 0
        for block in list(glance.blocks()):
            if not block.no and session.tx.delete(session.seen.root + block.key):
                dropped += block.name.count
        return dropped + cast(int, session.do([Purge()])[0])

    async def replay_dead(self, dead: Log, wanted: Sequence[str]) -> int:
        replay = partial(letters.replay_dead, cache=self._home.cache, maker=self._home.ids, wanted=wanted)
        return await dead.committer.edit(replay)

    def partitions(self, config: Config) -> int:
        return 1

    def unregister(self, tx: Transaction, queue: str) -> str:
        return queues.unregister(tx, queue)

    async def maintain(self) -> int:
        return 0

    async def close(self) -> None:
        return None

    def left(self, view: Reading, root: str, block: Block) -> None:
        raise damage.missing(root + block.key)

    def confirm_lost(self, tx: Transaction, seen: Seen, block: Block) -> None:
        return None
