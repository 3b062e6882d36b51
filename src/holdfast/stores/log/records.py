"""What is known of a message, read off the head and its block."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .. import history
from ..records import Attempt, Status, Stored
from .head import past
from .head.bits import places, span
from .head.pipelines import FOREVER
from .head.state import Block, Head, Past, Rules, Settled, Waiting
from .rows import Rows
from .space import Reading
from .tokens import enqueued_at, id_at, result_of, shown_end


class State(msgspec.Struct, frozen=True, gc=False):
    """The part of a record that changes."""

    status: Status
    attempts: int
    visible_at: float | None = None
    finished_at: float | None = None
    result: bytes | None = None  # as the head packs it
    error: str | None = None
    worker: str | None = None
    token: str | None = None
    claimed_at: float | None = None
    past: Sequence[Past] = ()  # what the head remembers of it


def state_of(head: Head, block: Block, place: int, now: float) -> State | None:
    """None: the message is gone from this block."""
    bit = 1 << place
    for lease in head.leases:
        if lease.block == block.no and lease.mask & bit:
            status: Status = "processing" if lease.expires > now else "pending"
            return State(status, lease.attempts, lease.expires, worker=lease.worker, token=lease.token)
    waiting, settled = list(head.waiting), list(head.settled)
    if head.frozen is not None:
        waiting += head.frozen.waiting
        settled += head.frozen.settled
    for group in waiting:
        if group.block == block.no and group.mask & bit:
            return _waiting_state(group, now)
    for ended in settled:
        if ended.block == block.no and ended.mask & bit:
            return settled_state(ended, place) if ended.status != "replayed" else None
    if block.fresh() & bit:
        return fresh_state(block, now)
    return None


def with_past(head: Head, block: Block, place: int, state: State) -> State:
    """The same with what the head remembers of this message."""
    found = past.of(head, block.no, place)
    return msgspec.structs.replace(state, past=found) if found else state


def _waiting_state(group: Waiting, now: float) -> State:
    later: Status = "retry" if group.attempts else "delayed"
    status = "pending" if group.due <= now else later
    said = group.error, group.worker, group.token
    return State(status, group.attempts, group.due or None, None, None, *said)


def settled_state(group: Settled, place: int) -> State:
    result = None
    if group.results is not None:
        result = group.results[(group.mask & ((1 << place) - 1)).bit_count()]
    status: Status = "failed" if group.status == "moved" or group.status == "replayed" else group.status
    said = group.error, group.worker, group.token, group.claimed or None
    return State(status, group.attempts, None, group.at, result, *said)


def fresh_state(block: Block, now: float) -> State:
    """A block under `later/` holds delayed messages, or retries when they were claimed before."""
    if block.due <= now:  # restored, it is due in the first second of 1970 and was never delayed
        return State("pending", block.name.attempts, block.due if block.due > 1 else None)
    return State("retry" if block.name.attempts else "delayed", block.name.attempts, block.due)


def open_states(head: Head, block: Block, now: float) -> list[tuple[State, int]]:
    """The messages of a block that have not ended, as sets of places that share their state."""
    found = [(fresh_state(block, now), block.fresh())]
    if not block.no:  # nobody has looked into it yet
        return found
    for lease in head.leases:
        if lease.block == block.no:
            status: Status = "processing" if lease.expires > now else "pending"
            state = State(status, lease.attempts, lease.expires, worker=lease.worker, token=lease.token)
            found.append((state, lease.mask))
    waiting = head.waiting + (head.frozen.waiting if head.frozen else [])
    found += [(_waiting_state(group, now), group.mask) for group in waiting if group.block == block.no]
    return found


def record(block: Block, rows: Rows, place: int, state: State, rules: Rules, view: Reading, root: str) -> Stored:
    """A message as the seam shows it; what happened before its block was written counts where the head says nothing."""
    shown = rules.calendar.shown
    return Stored(
        id_at(block, rows, place),
        state.status,
        rows.payload[place],
        rows.content_type_at(place),
        rows.headers[place] if rows.headers else None,
        rows.priority[place] if rows.priority else block.name.priority,
        state.attempts + (rows.attempts[place] - block.name.attempts if rows.attempts else 0),
        rows.max_attempts[place] if rows.max_attempts else block.limit(rules),
        enqueued_at(block, rows, place, rules),
        shown(state.visible_at),
        shown(state.finished_at) or (rows.finished_at[place] if rows.finished_at else None),
        result_of(state.result, view, root),
        state.error or (rows.error[place] if rows.error else None),
        state.worker or (rows.worker[place] if rows.worker else None),
        shown(state.claimed_at) or (rows.claimed_at[place] if rows.claimed_at else None),
        shown_end(block, rules.calendar) or (rows.expires[place] if rows.expires else None),
        history_of(rows, place, state, rules) if rows.history or state.past else (),
    )


def history_of(rows: Rows, place: int, state: State, rules: Rules) -> tuple[Attempt, ...]:
    """What the block says, then what the head says."""
    return history.joined(rows.history[place] if rows.history else None, shown_past(state.past, rules))


def shown_past(found: Sequence[Past], rules: Rules) -> list[Attempt]:
    """By the calendar; the claims of earlier versions do not say when they began."""
    shown = rules.calendar.wall
    return [
        Attempt(shown(each.start) if each.start else None, shown(each.end), each.worker, each.error) for each in found
    ]


def as_dead(stored: Stored, rows: Rows, place: int) -> Stored:
    """A dead letter as the queue it died in shows it: whatever its own log does with it, it is dead."""
    if stored.status == "completed":
        return stored
    return msgspec.structs.replace(
        stored,
        status="dead",
        attempts=rows.attempts[place] if rows.attempts else 0,
    )


def plain_group(
    rules: Rules,
    block: Block,
    state: State,
    mask: int,
    results: list[bytes | None] | None = None,
    *,
    head: Head | None = None,
) -> list[object]:
    """A `columns.Group` before it is one; with what the head remembers of the messages, if one is given."""
    whole = mask == span(0, block.name.count)
    packed = b"" if whole else mask.to_bytes((mask.bit_length() + 7) // 8, "little")
    shown = rules.calendar.shown
    until = shown(state.visible_at) if (state.visible_at or 0.0) < FOREVER else None
    kept = (state.status, state.attempts, packed, until, shown(state.finished_at), state.error, state.worker)
    return [*kept, results, shown(state.claimed_at), past_by_place(head, block, mask, rules)]


def past_by_place(head: Head | None, block: Block, mask: int, rules: Rules) -> list[list[Attempt]] | None:
    """What the head remembers of some messages of a block; None: nothing of any."""
    if head is None or not past.has_some(head, block.no, mask):
        return None
    return [shown_past(past.of(head, block.no, place), rules) for place in places(mask)]
