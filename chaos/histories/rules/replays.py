"""A replay makes one copy of a message, however often it is asked for; of a dead letter nothing stays behind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ..calls import Call
from ..story import Message, Story
from .breach import Breach


def copies(story: Story) -> Iterator[Breach]:
    """Each original has at most one copy, which somebody asked for and which has its value."""
    found: dict[str, list[Message]] = defaultdict(list)
    for message in story.messages.values():
        if message.origin:
            found[message.origin].append(message)
    for origin, some in found.items():
        if len(some) > 1:
            yield Breach("replayed twice", f"{origin} is there again as {', '.join(each.id for each in some)}")
        yield from _from_original(story, story.messages.get(origin), some[0])


def _from_original(story: Story, original: Message | None, copy: Message) -> Iterator[Breach]:
    if original is None or not original.replays:
        yield Breach("replayed by nobody", f"{copy.id} from {copy.origin}")
    elif story.owner.get(original.id, story.owner.get(copy.id)) != story.owner.get(copy.id):
        yield Breach("the value changed", f"{copy.id} is a copy of {original.id}")


def answers(story: Story) -> Iterator[Breach]:
    """What a replay answered is what happened."""
    copied = {message.origin for message in story.messages.values() if message.origin}
    for message in list(story.messages.values()):
        whole = [call for call in message.replays if call.ok and call.number == len(call.wanted)]
        if len(whole) > 1:
            yield Breach("replayed twice", f"{message.id}: {len(whole)} calls said so")
        for call in whole[:1]:
            yield from _happened(story, message, call, is_there=message.id in copied)
        yield from _refused(story, message)


def _happened(story: Story, message: Message, call: Call, *, is_there: bool) -> Iterator[Breach]:
    if not is_there and not any(purge.ended > call.began for purge in story.purges):
        yield Breach("a replayed message was lost", f"{message.id} in {call.call}")
    if call.view == "dead" and message.final is not None:
        yield Breach("a replayed dead letter is still there", f"{message.id} is {message.final.status}")


def _refused(story: Story, message: Message) -> Iterator[Breach]:
    """Nothing was added, although it was listed and nobody else had replayed it."""
    for call in message.replays:
        if not call.ok or call.number or len(call.wanted) > 1:
            continue
        others = [other for other in message.replays if other is not call and other.began < call.ended]
        listed = [each for each in story.of("list") if each.view == call.view and each.ended < call.began]
        if not others and any(seen.id == message.id for each in listed for seen in each.seen):
            yield Breach("a replay added nothing", f"{message.id} in {call.call}")
