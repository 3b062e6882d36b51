"""A committer's part in the rules of a repeat window: what it may absorb, how it signs, what it has buried.

Where the window is 0 nothing of this is used.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from ....errors import Damaged
from .. import bundles, damage
from ..head import codec, repeat
from ..head.state import Absorb, Forget, Head, Intent, ListTicket, Rules
from ..names import is_carrying
from ..space import Reading
from ..unfinished import unfinished_of
from .pace import Pace

_AGING = 0.08  # seconds after which the next list is asked for meanwhile, while claims follow each other
_STEADY = 0.5  # seconds between commits that follow each other
_CURRENT = 0.25  # seconds in which a list counts as current while it shows enough to give
_PURGED_MOST = 200  # blocks that are buried at a time: the head is rewritten with every commit
_OWN_BLOCKS_MOST = 4096  # beyond, the oldest count as somebody else's


class Listing(msgspec.Struct, frozen=True):
    """What one list showed of a log: keys of the inbox and of what is due, and when the server wrote them.

    Its ticket was taken before: a head with another count absorbs nothing from it.
    """

    root: str
    ticket: ListTicket
    made: dict[str, float | None]
    upto: str  # the last key of the inbox that is shown; empty: all of it is
    next_due: float | None  # of the blocks under `later/` that are not due


class Chosen(msgspec.Struct, frozen=True):
    """Listed keys: those a claim may choose from, and bundles with their parts."""

    blocks: list[str]
    bundled: dict[str, list[str]]


class Late:
    """One per committer."""

    def __init__(self, seconds: float) -> None:
        self.window = seconds
        self.session = os.urandom(4).hex()
        self._attempts = itertools.count(1)
        self._claims = itertools.count(1)
        self._deleted: set[str] = set()  # buried blocks whose deletion is final
        self._bundles: dict[str, list[str]] = {}
        self._own_blocks: dict[str, None] = {}  # delayed ones that were written here, the last of them
        self._written: set[str] = set()  # listed blocks of flushes that are over
        self._listing: Listing | None = None
        self._listed = float("-inf")
        self._added = 0
        self._steady = False
        self.demand = 0  # messages that the last claims asked for
        self.pace = Pace(self.session)
        self.begun_at = float("-inf")  # when the commit under way began
        self._purged: list[str] = []  # blocks that a purge has dropped, as last listed
        self.suspects: dict[str, float] = {}  # blocks that look late, as last listed, and when they were written

    # Lists.

    @property
    def additions(self) -> int:
        """How often something was added here: a list that was asked for before may not show it."""
        return self._added

    def listed(self, listing: Listing, additions: int) -> None:
        """The log was listed just now; `additions` were counted before that."""
        if additions == self._added:
            self._listing, self._listed = listing, time.monotonic()

    def unlist(self, delayed: Sequence[str] = ()) -> None:
        """Something was added here, delayed blocks of these keys among it: the next claim looks."""
        self._added += 1
        self._listing = None
        if delayed:
            self._own_blocks.update(dict.fromkeys(delayed))
            for key in list(self._own_blocks)[:-_OWN_BLOCKS_MOST]:
                del self._own_blocks[key]

    def listing(self) -> Listing | None:
        """The last list, while it counts as current; one of the commit under way always does."""
        return self._listing if self._listed > self.begun_at or self.age() < _CURRENT else None

    def is_list_due(self, demand: int) -> bool:
        """Whether to list meanwhile for claims that will follow; `demand` is what those under way ask for.

        Only while claims follow each other: else most likely nobody would need it.
        """
        follows = time.monotonic() - self.pace.swapped_at < _STEADY
        if demand:
            self.demand, self._steady = demand, follows
        return follows and self._steady and self._listing is not None and self.is_aging()

    def is_aging(self) -> bool:
        """The last list will not be current much longer."""
        return self.age() > _AGING

    def age(self) -> float:
        """Seconds since the last list."""
        return time.monotonic() - self._listed

    def token(self) -> str:
        """For a claim; its beginning says whose it is."""
        return f"{self.session}{next(self._claims):x}"

    def rules(self, rules: Rules) -> Rules:
        return replace(rules, window=self.window, margin=repeat.MARGIN, own=self.session, own_blocks=self._own_blocks)

    def choose(self, view: Reading, listing: Listing, head: Head, rules: Rules, *, beside: Sequence[str]) -> Chosen:
        """Sort what was listed (keys relative to the log); `beside` are logs whose flushes write here too."""
        root = listing.root
        found = repeat.sort_out(head, listing.made, rules)
        self._purged = found.purged[:_PURGED_MOST]
        self.suspects = found.late
        good = self._without_unfinished(view, root, beside, head, found.good)
        known = head.beyond.refused
        spent = {key: self._parts(view, root, key) for key in good if bundles.is_bundle(key) and key not in known}
        self._bundles = {root + key: parts for key, parts in spent.items()}
        return Chosen([key for key in good if not bundles.is_bundle(key)], spent)

    def _without_unfinished(
        self, view: Reading, root: str, beside: Sequence[str], head: Head, keys: list[str]
    ) -> list[str]:
        """A block that a flush wrote waits until its rows are dropped; heads of others are looked at after the list."""
        known = {block.key for block in head.blocks.values()} | head.beyond.refused
        carried = {key for key in keys if key not in known and is_carrying(key)}
        new = carried - self._written
        if not new:
            return keys
        unfinished = unfinished_of(view, root, head, beside, new)
        self._written = carried - unfinished
        return [key for key in keys if key not in unfinished]

    def _parts(self, view: Reading, root: str, key: str) -> list[str]:
        known = self._bundles.get(root + key)
        if known is not None:
            return known
        try:
            return bundles.parts(view, root, key)
        except Damaged as error:  # it stays where it is, for whoever restores it
            damage.logger.error("%s. Its messages wait until it is restored", error)
            return []

    # Burying.

    def deleted(self, keys: Sequence[str]) -> None:
        self._deleted.update(keys)

    def is_deleted(self, key: str) -> bool:
        return key in self._deleted

    def tidying(self, head: Head) -> list[Intent]:
        """What the next commit may forget, and what it buries because a purge has dropped it.

        Only the head says what is alive: the list may be old, and a block that was rewritten since is younger than the
        purge.
        """
        gone = [key for key in head.beyond.graveyard if key in self._deleted]
        self._deleted.intersection_update(head.beyond.graveyard)
        purged, self._purged = self._purged, []
        forget: list[Intent] = [Forget(gone)] if gone else []
        return [*forget, Absorb([], "own", purged)] if purged else forget

    # Signing.

    def sign(self, head: Head) -> tuple[Head, int]:
        attempt = next(self._attempts)
        self.pace.tries(head)
        return repeat.signed(head, self.session, attempt), attempt

    def is_signed(self, data: bytes | None, attempt: int) -> bool:
        """Whether this version of the head, or one below it, is our attempt."""
        if data is None:
            return False
        return codec.decode(data).beyond.sessions.get(self.session, (0, 0.0))[0] == attempt
