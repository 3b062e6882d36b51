"""What `stats`, `count` and the lists say in the quiet is what is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..story import Story
from .breach import Breach

_KEPT = ("pending", "delayed", "processing", "retry", "dead", "archived")
_LIVE = ("pending", "delayed", "processing", "retry")


def totals(story: Story) -> Iterator[Breach]:
    """`total` is everything that is kept."""
    rest = story.rest
    for when, counts in (("before", rest.before), ("in", rest.middle), ("after", rest.after)):
        if counts["total"] != sum(counts[name] for name in _KEPT):
            yield Breach("stats: total", f"{story.name} {when} the drain: {counts}")


def around_the_drain(story: Story) -> Iterator[Breach]:
    """All that is left is ready, then all of it is in hand, then nothing is left."""
    rest, drained = story.rest, len(story.rest.drained)
    if rest.before["pending"] < drained or any(rest.before[name] for name in ("delayed", "processing", "retry")):
        yield Breach("stats before the drain", f"{story.name}: {rest.before}, {drained} drained")
    if rest.middle["processing"] != drained or rest.middle["pending"]:
        yield Breach("stats in the drain", f"{story.name}: {rest.middle}, {drained} drained")
    if any(rest.after[name] for name in _LIVE):
        yield Breach("stats: something is left", f"{story.name}: {rest.after}")


def lists(story: Story) -> Iterator[Breach]:
    """In the order of ids, each once, as many as are counted."""
    rest, states = story.rest, _states(story)
    for name, ids in (("dead letters", rest.dead), ("archive", rest.archive)):
        if sorted(ids) != ids:
            yield Breach("a list is not in id order", f"{story.name}: {name}")
        if len(set(ids)) != len(ids):
            yield Breach("a list has one twice", f"{story.name}: {name}")
    if not rest.after["dead"] == rest.dead_count == len(rest.dead) >= states["dead"]:
        yield Breach("stats: dead", f"{story.name}: {rest.after}, {rest.dead_count}, {len(rest.dead)}, {states}")
    archived = states["completed"] + states["failed"]
    if not rest.after["archived"] == rest.archive_count == len(rest.archive) >= archived:
        yield Breach(
            "stats: archived", f"{story.name}: {rest.after}, {rest.archive_count}, {len(rest.archive)}, {states}"
        )


def completed(story: Story) -> Iterator[Breach]:
    """Everything ever completed is counted once, kept or not."""
    completions = [call for call in story.of("complete") if call.may_have_happened]
    dropped = len({call.token for call in completions if call.keep is False and call.ok})
    unsure = len({call.token for call in completions if call.outcome == "unknown"})
    states, count = _states(story), story.rest.after["completed"]
    if not states["completed"] + dropped <= count <= len(story.rest.archive) + dropped + unsure:
        what = f"{count} counted, {states['completed']} found, {dropped} not kept, {unsure} unsure"
        yield Breach("stats: completed", f"{story.name}: {what}")


def _states(story: Story) -> Counter[str]:
    return Counter(found.status for found in story.rest.final.values())
