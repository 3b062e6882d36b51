"""The head as bytes: small, because it is written with every commit."""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress, count
from operator import attrgetter, is_not
from typing import Any

import msgspec

from ....errors import StoreError
from ....schedules import Mark
from ..calendar import IN_STEP, Calendar
from .pipelines import NOTHING, Pipes
from .state import NEVER, Beyond, Block, Frozen, Head, Lease, Past, Recent, Settled, Waiting

PLAIN = 1
LATE = 2  # of heads with more than that: a repeat window, consumers and sinks
ASIDE = 3  # of heads that have late blocks set aside; without any, nothing of it is written
WORKERS = 4  # of heads with retries that name the worker that failed them; the same
SCHEDULES = 5  # of heads with marks of schedules; the same
FORMAT = 6  # of heads with leases that name who holds them, that count the archive, or have messages that expire


_SHIFT_MOST = 64
_worker = attrgetter("worker")  # in a `map`: without a step of ours for each of some hundred retries
_NOBODY = ""  # where heads named their owner for a time
_SPARSE = 4  # bytes from which a mask is worth a second look


def _array_header(count: int) -> bytes:
    """Of a msgpack array, so that its items can be put together from parts."""
    return b"\xdc" + count.to_bytes(2) if count < 1 << 16 else b"\xdd" + count.to_bytes(4)


_EMPTY = msgspec.Raw(_array_header(0))


class _Section:
    """A list of the head as bytes. From one head to the next mostly its ends change: the rest is not encoded again."""

    def __init__(self, plain: Callable[[Any], tuple[Any, ...]]) -> None:
        self._plain = plain
        self._parts: list[Any] = []
        self._ends: list[int] = []
        self._body = b""
        self._raw = _EMPTY

    def encode(self, parts: list[Any], encode: Callable[[Any], bytes]) -> msgspec.Raw:
        if not parts:
            if self._parts:
                self._parts, self._ends, self._body = [], [], b""
            return _EMPTY
        if self._parts and parts[0] is not self._parts[0]:
            self._shift(parts[0])
        if parts == self._parts:  # what is identical is not compared, so this takes no time
            return self._raw
        same = min(len(parts), len(self._parts))
        if parts[:same] != self._parts[:same]:
            same = next(compress(count(), map(is_not, parts, self._parts)))  # where they part, without a loop of ours
        start = end = self._ends[same - 1] if same else 0
        pieces = [encode(self._plain(part)) for part in parts[same:]]
        self._ends[same:] = [end := end + len(piece) for piece in pieces]
        self._body = b"".join((self._body[:start], *pieces))
        self._parts = parts
        return self._whole()

    def _shift(self, first: Any) -> None:
        """Forget what came before this part, if it is one of the first."""
        for gone, part in enumerate(self._parts[:_SHIFT_MOST]):
            if part is first:
                start = self._ends[gone - 1]
                self._body = self._body[start:]
                self._ends = [end - start for end in self._ends[gone:]]
                self._parts = self._parts[gone:]
                self._whole()
                return

    def _whole(self) -> msgspec.Raw:
        self._raw = msgspec.Raw(_array_header(len(self._parts)) + self._body)
        return self._raw


class HeadWriter:
    """Writes the heads of one log."""

    def __init__(self) -> None:
        self._encode = msgspec.msgpack.Encoder().encode
        self._blocks = _Section(_block)
        self._leases = _Section(_lease)
        self._waiting = _Section(_waiting)
        self._settled = _Section(_settled)
        self._frozen = _Section(_frozen)
        self._recent = _Section(_recent)
        self._past = _Section(_past)

    def encode(self, head: Head) -> bytes:
        encode = self._encode
        rest = _rest(head)
        past: tuple[Any, ...] = ()
        if head.past:  # readers that do not know it take no notice
            past = (*(None, None, {})[len(rest) :], self._past.encode(head.past, encode))
        wire = (
            _number(head, rest),
            head.now,
            head.serial,
            head.completed,
            head.failed,
            self._blocks.encode(list(head.blocks.values()), encode),
            self._leases.encode(head.leases, encode),
            self._waiting.encode(head.waiting, encode),
            self._settled.encode(head.settled, encode),
            self._frozen.encode([head.frozen] if head.frozen else [], encode),
            self._recent.encode(head.recent, encode),
            *rest,
            *past,
        )
        return encode(wire)


