"""A committer's part in the rules of a repeat window: what it may absorb, how it signs, what it has buried.

Where the window is 0 nothing of this is used.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, cast

import msgspec
from msgspec.structs import replace

from . import bundles, headfile, window
from .cache import BlockCache
from .names import parse_block
from .space import Reading
from .state import Absorb, Forget, Head, Intent, Result, Rules

_CURRENT = 0.25  # seconds in which a list counts as current while the head has enough to give


class _Fetching(Protocol):
    def fetch(self, keys: Sequence[str]) -> None: ...


class Chosen(msgspec.Struct, frozen=True):
    """Listed keys: those a claim may choose from, bundles with their parts, and those to delete."""

    blocks: list[str]
    bundled: dict[str, list[str]]
    wrong: list[str]


class Late:
    """One per committer."""

    def __init__(self, seconds: float) -> None:
        self.window = seconds
        self.session = os.urandom(4).hex()
        self._attempts = itertools.count(1)
        self._claims = itertools.count(1)
        self._deleted: set[str] = set()  # buried blocks whose deletion is final
        self._bundles: dict[str, list[str]] = {}
        self._written: set[str] = set()  # listed blocks of flushes that are over
        self._listed = float("-inf")
        self.next_due: float | None = None
        self.wrong: set[str] = set()  # full keys of blocks that must never be absorbed

    def listed(self, next_due: float | None) -> None:
        """The inbox was listed just now; when the next block under `later/` is due."""
        self._listed = time.monotonic()
        self.next_due = next_due

    def unlist(self) -> None:
        """Something was added here: the next claim looks."""
        self._listed = float("-inf")

    def has_listed(self) -> bool:
        return time.monotonic() - self._listed < _CURRENT

    def token(self) -> str:
        """For a claim; its beginning says whose it is."""
        return f"{self.session}{next(self._claims):x}"

    def rules(self, rules: Rules) -> Rules:
        return replace(rules, window=self.window, margin=window.MARGIN, own=self.session)

    def choose(
        self, view: Reading, root: str, head: Head, keys: Sequence[str], rules: Rules, *, beside: Sequence[str]
    ) -> Chosen:
        """Sort what was listed (keys relative to the log); `beside` are logs whose flushes write here too."""
        good, wrong = window.split(head, keys, {key: view.made(root + key) for key in keys}, rules)
        self.wrong.update(root + key for key in wrong)
        good = self._without_unfinished(view, beside, head, good)
        known = set(head.beyond.graveyard)
        spent = {key: self._parts(view, root, key) for key in good if bundles.is_bundle(key) and key not in known}
        return Chosen([key for key in good if not bundles.is_bundle(key)], spent, wrong)

    def _without_unfinished(self, view: Reading, beside: Sequence[str], head: Head, keys: list[str]) -> list[str]:
        """A block that a flush wrote waits until its rows are dropped.

        If it came and went before, whoever finishes the flush could not tell that it was ever there. Its rows lie in
        this head, or in that of the queue's other log, which is looked at after the list.
        """
        known = {block.key for block in head.blocks.values()} | set(head.beyond.graveyard)
        carried = {key for key in keys if key not in known and not bundles.is_bundle(key) and parse_block(key).first}
        new = carried - self._written
        if not new:
            return keys
        others = [view.get(root + "head") for root in beside]
        heads = [head, *(headfile.decode(found.data) for found in others if found is not None)]
        sets = [each.frozen for each in heads if each.frozen is not None]
        unfinished = {key for key in new if any(frozen.wrote(key) for frozen in sets)}
        self._written = carried - unfinished
        return [key for key in keys if key not in unfinished]

    def _parts(self, view: Reading, root: str, key: str) -> list[str]:
        if root + key not in self._bundles:
            self._bundles.clear()
            self._bundles[root + key] = bundles.parts(view, root, key)
        return self._bundles[root + key]

    def absorb(self, chosen: list[str], bundled: dict[str, list[str]], forgets: int) -> Absorb:
        parts = [part for some in bundled.values() for part in some]
        return Absorb([*chosen, *parts], forgets, [key for key, some in bundled.items() if some])

    def fetch(self, view: Reading, cache: BlockCache, results: Iterable[Result], key_of: Callable[[int], str]) -> None:
        """Read the blocks that an answer needs together: one after the other they would cost a trip each."""
        given = [each.block for result in results if isinstance(result, list) for each in result]
        missing = [key for key in map(key_of, dict.fromkeys(given)) if cache.get(key) is None]
        if len(missing) > 1:
            cast(_Fetching, view).fetch(missing)

    # Burying.

    def deleted(self, keys: Sequence[str]) -> None:
        self._deleted.update(keys)

    def is_deleted(self, key: str) -> bool:
        return key in self._deleted

    def forgetting(self, head: Head) -> list[Intent]:
        """What the next commit may forget."""
        gone = [key for key in head.beyond.graveyard if key in self._deleted]
        self._deleted.intersection_update(head.beyond.graveyard)
        return [Forget(gone)] if gone else []

    # Signing.

    def sign(self, head: Head) -> tuple[Head, int]:
        attempt = next(self._attempts)
        return window.signed(head, self.session, attempt), attempt

    def is_signed(self, data: bytes | None, attempt: int) -> bool:
        """Whether this version of the head, or one below it, is our attempt."""
        if data is None:
            return False
        return headfile.decode(data).beyond.sessions.get(self.session, (0, 0.0))[0] == attempt
