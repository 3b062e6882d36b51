"""Schedules: a slot becomes one message, by whoever sees it first. The mark is in the head of one shard.

The block is written where nobody looks; one swap takes it into the head and moves the mark, if that is still the one
that was seen. Blocks that no swap took in are swept an hour later, when no request can be under way any more: that is
not modelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .committer import UNKNOWN, Steps, commit, read_head
from .head import Fire
from .keys import Key, Log
from .producer import REFUSED, STORED, create_in_time, rows_of

if TYPE_CHECKING:
    from .world import Client

SLOT = 9  # ticks from one to the next


def fire(client: Client, log: Log) -> Steps:
    """The newest slot, unless it was fired."""
    log = (log[0], "s0")
    found = yield from read_head(client, log)
    slot = client.clock() // SLOT
    if found is None or slot <= found.data["slot"]:
        return
    folder = "staged" if client.rules.S1_one_swap else "inbox"
    key = Key(log, folder, 0, 0, client.birth(), (client.world.fresh(),))
    values = [f"slot {slot} by {client.me}"]
    ids = client.ghost.sends_once(key, f"slot {slot}", None, values)
    answer = yield from create_in_time(client, key, rows_of(ids, values))
    if answer != STORED:
        client.ghost.answers(ids, UNKNOWN if folder == "inbox" else REFUSED)
        return
    results = yield from commit(client, log, [Fire(slot, found.data["slot"], key)])
    client.ghost.answers(ids, UNKNOWN if results == UNKNOWN or folder == "inbox" else results[0])
