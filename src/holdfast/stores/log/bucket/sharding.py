"""Several heads for one queue: which one a producer writes to, a consumer takes from, a token belongs to."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec

from .. import names
from ..space import Reading

if TYPE_CHECKING:
    from ..edit import Seen

T = TypeVar("T")
_MARK = "-"
_DIGITS = 4  # of the highest shard there can be
_NEGLECTED = 10.0  # seconds a shard with messages may see no commit before somebody else's consumer looks after it
UNATTENDED = 2.5  # seconds without a commit after which a shard is nobody's; dates have whole seconds
_LOOK_ROUND = 5.0  # seconds between looks at all shards, while one's own has messages
_LOOK_ROUND_SHARED = 0.5  # the same while others take from one's own


def token(claim: str, shard: int) -> str:
    """A claim's token that says which shard it is of."""
    return f"{claim}{_MARK}{shard}" if shard else claim


def shard_of(token: str, count: int) -> int:
    """Which of so many shards it is of; a forged one may name any, and none must be made for it."""
    number = token.partition(".")[0].rpartition(_MARK)[2] if _MARK in token.partition(".")[0] else "0"
    shard = int(number) if number.isascii() and number.isdecimal() and len(number) <= _DIGITS else 0
    return shard if shard < count else 0


def grouped(items: Iterable[T], token_of: Callable[[T], str], count: int) -> dict[int, list[int]]:
    """The places of items by shard, of so many."""
    found: dict[int, list[int]] = {}
    for place, item in enumerate(items):
        found.setdefault(shard_of(token_of(item), count), []).append(place)
    return found


class Busy(msgspec.Struct, frozen=True):
    """A shard with messages: for how many seconds it has seen no commit."""

    shard: int
    quiet: float


def busy(view: Reading, seen: Sequence[Seen]) -> list[Busy]:
    """The shards in which a claim may find something: new blocks, or messages of known ones."""
    found = []
    for shard, each in enumerate(seen):
        if _has_new(view, each) or _has_ready(each, view.now):
            made = view.made(each.root + "head")
            found.append(Busy(shard, view.now - made if made is not None else UNATTENDED))
    return found


def _has_new(view: Reading, seen: Seen) -> bool:
    """A listed block that its head does not know; whether it may be absorbed is found out by whoever tries."""
    root, held = seen.root, seen.head.held
    known = {block.key for block in seen.head.blocks.values()} | seen.head.beyond.refused
    inbox, later = (view.list(root + folder, limit=held + 1) for folder in ("inbox/", "later/"))
    due = [key for key in later if names.is_block(key) and names.due_of(key, view.calendar) <= view.now]
    return any(key[len(root) :] not in known for key in (*inbox, *due))


def _has_ready(seen: Seen, now: float) -> bool:
    head = seen.head
    return (
        any(block.ready(now, seen.rules) for block in head.blocks.values())
        or any(group.is_due(now, seen.rules) for group in head.waiting)
        or any(lease.is_over(now, seen.rules) for lease in head.leases)
    )


class Round:
    """A consumer's way over the shards. It stays with one, which spares it races for a head, as long as none waits."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.home = random.randrange(count)
        self._visits: list[int] = []  # where messages wait and nobody looks after them
        self._looked = time.monotonic()

    def pick(self) -> int:
        """Where to claim. One replacement of a head serves any number of claims, so all of a process go to one."""
        return self._visits.pop(0) if self._visits else self.home

    def is_due(self, *, shared: bool) -> bool:
        """Whether to look at the others, although one's own gives messages; `shared`: it gives them to others too."""
        return time.monotonic() - self._looked > (_LOOK_ROUND_SHARED if shared else _LOOK_ROUND)

    def looking(self) -> None:
        """All shards are being looked at."""
        self._looked = time.monotonic()

    def seen(self, busy: Sequence[Busy], *, shared: bool) -> None:
        """Visit shards that nobody looks after; leave a home that is shared with others for one that nobody has."""
        self._visits = _neglected(busy)
        free = [each.shard for each in busy if each.quiet >= UNATTENDED and each.shard != self.home]
        if shared and free:
            self.home = random.choice(free)

    def order(self, busy: Sequence[Busy]) -> list[int]:
        """Which shards to try: those that nobody looks after, one's own, then the others, the quiet ones first."""
        self.looking()
        others = [each for each in busy if each.quiet <= _NEGLECTED and each.shard != self.home]
        random.shuffle(others)
        others.sort(key=lambda each: each.quiet < UNATTENDED)
        own = [self.home] if any(each.shard == self.home and each.quiet <= _NEGLECTED for each in busy) else []
        return [*_neglected(busy), *own, *(each.shard for each in others)]


def _neglected(busy: Sequence[Busy]) -> list[int]:
    """The shards that nobody looks after, the longest first."""
    found = [each for each in busy if each.quiet > _NEGLECTED]
    return [each.shard for each in sorted(found, key=lambda each: -each.quiet)]
