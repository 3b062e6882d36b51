"""What a head knows of data pipelines: consumers with their claim batches, and sinks with what they published. Pure.

A claim batch is a lease without an end, held by `consumer:seq`, so that workers and pipelines share one queue. Its rows
are what the head has leased under that token; nothing else has to be kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ...errors import Fenced
from ..batches import Batch, BatchLost, Ownership, Taken

if TYPE_CHECKING:
    from .state import Head, Lease

FOREVER = 253402300000.0  # the last day of the year 9999: only its owner, or a release, ends such a lease
SINK_DAYS = 30.0
SINKS_MOST = 1000
_DAY = 86400.0


class OpenBatch(msgspec.Struct, frozen=True, array_like=True):
    """A claim batch that is not settled. `tries` counts the owners that took it up, `epoch` is the last of them."""

    seq: int
    count: int
    tries: int
    epoch: int


class Consumer(msgspec.Struct, frozen=True, array_like=True):
    """A consumer. `done` is the last settled batch, `total` how many messages were settled up to it."""

    generation: int = 1
    epoch: int = 0
    holder: str = ""
    until: float = 0.0  # the owner's lease
    seq: int = 0
    done: int = 0
    total: int = 0
    open: tuple[OpenBatch, ...] = ()
    release_after: float = 0.0  # seconds without an owner after which its claims go back; 0: never by itself

    def batch(self, seq: int) -> OpenBatch | None:
        return next((each for each in self.open if each.seq == seq), None)

    def count(self, seq: int) -> int:
        """How many messages there were up to and including a batch."""
        return self.total + sum(each.count for each in self.open if each.seq <= seq)


class Pipes(msgspec.Struct, frozen=True):
    """By name: consumers, and sinks as (last batch, when it was published)."""

    consumers: dict[str, Consumer] = {}
    sinks: dict[str, tuple[int, float]] = {}

    def with_consumer(self, name: str, consumer: Consumer) -> Pipes:
        return replace(self, consumers={**self.consumers, name: consumer})

    def with_sink(self, name: str, batch: int, now: float) -> Pipes:
        """Old ones are forgotten, and the oldest when there are too many: the head is written with every commit."""
        recent = [(key, mark) for key, mark in self.sinks.items() if mark[1] > now - SINK_DAYS * _DAY and key != name]
        recent.sort(key=lambda each: each[1][1])
        return replace(self, sinks=dict([*recent[-SINKS_MOST + 1 :], (name, (batch, now))]))


NOTHING = Pipes()


def token(name: str, seq: int) -> str:
    return f"{name}:{seq}"


def leases(head: Head, name: str, seq: int) -> list[Lease]:
    """What a claim batch holds, in claim order."""
    held = [lease for lease in head.leases if lease.token == token(name, seq)]
    return sorted(held, key=lambda lease: (head.blocks[lease.block].order, lease.mask & -lease.mask))


def owned(consumer: Consumer | None, name: str, *, holders: tuple[str, ...], lease: float, now: float) -> Consumer:
    """A new owner, the first of the holders; Taken while one is alive that is none of them."""
    known = consumer or Consumer()
    if known.until > now and known.holder not in holders:
        raise Taken(
            f"the consumer {name!r} is in use by another query ({known.holder}, its lease lasts "
            f"{known.until - now:.0f} s more): give this query a consumer of its own, or stop the other one",
            holder=known.holder,
        )
    return replace(known, epoch=known.epoch + 1, holder=holders[0], until=now + lease)


def current(pipes: Pipes, owner: Ownership) -> Consumer:
    """The consumer, when the caller is still its owner; Fenced."""
    known = pipes.consumers.get(owner.consumer)
    if known is None or known.epoch != owner.epoch:
        taken = f" ({known.holder})" if known is not None and known.holder else ""
        raise Fenced(f"another query{taken} has taken over the consumer {owner.consumer!r}: stop one of the two")
    return known


def check(consumer: Consumer, owner: Ownership, after: int) -> None:
    """That a checkpoint which stands at `after` and the store speak of the same batches; StoreError."""
    name = owner.consumer
    if consumer.generation != owner.generation:
        raise BatchLost(
            f"the claims of consumer {name!r} were released (generation {consumer.generation}, the checkpoint has "
            f"{owner.generation}): its batches went back to the queue. Start with a new checkpoint, or set "
            "failOnDataLoss to false to go on with what comes next"
        )
    if not consumer.done <= after <= consumer.seq:
        raise BatchLost(
            f"the checkpoint of consumer {name!r} stands at batch {after}, the store has settled {consumer.done} and "
            f"claimed {consumer.seq}: another query used this consumer, or one of the two was restored. Start with a "
            "new checkpoint, or set failOnDataLoss to false to go on with what comes next"
        )


def settled(consumer: Consumer, upto: int) -> Consumer:
    gone = [each for each in consumer.open if each.seq <= upto]
    if not gone:
        return consumer
    return replace(
        consumer,
        done=max(each.seq for each in gone),
        total=consumer.total + sum(each.count for each in gone),
        open=tuple(each for each in consumer.open if each.seq > upto),
    )


def claimed(consumer: Consumer, count: int, epoch: int) -> Consumer:
    seq = consumer.seq + 1
    return replace(consumer, seq=seq, open=(*consumer.open, OpenBatch(seq, count, 1, epoch)))


def taken_up(consumer: Consumer, seq: int, epoch: int) -> Consumer:
    """An owner works on a batch: counted once for each."""
    return replace(
        consumer,
        open=tuple(
            replace(each, tries=each.tries + 1, epoch=epoch) if each.seq == seq and each.epoch != epoch else each
            for each in consumer.open
        ),
    )


def released(consumer: Consumer) -> Consumer:
    """Everything given back: whoever owned it, and every old checkpoint, is told so."""
    return replace(
        consumer,
        generation=consumer.generation + 1,
        epoch=consumer.epoch + 1,
        holder="",
        until=0.0,
        done=consumer.seq,
        open=(),
    )


def batch(consumer: Consumer, seq: int) -> Batch:
    """A batch as the seam shows it."""
    found = consumer.batch(seq)
    tries, count = (found.tries, found.count) if found is not None else (0, 0)
    return Batch(consumer.generation, seq, count, consumer.count(seq), tries)
