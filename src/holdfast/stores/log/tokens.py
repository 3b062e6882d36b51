"""Between the seam and the head: claimed sets become messages, settlements by message become sets.

A token says where the head finds the message, `<claim>.<block number>.<place>.<id>`; the id keeps it from being used
for another message, and any other id from being used with it. To callers it is opaque text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

import msgspec

from ... import ids
from ..records import LAPSED, Action, Claimed, Expired, Settlement, Status, Stored
from ..records import Answer as SettleAnswer
from . import names
from .calendar import Calendar
from .commit import Answer, Then
from .edit import Session
from .head import bits
from .head.machine import HEAVY
from .head.state import NEVER, Block, Extend, Head, Rules, Settle, Taken
from .rows import Rows
from .space import Reading

_LEAST_END = 12  # characters of the id at the end of a token: earlier versions gave out no more
INLINE_RESULT = 4096  # bytes; a larger result is an object of its own, so that the head stays small


class Spot(msgspec.Struct, frozen=True, gc=False):
    """Where a token points."""

    token: str
    block: int
    place: int


def spot_of(token: str, id: str) -> Spot | None:
    """Where a token points; None: it is none of ours, or not this message's."""
    try:
        claim, block, place, end = token.rsplit(".", 3)  # the name of a stream's consumer may have dots
        spot = Spot(claim, int(block), int(place))
    except ValueError:
        return None
    is_own = len(end) >= _LEAST_END and id.endswith(end)
    return spot if is_own and 0 <= spot.place < ids.PLACES else None


def claimed(answer: Answer, taken: Sequence[Taken], token: str) -> list[Claimed]:
    """Messages in claim order: block by block, place by place."""
    order: dict[int, list[Taken]] = {}
    for each in taken:
        order.setdefault(each.block, []).append(each)
    messages: list[Claimed] = []
    for no, groups in order.items():
        here: list[Claimed] = []
        for group in groups:
            here += _messages(*answer.blocks[no], group, token, answer.rules)
        if len(groups) > 1:
            here.sort(key=lambda message: message.id)
        messages += here
    return messages


def _messages(block: Block, rows: Rows, taken: Taken, token: str, rules: Rules) -> list[Claimed]:
    """The messages of one set. What they share is looked up once: this runs for every message there is."""
    name, prefix = block.name, names.dashed(block.name.block)[:-5]
    born, limit = rules.calendar.wall(ids.born_at(int(name.block, 16))), block.limit(rules)
    expires, attempt, recovered, alone = rules.calendar.wall(taken.expires), taken.attempt, taken.recovered, taken.alone
    payload, headers, uniform = rows.payload, rows.headers, isinstance(rows.content_type, str)
    until = shown_end(block, rules.calendar)
    ends = ids.suffixes()
    known = len(ends)
    messages = []
    for place in bits.places(taken.mask):
        id = names.dashed(rows.id[place]) if rows.id else prefix + (ends[place] if place < known else f"{place:05x}")
        messages.append(
            Claimed(
                id,
                f"{token}.{block.no}.{place}.{id}",
                payload[place],
                rows.content_type if uniform else rows.content_type[place],  # type: ignore[arg-type]  # as `uniform` says
                headers[place] if headers else None,
                rows.priority[place] if rows.priority else name.priority,
                attempt,
                rows.max_attempts[place] if rows.max_attempts else limit,
                rows.enqueued_at[place] if rows.enqueued_at else born,
                expires,
                recovered,
                alone,
                until,
            )
        )
    return messages


def shown_end(block: Block, calendar: Calendar) -> float | None:
    """When its messages expire, by the calendar."""
    return None if block.until == NEVER else calendar.wall(block.until)


def id_at(block: Block, rows: Rows, place: int) -> str:
    if rows.id is not None:
        return names.dashed(rows.id[place])
    return f"{names.dashed(block.name.block)[:-5]}{place:05x}"


def enqueued_at(block: Block, rows: Rows, place: int, rules: Rules) -> float:
    if rows.enqueued_at:
        return rows.enqueued_at[place]
    return rules.calendar.wall(ids.born_at(int(block.name.block, 16)))


def expired(answer: Answer, error: str) -> list[Expired]:
    """What the commit of this claim ended because its time was over, or since it cannot be read any more."""
    status: Literal["dead", "failed"] = "failed" if answer.rules.dead == "failed" else "dead"
    return [
        Expired(id_at(block, rows, place), group.attempts, "failed", LAPSED)
        if group.lapsed is not None
        else Expired(id_at(block, rows, place), group.attempts, status, getattr(rows, "why", error))
        for group in answer.expired
        for block, rows in (answer.blocks[group.block],)
        for place in bits.places(group.mask)
    ]


class SettleBatch(msgspec.Struct, frozen=True):
    """Settlements as intents, where each one went (intent, place), and results too large for the head, by key."""

    intents: list[Settle]
    where: list[tuple[int, int] | None]
    large: dict[str, bytes]


