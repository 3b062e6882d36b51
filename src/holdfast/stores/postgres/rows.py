"""Between the seam's records and the columns of the database."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ... import ids as makers
from ... import limits
from ..records import JSON, Attempt, Claimed, Envelope, Settlement, Stored

_TOKEN_BITS = 60  # fit into an int8
_RANK_MOST = 255  # minus the priority: the most urgent come first in an index
_END_CHARS = 12  # of an id in a token: those that tell the messages of one claim apart
_HASH_BYTES = 16  # of a dedup key that stands as its hash
HASH_MARK = b"\xff"
TRIP_BYTES = 4 << 20  # of one statement or answer; beyond it the trip is the smaller part of its time
ACTIONS = {"complete": 0, "retry": 1, "dead": 2, "release": 3}
_headers = msgspec.json.Decoder(dict[str, str]).decode
_encode = msgspec.json.Encoder().encode
_attempts = msgspec.json.Decoder(tuple[Attempt, ...]).decode


def token_number(token: str, id: str) -> int:
    """The number behind a token, `<claim>.<end of the id>[.<rank>]`; -1, which nobody holds: it is not this message's.

    The rank is there where the bits of the id tell another, since the priority was changed.
    """
    claim, _, rest = token.partition(".")
    end, dot, text = rest.partition(".")
    try:
        number, place = int(claim, 16), int(text) if dot else 0
    except ValueError:
        return -1
    # There are many ways to write a number, and one of ours.
    is_own = end == id[-_END_CHARS:] and claim == f"{number:x}" and (not dot or text == str(place))
    return number if is_own and 0 <= number < 1 << _TOKEN_BITS and 0 <= place <= _RANK_MOST else -1


def token_text(number: int, id: str, priority: int) -> str:
    return _token(f"{number:x}", id, makers.number(id) or 0, _RANK_MOST - priority)


def _token(claim: str, id: str, bits: int, rank: int) -> str:
    """For a message of a claim, whose number is given in hexadecimal; `bits` are those of the id."""
    token = f"{claim}.{id[-_END_CHARS:]}"
    return token if rank == _RANK_MOST - makers.priority_of(bits) else f"{token}.{rank}"


def rank_under(token: str, id: str) -> int | None:
    """Where the message lies that is held under a token; of a token that is none of ours, where its id says."""
    place = token.partition(".")[2].partition(".")[2]
    return int(place) if place and token_number(token, id) >= 0 else rank(id)


def fresh_token(random: bytes) -> int:
    return int.from_bytes(random) >> (8 * len(random) - _TOKEN_BITS)


def rank(id: str) -> int | None:
    """255 - priority, from the bits of an id; None when the text is no id of ours."""
    number = makers.number(id)
    return None if number is None else _RANK_MOST - makers.priority_of(number)


def rank_for(priority: int) -> int:
    return _RANK_MOST - priority


class Alike(msgspec.Struct, frozen=True):
    """Messages of one claim and priority that were completed in the same way, without results."""

    ids: list[str]
    rank: int
    token: int
    keep: bool | None
    worker: str | None


def alike(settlements: Sequence[Settlement]) -> Alike | None:
    """The settlements as one, where they are: the usual case, and a third of the work for client and server."""
    if not settlements:
        return None
    first = settlements[0]
    number, keep, worker = token_number(first.token, first.id), first.keep, first.worker
    claim = first.token[:-_END_CHARS]
    ids = [s.id for s in settlements
           if s.action == "complete" and s.token == claim + s.id[-_END_CHARS:] and s.result is None and s.keep is keep
           and s.worker == worker]  # fmt: skip
    priority = makers.shared_priority(ids) if len(ids) == len(settlements) else None
    return None if priority is None or number < 0 else Alike(ids, 255 - priority, number, keep, plain(worker))


def known(ids: Sequence[str]) -> tuple[list[str], list[int]]:
    """Those that can be ids, and their ranks."""
    pairs = [(id, found) for id in ids if (found := rank(id)) is not None]
    return [id for id, _ in pairs], [found for _, found in pairs]


def headers_text(headers: dict[str, str] | None) -> str | None:
    return _encode(headers).decode() if headers else None


def headers_from(text: str | None) -> dict[str, str] | None:
    return None if text is None else _headers(text)


def history_from(text: str | None) -> tuple[Attempt, ...]:
    """What the column `history` says."""
    return () if text is None else _attempts(text)


def history_text(history: Sequence[Attempt] | None) -> str | None:
    return _encode(history).decode() if history else None


def plain(text: str | None) -> str | None:
    """Text as the database can keep it: without NUL."""
    return text if text is None or "\0" not in text else text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def in_ascii(settlement: Settlement) -> Settlement:
    """Text that a database of any encoding can keep."""
    return msgspec.structs.replace(
        settlement, error=limits.in_ascii(settlement.error), worker=limits.in_ascii(settlement.worker)
    )


def hashed(key: bytes) -> bytes:
    """What stands for a dedup key of which only the hash is known, as other stores keep it; no text begins so."""
    return HASH_MARK + hashlib.blake2b(key, digest_size=_HASH_BYTES).digest()


def content_type(text: str) -> str | None:
    return None if text == JSON else text


def claimed(row: Any, claim: str, lease: float) -> Claimed:
    """A row of claim.sql; `claim` is the claim's number in hexadecimal."""
    uuid, rank, payload, kind, headers, attempts, most, enqueued_at, again, alone, now, _, expires = row
    own = None if headers is None else _headers(headers)
    id = str(uuid)
    return Claimed(
        id, _token(claim, id, uuid.int, rank), payload, kind or JSON, own, 255 - rank, attempts, most, enqueued_at,
        now + lease, again, alone, expires,
    )  # fmt: skip


def ready(found: Iterable[Any], claim: str, expires_at: float) -> list[Claimed]:
    """Rows of claim_ready.sql, the last one left out; `claim` is the claim's number in hexadecimal."""
    made = []
    for uuid, rank, payload, kind, headers, attempts, most, expires, enqueued_at in found:
        id = str(uuid)
        own = None if headers is None else _headers(headers)
        made.append(
            Claimed(
                id, _token(claim, id, uuid.int, rank), payload, kind or JSON, own, 255 - rank, attempts, most,
                enqueued_at, expires_at, expires=expires,
            )
        )  # fmt: skip
    return made


def stored(row: Any) -> Stored:
    """A row of get.sql or scan_*.sql."""
    (id, status, payload, kind, headers, rank, attempts, most, enqueued_at, visible_at, finished_at, result, error,
     worker, claimed_at, expires, history) = row  # fmt: skip
    return Stored(
        str(id), status, payload, kind or JSON, headers_from(headers), 255 - rank, attempts, most, enqueued_at,
        visible_at, finished_at, result, error, worker, claimed_at, expires,
        history_from(history),
    )  # fmt: skip


def ends(messages: Sequence[Envelope]) -> tuple[list[Any], ...]:
    """Instants of expiry, and seconds until then; none at all where no message expires."""
    if all(message.expires is None and message.lifetime is None for message in messages):
        return ()
    return [message.expires for message in messages], [message.lifetime for message in messages]


def columns(messages: Sequence[Envelope]) -> tuple[list[Any], ...]:
    """Ranks, delays, instants, content types, headers, max_attempts, payloads."""
    return (
        [255 - message.priority for message in messages],
        [message.delay for message in messages],
        [message.at for message in messages],
        [content_type(message.content_type) for message in messages],
        [headers_text(message.headers) for message in messages],
        [message.max_attempts for message in messages],
        [message.payload for message in messages],
    )
