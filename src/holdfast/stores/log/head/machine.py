"""The head as a pure state machine: `apply(head, intents, now, rules)` answers a new head and one result per intent.

No I/O, no clock, no randomness. What two processes may race on is decided here; the space's transaction enforces it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from .. import names
from . import bits, past, repeat
from .state import (
    FOREVER,
    LEADS_TO,
    NEVER,
    Absorb,
    Applied,
    Block,
    Claim,
    Drop,
    Exhausted,
    Expire,
    Extend,
    Freeze,
    Frozen,
    Gathered,
    Head,
    Intent,
    Lease,
    Purge,
    Recent,
    Remove,
    Result,
    Rewrite,
    Rules,
    Settle,
    Settled,
    TakeBack,
    Taken,
    Waiting,
    in_one_flush,
    lasting,
)

EXPIRED = "lease expired"
CANCELLED = "cancelled"
LAPSED = "expired"
NEAR_MOST = 300  # waiting messages the head holds; beyond, all but the nearest leave in the flush
NEAR_KEPT = 100
HEAVY = 64 * 1024  # bytes of results or errors that make a flush due at once
GROUPS_MOST = 256  # groups of outcomes the head holds before a flush: it is rewritten with every commit
RECENT_MOST = 32
_ORDER = (Settle, Extend, TakeBack, Rewrite, Remove, Purge, Absorb, Expire, Claim, Freeze, Drop, *repeat.VERBS)
PLAIN = Rules()
# In a `map` or `filter`, which takes no step of ours for each of some hundred leases or blocks.
_expires, _gone = attrgetter("expires"), attrgetter("gone")
_RANK = {kind: _ORDER.index(kind) for kind in _ORDER}


def apply(head: Head, intents: Sequence[Intent], now: float, rules: Rules) -> Applied:
    """Carry the intents out, kind by kind in the order of the protocol."""
    head = head.copy()
    head.now = max(head.now, now)
    results: list[Result] = [None] * len(intents)
    for place in sorted(range(len(intents)), key=lambda place: _RANK[type(intents[place])]):
        intent = intents[place]
        results[place] = _VERBS[type(intent)](head, intent, rules)
    finished = [block.key for block in filter(_gone, head.blocks.values()) if block.gone >= block.name.count]
    if finished:
        head.blocks = {no: block for no, block in head.blocks.items() if block.gone < block.name.count}
        finished = repeat.bury(head, finished, rules)
    if head.past:
        past.prune(head, finished=bool(finished))
    return Applied(head, results, finished)


def wanted(
    head: Head, keys: Iterable[str], demand: int, rules: Rules = PLAIN, *, upto: str = ""
) -> tuple[list[str], bool]:
    """Which of the listed blocks to absorb so that a claim of `demand` messages is served in the right order.

    Also whether that is enough, or more blocks should be listed if there are any. `upto` is the last key of an inbox
    that was not listed to its end: what lies beyond may come after blocks that nobody has listed, and does not count.
    """
    known = {block.key for block in head.blocks.values()} | head.beyond.refused
    now = max(head.now, rules.now)
    candidates = [(names.parse_block(key), key) for key in keys if key not in known]
    stock = [
        (name.order, name.count if not name.expires or names.instant_of(name.expires, rules.calendar) > now else 0, key)
        for name, key in candidates
    ]
    if rules.margin:  # what is listed is due by some clock, and counts as soon as it is by ours
        stock = [(order, count if Block.of(0, key).is_due(now, rules) else 0, key) for order, count, key in stock]
    stock += [(block.order, block.ready(now, rules), "") for block in untouched(head)]
    if upto:
        end = names.order_of(upto)
        stock = [(order, count if order < end else 0, key) for order, count, key in stock]
    chosen = []
    for _, count, key in sorted(stock):
        if demand <= 0:
            break
        demand -= count
        if key:
            chosen.append(key)
    return chosen, demand <= 0


def untouched(head: Head) -> list[Block]:
    """As `Block.is_untouched` says, without a call for each."""
    return [block for block in head.blocks.values() if block.next < block.name.count]


def _settle(head: Head, intent: Settle, rules: Rules) -> int:
    """The places for which the settlement counts: the token is current, or did the same before."""
    held = 0
    for lease in [each for each in head.leases if each.token == intent.token and each.block == intent.block]:
        part = lease.mask & intent.mask
        if part:
            held |= part
            _take(head.leases, lease, part)
            _finish_part(head, lease, part, intent, rules)
    return held if held == intent.mask else held | _repeated(head, intent)


def _repeated(head: Head, intent: Settle) -> int:
    """Places this token has settled before, in the same way."""
    frozen = head.frozen or Frozen("", 0.0, [], [])
    groups: list[Settled | Waiting | Recent] = [*head.settled, *frozen.settled, *head.waiting, *frozen.waiting]
    mask = 0
    for group in [*groups, *head.recent]:
        if group.token == intent.token and group.block == intent.block and group.status in LEADS_TO[intent.action]:
            mask |= group.mask
    return mask & intent.mask


def _finish_part(head: Head, lease: Lease, part: int, intent: Settle, rules: Rules) -> None:
    spent = lease.attempts >= head.blocks[lease.block].limit(rules)
    if intent.action == "release" or (intent.action == "retry" and not spent):
        attempts = lease.attempts - (intent.action == "release")
        due = _due(head, intent.delay, rules)
        worker = (intent.worker or lease.worker) if rules.names_workers else None
        if intent.action == "retry":
            past.add(head, lease, part, rules, end=head.now, worker=intent.worker or lease.worker, error=intent.error)
        group = Waiting(
            lease.block, part, due, attempts, lease.crashed, intent.error, intent.token, intent.action, worker
        )
        insort(head.waiting, group, key=lambda each: each.due)
        return
    status = "completed" if intent.action == "complete" else rules.dead
    keep = intent.keep if status == "completed" and intent.keep is not None else _kept(status, rules)
    results = [intent.results.get(place) for place in bits.places(part)] if intent.results else None
    said = intent.error, intent.worker or lease.worker, intent.token, results, lease.claimed
    _end(head, Settled(lease.block, part, status, head.now, lease.attempts, *said), keep=keep)


def _due(head: Head, delay: float, rules: Rules) -> float:
    """When a message comes back; at once is no instant that others would wait a margin for."""
    if not rules.margin:
        return head.now + delay
    return (rules.now or head.now) + lasting(delay) if delay > 0 else 0.0


def _kept(status: str, rules: Rules) -> bool:
    """Whether a message that ended so is written anywhere."""
    return rules.archive or status in ("dead", "moved")


def _end(head: Head, group: Settled, *, keep: bool) -> None:
    """The one place where a message ends: counted, then kept for the flush or gone."""
    count = group.mask.bit_count()
    if group.status == "completed":
        head.completed += count
    elif group.status != "dead":
        head.failed += count
    if keep:
        head.settled.append(group)
    else:
        head.lose(group.block, count)
        _remember(head, group.token, group.block, group.mask, group.status)


def _remember(head: Head, token: str, block: int, mask: int, status: str) -> None:
    """Nothing of a settlement is kept but its token, so that repeating it is still success."""
    for place, recent in enumerate(head.recent):
        if recent.token == token and recent.block == block and recent.status == status:
            head.recent[place] = msgspec.structs.replace(recent, mask=recent.mask | mask)
            return
    head.recent.append(Recent(token, block, mask, status))
    del head.recent[:-RECENT_MOST]


def _take(groups: list[Any], group: Lease | Waiting, part: int) -> None:
    """Take places out of a group; an empty group goes."""
    place = next(place for place, each in enumerate(groups) if each is group)
    left = group.mask & ~part
    groups[place : place + 1] = [msgspec.structs.replace(group, mask=left)] if left else []


def _extend(head: Head, intent: Extend, rules: Rules) -> int:
    """The places whose lease now lasts at least `seconds` from now."""
    held = 0
    expires = head.now + intent.seconds
    for lease in [each for each in head.leases if each.token == intent.token and each.block == intent.block]:
        part = lease.mask & intent.mask
        held |= part
        if part and expires > lease.expires:
            _take(head.leases, lease, part)
            head.leases.append(msgspec.structs.replace(lease, mask=part, expires=expires))
    return held


def _take_back(head: Head, intent: TakeBack, rules: Rules) -> int:
    """The places that were held; those of a pipeline are given back by a release of its batch alone."""
    taken = 0
    over = head.now - rules.margin  # for everybody at once, whatever its clock says
    for lease in [each for each in head.leases if each.block == intent.block and over < each.expires < FOREVER]:
        part = lease.mask & intent.mask
        if part and not lease.is_over(head.now, rules):
            ended = msgspec.structs.replace(lease, mask=part, expires=over, token=intent.token)
            _take(head.leases, lease, part)
            head.leases.append(ended)
            taken |= part
    return taken


def _rewrite(head: Head, intent: Rewrite, rules: Rules) -> bool:
    """Whether nobody held it. What is not due waits as a retry does, so that many of them leave the head as those do.

    What is due is fresh: a flush would keep it from those who claim.
    """
    block = head.blocks[intent.block]
    due, attempts, crashed = 0.0, block.name.attempts, block.name.crashed
    if block.fresh() & intent.mask:
        head.change(block.no, skip=block.skip | intent.mask)
        due = 0.0 if block.is_due(head.now, rules) else block.due_at(rules)
    else:
        found = [(groups, group) for groups, group in _unheld(head, rules) if _has(group, intent)]
        if not found:
            return False
        [(groups, group)] = found
        _take(groups, group, intent.mask)
        attempts, crashed = group.attempts, True if isinstance(group, Lease) else group.crashed
        if isinstance(group, Waiting) and not group.is_due(head.now, rules):
            due = group.due_at(rules)
    head.lose(block.no, 1)
    if intent.at is not None:
        due = intent.at
    elif intent.delay is not None:
        due = _due(head, intent.delay, rules)
    head.serial += 1
    waits = due > head.now
    head.blocks[head.serial] = Block.of(head.serial, intent.key, next=int(waits), calendar=rules.calendar)
    if waits:
        new = Waiting(head.serial, 1, due, attempts, crashed, None, intent.token, "release")
        insort(head.waiting, new, key=lambda each: each.due)
    return True


def _has(group: Waiting | Lease, intent: Rewrite) -> bool:
    return group.block == intent.block and bool(group.mask & intent.mask)


def has_crashed(head: Head, no: int, mask: int) -> bool:
    """Whether an earlier lease of a message that nobody holds has expired."""
    if any(lease.block == no and lease.mask & mask for lease in head.leases):
        return True
    groups = [group.crashed for group in head.waiting if group.block == no and group.mask & mask]
    return groups[0] if groups else head.blocks[no].name.crashed


def _remove(head: Head, intent: Remove, rules: Rules) -> int:
    """The places that were fresh or waiting, or held if these count too, and have ended now."""
    block = head.blocks[intent.block]
    fresh = block.fresh() & intent.mask
    head.change(block.no, skip=block.skip | fresh)
    _removed(head, intent, fresh, block.name.attempts, rules)
    removed = fresh
    for groups, group in _unheld(head, rules, held=intent.held):
        part = group.mask & intent.mask if group.block == intent.block else 0
        if part:
            claimed = group.claimed if intent.held and isinstance(group, Lease) else 0.0
            _take(groups, group, part)
            _removed(head, intent, part, group.attempts, rules, claimed, group.worker)
            removed |= part
    return removed


def _unheld(head: Head, rules: Rules, *, held: bool = False) -> list[tuple[list[Any], Waiting | Lease]]:
    """Claimed messages that nobody holds, and where: those that wait, and those whose lease is over, or has an end."""
    leases = [each for each in head.leases if each.expires < FOREVER] if held else _over(head, rules)
    over: list[tuple[list[Any], Waiting | Lease]] = [(head.leases, each) for each in leases]
    return over + [(head.waiting, each) for each in head.waiting]


def _removed(
    head: Head,
    intent: Remove,
    mask: int,
    attempts: int,
    rules: Rules,
    claimed: float = 0.0,
    worker: str | None = None,
) -> None:
    if not mask:
        return
    if intent.replay:
        head.settled.append(Settled(intent.block, mask, "replayed", head.now, attempts, None, None, "", None))
    elif intent.error is None:
        head.lose(intent.block, mask.bit_count())
    else:
        group = Settled(intent.block, mask, "failed", head.now, attempts, intent.error, worker, "", None, claimed)
        _end(head, group, keep=rules.archive)


def _purge(head: Head, intent: Purge, rules: Rules) -> int:
    """How many messages were dropped."""
    before = sum(block.gone for block in head.blocks.values())
    head.beyond = msgspec.structs.replace(head.beyond, purged_at=max(head.beyond.purged_at, intent.before))
    for block in list(head.blocks.values()):
        fresh = block.fresh()
        head.change(block.no, skip=block.skip | fresh, gone=block.gone + fresh.bit_count())
    for groups, group in _unheld(head, rules):
        _take(groups, group, group.mask)
        head.lose(group.block, group.mask.bit_count())
    return sum(block.gone for block in head.blocks.values()) - before


def _absorb(head: Head, intent: Absorb, rules: Rules) -> int:
    new = repeat.absorbable(head, intent)
    for key in new:
        head.serial += 1
        head.blocks[head.serial] = Block.of(head.serial, key, calendar=rules.calendar)
    return len(new)


def _expire(head: Head, intent: Expire, rules: Rules) -> list[Exhausted]:
    ended = []
    for lease in exhausted(head, rules):
        _take(head.leases, lease, lease.mask)
        ended.append(Exhausted(lease.block, lease.mask, lease.attempts))
        said = EXPIRED, lease.worker, "", None, lease.claimed
        group = Settled(lease.block, lease.mask, rules.dead, head.now, lease.attempts, *said)
        _end(head, group, keep=_kept(rules.dead, rules))
    for block in lapsed(head):
        ended += _lapse(head, block, rules)
    return ended


def lapsed(head: Head) -> list[Block]:
    """The blocks whose messages have expired: mostly none, and then not one is looked at."""
    if head.first_end() > head.now:
        return []
    return [block for block in head.blocks.values() if block.until <= head.now]


def has_lapsing(head: Head, rules: Rules) -> bool:
    """Whether some messages that nobody holds have expired."""
    over = {block.no for block in lapsed(head)}
    if not over:
        return False
    return any(head.blocks[no].fresh() for no in over) or any(group.block in over for _, group in _unheld(head, rules))


def _lapse(head: Head, block: Block, rules: Rules) -> list[Exhausted]:
    """End what nobody holds; what is in hand is not taken away."""
    found = [(group.mask, group.attempts) for _, group in _unheld(head, rules) if group.block == block.no]
    if block.fresh():
        found.insert(0, (block.fresh(), block.name.attempts))
    _remove(head, Remove(block.no, bits.span(0, block.name.count), LAPSED), rules)
    return [Exhausted(block.no, mask, attempts, block) for mask, attempts in found]


def _over(head: Head, rules: Rules) -> list[Lease]:
    """The leases whose time has come: mostly none, and then not one is looked at."""
    if min(map(_expires, head.leases), default=NEVER) > max(head.now, rules.now):
        return []
    return [lease for lease in head.leases if lease.is_over(head.now, rules)]


def exhausted(head: Head, rules: Rules) -> list[Lease]:
    """The leases that are over, and there will be no further attempt."""
    return [lease for lease in _over(head, rules) if _is_last(head, lease, rules)]


def _is_last(head: Head, lease: Lease, rules: Rules) -> bool:
    return not rules.retry_expired or lease.attempts >= head.blocks[lease.block].limit(rules)


class _Source(msgspec.Struct, gc=False):
    """Messages of one block that a claim may take, alike in everything but their place."""

    mask: int
    attempts: int
    crashed: bool
    group: Lease | Waiting | None  # None: fresh ones

    def lonely(self, limit: int) -> bool:
        """The last attempt after a crash."""
        return self.crashed and self.attempts + 1 >= limit


def _claim(head: Head, intent: Claim, rules: Rules) -> list[Taken]:
    """Priority, block, place: over fresh messages, due ones and expired leases alike.

    The last attempt after a crash runs alone: it is the only message of its claim, so that it kills nobody else.
    """
    taken: list[Taken] = []
    if rules.paused:
        return taken
    returning = _returning(head, rules)
    room = intent.limit
    open_blocks = untouched(head) + [head.blocks[no] for no in returning if not head.blocks[no].is_untouched]
    for block in sorted(open_blocks, key=lambda each: each.order):
        sources = returning.get(block.no, [])
        if block.is_due(head.now, rules):
            sources = [_Source(block.fresh(), block.name.attempts, block.name.crashed, None), *sources]
        limit = block.limit(rules)
        chosen, stop = _choose(sources, limit, room, first=not taken)
        parts = [(source, source.mask & chosen) for source in sources]
        taken += [_lease_out(head, intent, block, source, part, rules) for source, part in parts if part]
        room -= chosen.bit_count()
        if stop or room <= 0:
            break
    return taken


def _returning(head: Head, rules: Rules) -> dict[int, list[_Source]]:
    """Due retries, and expired leases that may be tried again, by block."""
    sources: dict[int, list[_Source]] = {}
    for group in head.waiting:
        if group.due > head.now:
            break
        if not group.is_due(head.now, rules):
            continue
        sources.setdefault(group.block, []).append(_Source(group.mask, group.attempts, group.crashed, group))
    for lease in _over(head, rules):
        if not _is_last(head, lease, rules):
            sources.setdefault(lease.block, []).append(_Source(lease.mask, lease.attempts, True, lease))
    return sources


def _choose(sources: list[_Source], limit: int, room: int, *, first: bool) -> tuple[int, bool]:
    """Which places of a block a claim takes, and whether it must stop there because of a message that runs alone."""
    offered = lonely = 0
    for source in sources:
        offered |= source.mask
        if source.lonely(limit):
            lonely |= source.mask
    chosen = bits.lowest(offered, room)
    if not chosen & lonely:
        return chosen, False
    loner = lonely & -lonely
    before = chosen & (loner - 1)
    return (loner if first and not before else before), True


def _lease_out(head: Head, intent: Claim, block: Block, source: _Source, part: int, rules: Rules) -> Taken:
    if source.group is None:
        done = part.bit_length()
        head.change(block.no, next=done, skip=block.skip >> done << done)
    elif isinstance(source.group, Waiting):
        _take(head.waiting, source.group, part)
        _remember(head, source.group.token, block.no, part, source.group.status)
    else:
        _take(head.leases, source.group, part)
        past.add(head, source.group, part, rules, end=source.group.expires, worker=source.group.worker, error=EXPIRED)
    expires = head.now + intent.lease
    attempt = source.attempts + 1
    worker = intent.worker if rules.names_holders else None
    head.leases.append(Lease(intent.token, block.no, part, expires, attempt, source.crashed, head.now, worker))
    alone = source.lonely(block.limit(rules))
    return Taken(block.no, part, expires, attempt, isinstance(source.group, Lease), alone)


def _freeze(head: Head, intent: Freeze, rules: Rules) -> bool:
    """Fix the rows of the next flush; False: one is under way, or there is nothing to write."""
    spilled = _spilled(head)
    if head.frozen is not None or not (head.settled or spilled):
        return False
    head.waiting = head.waiting[: len(head.waiting) - len(spilled)]
    some = in_one_flush(head.settled)
    head.frozen = Frozen(intent.flush, head.now, head.settled[:some], spilled)
    head.settled = head.settled[some:]
    return True


def _spilled(head: Head) -> list[Waiting]:
    """The waiting messages that leave: when there are too many, all but the nearest."""
    if not head.waiting:
        return []
    count = sum(group.mask.bit_count() for group in head.waiting)
    heavy = _error_chars(head.waiting) > HEAVY or past.waiting_bytes(head) > HEAVY
    if count <= NEAR_MOST and not heavy:
        return []
    kept = 0
    for place, group in enumerate(head.waiting):
        kept += group.mask.bit_count()
        if heavy or kept > NEAR_KEPT:
            return head.waiting[place:]
    return []


def _error_chars(groups: Iterable[Waiting]) -> int:
    return sum(len(group.error or "") for group in groups)


def is_heavy(head: Head) -> bool:
    """Errors of messages that wait, or are leaving, make it large, and every commit writes it again."""
    leaving = head.frozen.waiting if head.frozen is not None else []
    return _error_chars([*head.waiting, *leaving]) > HEAVY or past.waiting_bytes(head) > HEAVY


def _drop(head: Head, intent: Drop, rules: Rules) -> bool:
    """Let the rows of a written flush go; False: another has done it."""
    frozen = head.frozen
    if frozen is None or frozen.flush != intent.flush:
        return False
    groups: list[Settled | Waiting] = [*frozen.settled, *frozen.waiting]
    for group in groups:
        head.lose(group.block, group.mask.bit_count())
    head.frozen = None
    return True


def flush_due(head: Head, gathered: Gathered, *, rows: int, age: float) -> bool:
    """Enough outcomes have gathered, or the first has waited long enough, or waiting messages must leave."""
    if head.frozen is not None:
        return False
    if head.settled and head.now - head.settled[0].at >= age:
        return True
    if len(head.settled) >= GROUPS_MOST or _spilled(head):
        return True
    gathered.count(head.settled)
    return gathered.rows >= rows or gathered.bytes >= HEAVY


_VERBS: dict[type[Any], Callable[[Head, Any, Rules], Result]] = {
    Settle: _settle,
    Extend: _extend,
    TakeBack: _take_back,
    Rewrite: _rewrite,
    Remove: _remove,
    Purge: _purge,
    Absorb: _absorb,
    Expire: _expire,
    Claim: _claim,
    Freeze: _freeze,
    Drop: _drop,
    **repeat.VERBS,
}
