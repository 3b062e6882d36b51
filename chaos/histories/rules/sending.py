"""What was sent is what is delivered: once, unchanged, not early; and a dedup key stands for one message a window."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ..calls import Call
from ..story import Message, Story, by_key
from .breach import Breach

DEFAULT_ATTEMPTS = 4  # max_attempts of the queues of a history
_TIMERS = 0.002  # seconds by which a delay may seem to end early between two readings of a clock


def errors(story: Story) -> Iterator[Breach]:
    """No call raises anything but what its caller must expect."""
    for call in story.calls:
        if call.outcome == "error":
            yield Breach("unexpected error", f"{call.op}: {call.why}")
    for error in story.rest.errors:
        yield Breach("error in the quiet at the end", f"{story.name}: {error}")


def answers(story: Story) -> Iterator[Breach]:
    """Every enqueue is answered by as many ids as it had messages, each of its own."""
    seen: set[str] = set()
    for call in story.of("enqueue"):
        if not call.ok:
            continue
        if len(call.ids) != len(call.uids):
            yield Breach("ids do not match messages", f"{call.call}: {len(call.ids)} for {len(call.uids)}")
        if call.terms.dedup_key is None:
            for id in call.ids:
                if id in seen:
                    yield Breach("one id for two messages", id)
                seen.add(id)


def values(story: Story) -> Iterator[Breach]:
    """A value comes from one who sent it, stays with its message, and makes one message."""
    used: dict[str, str] = {}
    for message in story.messages.values():
        for delivery in message.deliveries:
            uid = delivery.given.uid
            if uid not in story.sent:
                yield Breach("a message nobody sent", f"{message.id} is {uid!r}")
                continue
            if story.owner.setdefault(message.id, uid) != uid:
                yield Breach("the value changed", f"{message.id} is {uid!r}, was {story.owner[message.id]!r}")
            if not message.origin and used.setdefault(uid, message.id) != message.id:
                yield Breach("one enqueue, two messages", f"{uid!r} is {message.id} and {used[uid]}")


def _line(story: Story, message: Message) -> Iterator[Message]:
    """A message, the one that it is a replay of, and so on."""
    seen: set[str] = set()
    found: Message | None = message
    while found is not None and found.id not in seen:
        seen.add(found.id)
        yield found
        found = story.messages.get(found.origin)


def terms(story: Story, message: Message) -> Iterator[Breach]:
    """Priority, attempts and delay are those it was sent with, or that somebody changed."""
    for delivery in message.deliveries:
        given, sent = delivery.given, story.sent.get(delivery.given.uid)
        if sent is None:
            continue
        changes = [call for each in _line(story, message) for call in each.changed(delivery.ended)]
        wanted = sent.terms.priority, sent.terms.max_attempts or DEFAULT_ATTEMPTS
        priorities = {wanted[0], *(call.terms.priority for call in changes)}
        if given.priority not in priorities or given.max_attempts != wanted[1]:
            yield Breach("terms changed", f"{message.id}: {given.priority, given.max_attempts}, sent with {wanted}")
        early = sent.began + sent.terms.delay - delivery.ended
        if not message.origin and not changes and early > _TIMERS + story.doubt.clocks:  # a replay does not wait again
            yield Breach("delivered before its delay", f"{message.id}, by {early:.3f} s")


def dedup(story: Story) -> Iterator[Breach]:
    """Two ids for one key need two windows."""
    for key, found in by_key(story).items():
        spans: dict[str, tuple[float, float]] = {}
        for call, id in found:
            made = story.sent[story.owner[id]].began if id in story.owner else _made(story, key, call)
            known = spans.get(id, (made, call.ended))
            spans[id] = min(made, known[0]), min(call.ended, known[1])
        spans |= _unanswered(story, key, known=set(spans))
        order = sorted(spans.items(), key=lambda each: (each[1][1], each[1][0]))
        for (one, first), (other, second) in pairwise(order):
            if second[1] - first[0] < story.window - story.doubt.clocks:
                yield Breach(
                    "dedup: two messages in one window", f"{key}: {one}, {other}, {second[1] - first[0]:.3f} s"
                )


def _made(story: Story, key: str, heard: Call) -> float:
    """When a message that nobody has seen was made at the earliest: by whoever was told its id, or died before that."""
    mute = [c.began for c in story.of("enqueue") if c.terms.dedup_key == key and c.outcome == "unknown"]
    return min([heard.began, *(began for began in mute if heard.began - story.window < began < heard.began)])


def _unanswered(story: Story, key: str, *, known: set[str]) -> dict[str, tuple[float, float]]:
    """Messages with this key whose sender heard nothing, seen later."""
    spans = {}
    for id, uid in story.owner.items():
        sent, message = story.sent.get(uid), story.messages.get(id)
        if sent is None or message is None or id in known or message.origin or sent.terms.dedup_key != key:
            continue
        spans[id] = sent.began, min([sent.ended, *(each.ended for each in message.deliveries)])
    return spans
