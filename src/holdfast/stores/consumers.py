"""Consumers and their claim batches, as every store keeps them: what an owner may do, and what a checkpoint must match.

Pure: a store reads a consumer, asks here, and writes what comes back, in one transaction.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from ..errors import Fenced, QueueNotFound, StoreError
from .batches import Batch, BatchLost, ConsumerInfo, Ownership, Taken

# What an error says wherever a new checkpoint may be the way out.
NEW_CHECKPOINT = (
    "A new checkpoint counts its batches from 0 again, and a sink that skips batch numbers it knows (Spark's file "
    "sink, Delta with txnVersion) then drops their rows without a word: give it a new output folder as well"
)


class OpenBatch(msgspec.Struct, frozen=True, array_like=True):
    """A claim batch that is not settled. `tries` counts the owners that planned to read it (0: nobody has), `epoch` is
    the last of them."""

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


def current(consumer: Consumer | None, owner: Ownership) -> Consumer:
    """The consumer, when the caller is still its owner; Fenced."""
    if consumer is None or consumer.epoch != owner.epoch:
        taken = f" ({consumer.holder})" if consumer is not None and consumer.holder else ""
        raise Fenced(f"another query{taken} has taken over the consumer {owner.consumer!r}: stop one of the two")
    return consumer


def check(consumer: Consumer, owner: Ownership, after: int) -> None:
    """That a checkpoint which stands at `after` and the store speak of the same batches; StoreError."""
    name = owner.consumer
    if consumer.generation != owner.generation:
        raise BatchLost(
            f"the claims of consumer {name!r} were released (generation {consumer.generation}, the checkpoint has "
            f"{owner.generation}): its batches went back to the queue, for anybody to claim. Set failOnDataLoss "
            f"to false to go on with this checkpoint and without them. {NEW_CHECKPOINT}"
        )
    if not consumer.done <= after <= consumer.seq:
        raise BatchLost(
            f"the checkpoint of consumer {name!r} stands at batch {after}, the store has settled {consumer.done} and "
            f"claimed {consumer.seq}: another query used this consumer, or one of the two was restored. Use the "
            "checkpoint that belongs to the consumer; or set failOnDataLoss to false to go on with what comes next, "
            f"without the batches in between. {NEW_CHECKPOINT}"
        )


def check_read(consumer: Consumer, name: str, upto: int) -> None:
    """That nothing is settled which nobody has planned to read; StoreError."""
    for each in consumer.open:
        if each.seq <= upto and not each.tries:
            raise StoreError(
                f"batch {each.seq} of consumer {name!r} ({each.count} messages) is done in the checkpoint, and its "
                "rows were never read: the sink skipped it, as Spark's file sink does with batch numbers that it knows "
                "from an earlier checkpoint. It was not settled. Give the query a new output folder and a new "
                'checkpoint with option("newCheckpoint", "true"), which begins with this batch'
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


def claimed(consumer: Consumer, count: int) -> Consumer:
    seq = consumer.seq + 1
    return replace(consumer, seq=seq, open=(*consumer.open, OpenBatch(seq, count, 0, 0)))


def taken_up(consumer: Consumer, seq: int, epoch: int) -> Consumer:
    """An owner plans to read a batch: counted once for each."""
    return replace(
        consumer,
        open=tuple(
            replace(each, tries=each.tries + 1, epoch=epoch) if each.seq == seq and each.epoch != epoch else each
            for each in consumer.open
        ),
    )


def released(consumer: Consumer) -> Consumer:
    """Everything given back; the former owner and every old checkpoint get this error."""
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


def not_open(consumer: Consumer, name: str, seq: int) -> BatchLost:
    return BatchLost(
        f"batch {seq} of consumer {name!r} is not open (settled up to {consumer.done}, claimed up to {consumer.seq}): "
        "its messages cannot be read again; settled ones are in the archive. Set failOnDataLoss to false to do without"
    )


def missing_queue(queue: str) -> QueueNotFound:
    return QueueNotFound(f"there is no queue {queue!r}")


def nobody(queue: str, name: str) -> StoreError:
    return StoreError(f"queue {queue!r} has no consumer {name!r}")


def ownership(queue: str, name: str, consumer: Consumer) -> Ownership:
    return Ownership(queue, name, consumer.generation, consumer.epoch, consumer.done, consumer.total)


def is_abandoned(consumer: Consumer, now: float) -> bool:
    """It has claims, and has been without an owner for as long as it said."""
    return bool(consumer.open and consumer.release_after and consumer.until + consumer.release_after < now)


def info(queue: str, name: str, consumer: Consumer, now: float) -> ConsumerInfo:
    """A consumer as operators see it."""
    lease = max(0.0, consumer.until - now)
    return ConsumerInfo(
        queue,
        name,
        consumer.generation,
        holder=consumer.holder if lease else "",
        claimed=sum(each.count for each in consumer.open),
        batches=len(consumer.open),
        done=consumer.done,
        total=consumer.total,
        lease=lease,
        tries=consumer.open[0].tries if consumer.open else 0,
    )
