"""What a head knows of data pipelines: consumers with their claim batches, and sinks with what they published. Pure.

A claim batch is a lease without an end, held by `consumer:seq`, so that workers and pipelines share one queue. Its rows
are what the head has leased under that token; nothing else has to be kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ....first_look import known
from ...consumers import Consumer

if TYPE_CHECKING:
    from .state import Head, Lease

FOREVER = 253402214400.0  # the last day of the year 9999: only its owner, or a release, ends such a lease
SINK_DAYS = 30.0
SINKS_MOST = 1000
_DAY = 86400.0


@known
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
