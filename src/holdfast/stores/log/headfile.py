"""The head as bytes: small, because it is written with every commit."""

from __future__ import annotations

from typing import Any

import msgspec

from ...errors import StoreError
from .names import due_of, parse_block
from .state import Block, Frozen, Head, Lease, Recent, Settled, Waiting

FORMAT = 1
_encoder = msgspec.msgpack.Encoder()


def encode(head: Head) -> bytes:
    frozen = head.frozen
    return _encoder.encode(
        (
            FORMAT,
            head.now,
            head.serial,
            head.completed,
            head.failed,
            [(b.no, b.key, b.next, b.gone, _bytes(b.skip)) for b in head.blocks.values()],
            [(x.token, x.block, _bytes(x.mask), x.expires, x.attempts, x.crashed) for x in head.leases],
            [_waiting(group) for group in head.waiting],
            [_settled(group) for group in head.settled],
            frozen
            and (
                frozen.flush,
                frozen.since,
                [_settled(group) for group in frozen.settled],
                [_waiting(group) for group in frozen.waiting],
            ),
            [(r.token, r.block, _bytes(r.mask), r.status) for r in head.recent],
        )
    )


def decode(data: bytes) -> Head:
    """A newer format is refused."""
    wire = msgspec.msgpack.decode(data)
    if wire[0] > FORMAT:
        raise StoreError(f"the head of this queue has format {wire[0]}, this version reads {FORMAT}: upgrade holdfast")
    _, now, serial, completed, failed, blocks, leases, waiting, settled, frozen, recent = wire
    return Head(
        now,
        serial,
        {b[0]: Block(b[0], b[1], parse_block(b[1]), due_of(b[1]), b[2], b[3], _mask(b[4])) for b in blocks},
        [Lease(x[0], x[1], _mask(x[2]), *x[3:]) for x in leases],
        [Waiting(x[0], _mask(x[1]), *x[2:]) for x in waiting],
        [Settled(x[0], _mask(x[1]), *x[2:]) for x in settled],
        frozen and _frozen(frozen),
        [Recent(x[0], x[1], _mask(x[2]), x[3]) for x in recent],
        completed,
        failed,
    )


def _frozen(wire: Any) -> Frozen:
    flush, since, settled, waiting = wire
    return Frozen(
        flush,
        since,
        [Settled(x[0], _mask(x[1]), *x[2:]) for x in settled],
        [Waiting(x[0], _mask(x[1]), *x[2:]) for x in waiting],
    )


def _waiting(x: Waiting) -> tuple[Any, ...]:
    return x.block, _bytes(x.mask), x.due, x.attempts, x.crashed, x.error, x.token


def _settled(x: Settled) -> tuple[Any, ...]:
    return x.block, _bytes(x.mask), x.status, x.at, x.attempts, x.error, x.worker, x.token, x.results


def _bytes(mask: int) -> bytes:
    return mask.to_bytes((mask.bit_length() + 7) // 8, "little")


def _mask(data: bytes) -> int:
    return int.from_bytes(data, "little")
