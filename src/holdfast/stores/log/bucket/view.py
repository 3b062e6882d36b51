"""What a step sees of a bucket, and what it wants to change there: reads go out at once, writes wait for its end."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait

import msgspec

from ....errors import StoreError
from ..calendar import SAME
from ..names import CONFIGS, HINT
from ..space import LAST, Buffer, Found, Range, Reading, Survey
from ..sums import Mismatch
from .head_cache import CONFIG_AGE, HINTED_AGE, SETTLE_AGE, Shelf, is_kept
from .requests import PAGE, Got, Listed, Tag

Proof = Callable[[bytes | None], bool]
Keys = list[str]
Some = list[Listed]
Tags = list[str | None]


class Page(msgspec.Struct, frozen=True):
    """One answer to a list: keys below a folder, above `after`; complete when nothing lies behind them."""

    folder: str
    after: str
    listed: list[Listed]
    keys: list[str]

    @property
    def is_complete(self) -> bool:
        return len(self.keys) < PAGE

    def between(self, start: str, end: str, limit: int) -> list[Listed] | None:
        """The first keys of a range; None: the page does not say."""
        if not start.startswith(self.folder) or start <= self.after:
            return None
        first = bisect_left(self.keys, start)
        found = self.listed[first : min(bisect_left(self.keys, end), first + limit)]
        known = len(found) >= limit or self.is_complete or self.keys[-1] >= end
        return found if known else None


Pages = list[Page]


class Write(msgspec.Struct, frozen=True):
    """A replacement; `proof` tells from a later version whether it happened."""

    data: bytes
    proof: Proof | None


class View:
    """One run of a step, in one thread."""

    calendar = SAME

    def __init__(
        self,
        shelf: Shelf,
        clock: Callable[[], float],
        until: float,
        *,
        fresh: bool,
        snapshot: bool,
        before: View | None = None,
    ) -> None:
        self.now = clock()
        self.is_fresh = fresh  # heads are read, not taken from memory
        self.refusals = 0  # of earlier runs: somebody was faster
        self.after: list[Callable[[], None]] = []  # what is done when everything is durable
        self.assumed: set[str] = set()  # heads taken from memory that nothing has confirmed yet
        self.tags: dict[str, Tag | None] = {}  # what replacements are conditional on
        self.creates: dict[str, Buffer] = {}
        self.puts: dict[str, Write] = {}
        self.deletes: dict[str, None] = {}
        self.topics: set[str] = set()
        self._shelf = shelf
        self._clock = clock
        self._until = until
        self._snapshot = snapshot
        self._read: set[str] = set()  # heads that were read here
        self._renewed: dict[str, Future[Got | None]] = {}  # heads that are being read
        self._pages: Pages = []
        self._made: dict[str, float] = {}
        self._fetched: dict[str, Future[Got | None]] = before._fetched if before is not None else {}
        self._again: set[str] = before._again if before is not None else set()  # those that were asked for twice
        self._hasty_at: float = before._hasty_at if before is not None else 0.0

    # Looking.

    def get(self, key: str) -> Found | None:
        if key in self.puts:
            return _found(self.puts[key].data)
        if key in self.creates:
            return _found(bytes(self.creates[key]))
        if key in self.deletes:
            return None
        wire = self._shelf.wire
        if key in self._fetched:
            self._hasten(key)
            got = self._fetched[key].result()
            return _found(got.data) if got is not None else None
        try:
            got = self._shelf.refresh(key, self._until) if is_kept(key) else wire.get(key, self._until)
        except Mismatch as error:
            self.tags[key] = error.tag
            raise
        self.tags[key] = got.tag if got is not None else None
        return _found(got.data) if got is not None else None

    def fetch(self, keys: Sequence[str]) -> None:
        """Have objects read meanwhile, for the `get`s that follow, in this run of the step or in another."""
        self._hasty_at = time.monotonic() + self._shelf.patience
        for key in keys:
            if key not in self._fetched:
                self._fetched[key] = self._shelf.fetch(key, self._until)

    def _hasten(self, key: str) -> None:
        """One slow answer holds up all that waits for the others: what takes too long is asked for once more."""
        read = self._fetched[key]
        if not read.done() and wait([read], max(0.0, self._hasty_at - time.monotonic())).not_done:
            slow = [each for each, other in self._fetched.items() if not other.done() and each not in self._again]
            self._again.update(slow)
            for each in slow:
                self._fetched[each] = self._shelf.fetch_again(each, self._until, self._fetched[each])

    def afterwards(self, call: Callable[[], None]) -> None:
        """Call this once everything is durable, in the same thread."""
        self.after.append(call)

    def renew(self, key: str) -> None:
        """Have a head read that we most likely know an old version of; a list is asked for meanwhile."""
        if key not in self._read and key not in self._renewed:
            self._renewed[key] = self._shelf.pool.submit(self._shelf.refresh, key, self._until)

    def renew_changed(self, keys: Sequence[str]) -> None:
        """Have those heads read together that are others than we know, as far as the lists here show."""
        for key in keys:
            known, shown = self._shelf.known(key), self._shown(key)
            if known is None or shown != _tags(known.got):
                self.renew(key)

    def has_read(self, key: str) -> None:
        """It is known as it is now."""
        self._read.add(key)

    def made(self, key: str) -> float | None:
        """When the server wrote a key that was listed here; None: not known, or not comparable with our clock."""
        return self._made.get(key) if self._shelf.clock is not None else None

    def list(self, prefix: str, *, after: str = "", limit: int = 1000) -> Keys:
        start = max(prefix, after + "\0" if after else "")
        return [each.key for each in self._between(start, prefix + LAST, limit, prefix) if each.key not in self.deletes]

    def survey(self, keys: Sequence[str], ranges: Sequence[Range]) -> Survey:
        """Options may be some seconds old; a head from memory is confirmed by the list, or by the swap at the end."""
        heads = [key for key in keys if not key.startswith(CONFIGS)]
        for key in heads:
            self._assume(key)
        if ranges:  # one list from the head on shows the inbox and what is due later, too
            root = ranges[0][0].removesuffix("inbox/")
            if keys or not any(page.folder == root for page in self._pages):
                self._pages = [page for page in self._pages if page.folder != root]  # never mixed with older answers
                self._list(root, root + "hea")
        found = [
            [each.key for each in self._between(start, end, limit, start[: start.rindex("/") + 1])]
            for start, end, limit in ranges
        ]
        age = self._age(heads, listed=bool(ranges))
        confirmed = {key: self._confirm(key) for key in heads}
        data = [self._config(key, age) if key.startswith(CONFIGS) else confirmed[key] for key in keys]
        if ranges and heads:
            hint = heads[0].removesuffix("head") + HINT
            self._shelf.hints[hint] = self._shown(hint)
        return data, found

    def _age(self, heads: Sequence[str], *, listed: bool) -> float:
        """How old a queue's options may be. A list shows whether somebody has changed them since we read them."""
        if not heads:
            return CONFIG_AGE
        if not listed:
            known = self._shelf.known(heads[0])
            return CONFIG_AGE if self.is_fresh and (known is None or known.got is None) else SETTLE_AGE
        hint = heads[0].removesuffix("head") + HINT
        known = self._shelf.known(heads[0])
        if hint not in self._shelf.hints:
            return 0.0  # what we know may be from before the hint that this list shows
        is_gone = self._shown(heads[0]) == [] and known is not None and known.got is not None
        return 0.0 if is_gone or self._shown(hint) != self._shelf.hints[hint] else HINTED_AGE

    def _config(self, key: str, age: float) -> bytes | None:
        if key in self.puts:
            return self.puts[key].data
        got = self._shelf.config(key, self._until, age=age)
        return got.data if got is not None else None

    def _assume(self, key: str) -> None:
        """Have some version of the head before anything is listed: what is absorbed must be judged by an older one."""
        if key in self.assumed or key in self._read or key in self._renewed:
            return
        if self.is_fresh or self._shelf.known(key) is None:
            self._shelf.refresh(key, self._until)
            self._read.add(key)
        elif self._snapshot:
            root = key[: key.index("/") + 1]  # one list shows the heads of all shards, and of the dead letters
            if not any(page.folder == root for page in self._pages):
                self._list(root, root + "archive0")  # archive files have their own lists
            self.assumed.add(key)
        else:
            self.assumed.add(key)

    def _confirm(self, key: str) -> bytes | None:
        """The head: from memory where a list shows its tag, or where a swap will check it; else read."""
        if key in self._renewed:
            self._renewed.pop(key).result()
            self._read.add(key)
        known = self._shelf.known(key)
        got = known.got if known is not None else None
        if key in self.assumed:
            shown = self._shown(key)
            if (shown is None and self._snapshot) or (shown is not None and shown != _tags(got)):
                got = self._shelf.refresh(key, self._until)
            if shown is not None or self._snapshot:
                self.assumed.discard(key)
                self._read.add(key)
        if self._snapshot and self._shown(key) not in (None, _tags(got)):
            self._pages.clear()  # older than the head: what has left it since may have gone where they do not show it
        self.tags[key] = got.tag if got is not None else None
        return got.data if got is not None else None

    def _shown(self, key: str) -> Tags | None:
        """The tags of a key on the pages listed here: [] when it is absent; None: they do not say."""
        for page in self._pages:
            found = page.between(key, key + "\0", 1)
            if found is not None:
                return [each.tag.bare for each in found]
        return None

    def _between(self, start: str, end: str, limit: int, prefix: str) -> Some:
        for page in self._pages:
            found = page.between(start, end, limit)
            if found is not None:
                return found
        folder = prefix[: prefix.rindex("/") + 1] if "/" in prefix else ""
        chosen: Some = []
        after = _just_below(start)
        if not after.startswith(folder):
            after = ""
        while len(chosen) < limit:
            page = self._list(folder, after)
            first = bisect_left(page.keys, start)
            chosen += page.listed[first : bisect_left(page.keys, end)]
            if page.is_complete or page.keys[-1] >= end:
                break
            after = page.keys[-1]
        return chosen[:limit]

    def _list(self, folder: str, after: str) -> Page:
        listed = self._shelf.wire.page(folder.rstrip("/"), after, self._until)
        for each in listed:
            self._made[each.key] = each.made
            self._shelf.dated(each.key, each.tag, each.made)
        page = Page(folder, after, listed, [each.key for each in listed])
        self._pages.insert(0, page)  # the newest answers first
        return page

    # Changing.

    def create(self, key: str, data: Buffer) -> bool:
        """Names are never used for two contents: who finds the object there finds this one."""
        if key in self.creates:
            return False
        self.creates[key] = data
        return True

    def adopt(self, key: str) -> bool:
        """`write_file` has made it an object already."""
        return True

    def put(self, key: str, data: Buffer, *, proof: Proof | None = None) -> None:
        if key not in self.tags:
            raise StoreError(f"{key} is replaced without having been read")
        if self.puts and key not in self.puts:
            raise StoreError(f"one step replaces {key} and {next(iter(self.puts))}: a bucket has no transactions")
        self.puts[key] = Write(bytes(data), proof)

    def delete(self, key: str) -> bool:
        self.creates.pop(key, None)
        self.deletes[key] = None
        return True

    def signal(self, topic: str) -> None:
        self.topics.add(topic)

    @property
    def writes(self) -> bool:
        return bool(self.creates or self.puts or self.deletes)


def bucket_view(view: Reading) -> View:
    """What a bucket gives to every step: with all that only its views can do."""
    assert isinstance(view, View)
    return view


def _found(data: bytes) -> Found:
    return Found(data, hash(data))


def _tags(got: Got | None) -> Tags:
    return [got.tag.bare] if got is not None else []


def _just_below(start: str) -> str:
    """A text below every key from `start` on, for lists that begin above what they are given."""
    if start.endswith("\0"):
        return start[:-1]
    if not start:
        return ""
    below = chr(ord(start[-1]) - 1)
    return start[:-1] + ("." if below == "/" else below) + "~"  # Azure's client takes no empty part of a path
