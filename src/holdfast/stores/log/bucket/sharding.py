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
UNATTENDED_S = 2.5  # without a commit after which a shard is nobody's; dates have whole seconds
LOOK_ROUND_S = 1.0  # between looks at all shards while one's own has messages: a request each


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
            found.append(Busy(shard, view.now - made if made is not None else UNATTENDED_S))
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
    """A consumer's way over the shards: at home while it gives messages, with visits where nobody else is.

    One replacement of a head serves any number of claims, so all of a process go to one shard.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.home = random.randrange(count)
        self._visit: int | None = None
        self._looked = float("-inf")  # several may have begun with the same one: look at once

    def pick(self) -> int:
        """Where to claim."""
        shard, self._visit = self.home if self._visit is None else self._visit, None
        return shard

    def is_due(self) -> bool:
        """Whether to look at the others, although one's own gives messages."""
        return time.monotonic() - self._looked > LOOK_ROUND_S

    def looking(self) -> None:
        """All shards are being looked at."""
        self._looked = time.monotonic()

    def seen(self, busy: Sequence[Busy], *, shared: bool) -> None:
        """Visit a shard that nobody looks after, the quietest; if others take from one's own, move to any of them."""
        free = [each for each in busy if each.quiet >= UNATTENDED_S and each.shard != self.home]
        if free and shared:
            self.home = random.choice(free).shard
        elif free:
            self._visit = max(free, key=lambda each: each.quiet).shard

    def order(self, busy: Sequence[Busy]) -> list[int]:
        """Which shards to try: one's own, then those that nobody looks after, then the others."""
        self.looking()
        found = random.sample(busy, len(busy))
        found.sort(key=lambda each: (each.shard != self.home, each.quiet < UNATTENDED_S))
        return [each.shard for each in found]
