"""What comes next, without claiming it: in claim order, and in the order of due times."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from operator import itemgetter
from typing import cast

from msgspec.structs import replace

from ..records import Stored
from . import records
from .head import bits
from .head.machine import apply, wanted
from .head.state import Absorb, Block, Claim, Expire, Head, Rules, Taken
from .lookup import STATUS, Found, Glance

_LISTED = 32  # keys at least: most blocks hold many messages
Upcoming = tuple[float, Block, int, records.State]  # due, and the places of a block that are due then


def next_in_line(glance: Glance, limit: int) -> list[Stored]:
    """What claims would give, from the head that they would leave; nothing of it is written."""
    seen, now = glance.seen, glance.view.now
    rules = replace(seen.rules, paused=False)
    chosen = _absorbed(glance, limit, rules)
    head = apply(seen.head, [Absorb(chosen, "own"), Expire()], now, rules).head
    found: list[Stored] = []
    while len(found) < limit:  # a message that runs alone ends its claim
        applied = apply(head, [Claim("", limit - len(found), 1.0)], now, rules)
        taken = cast(list[Taken], applied.results[0])
        if not taken:
            break
        found += _shown(glance, head, taken)
        head = applied.head
    return found


def _absorbed(glance: Glance, limit: int, rules: Rules) -> list[str]:
    """The blocks that claims of so many messages would take into the head. Where it can be, no more are looked at."""
    head, now, most = glance.seen.head, glance.view.now, glance.seen.head.held + max(limit, _LISTED)
    if glance.seen.window.has_bundles:
        return wanted(head, [block.key for block in glance.unabsorbed() if block.is_due(now, rules)], limit, rules)[0]
    come, rules = [block.key for block in glance.come()], replace(rules, now=now)  # what has expired does not count
    while True:
        inbox, upto = glance.first_in_inbox(most)
        chosen, enough = wanted(head, [*(block.key for block in inbox), *come], limit, rules, upto=upto)
        if enough or not upto:
            return chosen
        most *= 4


def _shown(glance: Glance, head: Head, taken: list[Taken]) -> Iterator[Stored]:
    """As they were before the claim, block by block, place by place."""
    masks: dict[int, int] = {}
    for each in taken:
        masks[each.block] = masks.get(each.block, 0) | each.mask
    for no, mask in masks.items():
        block = head.blocks[no]
        rows = glance.load(block)
        for place in bits.places(mask) if rows is not None else ():
            state = records.state_of(head, block, place, glance.view.now)
            if rows is not None and state is not None:
                yield glance.record(Found(block, rows, place, state))


def by_due_time(glances: list[Glance], view: str, after: tuple[float, str] | None, limit: int) -> list[Stored]:
    """One page of delayed messages or retries, by due time and id; `after` is the last one's."""
    start = after or (0.0, "")
    page: list[tuple[float, str, Stored]] = []
    last = 0.0
    for due, _, glance, (_, block, mask, state) in heapq.merge(
        *((_numbered(glance, number, view) for number, glance in enumerate(glances))), key=itemgetter(0, 1)
    ):
        if len(page) >= limit and due > last:
            break
        rows = glance.load(block) if (glance.seen.rules.calendar.wall(due)) >= start[0] else None
        for place in bits.places(mask) if rows is not None else ():
            if rows is None:
                break
            stored = glance.record(Found(block, rows, place, state))
            own = (stored.visible_at or 0.0, stored.id)
            if own > start:
                page.append((*own, stored))
                last = due
    return [stored for _, _, stored in sorted(page, key=itemgetter(0, 1))[:limit]]


def _numbered(glance: Glance, number: int, view: str) -> Iterator[tuple[float, int, Glance, Upcoming]]:
    return ((each[0], number, glance, each) for each in _upcoming(glance, STATUS[view]))


def _upcoming(glance: Glance, status: str) -> Iterator[Upcoming]:
    """By due time. Names of blocks tell all of it, so no block is read that is not shown."""
    head, now = glance.seen.head, glance.view.now
    held: list[Upcoming] = [
        (state.visible_at or 0.0, block, mask, state)
        for block in head.blocks.values()
        for state, mask in records.open_states(head, block, now)
        if state.status == status and mask
    ]
    listed = [_fresh(blocks, status, now) for blocks in glance.delayed()]
    return heapq.merge(sorted(held, key=itemgetter(0)), *listed, key=itemgetter(0))


def _fresh(blocks: Iterator[Block], status: str, now: float) -> Iterator[Upcoming]:
    for block in blocks:
        state = records.fresh_state(block, now)
        if state.status == status:
            yield block.due, block, block.fresh(), state
