"""Requests to the bucket: counted, with errors sorted out, and repeated where a repeat is harmless."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from ..space import Buffer
from ..sums import Mismatch, Sums
from .faults import Absent, Doubt, Refused, sorted_out, unanswered
from .usage import Tally

T = TypeVar("T")
PAGE = 1000  # keys in one answer
_OPENING = ("~identity", "probe/")  # what is read before the format is known, also by other versions: without a sum
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


class Tag(msgspec.Struct, frozen=True):
    """What a conditional write compares."""

    e_tag: str | None
    version: str | None = None

    @property
    def bare(self) -> str | None:
        """As lists and answers agree on it: Azure's lists leave out the quotes."""
        return self.e_tag.strip('"') if self.e_tag is not None else None

    def condition(self) -> dict[str, str]:
        return {name: value for name in ("e_tag", "version") if (value := getattr(self, name)) is not None}


class Got(msgspec.Struct, frozen=True, gc=False):
    """An object as read: bytes, tag, and when the server wrote it."""

    data: bytes
    tag: Tag
    made: float


class Listed(msgspec.Struct, frozen=True, gc=False):
    key: str
    tag: Tag
    made: float
    size: int = 0  # bytes


class Ending:
    """When everything gives up: whoever closes a store does not wait for a server that does not answer."""

    def __init__(self) -> None:
        self.at = float("inf")


class Pause:
    """Jittered pauses that grow, until a deadline (of the monotonic clock), or until everything ends."""

    def __init__(self, until: float, ending: Ending | None = None) -> None:
        self.until = until
        self._ending = ending or Ending()
        self._next = _FIRST_PAUSE

    def over(self) -> bool:
        return time.monotonic() >= min(self.until, self._ending.at)

    def wait(self) -> None:
        pause = self._next * random.uniform(0.5, 1.0)
        self._next = min(_LONGEST_PAUSE, self._next * 2)
        time.sleep(max(0.0, min(pause, self.until - time.monotonic())))


class Wire:
    """The verbs; blocking, from any thread. Conditional writes are sent once: the caller settles what is in doubt."""

    def __init__(self, store: Any, place: str, tally: Tally, *, timeout: float) -> None:
        self._store = store
        self.place = place
        self.tally = tally
        self.timeout = timeout
        self.ending = Ending()
        self.sums = Sums()

    def until(self, deadline: float | None = None) -> float:
        return time.monotonic() + (self.timeout if deadline is None else deadline)

    def get(self, key: str, until: float, *, unless: Tag | None = None) -> Got | None:
        """None: absent. With `unless`: raises Unchanged when the object still has that tag."""
        options = {"if_none_match": unless.e_tag} if unless is not None and unless.e_tag else None
        return self._patiently(lambda: self._get(key, options), until)

    def _get(self, key: str, options: Any) -> Got | None:
        try:
            result = self._ask("get", key, lambda: self._store.get(key, options=options))
            data = self._ask("", key, lambda: result.bytes().to_bytes())
        except Absent:
            return None
        self.tally.add("", key=key, received=len(data))
        meta = result.meta
        if not key.startswith(_OPENING):
            try:
                data = self.sums.opened(key, data)
            except Mismatch as error:
                error.tag = _tag(meta)  # whoever can do without it may replace it
                raise
        return Got(data, _tag(meta), meta["last_modified"].timestamp())

    def head(self, key: str, until: float) -> Listed | None:
        """What is known of an object without its bytes."""

        def ask() -> Listed | None:
            try:
                return _listed(self._ask("head", key, lambda: self._store.head(key)))
            except Absent:
                return None

        return self._patiently(ask, until)

    def create(self, key: str, data: Buffer) -> Tag:
        """Only if absent; raises Refused or Doubt."""
        return self._write(key, data, "create")

    def swap(self, key: str, data: Buffer, tag: Tag | None) -> Tag:
        """Only if it still has this tag (None: if absent); raises Refused or Doubt."""
        try:
            return self._write(key, data, tag.condition() if tag is not None else "create")
        except Absent:  # 404 on If-Match: it was deleted
            raise Refused from None

    def put(self, key: str, data: Buffer, until: float) -> Tag:
        """Whatever is there."""
        return self._patiently(lambda: self._write(key, data, "overwrite"), until)

    def _write(self, key: str, data: Buffer, mode: Any) -> Tag:
        if not key.startswith(_OPENING):
            data = self.sums.sealed(key, data)
        body = data if isinstance(data, bytes) else bytes(data)
        self.tally.add("", key=key, sent=len(body))
        # Never multipart: only a single request can carry a condition.
        answer = self._ask("put", key, lambda: self._store.put(key, body, mode=mode, use_multipart=False))
        return Tag(answer["e_tag"], answer["version"])

    def page(self, folder: str, after: str, until: float) -> list[Listed]:
        """Up to a page of the keys below a folder (no slash at its end), above `after`."""

        def ask() -> list[Listed]:
            stream = iter(self._store.list(folder or None, offset=after or None, chunk_size=PAGE))
            found: list[Listed] = []
            while len(found) < PAGE:
                chunk: Any = self._ask("list", f"{folder}/", lambda: next(stream, []))
                # Some servers begin at `after` itself, or know nothing of it and begin at the first key.
                found += [_listed(each) for each in chunk if each["path"] > after]
                if len(chunk) < PAGE:
                    break
            return found[:PAGE]

        return self._patiently(ask, until)

    def remove(self, folder: str, ours: Callable[[str], bool], until: float) -> Iterator[str]:
        """Delete what is ours below a folder (no slash at its end); the keys of all else."""
        after = ""
        while page := self.page(folder, after, until):
            after = page[-1].key
            self.delete([each.key for each in page if ours(each.key)], until)
            yield from (each.key for each in page if not ours(each.key))

    def delete(self, keys: Sequence[str], until: float) -> None:
        """Those that are there; up to a page of them in one request."""
        for start in range(0, len(keys), PAGE):
            some = list(keys[start : start + PAGE])
            try:
                self._patiently(lambda some=some: self._ask("delete", some[0], lambda: self._store.delete(some)), until)  # type: ignore[misc]  # bound now
            except Absent:
                continue

    def _patiently(self, ask: Callable[[], T], until: float) -> T:
        """Again while there is time: for requests whose repetition changes nothing."""
        pause = Pause(until, self.ending)
        began = time.monotonic()
        while True:
            try:
                return ask()
            except (Doubt, Refused) as error:
                pause.wait()
                if pause.over():
                    raise unanswered(self.place, time.monotonic() - began, error) from None

    def _ask(self, kind: str, key: str, call: Callable[[], T]) -> T:
        if time.monotonic() >= self.ending.at:
            raise Doubt("the store is being closed")
        if kind:
            self.tally.add(kind, key=key)
        try:
            return call()
        except Exception as error:  # noqa: BLE001  whatever the driver raises is sorted out in one place
            raise sorted_out(error, self.place) from None


def _tag(meta: Any) -> Tag:
    return Tag(meta["e_tag"], meta["version"])


def _listed(meta: Any) -> Listed:
    return Listed(meta["path"], _tag(meta), meta["last_modified"].timestamp(), meta["size"])
