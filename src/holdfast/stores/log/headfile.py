"""The head as bytes: small, because it is written with every commit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ...errors import StoreError
from .state import Block, Frozen, Head, Lease, Recent, Settled, Waiting

FORMAT = 1


class HeadWriter:
    """Writes heads; what has not changed since the last one is not encoded again."""

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._known: dict[int, tuple[Any, msgspec.Raw]] = {}  # by identity, which the kept reference makes unique

    def encode(self, head: Head) -> bytes:
        self._known, old = {}, self._known
        frozen = self._raws([head.frozen], _frozen, old)[0] if head.frozen else None
        wire = (
            FORMAT,
            head.now,
            head.serial,
            head.completed,
            head.failed,
            self._raws(head.blocks.values(), _block, old),
            self._raws(head.leases, _lease, old),
            self._raws(head.waiting, _waiting, old),
            self._raws(head.settled, _settled, old),
            frozen,
            self._raws(head.recent, _recent, old),
        )
        return self._encoder.encode(wire)

    def _raws(self, parts: Iterable[Any], plain: Any, old: dict[int, tuple[Any, msgspec.Raw]]) -> list[msgspec.Raw]:
        known, encode, raws = self._known, self._encoder.encode, []
        for part in parts:
            entry = old.get(id(part)) or (part, msgspec.Raw(encode(plain(part))))
            known[id(part)] = entry
            raws.append(entry[1])
        return raws


def decode(data: bytes) -> Head:
    """A newer format is refused."""
    wire = msgspec.msgpack.decode(data)
    if wire[0] > FORMAT:
        raise StoreError(f"the head of this queue has format {wire[0]}, this version reads {FORMAT}: upgrade holdfast")
    _, now, serial, completed, failed, blocks, leases, waiting, settled, frozen, recent = wire
    return Head(
        now,
        serial,
        completed,
        failed,
        {no: Block.of(no, key, next, gone, _mask(skip)) for no, key, next, gone, skip in blocks},
        [Lease(each[0], each[1], _mask(each[2]), *each[3:]) for each in leases],
        _waiting_from(waiting),
        _settled_from(settled),
        frozen and Frozen(frozen[0], frozen[1], _settled_from(frozen[2]), _waiting_from(frozen[3])),
        [Recent(each[0], each[1], _mask(each[2]), each[3]) for each in recent],
    )


def _block(x: Block) -> tuple[Any, ...]:
    return x.no, x.key, x.next, x.gone, _bytes(x.skip)


def _lease(x: Lease) -> tuple[Any, ...]:
    return x.token, x.block, _bytes(x.mask), x.expires, x.attempts, x.crashed


def _waiting(x: Waiting) -> tuple[Any, ...]:
    return x.block, _bytes(x.mask), x.due, x.attempts, x.crashed, x.error, x.token


def _settled(x: Settled) -> tuple[Any, ...]:
    return x.block, _bytes(x.mask), x.status, x.at, x.attempts, x.error, x.worker, x.token, x.results


def _frozen(x: Frozen) -> tuple[Any, ...]:
    return x.flush, x.since, [_settled(each) for each in x.settled], [_waiting(each) for each in x.waiting]


def _recent(x: Recent) -> tuple[Any, ...]:
    return x.token, x.block, _bytes(x.mask), x.status


def _waiting_from(wire: list[Any]) -> list[Waiting]:
    return [Waiting(each[0], _mask(each[1]), *each[2:]) for each in wire]


def _settled_from(wire: list[Any]) -> list[Settled]:
    return [Settled(each[0], _mask(each[1]), *each[2:]) for each in wire]


def _bytes(mask: int) -> bytes:
    return mask.to_bytes((mask.bit_length() + 7) // 8, "little")


def _mask(data: bytes) -> int:
    return int.from_bytes(data, "little")
