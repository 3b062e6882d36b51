"""A consumer of a queue with several shards: its record leads in the first head, and the others follow it.

A batch is what all shards have leased under its number. It is one when the first head says so, and settled when that
head says so; what is behind is done later, by whoever owns the consumer next (docs/design/spark.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from msgspec.structs import replace

from ....errors import Fenced
from ...consumers import Consumer
from ...records import Action
from ..edit import Session
from ..head import pipelines
from ..head.state import Claim, Expire, Head, Lease, Settle, Taken


def shards(session: Session) -> int:
    """How many heads the queue has."""
    return session.seen.window.partitions(session.seen.config)


def worker(consumer: str) -> str:
    """Under which name it settles."""
    return f"spark/{consumer}"


def keep(session: Session, name: str, consumer: Consumer) -> None:
    """Write a consumer's record, if it is another than before."""
    pipes = session.head.pipes
    if pipes.consumers.get(name) != consumer:
        session.head = replace(session.head, pipes=pipes.with_consumer(name, consumer))
        session.changed = True


def token(name: str, seq: int, shard: int) -> str:
    """Who settles by a token finds its shard behind the last dash of its first part, where parts end with a dot; no
    name has a colon."""
    return f"{name.replace('.', ':')}:{seq}-{shard}"


def batches(head: Head, name: str, shard: int) -> dict[int, list[Lease]]:
    """What a shard has leased to a consumer, by the number of the batch, in claim order."""
    prefix, suffix = name.replace(".", ":") + ":", f"-{shard}"
    found: dict[int, list[Lease]] = {}
    for lease in head.leases:
        if lease.token.startswith(prefix) and lease.token.endswith(suffix):
            seq = lease.token[len(prefix) : -len(suffix)]
            if seq.isdecimal():
                found.setdefault(int(seq), []).append(lease)
    for held in found.values():
        held.sort(key=lambda lease: (head.blocks[lease.block].order, lease.mask & -lease.mask))
    return found


def end(session: Session, name: str, shard: int, action: Action, chosen: Callable[[int], bool]) -> int:
    """End what one shard holds of the batches that are chosen by their numbers; how many messages."""
    found = batches(session.head, name, shard)
    held = [lease for seq, some in found.items() if chosen(seq) for lease in some]
    by = worker(name) if action == "complete" else None
    session.do([Settle(lease.token, lease.block, lease.mask, action, worker=by) for lease in held])
    return sum(lease.mask.bit_count() for lease in held)


def claim(session: Session, name: str, shard: int, *, seq: int, limit: int) -> int:
    """Claim for a batch in one shard; how many messages."""
    if not limit:
        return 0
    lease = pipelines.FOREVER - max(session.head.now, session.tx.now)
    asked = Claim(token(name, seq, shard), limit, lease, worker(name))
    _, found = session.do([Expire(), asked])
    return sum(each.mask.bit_count() for each in cast(list[Taken], found))


def roll(session: Session, name: str, shard: int, leader: Consumer) -> int:
    """Of one generation: what is settled is completed, what never became a batch goes back; how many went back."""
    end(session, name, shard, "complete", lambda seq: seq <= leader.done)
    return end(session, name, shard, "release", lambda seq: seq > leader.seq)


def follow(session: Session, name: str, shard: int, leader: Consumer) -> int:
    """Bring a shard to where the first head stands; how many messages went back. Fenced: it is further.

    From here on it refuses every earlier owner. A generation changes only when all shards have completed what was
    settled, so what a shard still holds of an earlier one was released.
    """
    mine = session.head.pipes.consumers.get(name) or Consumer(generation=leader.generation)
    if mine.epoch > leader.epoch:
        raise Fenced(f"another query has taken over the consumer {name!r}: stop one of the two")
    released = 0
    if mine.generation != leader.generation:
        released = end(session, name, shard, "release", lambda seq: True)
    elif mine.epoch != leader.epoch:
        released = roll(session, name, shard, leader)
    keep(session, name, Consumer(generation=leader.generation, epoch=leader.epoch))
    return released


def is_abandoned(heads: Sequence[Head], name: str, now: float) -> bool:
    """As of one head: also what never became a batch is held."""
    leader = heads[0].pipes.consumers[name]
    is_over = leader.release_after and leader.until + leader.release_after < now
    return bool(is_over) and any(batches(head, name, shard) for shard, head in enumerate(heads))


def is_behind(heads: Sequence[Head], name: str) -> bool:
    """A release has not come to some shard."""
    leader = heads[0].pipes.consumers[name]
    mine = [head.pipes.consumers.get(name) for head in heads[1:]]
    return any(each is not None and each.generation != leader.generation for each in mine)


def shares(limit: int, asked: Sequence[int], seq: int) -> dict[int, int]:
    """How many messages each shard is asked for; which ones are asked for one more changes with the batch."""
    each, more = divmod(limit, len(asked))
    first = seq % len(asked)
    turned = [*asked[first:], *asked[:first]]
    return {shard: each + (place < more) for place, shard in enumerate(turned)}
