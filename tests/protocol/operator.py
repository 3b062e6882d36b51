"""Changing a waiting message: it is written anew where nobody looks, and one swap takes it from its old block.

Blocks that no swap took in are swept an hour later, when no request can be under way any more: that is not modelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .committer import Steps, commit, insist, read_head
from .head import Rewrite
from .keys import Key, Log
from .producer import STORED, create_in_time

if TYPE_CHECKING:
    from .world import Client


def change(client: Client, log: Log) -> Steps:
    """The priority of some message that waits, or that somebody holds if the rule is off."""
    found = yield from read_head(client, log)
    kinds = ("new", "retry") if client.rules.change_only_waiting else ("new", "retry", "leased")
    blocks = found.data["blocks"].items() if found is not None else ()
    waiting = [(key, at, state) for key, states in blocks for at, state in enumerate(states) if state.kind in kinds]
    if not waiting:
        return
    key, place, state = client.rng.choice(waiting)
    status, block = yield from insist(("get", key))
    if status != "ok":
        return
    folder = "staged" if client.rules.change_unlisted else "inbox"
    priority = client.rng.choice((0, 1))
    new = Key(log, folder, priority, 0, client.birth(), (client.world.fresh(),), attempts=state.attempts)
    answer = yield from create_in_time(client, new, (block.data[place],))
    if answer == STORED:
        yield from commit(client, log, [Rewrite(key, place, new)])
