"""A message ends once, as it was acknowledged, and is never lost."""

from __future__ import annotations

from collections.abc import Iterator

from ..calls import Call
from ..story import End, Message, Story
from .breach import Breach
from .expiry import EXPIRED

ENDED = ("completed", "failed", "dead")
_DUE = 0.05  # seconds around a purge in which a lease may have ended


def once(story: Story, message: Message) -> Iterator[Breach]:
    """One end, and nothing after it."""
    if len({end.token for end in message.ends}) > 1:
        yield Breach("ended twice", f"{message.id}: " + ", ".join(f"{end.kind} by {end.token}" for end in message.ends))
    for end in message.ends:
        for change in message.changes:
            if change.ok and change.number and change.began > end.ended:
                yield Breach("changed after its end", f"{message.id}: {end.kind}, then {change.call}")
        for delivery in message.deliveries:
            if delivery.began > end.ended:
                yield Breach("delivered after its end", f"{message.id}: {end.kind}, then {delivery.token}")


def final(story: Story, message: Message) -> Iterator[Breach]:
    """What is found in the end is what was acknowledged."""
    found = message.final
    if message.sent is None and not message.deliveries and found is None:
        return  # known from a replay alone, and judged there
    if found is None and not may_be_gone(story, message):
        ends = ", ".join(end.kind for end in message.ends) or "nothing"
        yield Breach("lost", f"{message.id}: {ends} acknowledged, perhaps {[call.op for call in message.maybe]}")
    if found is not None and found.attempts > found.max_attempts:
        yield Breach("attempts beyond max_attempts", f"{message.id}: {found.attempts} of {found.max_attempts}")
    if found is not None and found.status not in ENDED:
        yield Breach("not ended after the drain", f"{message.id} is {found.status}")
    for end in message.ends[:1]:
        yield from _as_acknowledged(story, message, end)


def _as_acknowledged(story: Story, message: Message, end: End) -> Iterator[Breach]:
    found = message.final
    if end.kind == "complete" and end.keep is False:
        if found is not None:
            yield Breach("kept although keep=False", f"{message.id} is {found.status}")
        return
    if found is None:
        return
    wanted = {"complete": "completed", "drain": "completed", "cancel": "failed"}.get(end.kind, story.exhausted)
    right = found.status == wanted
    right &= wanted != "completed" or found.result == end.result
    right &= end.kind != "cancel" or "cancel" in (found.error or "")
    if not right:
        said = f"{found.status}, result {found.result!r}, error {found.error!r}"
        yield Breach("another end than was acknowledged", f"{message.id}: {end.kind}, {end.result!r}, is {said}")


def by_nobody(story: Story, message: Message) -> Iterator[Breach]:
    """What nobody ended has run out of attempts by leases that expired, or of time."""
    found = message.final
    if found is None or message.ends or message.maybe:
        return
    if (found.status, found.error) == ("failed", EXPIRED) and story.expiry(message) is not None:
        return
    if found.status != story.exhausted or found.attempts != found.max_attempts or "expired" not in (found.error or ""):
        said = f"{found.status} after {found.attempts} of {found.max_attempts}, error {found.error!r}"
        asked = ", ".join(f"{call.op} {call.outcome}" for calls in message.settles.values() for call in calls)
        yield Breach("ended by nobody", f"{message.id} is {said}; asked: {asked or 'nothing'}")


def may_be_gone(story: Story, message: Message) -> bool:
    """Whether somebody asked for a message to vanish: completed without a trace, moved by a replay, or purged."""
    return bool(
        _dropped(message) or moved(message) or [purge for purge in story.purges if _may_hit(story, message, purge)]
    )


def _dropped(message: Message) -> bool:
    said = any(end.kind == "complete" and end.keep is False for end in message.ends)
    return said or any(call.op == "complete" and call.keep is False for call in message.maybe)


def moved(message: Message) -> list[Call]:
    """Replays that may have moved it away from the dead letters."""
    return [call for call in message.replays if call.view == "dead" and (call.outcome == "unknown" or call.number)]


def _may_hit(story: Story, message: Message, purge: Call) -> bool:
    """Whether a message was there while a purge ran, and in nobody's hands for certain."""
    if purge.ended < story.made(message):
        return False
    if any(end.kind != "drain" and end.ended < purge.began for end in message.ends):
        return False
    for delivery in message.deliveries:
        freed = [call.began for call in message.of(delivery) if call.op != "extend" and call.may_have_happened]
        freed += [taken.began for taken in message.taken if taken.ended > delivery.began]
        until = min([delivery.began + delivery.lease - story.doubt.clocks - _DUE, *freed])
        if delivery.ended < purge.began and purge.ended < until:
            return False
    return True
