"""The contract as rules: each reads the story of a queue, or of one message, and names what breaks its promise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from ..story import Message, Story
from . import batches, counts, ends, expiry, leases, lookups, order, replays, sending, whole
from .breach import Breach

Rule: TypeAlias = Callable[[Story], Iterator[Breach]]
MessageRule: TypeAlias = Callable[[Story, Message], Iterator[Breach]]

OF_A_QUEUE: tuple[Rule, ...] = (
    sending.errors,
    sending.answers,
    sending.values,
    sending.dedup,
    lookups.gets,
    expiry.early,
    replays.copies,
    replays.answers,
    whole.pauses,
    whole.purges,
    batches.contents,
    batches.left,
    batches.owners,
    order.in_the_quiet,
    counts.totals,
    counts.around_the_drain,
    counts.lists,
    counts.completed,
)
OF_A_MESSAGE: tuple[MessageRule, ...] = (
    sending.terms,
    leases.holders,
    leases.attempts,
    leases.late_holders,
    leases.live_holders,
    leases.repeats,
    ends.once,
    ends.final,
    ends.by_nobody,
    expiry.late,
    lookups.cancels,
)


def breaches(story: Story) -> Iterator[Breach]:
    """Everything that is wrong with a queue's history."""
    for rule in OF_A_QUEUE:
        yield from rule(story)
    for message in story.messages.values():
        for of_message in OF_A_MESSAGE:
            yield from of_message(story, message)
