"""What the space itself must show after every write: heads that only go forward, names with one content."""

from __future__ import annotations

from collections.abc import Callable, Container

from holdfast.stores.log.head import codec
from holdfast.stores.log.head.state import Head
from holdfast.stores.log.sums import Sums

_ONE_CONTENT = ("/archive/", "/inbox/", "/later/")


class Heads:
    """Called with every change of an object."""

    def __init__(self, there: Container[str], breach: Callable[[str], None]) -> None:
        self._there = there
        self._breach = breach
        self._finished: dict[str, set[str]] = {}  # by root: blocks that were held once and are no more
        self._contents: dict[str, bytes] = {}
        self._last: dict[str, tuple[bytes, Head]] = {}

    def changed(self, key: str, before: bytes | None, after: bytes | None) -> None:
        if after is None:
            return
        if key.endswith("/head"):
            self._head(key, before, after)
        elif any(part in key for part in _ONE_CONTENT) and self._contents.setdefault(key, after) != after:
            self._breach(f"one name, two contents: {key}")

    def head(self, key: str) -> Head | None:
        known = self._last.get(key)
        return known[1] if known is not None else None

    def _head(self, key: str, before: bytes | None, after: bytes) -> None:
        root = key.removesuffix("head")
        data, old = self._last.get(key, (None, Head()))
        if data != before:
            old = stored_head(key, before) if before is not None else Head()
        new = stored_head(key, after)
        self._last[key] = (after, new)
        held, was = _blocks(new), _blocks(old)
        finished = self._finished.setdefault(root, set())
        for block in held - was:
            if block in finished:
                self._breach(f"absorbed twice: {root}{block}")
            if root + block not in self._there:
                self._breach(f"absorbed without an object: {root}{block}")
        finished |= was - held
        if new.now < old.now:
            self._breach(f"the time of {key} goes back")
        if new.completed < old.completed or new.failed < old.failed:
            self._breach(f"the counters of {key} go back")
        if new.beyond.forgets < old.beyond.forgets:
            self._breach(f"{key} counts fewer forgettings")


def stored_head(key: str, data: bytes) -> Head:
    """A head from its bytes as they lie there, with a sum or without."""
    return codec.decode(Sums().opened(key, data))


def _blocks(head: Head) -> set[str]:
    return {block.key for block in head.blocks.values()}
