"""Calls about one id: `cancel` ends what waits, `get` finds what is there."""

from __future__ import annotations

from collections.abc import Iterator

from ..calls import Call
from ..story import Delivery, Message, Story
from .breach import Breach

_AROUND = 0.05  # seconds before a cancel in which a lease may have ended


def cancels(story: Story, message: Message) -> Iterator[Breach]:
    """False means that the message was held or had ended; the same for a change."""
    for call in [*message.cancels, *message.changes]:
        if not call.ok or call.number or message.sent is None or message.sent.ended >= call.began:
            continue
        if not _is_busy(story, message, call):
            yield Breach(f"{call.op} said False of a waiting message", f"{message.id} in {call.call}")


def _is_busy(story: Story, message: Message, call: Call) -> bool:
    if story.is_unheard(call.began, call.ended) or _may_be_purged(story, message, call):
        return True
    if story.may_have_expired(message, call.ended):
        return True
    if any(end.began < call.ended for end in message.ends) or any(each.began < call.ended for each in message.maybe):
        return True
    return any(_is_held(story, message, delivery, call) for delivery in message.deliveries)


def _may_be_purged(story: Story, message: Message, call: Call) -> bool:
    return any(purge.began < call.ended and purge.ended > story.made(message) for purge in story.purges)


def _is_held(story: Story, message: Message, delivery: Delivery, call: Call) -> bool:
    if delivery.given.attempt >= delivery.given.max_attempts:
        return True  # its last lease may have ended it
    given_back = [each.ended for each in message.of(delivery) if each.op in ("release", "fail") and each.ok]
    extended = [each.ended + each.seconds for each in message.of(delivery) if each.op == "extend" and each.ok]
    until = min(given_back) if given_back else max([delivery.ended + delivery.lease, *extended])
    return delivery.began < call.ended and until + story.doubt.foreign > call.began - _AROUND


def gets(story: Story) -> Iterator[Breach]:
    """None means that nothing of the message is kept."""
    for call in story.of("get"):
        if call.ok and not call.seen and not _may_be_unknown(story, story.messages.get(call.id), call):
            yield Breach("get said None", f"{call.id} in {call.call}")


def _may_be_unknown(story: Story, message: Message | None, call: Call) -> bool:
    if any(purge.began < call.ended for purge in story.purges):
        return True  # which messages a purge took is judged by what is left in the end
    if message is None:
        return False
    dropped = (each for calls in message.settles.values() for each in calls if each.op == "complete")
    gone = [each for each in dropped if each.keep is False] + [each for each in message.replays if each.view == "dead"]
    return any(each.began < call.ended for each in gone)