def parts(settlements: Sequence[Settlement]) -> list[Sequence[Settlement]]:
    """So few in each that their errors, where all of them differ, do not make the head large; mostly one."""
    if sum(map(len, {each.error for each in settlements if each.error})) <= HEAVY:
        return [settlements]
    found: list[list[Settlement]] = [[]]
    known: set[str] = set()
    size = 0
    for each in settlements:
        if each.error and each.error not in known:
            if size + len(each.error) > HEAVY:
                found.append([])
                known, size = set(), 0
            known.add(each.error)
            size += len(each.error)
        found[-1].append(each)
    return [part for part in found if part]


def settle_intents(settlements: Sequence[Settlement]) -> SettleBatch:
    """Settlements that decide the same over messages of one claim and block become one."""
    batch = SettleBatch([], [], {})
    numbers: dict[tuple[object, ...], int] = {}
    masks: list[int] = []
    for each in settlements:
        spot = spot_of(each.token, each.id)
        if spot is None:
            batch.where.append(None)
            continue
        kind = (spot.token, spot.block, each.action, each.delay, each.keep, each.error, each.worker)
        number = numbers.get(kind)
        if number is None:
            number = numbers[kind] = len(masks)
            masks.append(0)
            batch.intents.append(
                Settle(spot.token, spot.block, 0, each.action, each.delay, each.keep, each.error, each.worker, {})
            )
        masks[number] |= 1 << spot.place
        if each.result is not None:
            batch.intents[number].results[spot.place] = _packed(each, batch.large)
        batch.where.append((number, spot.place))
    batch.intents[:] = [
        msgspec.structs.replace(intent, mask=mask) for intent, mask in zip(batch.intents, masks, strict=True)
    ]
    return batch


def _packed(settlement: Settlement, large: dict[str, bytes]) -> bytes:
    """A result as the head holds it: itself, or the key of an object of its own."""
    result = settlement.result or b""
    if len(result) <= INLINE_RESULT:
        return b"=" + result
    key = "results/" + settlement.token
    large[key] = result
    return b"@" + key.encode()


def result_key(packed: bytes | None) -> str | None:
    """The key of a result that is an object of its own."""
    return packed[1:].decode() if packed and packed.startswith(b"@") else None


def result_of(packed: bytes | None, view: Reading, root: str) -> bytes | None:
    """The result behind what the head holds."""
    if packed is None or packed.startswith(b"="):
        return packed[1:] if packed else None
    found = view.get(root + packed[1:].decode())
    return found.data if found else None


def extend_intents(
    leases: Sequence[tuple[str, str]], seconds: float
) -> tuple[list[Extend], list[tuple[int, int] | None]]:
    """The same for extensions."""
    masks: dict[tuple[str, int], int] = {}
    numbers: dict[tuple[str, int], int] = {}
    where: list[tuple[int, int] | None] = []
    for id, token in leases:
        spot = spot_of(token, id)
        if spot is None:
            where.append(None)
            continue
        kind = (spot.token, spot.block)
        masks[kind] = masks.get(kind, 0) | 1 << spot.place
        where.append((numbers.setdefault(kind, len(numbers)), spot.place))
    return [Extend(token, block, mask, seconds) for (token, block), mask in masks.items()], where


def settled(answer: Answer, batch: SettleBatch) -> list[SettleAnswer]:
    """Which took effect; what became of the others is yet to be found out."""
    results = cast(list[int], answer.results)
    return ["ok" if spot is not None and results[spot[0]] >> spot[1] & 1 else "lost" for spot in batch.where]


def extended(answer: Answer, intents: Sequence[Extend], where: Sequence[tuple[int, int] | None]) -> list[float | None]:
    """When each lease ends now; None: it is lost."""
    ends = []
    for spot in where:
        held = spot is not None and cast(int, answer.results[spot[0]]) >> spot[1] & 1
        calendar = answer.rules.calendar
        ends.append(_end_of(answer.head, intents[spot[0]], spot[1], calendar) if spot is not None and held else None)
    return ends


def _end_of(head: Head, intent: Extend, place: int, calendar: Calendar) -> float | None:
    for lease in head.leases:
        if lease.token == intent.token and lease.block == intent.block and lease.mask >> place & 1:
            return calendar.wall(lease.expires)
    return None


def keep_results(large: dict[str, bytes]) -> Then:
    """Write results too large for the head, in the transaction that settles their messages, where the head has them."""

    def then(session: Session) -> None:
        kept = {result for group in session.head.settled for result in group.results or ()}
        for key, data in large.items():
            if b"@" + key.encode() in kept:
                session.tx.create(session.seen.root + key, data)

    return then


def judged(settlement: Settlement, stored: Stored | None, token: str | None) -> SettleAnswer:
    """What became of a settlement that the head refused."""
    if stored is None:
        return "unknown"
    spot = spot_of(settlement.token, settlement.id)
    same = stored.status in _SHOWS_AS[settlement.action]
    return "ok" if spot is not None and token == spot.token and same else "lost"


_SHOWS_AS: dict[Action, tuple[Status, ...]] = {
    "complete": ("completed",),
    "retry": ("retry", "pending", "dead", "failed"),
    "dead": ("dead", "failed"),
    "release": ("pending", "delayed", "retry"),
}
