"""A3: late blocks are set aside: named in the head, copied under `late`, buried; and brought back, exactly once.

The bucket knows when it was copied: its identity holds when it was made, and a later date makes it a copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .committer import Steps, commit, insist, read_head
from .fate import is_copied
from .head import Bury
from .keys import IDENTITY, Key, Log, Row
from .producer import append_once
from .rules import R

if TYPE_CHECKING:
    from .world import Client


def identify(client: Client) -> Steps:
    """Read the identity; whoever finds a copy says since when it is one, by swap. Sets the client's epoch."""
    status, found = yield from insist(("get", IDENTITY))
    if status != "ok":
        return
    made_at, epoch = found.data
    if found.created_at - made_at > R and client.rules.A3_epoch:
        made_at = epoch = client.world.bucket.now  # by the server's clock: the new identity's own date
        yield "swap", IDENTITY, found.tag, (made_at, epoch), None
        _, found = yield from insist(("get", IDENTITY))
        epoch = found.data[1] if found is not None else client.epoch
    client.epoch = max(client.epoch, epoch)


def keep_aside(client: Client, log: Log) -> Steps:
    """What the head has set aside is copied, read again, and then buried: the graveyard deletes it."""
    found = yield from read_head(client, log)
    if found is None:
        return
    done = []
    for key, created_at in found.data["aside"].items():
        if not client.rules.A3_bury_before_delete:
            yield "delete", key
        if (yield from _copied(client, key, created_at)):
            done.append(key)
    if done:
        yield from commit(client, log, [Bury(tuple(done))])


def _copied(client: Client, key: Key, created_at: int) -> Steps:
    """True when nothing of the block can be lost any more."""
    rows = yield from _rows(client, key)
    if rows is None:
        return False
    if not rows:
        return True  # not there, or never whole: nobody was told that it is
    copy = key._replace(folder="late")
    yield "create", copy, (key, created_at, rows)
    status, found = yield from insist(("get", copy))
    return status == "ok" and found.data[2] == rows


def _rows(client: Client, key: Key) -> Steps:
    """The rows of a block, or of all parts of a manifest; () when something is missing, None: no answer."""
    rows: tuple[Row, ...] = ()
    for each in [key, *(key.part(number) for number in range(key.parts))]:
        status, found = yield from insist(("get", each))
        if status == "error":
            return None
        if status == "missing":
            return ()
        rows += found.data
    return rows


def bring_back(client: Client, log: Log, *, everything: bool) -> Steps:
    """`recover`: all that was set aside; `maintain`: what a later epoch lets pass. Ids that are known stay out."""
    yield from identify(client)
    _, page = yield from insist(("list", log, "late", None, None))
    for copy, _ in page or ():
        status, found = yield from insist(("get", copy))
        if status != "ok":
            continue
        key, created_at, rows = found.data
        if everything or is_copied(key, created_at, client.epoch, client.rules):
            yield from _bring_back(client, log, key, rows, by_hand=everything)
            yield "delete", copy


def _bring_back(client: Client, log: Log, key: Key, rows: tuple[Row, ...], *, by_hand: bool) -> Steps:
    ghost = client.ghost
    if client.rules.A3_retry_after_set_aside:
        rows = tuple(row for row in rows if not ghost.is_there(row.id))
    if not rows:
        return
    ghost.brings_back(key, [row.id for row in rows], by_hand=by_hand)
    like = key._replace(count=len(rows), parts=0, flush=None, folder="later" if key.due else "inbox")
    values: list[Any] = [row.value for row in rows]
    yield from append_once(client, log, f"late {key}", values, [row.id for row in rows], like=like)
