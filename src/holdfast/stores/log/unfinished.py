"""Blocks on a bucket whose flush is not done with: they are there, and the head that wrote them has their rows still.

If such a block came and went before its rows are dropped, whoever finishes the flush could not tell that it was ever
there, and would write it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from ...errors import Damaged
from . import damage, names, queues, rows
from .head import codec
from .head.state import Frozen, Head
from .space import Reading


def unfinished_of(view: Reading, root: str, head: Head, beside: Sequence[str], keys: Iterable[str]) -> set[str]:
    """Which of these blocks of a log (with this root and head) are; `beside` are logs whose flushes write here too."""
    own = [] if head.frozen is None else [head.frozen]
    sets = [*own, *_frozen(view, beside)]
    return {key for key in keys if any(each.wrote(key) for each in sets) or _is_being_moved(view, root, key)}


def _frozen(view: Reading, roots: Iterable[str]) -> Iterator[Frozen]:
    """A damaged head holds up nobody beside it: nobody can finish what it began, before an older one is put back."""
    for root in roots:
        with suppress(Damaged):
            found = view.get(root + "head")
            if found is not None:
                frozen = damage.read(root + "head", codec.decode, found.data).frozen
                if frozen is not None:
                    yield frozen


def _is_being_moved(view: Reading, root: str, key: str) -> bool:
    """The same for dead letters of another queue, which only the messages name."""
    if not key.startswith("inbox/") or root.endswith("/dead/"):
        return False
    source = _source(view, root + key)
    try:
        found = view.get(names.config_key(source)) if source else None
        config = queues.decode(found.data, source) if found is not None else None
    except Damaged:
        return False
    if config is None:
        return False
    logs = [queues.Address(source, False, shard).root(config) for shard in range(config.options.shards)]
    return any(each.wrote(key) for each in _frozen(view, logs))


def _source(view: Reading, key: str) -> str:
    """The queue that a block was moved from; empty: none that could be one."""
    try:
        found = view.get(key)
        loaded = damage.read_block(key, rows.decode, found.data) if found is not None else None
    except Damaged:
        return ""  # whoever claims it deals with that
    headers = loaded.headers[0] if loaded is not None and loaded.headers else None
    source = (headers or {}).get(rows.MOVED_FROM, "")
    return source if names.is_queue(source) else ""
