"""What a rule says when it is broken."""

from __future__ import annotations

import msgspec

KINDS = (
    "unexpected error",
    "error in the quiet at the end",
    "ids do not match messages",
    "one id for two messages",
    "a message nobody sent",
    "one enqueue, two messages",
    "the value changed",
    "terms changed",
    "delivered before its delay",
    "delivered after it had expired",
    "expired before its time",
    "dedup: two messages in one window",
    "two holders at once, by the store's clock",
    "two holders at once, by the machine's clock",
    "came back before its delay",
    "attempts beyond max_attempts",
    "attempt number",
    "one token twice",
    "a late holder was heard",
    "a settle after a cancel was heard",
    "a settle after a take-back was heard",
    "a live holder was refused",
    "a repeated settle was refused",
    "a repeated settle was refused (not kept)",
    "ended twice",
    "delivered after its end",
    "lost",
    "not ended after the drain",
    "kept although keep=False",
    "another end than was acknowledged",
    "ended by nobody",
    "cancel said False of a waiting message",
    "get said None",
    "replayed twice",
    "replayed by nobody",
    "a replayed message was lost",
    "a replayed dead letter is still there",
    "a replay added nothing",
    "delivered while paused",
    "outlasted a purge",
    "a batch changed",
    "a batch left",
    "two owners at once",
    "a late owner was heard",
    "priorities out of order",
    "order within a priority and producer",
    "order within a priority, across producers",
    "stats: total",
    "stats before the drain",
    "stats in the drain",
    "stats: something is left",
    "stats: dead",
    "stats: archived",
    "stats: completed",
    "a list is not in id order",
    "a list has one twice",
)


class Breach(msgspec.Struct, frozen=True):
    """`kind` is one of the judge's fixed sentences, `example` says where."""

    kind: str
    example: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"{self.kind!r} is no kind of breach")
