"""Between the seam and the head: claimed sets become messages, settlements by message become sets.

A token says where the head finds the message: `<claim>.<block number>.<place>`; to callers it is opaque text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

import msgspec

from ... import ids
from ...messages import Answer as SettleAnswer
from ...messages import Claimed, Expired, Settlement, Stored
from . import bits, names
from .committer import Answer, Seen, Then
from .rows import Rows
from .space import Reading, Transaction
from .state import Block, Extend, Head, Result, Rules, Settle, Taken

INLINE_RESULT = 4096  # bytes; a larger result is an object of its own, so that the head stays small


class Spot(msgspec.Struct, frozen=True, gc=False):
    """Where a token points."""

    token: str
    block: int
    place: int


def spot_of(token: str) -> Spot | None:
    claim, _, rest = token.partition(".")
    block, _, place = rest.partition(".")
    return Spot(claim, int(block), int(place)) if block.isdecimal() and place.isdecimal() else None


def claimed(answer: Answer, taken: Sequence[Taken], token: str) -> list[Claimed]:
    """Messages in claim order: block by block, place by place."""
    order: dict[int, list[Taken]] = {}
    for each in taken:
        order.setdefault(each.block, []).append(each)
    messages: list[Claimed] = []
    for no, groups in order.items():
        block, rows = answer.blocks[no]
        here = [
            _message(block, rows, place, each, token, answer.rules)
            for each in groups
            for place in bits.places(each.mask)
        ]
        if len(groups) > 1:
            here.sort(key=lambda message: message.id)
        messages += here
    return messages


def _message(block: Block, rows: Rows, place: int, taken: Taken, token: str, rules: Rules) -> Claimed:
    return Claimed(
        id_at(block, rows, place),
        f"{token}.{block.no}.{place}",
        rows.payload[place],
        rows.content_type_at(place),
        rows.headers[place] if rows.headers else None,
        rows.priority[place] if rows.priority else block.name.priority,
        taken.attempt,
        rows.max_attempts[place] if rows.max_attempts else block.limit(rules),
        enqueued_at(block, rows, place),
        taken.expires,
        taken.recovered,
        taken.alone,
    )


def id_at(block: Block, rows: Rows, place: int) -> str:
    if rows.id is not None:
        return names.dashed(rows.id[place])
    return f"{names.dashed(block.name.block)[:-5]}{place:05x}"


def enqueued_at(block: Block, rows: Rows, place: int) -> float:
    return rows.enqueued_at[place] if rows.enqueued_at else ids.born_at(int(block.name.block, 16))


def expired(answer: Answer, error: str) -> list[Expired]:
    """What the commit of this claim ended because its lease was over."""
    status: Literal["dead", "failed"] = "dead" if answer.rules.dead == "dead" else "failed"
    return [
        Expired(id_at(*answer.blocks[group.block], place), group.attempts, status, error)
        for group in answer.expired
        for place in bits.places(group.mask)
    ]


class SettleBatch(msgspec.Struct, frozen=True):
    """Settlements as intents, where each one went (intent, place), and results too large for the head, by key."""

    intents: list[Settle]
    where: list[tuple[int, int] | None]
    large: dict[str, bytes]


def settle_intents(settlements: Sequence[Settlement]) -> SettleBatch:
    """Settlements that decide the same over messages of one claim and block become one."""
    batch = SettleBatch([], [], {})
    numbers: dict[tuple[object, ...], int] = {}
    masks: list[int] = []
    for each in settlements:
        spot = spot_of(each.token)
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
    for _, token in leases:
        spot = spot_of(token)
        if spot is None:
            where.append(None)
            continue
        kind = (spot.token, spot.block)
        masks[kind] = masks.get(kind, 0) | 1 << spot.place
        where.append((numbers.setdefault(kind, len(numbers)), spot.place))
    return [Extend(token, block, mask, seconds) for (token, block), mask in masks.items()], where


def extended(answer: Answer, intents: Sequence[Extend], where: Sequence[tuple[int, int] | None]) -> list[float | None]:
    """When each lease ends now; None: it is lost."""
    ends = []
    for spot in where:
        held = spot is not None and cast(int, answer.results[spot[0]]) >> spot[1] & 1
        ends.append(_end_of(answer.head, intents[spot[0]], spot[1]) if spot is not None and held else None)
    return ends


def _end_of(head: Head, intent: Extend, place: int) -> float | None:
    for lease in head.leases:
        if lease.token == intent.token and lease.block == intent.block and lease.mask >> place & 1:
            return lease.expires
    return None


def keep_results(large: dict[str, bytes]) -> Then:
    """Write results too large for the head, in the transaction that settles their messages."""

    def then(tx: Transaction, seen: Seen, results: list[Result]) -> None:
        for key, data in large.items():
            tx.put(seen.root + key, data)

    return then


def judged(settlement: Settlement, stored: Stored | None, token: str | None) -> SettleAnswer:
    """What became of a settlement that the head refused."""
    if stored is None:
        return "unknown"
    spot = spot_of(settlement.token)
    same = (settlement.action == "complete") == (stored.status == "completed")
    return "ok" if spot is not None and token == spot.token and same and stored.finished_at is not None else "lost"