def decode(data: bytes, calendar: Calendar = IN_STEP) -> Head:
    """A newer format is refused."""
    wire = msgspec.msgpack.decode(data)
    if wire[0] > FORMAT:
        raise StoreError(f"the head of this queue has format {wire[0]}, this version reads {FORMAT}: upgrade holdfast")
    _, now, serial, completed, failed, blocks, leases, waiting, settled, frozen, recent, *rest = wire
    return Head(
        now,
        serial,
        completed,
        failed,
        {no: Block.of(no, key, next, gone, _mask(skip), calendar=calendar) for no, key, next, gone, skip in blocks},
        [Lease(each[0], each[1], _mask(each[2]), *each[3:]) for each in leases],
        _waiting_from(waiting),
        _settled_from(settled),
        next((_frozen_from(each) for each in frozen), None),
        [Recent(each[0], each[1], _mask(each[2]), each[3]) for each in recent],
        _pipes_from(rest[1]) if len(rest) > 1 and rest[1] else NOTHING,
        _beyond_from(rest[0]) if rest and rest[0] else Beyond(),
        msgspec.convert(rest[2], dict[str, Mark]) if len(rest) > 2 else {},
        [Past(each[0], _mask(each[1]), *each[2:]) for each in rest[3]] if len(rest) > 3 else [],
    )


def _number(head: Head, rest: tuple[Any, ...]) -> int:
    """The lowest that says it all."""
    if any(map(_worker, head.leases)) or head.beyond.archived or head.first_end() < NEVER:
        return FORMAT
    if head.schedules:
        return SCHEDULES
    if any(map(_worker, head.waiting)) or (head.frozen and any(map(_worker, head.frozen.waiting))):
        return WORKERS
    return ASIDE if head.beyond.aside else LATE if rest else PLAIN


def _rest(head: Head) -> tuple[Any, ...]:
    """What most heads do not have."""
    pipes = (head.pipes.consumers, head.pipes.sinks)
    late = head.beyond
    beyond: tuple[Any, ...] = (late.graveyard, late.forgets, late.purged_at, late.sessions)
    if late.aside or late.archived:
        beyond = (*beyond, _NOBODY, late.aside, late.archived)
    if head.schedules:
        return beyond if any(beyond) else None, pipes if any(pipes) else None, head.schedules
    if any(pipes):
        return beyond if any(beyond) else None, pipes
    return (beyond,) if any(beyond) else ()


def _pipes_from(wire: list[Any]) -> Pipes:
    return msgspec.convert({"consumers": wire[0], "sinks": wire[1]}, Pipes)


def _block(x: Block) -> tuple[Any, ...]:
    return x.no, x.key, x.next, x.gone, _bytes(x.skip)


def _lease(x: Lease) -> tuple[Any, ...]:
    plain = x.token, x.block, _bytes(x.mask), x.expires, x.attempts, x.crashed, x.claimed
    return (*plain, x.worker) if x.worker else plain


def _waiting(x: Waiting) -> tuple[Any, ...]:
    plain = x.block, _bytes(x.mask), x.due, x.attempts, x.crashed, x.error, x.token, x.status
    return (*plain, x.worker) if x.worker else plain


def _settled(x: Settled) -> tuple[Any, ...]:
    return x.block, _bytes(x.mask), x.status, x.at, x.attempts, x.error, x.worker, x.token, x.results, x.claimed


def _frozen(x: Frozen) -> tuple[Any, ...]:
    plain = x.flush, x.since, [_settled(each) for each in x.settled], [_waiting(each) for each in x.waiting]
    return (*plain, x.earlier) if x.earlier else plain


def _recent(x: Recent) -> tuple[Any, ...]:
    return x.token, x.block, _bytes(x.mask), x.status


def _past(x: Past) -> tuple[Any, ...]:
    return x.block, _bytes(x.mask), x.start, x.end, x.worker, x.error


def _frozen_from(wire: list[Any]) -> Frozen:
    flush, since, settled, waiting, *rest = wire
    earlier = [(name, list(made)) for name, made in rest[0]] if rest else []
    return Frozen(flush, since, _settled_from(settled), _waiting_from(waiting), earlier)


def _beyond_from(wire: list[Any]) -> Beyond:
    graveyard, forgets, purged_at, sessions, *rest = wire  # the first of the rest named an owner, before 2026-11-18
    marks = {name: tuple(mark) for name, mark in sessions.items()}
    return Beyond(tuple(graveyard), forgets, purged_at, marks, *rest[1:])


def _waiting_from(wire: list[Any]) -> list[Waiting]:
    return [Waiting(each[0], _mask(each[1]), *each[2:]) for each in wire]


def _settled_from(wire: list[Any]) -> list[Settled]:
    return [Settled(each[0], _mask(each[1]), *each[2:]) for each in wire]


def _bytes(mask: int) -> bytes | tuple[int, bytes]:
    """Little-endian; where it pays, without the zero bytes before the first message, but with their number."""
    length = (mask.bit_length() + 7) // 8
    if length < _SPARSE:
        return mask.to_bytes(length, "little")
    zeros = ((mask & -mask).bit_length() - 1) // 8
    return zeros, (mask >> 8 * zeros).to_bytes(length - zeros, "little")


def _mask(data: bytes | list[Any]) -> int:
    if isinstance(data, bytes):
        return int.from_bytes(data, "little")
    zeros, rest = data
    return int.from_bytes(rest, "little") << 8 * int(zeros)
