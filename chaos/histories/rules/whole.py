"""Calls about the whole queue: nothing is delivered while it is paused, nothing that waited outlasts a purge."""

from __future__ import annotations

from collections.abc import Iterator

from ..calls import Call
from ..story import Message, Story
from .breach import Breach


def pauses(story: Story) -> Iterator[Breach]:
    """A claim that began and ended while the queue was certainly paused got nothing."""
    resumes = [call for call in story.of("resume") if call.may_have_happened]
    spans = []
    for pause in story.of("pause"):
        ended = [resume.began for resume in resumes if resume.ended > pause.began]
        if pause.ok:
            spans.append((pause.ended + story.doubt.pausing, min(ended, default=float("inf"))))
    for call in story.calls:
        got = (
            call.given if call.op == "dequeue" else [call] if call.op == "claim batch" and _is_new(story, call) else []
        )
        if call.ok and got and any(start < call.began and call.ended < end for start, end in spans):
            yield Breach("delivered while paused", f"{call.call} got {len(got)}")


def _is_new(story: Story, call: Call) -> bool:
    """A batch that was claimed before the pause is found again in it."""
    number = call.answer.batch if call.answer is not None else 0
    earlier = [
        other
        for other in story.of("claim batch")
        if other is not call and other.may_have_happened and other.batch + 1 == number and other.began < call.ended
    ]
    return bool(number) and not earlier


def purges(story: Story) -> Iterator[Breach]:
    """What waited from before a purge until after it is gone. Not where messages are claimed before they are asked
    for: they are held then, and nobody can tell."""
    for purge in story.purges if not story.doubt.ahead else ():
        if not purge.ok or story.is_unheard(purge.began, purge.ended):
            continue
        for message in story.messages.values():
            if _waited(message, purge) and any(each.began > purge.ended for each in message.deliveries):
                yield Breach("outlasted a purge", f"{message.id}, {purge.call}")


def _waited(message: Message, purge: Call) -> bool:
    """Sent before, and in nobody's hands until the purge was over."""
    return (
        message.sent is not None
        and message.sent.ended < purge.began
        and not any(each.began < purge.ended for each in message.deliveries)
    )
