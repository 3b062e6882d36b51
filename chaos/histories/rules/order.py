"""Order in the quiet: higher priorities first, and first in, first out within a priority and producer."""

from __future__ import annotations

from collections.abc import Iterator

from ..story import Story
from .breach import Breach

ACROSS = 0.1  # seconds by which two producers may disagree beyond what their clocks do


def in_the_quiet(story: Story) -> Iterator[Breach]:
    """Of what one consumer drained when nobody else was there. Several shards have an order each."""
    if story.sharded:
        return
    priorities = [each.given.priority for each in story.rest.drained]
    if priorities != sorted(priorities, reverse=True):
        yield Breach("priorities out of order", f"{story.name}: {priorities}")
    newest: dict[tuple[str, int], tuple[float, int, str]] = {}
    for each in story.rest.drained:
        sent = story.sent.get(each.given.uid)
        if sent is None or each.given.origin or story.messages[each.given.id].changed(each.began):
            continue  # what was changed goes before the rest of what it was sent with
        place = sent.uids.index(each.given.uid)
        for who, room in ((sent.process, 0.0), ("", ACROSS + story.doubt.clocks)):
            at, last, call = newest.get((who, each.given.priority), (0.0, 0, ""))
            if sent.ended + room < at or (sent.call == call and place < last):
                kind = "order within a priority and producer" if who else "order within a priority, across producers"
                yield Breach(kind, f"{each.given.id}, {at - sent.ended:.3f} s")
            if sent.began > at or sent.call == call:
                newest[who, each.given.priority] = sent.began, place, sent.call
