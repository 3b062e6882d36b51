"""Several heads for one queue: which one a producer writes to, a consumer takes from, a token belongs to."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from . import names, queues
from .queues import Config
from .space import Reading

T = TypeVar("T")
_MARK = "-"
_NEGLECTED = 10.0  # seconds a shard with messages may see no commit before somebody else's consumer looks after it
_LOOK_ROUND = 5.0  # seconds between looks at all shards, while one's own has messages


def token(claim: str, shard: int) -> str:
    """A claim's token that says which shard it is of."""
    return f"{claim}{_MARK}{shard}" if shard else claim


def shard_of(token: str) -> int:
    number = token.partition(".")[0].rpartition(_MARK)[2] if _MARK in token.partition(".")[0] else "0"
    return int(number) if number.isdecimal() else 0


def grouped(items: Iterable[T], token_of: Callable[[T], str]) -> dict[int, list[int]]:
    """The places of items by shard."""
    found: dict[int, list[int]] = {}
    for place, item in enumerate(items):
        found.setdefault(shard_of(token_of(item)), []).append(place)
    return found


class Busy(msgspec.Struct, frozen=True):
    """A shard with messages: for how many seconds it has seen no commit."""

    shard: int
    quiet: float


def busy(view: Reading, queue: str, config: Config) -> list[Busy]:
    """The shards in which something may be found, by their keys."""
    found = []
    for shard in range(config.options.shards):
        root = queues.Address(queue, False, shard).root(config)
        coming = view.list(root + "later/", limit=1)
        due = bool(coming) and names.due_of(coming[0]) <= view.now
        if due or view.list(root + "inbox/", limit=1) or view.list(root + "parts/", limit=1):
            made = view.made(root + "head")
            found.append(Busy(shard, view.now - made if made is not None else 0.0))
    return found


class Round:
    """A consumer's way over the shards. It stays with one, which spares it races for a head, as long as none waits."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.home = random.randrange(count)
        self.under_way: Counter[int] = Counter()  # claims of this process, by shard
        self._seen: list[int] = []
        self._looked = time.monotonic()

    def pick(self) -> int:
        """Where to claim: at home, or, while others of this process claim there, where messages were seen last."""
        if not self.under_way[self.home]:
            return self.home
        return min([self.home, *self._seen], key=lambda shard: self.under_way[shard])

    def is_due(self) -> bool:
        """Whether to look at the others, although one's own gives messages."""
        return time.monotonic() - self._looked > _LOOK_ROUND

    def order(self, busy: Sequence[Busy]) -> list[int]:
        """Which shards to try: those that nobody looks after, one's own, then the others in any order."""
        self._looked = time.monotonic()
        self._seen = [each.shard for each in busy]
        neglected = sorted((each for each in busy if each.quiet > _NEGLECTED), key=lambda each: -each.quiet)
        others = [each.shard for each in busy if each.quiet <= _NEGLECTED and each.shard != self.home]
        random.shuffle(others)
        own = [self.home] if any(each.shard == self.home and each.quiet <= _NEGLECTED for each in busy) else []
        return [*(each.shard for each in neglected), *own, *others]
