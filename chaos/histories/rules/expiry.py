"""A message with a time limit: nobody gets it afterwards, and it does not end by that before."""

from __future__ import annotations

from collections.abc import Iterator

from ..story import Message, Story
from .breach import Breach

EXPIRED = "expired"  # the error of a message that ended so
_TICK = 0.01  # seconds by which readings of one clock may differ


def late(story: Story, message: Message) -> Iterator[Breach]:
    """No claim hands it out; what was claimed ahead is held from then on."""
    if (expiry := story.expiry(message)) is None:
        return
    for delivery in message.deliveries:
        claimed = delivery.began - (delivery.lease if story.doubt.ahead else 0.0)
        over = claimed - expiry[1]
        if over > _TICK:
            yield Breach("delivered after it had expired", f"{message.id}: {delivery.token}, by {over:.3f} s")


def early(story: Story) -> Iterator[Breach]:
    """What a read shows as expired was sent with a limit, which is over."""
    for call in story.calls:
        for seen in call.seen:
            if seen.status == "failed" and seen.error == EXPIRED:
                message = story.messages[seen.id]
                if not story.may_have_expired(message, call.ended + _TICK):
                    yield Breach("expired before its time", f"{seen.id} in {call.call}")
