"""Messages that expire before anybody claims them: what upkeep does, for claims only see what they come across."""

from __future__ import annotations

from functools import partial
from itertools import islice

from . import bundles, names
from .cache import BlockCache
from .edit import Session
from .head.state import NEVER, Block, Expire
from .lookup import Glance
from .partition import Log

_AT_ONCE = 200  # blocks that one commit ends: the head, which is rewritten then, names them all


def soonest(glance: Glance) -> float:
    """When the next message expires, by the store's clock, held or not; names tell it."""
    calendar = glance.seen.rules.calendar
    known = [block.until for block in glance.seen.head.blocks.values()]
    return min((*known, *(names.lapse_of(key, calendar) for key in glance.listed())), default=NEVER)


async def end(log: Log, cache: BlockCache) -> int:
    """End what has expired and is in no head yet; how many messages."""
    ended = 0
    while some := await log.committer.edit(partial(_end_some, cache=cache)):
        ended += some
    return ended


def _end_some(session: Session, cache: BlockCache) -> int:
    glance = Glance(session.tx, session.seen, cache)
    calendar, now = session.seen.rules.calendar, session.tx.now
    over = (key for key in glance.listed() if names.lapse_of(key, calendar) <= now)
    ended = 0
    for key, bundle in islice(bundles.expanded(session.tx, session.seen.root, over), _AT_ONCE):
        block = Block.of(0, key, calendar=calendar)
        if session.head.block_at(key) is None:
            session.absorbed(block, bundle)
            ended += block.name.count if block.until <= now else 0
    session.do([Expire()])
    return ended
