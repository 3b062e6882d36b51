"""What an operator does to single messages, by their ids, in a session of their log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

from msgspec.structs import replace

from ... import ids
from ..records import Change, Stored
from . import bundles, rows
from .cache import BlockCache
from .edit import Session
from .flush_rows import Leaving, carried
from .head.machine import CANCELLED, has_crashed
from .head.state import Expire, Remove, Rewrite, TakeBack
from .lookup import Glance
from .names import BlockName


def cancel(session: Session, cache: BlockCache, id: str, *, running: bool) -> bool | None:
    """Whether it has ended now; None: it is not here."""
    glance, plain = Glance(session.tx, session.seen, cache), _plain(id)
    found = None if plain is None else glance.find(plain)
    if found is None:
        return None
    no = session.absorbed(found.block, glance.bundle_of(found.block))
    return bool(session.do([Remove(no, 1 << found.place, CANCELLED, held=running)])[0])


def take_back(session: Session, cache: BlockCache, wanted: Sequence[str] | None, worker: str | None, token: str) -> int:
    """How many of these, or of what a worker holds, were held and are not any more."""
    glance = Glance(session.tx, session.seen, cache)
    masks: dict[int, int] = {}
    if wanted is None:
        for lease in session.head.leases:
            if lease.worker == worker:
                masks[lease.block] = masks.get(lease.block, 0) | lease.mask
    for plain in filter(None, map(_plain, dict.fromkeys(wanted or ()))):
        if (found := glance.find_held(plain)) is not None:
            masks[found.block.no] = masks.get(found.block.no, 0) | 1 << found.place
    taken = session.do([TakeBack(no, mask, token) for no, mask in masks.items()])
    return sum(cast(int, mask).bit_count() for mask in taken)


def change(
    session: Session, cache: BlockCache, id: str, wanted: Change, *, number: int, token: str
) -> Literal["changed", "held", "absent", "leaving"]:
    """Write the message anew, as a block that nobody lists, and let the head name it in the same commit.

    On a bucket the block is there before the head is replaced; who does not come so far leaves an object that nothing
    names, for upkeep to remove. `leaving`: a flush is moving it out of the head just now.
    """
    session.do([Expire()])  # what has no attempt left is dead, not pending
    glance, plain = Glance(session.tx, session.seen, cache), _plain(id)
    found = None if plain is None else glance.find(plain)
    if found is None or plain is None:
        return "absent"
    if found.state.status not in ("pending", "delayed", "retry"):
        return "held"
    stored = _changed(glance.record(found), wanted)
    no, mask = session.absorbed(found.block, glance.bundle_of(found.block)), 1 << found.place
    own, expires = found.block.name.max_attempts, found.block.name.expires
    crashed = has_crashed(session.head, no, mask)
    is_leased = any(lease.block == no and lease.mask & mask for lease in session.head.leases)
    settled_by = "" if is_leased else found.state.token or ""  # whose lease is over has settled nothing
    row = Leaving(stored, "waiting", settled_by, None, own, crashed, claims=found.state.attempts, expires=expires)
    name = BlockName(f"{number:032x}", 1, stored.priority, own, row.claims, crashed, plain, plain, expires)
    key = f"{bundles.FOLDER}{number:032x}/{name.inbox_key()}"
    at = None if wanted.at is None else wanted.at + session.tx.calendar.ahead
    if not session.do([Rewrite(no, mask, key, token, wanted.delay, at)])[0]:
        return "leaving" if session.head.frozen is not None and session.head.frozen.waiting else "held"
    session.tx.create(session.seen.root + key, rows.encode(carried([row])))
    return "changed"


def _changed(stored: Stored, wanted: Change) -> Stored:
    new = replace(stored, priority=stored.priority if wanted.priority is None else wanted.priority)
    if wanted.payload is None:
        return new
    return replace(new, payload=wanted.payload, content_type=wanted.content_type)


def _plain(id: str) -> str | None:
    number = ids.number(id)
    return None if number is None else f"{number:032x}"
