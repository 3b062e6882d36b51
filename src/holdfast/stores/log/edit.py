"""A log inside one transaction: what is seen of it, and how intents change it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from ...errors import Damaged
from . import damage, topics
from .bundles import Bundle
from .cache import BlockCache
from .head.machine import apply
from .head.state import (
    Absorb,
    Block,
    Exhausted,
    Expire,
    Head,
    Intent,
    ListTicket,
    Purge,
    Remove,
    Result,
    Rewrite,
    Rules,
    Settle,
    TakeBack,
    Taken,
)
from .queues import Config
from .rows import Rows
from .space import Stale, Transaction

if TYPE_CHECKING:
    from .repeat_window import RepeatWindow

_BOTH = frozenset((topics.WORK, topics.DONE))
_ENDED = frozenset((topics.DONE,))
_NOTHING_NEW: frozenset[str] = frozenset()
_SIGNALS = {TakeBack: _BOTH, Rewrite: _BOTH, Remove: _BOTH, Purge: _BOTH, Expire: _ENDED}


class Seen(msgspec.Struct, frozen=True):
    """A log as a transaction or snapshot shows it."""

    config: Config
    rules: Rules
    root: str
    head: Head
    ticket: ListTicket  # from before anything was listed here
    window: RepeatWindow


class Session:
    """A log inside one transaction: intents change the head in memory, the committer writes it at the end."""

    def __init__(self, tx: Transaction, seen: Seen, cache: BlockCache) -> None:
        self.tx = tx
        self.seen = seen
        self.head = seen.head
        self.changed = False
        self.finished: list[str] = []
        self.topics: set[str] = set()
        self._cache = cache
        self._lapsed: dict[int, Block] = {}  # blocks whose messages expired in this session

    def do(self, intents: Sequence[Intent]) -> list[Result]:
        applied = apply(self.head, intents, self.tx.now, self.seen.rules)
        if any(applied.results) or applied.head.beyond is not self.head.beyond:  # a purge of what is not absorbed
            self.changed = True
            self.head = applied.head
            self.finished += applied.finished
            for intent, result in zip(intents, applied.results, strict=True):
                if result:
                    self.topics |= _signals(intent)
                if isinstance(result, list):
                    self._note_lapsed(result)
        return applied.results

    def _note_lapsed(self, ended: Sequence[Taken | Exhausted]) -> None:
        for each in ended:
            if isinstance(each, Exhausted) and each.lapsed is not None:
                self._lapsed[each.block] = each.lapsed

    def absorbed(self, block: Block, bundle: Bundle | None = None) -> int:
        """The number of a block that was found here, which is taken into the head when it is not there yet.

        With all that its bundle names: else the bundle would bring it back when it has ended and is forgotten.
        """
        known = self.head.block_at(block.key)
        if known is None and not block.no:
            keys, spent = (bundle.parts, [bundle.key]) if bundle is not None else ([block.key], [])
            self.do([Absorb(keys, self.seen.ticket, spent)])
            known = self.head.block_at(block.key)
        if known is None:
            raise Stale(f"block {block.key} has left")
        return known.no

    def _named(self, no: int) -> Block:
        return self.head.blocks.get(no) or self.seen.head.blocks.get(no) or self._lapsed[no]

    def key_of(self, no: int) -> str:
        return self.seen.root + self._named(no).key

    def block(self, no: int) -> tuple[Block, Rows]:
        """A block of the head and its rows, or a substitute for them; read here, where the data is."""
        block = self._named(no)
        key = self.seen.root + block.key
        try:
            loaded = self._cache.load(self.tx, key)
        except Damaged as error:
            loaded = self._cache.substitute(error, twice=self.seen.window.reads_twice)
        if loaded is None:
            self.seen.window.confirm_lost(self.tx, self.seen, block)
            loaded = self._cache.substitute(damage.missing(key))
        return block, loaded


def _signals(intent: Intent) -> frozenset[str]:
    """Who may want to know: those who wait for work, those who wait for an end."""
    if type(intent) is Settle:
        return _ENDED if intent.action == "complete" else _BOTH
    return _SIGNALS.get(type(intent), _NOTHING_NEW)
