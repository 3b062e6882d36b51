"""Dedup keys that hold until their message ends: looked up and written in the step that adds the message."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import msgspec

from ...ids import Ids
from ..living_keys import ALIVE, counts, replacing
from ..records import Dedup, Enqueued, Envelope
from . import damage, names, operating
from .append import Call, blocks_of, hand_out
from .cache import BlockCache
from .edit import Session
from .head.state import Expire
from .lookup import Found, Glance
from .partition import Log
from .space import Transaction
from .topics import work_topic

_NEVER = 1e11  # seconds since 1970: as if it were a dedup key that is in its window for ever
_PAGE = 1000

_read_mark = msgspec.msgpack.Decoder(tuple[float, str]).decode


async def append(log: Log, message: Envelope, maker: Ids, *, dedup: Dedup, replace: bool) -> Enqueued:
    """What became of it, once that is durable."""
    add = partial(_append, message=message, log=log, maker=maker, dedup=dedup, replace=replace)
    while True:
        if replace:
            await log.flusher.thaw()
        if (made := await log.committer.edit(add)) is not None:
            return made


def _append(
    session: Session, *, message: Envelope, log: Log, maker: Ids, dedup: Dedup, replace: bool
) -> Enqueued | None:
    """What became of it; None: a flush is moving the one that has the key, look again."""
    session.do([Expire()])  # what has no attempt left is dead, not pending
    tx, mark = session.tx, _mark(session.seen.root, message.dedup_key or "")
    stored = tx.get(mark)
    id = None if stored is None else damage.read(mark, _read_mark, stored.data)[1]
    found = None if id is None else _find(session, log.cache, id)
    if id is None or found is None or not counts(found.state.status, dedup):
        tx.signal(work_topic(log.address.text))
        return _add(session, message, maker, mark)
    if not replace or found.state.status == "processing":
        return Enqueued(id, False)
    number, token = maker.block(tx.now, carried=True), log.window.token()
    done = operating.change(session, log.cache, id, replacing(message), number=number, token=token)
    return None if done == "leaving" else Enqueued(id, False, done == "changed")


def _find(session: Session, cache: BlockCache, id: str) -> Found | None:
    return Glance(session.tx, msgspec.structs.replace(session.seen, head=session.head), cache).find(names.plain(id))


def _add(session: Session, message: Envelope, maker: Ids, mark: str) -> Enqueued:
    tx, calls = session.tx, [Call([message])]
    blocks = blocks_of(calls, maker, tx.now, tx.calendar)
    hand_out(calls, blocks, tx.now, tx.calendar)
    for block in blocks:
        tx.create(session.seen.root + block.key, block.data)
    id = calls[0].ids[0]
    tx.put(mark, msgspec.msgpack.encode((_NEVER, id)))
    return Enqueued(id, True)


def _mark(root: str, key: str) -> str:
    return names.dedup_key(root, f"\0alive {key}")  # no dedup key has a NUL


def forget_ended(tx: Transaction, *, live: Log, prefix: str, after: str) -> tuple[int, str | None]:
    """Of one page of keys those go whose message has ended; how many, and the key to go on from."""
    page = tx.list(prefix, after=after, limit=_PAGE)
    holders = dict(_holders(tx, page))
    ended = set(holders.values()) - _alive(tx, live, set(holders.values())) if holders else set()
    over = [key for key, id in holders.items() if id in ended]
    for key in over:
        tx.delete(key)
    return len(over), page[-1] if len(page) == _PAGE else None


def _holders(tx: Transaction, page: Iterable[str]) -> Iterable[tuple[str, str]]:
    for key in page:
        found = damage.note(tx, key, list[object])
        if found is not None and found[0] == _NEVER:
            yield key, names.plain(str(found[1]))


def _alive(tx: Transaction, live: Log, ids: set[str]) -> set[str]:
    glance = Glance(tx, live.committer.look(tx), live.cache)
    return {id for id, found in glance.find_all(ids).items() if found.state.status in ALIVE}
