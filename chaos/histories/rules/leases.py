"""One holder at a time: nobody else gets a live lease, the holder is heard, whoever is late is not."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ..calls import SETTLING, Call
from ..story import Delivery, Message, Story
from .breach import Breach

_STORE_TICK = 0.003  # seconds: instants are shown in milliseconds
_MACHINE_TICK = 0.02  # seconds between an answer and its line in the log
_DELAY_TICK = 0.01


def holders(story: Story, message: Message) -> Iterator[Breach]:
    """A second holder only after the first's lease, or after the first gave it back and its delay is over."""
    for one, other in pairwise(message.deliveries):
        freed = [call for call in message.of(one) if _frees(call) and call.began < other.ended]
        if freed:
            yield from _early(story, message, freed, other)
        elif not any(taken.began < other.ended and taken.ended > one.began for taken in message.taken):
            yield from _stolen(story, message, one, other)


def _frees(call: Call) -> bool:
    return call.op in SETTLING and call.may_have_happened


def _early(story: Story, message: Message, freed: list[Call], other: Delivery) -> Iterator[Breach]:
    if len(freed) == 1 and freed[0].ok and not freed[0].again and not message.changed(other.ended):
        early = freed[0].began + freed[0].delay - other.ended
        if early > _DELAY_TICK + story.doubt.clocks:
            yield Breach("came back before its delay", f"{message.id} after {freed[0].op}, by {early:.3f} s")


def _stolen(story: Story, message: Message, one: Delivery, other: Delivery) -> Iterator[Breach]:
    extended = [call for call in message.of(one) if call.op == "extend" and call.ok]
    until = max([one.given.expires, *(call.number or 0.0 for call in extended)])
    if other.claimed < until - _STORE_TICK:
        early = until - other.claimed
        yield Breach(
            "two holders at once, by the store's clock", f"{message.id}, {early:.3f} s: {one.token}, {other.token}"
        )
    floor = max([one.began + one.lease, *(call.began + call.seconds for call in extended)])
    if other.ended < floor - _MACHINE_TICK - story.doubt.clocks:
        early = floor - other.ended
        yield Breach(
            "two holders at once, by the machine's clock", f"{message.id}, {early:.3f} s: {one.token}, {other.token}"
        )


def attempts(story: Story, message: Message) -> Iterator[Breach]:
    """Counted at each claim, given back by a release, never beyond the maximum; no token is given out twice."""
    tokens: set[str] = set()
    for delivery in message.deliveries:
        given = delivery.given
        if not 1 <= given.attempt <= given.max_attempts:
            yield Breach("attempts beyond max_attempts", f"{message.id}: {given.attempt} of {given.max_attempts}")
        if given.token in tokens:
            yield Breach("one token twice", f"{message.id}: {given.token}")
        tokens.add(given.token)
    for one, other in pairwise(message.deliveries):
        unheard = story.is_unheard(one.began, other.ended)
        back = [c.outcome for c in message.of(one) if c.op == "release" and _frees(c) and c.began < other.ended]
        least = one.given.attempt + (0 if back else 1)
        most = one.given.attempt + (0 if "ok" in back else 1) + unheard
        if not least <= other.given.attempt <= most:
            yield Breach(
                "attempt number", f"{message.id}: {one.given.attempt}, then {other.given.attempt}, released {back}"
            )


def late_holders(story: Story, message: Message) -> Iterator[Breach]:
    """Whoever settles after another got the message, or after it was cancelled, is refused."""
    for place, delivery in enumerate(message.deliveries):
        for call in message.of(delivery):
            if not call.ok or _settled_before(message, delivery, call):
                continue
            for other in message.deliveries[place + 1 :]:
                if other.ended < call.began:
                    yield Breach(
                        "a late holder was heard", f"{message.id}: {call.op} of {call.token}, {other.token} is newer"
                    )
            for taken in message.taken:
                if taken.ok and delivery.ended < taken.began and taken.ended < call.began:
                    yield Breach("a settle after a take-back was heard", f"{message.id}: {call.op} of {call.token}")
            for cancel in message.cancels:
                if cancel.ok and cancel.number and cancel.ended < call.began:
                    yield Breach("a settle after a cancel was heard", f"{message.id}: {call.op}")


def _settled_before(message: Message, delivery: Delivery, call: Call) -> list[Call]:
    """Other settlements of the same token that may have come first: this one is then a repeat."""
    return [
        other
        for other in message.of(delivery)
        if other is not call and other.op != "extend" and other.may_have_happened and other.began <= call.ended
    ]


def live_holders(story: Story, message: Message) -> Iterator[Breach]:
    """Whoever settles while its lease is certainly alive is heard."""
    for delivery in message.deliveries:
        alive = delivery.began + delivery.lease - story.doubt.clocks
        for call in message.of(delivery):
            refused = call.outcome in ("lost", "gone") and call.ended < alive
            refused &= not any(taken.began < call.ended and taken.ended > delivery.began for taken in message.taken)
            if refused and not _settled_before(message, delivery, call):
                yield Breach(
                    "a live holder was refused",
                    f"{message.id}: {call.op}, {call.outcome}, {alive - call.ended:.3f} s left",
                )


def repeats(story: Story, message: Message) -> Iterator[Breach]:
    """A repeated settle is a success, as long as nothing else happened to the message."""
    for place, delivery in enumerate(message.deliveries):
        done = [call for call in message.of(delivery) if call.ok and call.op != "extend" and not call.again]
        for call in message.of(delivery):
            if not call.again or call.outcome not in ("lost", "gone") or len(done) != 1 or done[0].op != call.op:
                continue
            if not _went_on(story, message, place, call) and not story.may_have_expired(message, call.ended):
                kept = " (not kept)" if call.keep is False else ""
                yield Breach(f"a repeated settle was refused{kept}", f"{message.id}: {call.op}, {call.outcome}")


def _went_on(story: Story, message: Message, place: int, call: Call) -> bool:
    """Somebody else has it, or had it, or took it away."""
    others = [other for other in message.deliveries[place + 1 :] if other.began < call.ended]
    cancels = [x for x in message.cancels if x.began < call.ended and (x.outcome == "unknown" or x.number)]
    taken = [x for x in [*message.replays, *story.purges, *message.taken] if x.began < call.ended]
    return bool(others or cancels or taken or message.changed(call.ended))
