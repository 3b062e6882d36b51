"""Claim batches: one owner, and the same messages until they are settled."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ..batching import claims_of, reads_of
from ..calls import LEFT, Call
from ..story import Story
from .breach import Breach


def contents(story: Story) -> Iterator[Breach]:
    """Whoever reads a batch gets all of it, but for messages that had ended, or had an end of their own, by then."""
    for batch, reads in reads_of(story.calls).items():
        rows = {(each.id, each.token) for read in reads for each in read.given}
        for read in reads:
            got = {(each.id, each.token) for each in read.given}
            if missing := [each for each in sorted(rows - got) if not _had_its_own_end(story, *each, read)]:
                yield Breach("a batch changed", f"batch {batch[1]}: {read.call} lacks {missing}")


def _had_its_own_end(story: Story, id: str, token: str, read: Call) -> bool:
    message = story.messages.get(id)
    settles = message.settles.get(token, []) if message is not None else []
    return any(call.may_have_happened and call.began < read.ended for call in settles)


def left(story: Story) -> Iterator[Breach]:
    """What a batch holds leaves the store without a record by a purge alone, which came after it was claimed."""
    claims = claims_of(story.calls)
    for call in story.of("read batch"):
        if LEFT in call.why:
            claimed = min((each.began for each in claims.get((call.generation, call.batch), ())), default=0.0)
            if not any(purge.ended > claimed and purge.began < call.ended for purge in story.purges):
                yield Breach("a batch left", f"batch {call.batch}: {call.call}, nobody has purged the queue")


def owners(story: Story) -> Iterator[Breach]:
    """Nobody becomes the owner while another is certainly alive, and whoever was replaced is not heard."""
    owned = sorted((call for call in story.of("own") if call.ok), key=_epoch)
    for one, other in pairwise(owned):
        if _holder(one) != _holder(other) and other.ended < _alive_until(story, one) - story.doubt.clocks:
            yield Breach("two owners at once", f"{one.call} and {other.call}")
    for call in story.calls:
        if call.op in ("claim batch", "settle batch", "read batch") and call.ok:
            newer = [each for each in owned if _epoch(each) > call.epoch and each.ended < call.began]
            if newer:
                yield Breach("a late owner was heard", f"{call.op} of epoch {call.epoch}, {_epoch(newer[-1])} is newer")


def _holder(own: Call) -> str:
    return own.call.partition("#")[0]


def _epoch(own: Call) -> int:
    return own.answer.epoch if own.answer is not None else 0


def _alive_until(story: Story, own: Call) -> float:
    """By the machine's clock; an owner that may have left, or have owned anew, need not be alive after that."""
    left = [
        call
        for call in story.of("own")
        if call.outcome == "unknown" and _holder(call) == _holder(own) and call.began > own.began
    ]
    left += [call for call in story.of("beat") if call.epoch == _epoch(own) and call.may_have_happened]
    left += [call for call in story.of("release batches") if call.may_have_happened and call.ended > own.began]
    return min([own.began + own.lease, *(call.began for call in left)])
