"""Claim batches as deliveries and settlements of single messages, so that the same rules judge both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import msgspec

from .calls import Call, Given

Batch: TypeAlias = tuple[int, int]  # generation and number


def claims_of(calls: Sequence[Call]) -> dict[Batch, list[Call]]:
    """The calls that claimed a batch or found it, and those before that may have claimed it, in order of time."""
    found: dict[Batch, list[Call]] = defaultdict(list)
    for call in sorted(calls, key=lambda call: call.began):
        if call.op != "claim batch" or not call.may_have_happened:
            continue
        number = call.answer.batch if call.answer is not None and call.ok else call.batch + 1
        if number:
            found[call.generation, number].append(call)
    return {batch: some for batch, some in found.items() if any(call.ok for call in some)}


def reads_of(calls: Sequence[Call]) -> dict[Batch, list[Call]]:
    """What a batch held, each time it was read."""
    found: dict[Batch, list[Call]] = defaultdict(list)
    for call in sorted(calls, key=lambda call: call.began):
        if call.op == "read batch" and call.ok:
            found[call.generation, call.batch].append(call)
    return found


def batch_deliveries(calls: Sequence[Call]) -> Iterator[tuple[Given, Call, float]]:
    """Each message of each batch once, with the call that showed the batch, and when it was claimed at the earliest."""
    claims, reads = claims_of(calls), reads_of(calls)
    for batch, some in claims.items():
        first = next(call for call in some if call.ok)
        for given in {each.id: each for call in reads.get(batch, ()) for each in call.given}.values():
            yield given, first, some[0].began


def unread_batches(calls: Sequence[Call]) -> Iterator[tuple[float, float]]:
    """When messages may have been in a batch that nobody has read since: until its consumer is heard of again."""
    reads = reads_of(calls)
    heard = sorted(
        call.ended for call in calls if call.ok and (call.op == "read batch" or call.op == "release batches")
    )
    for call in calls:
        if call.op != "claim batch" or not call.may_have_happened:
            continue
        number = call.answer.batch if call.answer is not None and call.ok else call.batch + 1
        if number and (call.outcome == "unknown" or (call.generation, number) not in reads):
            yield call.began, next((at for at in heard if at > call.began), float("inf"))


def batch_settles(calls: Sequence[Call]) -> Iterator[Call]:
    """What settling a batch, or giving it back, was for each of its messages that had no end of its own."""
    claims, reads = claims_of(calls), reads_of(calls)
    rows = {
        batch: list({each.id: each for call in reads.get(batch, ()) for each in call.given}.values())
        for batch in claims
    }
    alone = defaultdict(list)
    for call in calls:
        if call.op in ("fail", "kill", "release") and call.token and call.may_have_happened:
            alone[call.id, call.token].append(call)
    steps = sorted((call for call in calls if _ends_batches(call)), key=lambda call: call.began)
    for batch, some in rows.items():
        mine = [step for step in steps if _concerns(step, batch, claims[batch])]
        heard = next(call for call in claims[batch] if call.ok).ended
        for given in some:
            yield from _settles(given, mine, heard, alone[given.id, given.token])


def _ends_batches(call: Call) -> bool:
    return call.op in ("claim batch", "settle batch", "release batches") and call.may_have_happened


def _concerns(step: Call, batch: Batch, claims: list[Call]) -> bool:
    """Whether a call may have ended this batch."""
    if step.op == "release batches":
        return step.ended > claims[0].began
    return step.generation == batch[0] and step.batch >= batch[1]


def _settles(given: Given, steps: list[Call], heard: float, alone: list[Call]) -> Iterator[Call]:
    """Up to the first that certainly happened; one that came after an end of the message's own did nothing."""
    for step in steps:
        released = step.op == "release batches"
        before = [call for call in alone if call.began < step.ended]
        if any(call.ok for call in before):
            return
        others = [each for each in steps if (each.op == "release batches") != released]
        at_once = any(each.began < step.ended and step.began < each.ended for each in others)  # one of them came first
        doubted = bool(before) or at_once or (released and step.began < heard)
        yield msgspec.structs.replace(
            step, call=f"{step.call}@{given.id}", op="release" if released else "complete", id=given.id,
            token=given.token, delay=0.0, keep=None, result=None, again=False,
            outcome="unknown" if doubted else step.outcome,
        )  # fmt: skip
        if step.ok and not doubted:
            return
