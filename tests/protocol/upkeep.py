"""The graveyard (G1-G3), purge, sweeping of parts, delete of a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .committer import UNKNOWN, Steps, commit, insist, read_head
from .consumer import PRIORITIES, look, margin
from .head import Absorb, Forget, Purge, is_known
from .keys import CONFIG, Log
from .producer import confirm
from .rules import CACHE, E, R

if TYPE_CHECKING:
    from .world import Client

FOLDERS = ("dedup", "parts", "staged", "inbox", "later", "late", "archive")


def bury(client: Client, log: Log) -> Steps:
    """G1: anyone may delete what is buried. G2: it is forgotten after a confirmed delete issued after birth + R."""
    found = yield from read_head(client, log)
    if found is None:
        return
    done = []
    for key, why in list(found.data["graveyard"].items()):
        valid = key.dedup and why != "late"  # what was set aside is no proof that its note was kept
        if valid and client.rules.dedup_confirmed and not (yield from confirm(client, key)):
            continue
        issued = margin(client)
        status, _ = yield "delete", key
        deleted = status == "ok" or not client.rules.G2_delete_confirmed
        if deleted and (issued > key.birth + R or not client.rules.G2_delete_after_window):
            done.append(key)
    if done and not client.rules.G2_delete_after_window:
        yield "wait", R  # "deleted once and waited" is no better
    if done:
        yield from commit(client, log, [Forget(tuple(done))])


def purge(client: Client, log: Log) -> Steps:
    """One swap: absorb what was just listed, drop everything that nobody holds, and refuse what is older."""
    began = client.world.bucket.now
    if not client.rules.purge_one_swap:
        yield from _purge_by_delete(client, log)
        return
    call = client.ghost.purges(log, began)
    for _ in range(3):
        seen = yield from look(client, log, everything=True)
        if seen is None:
            return
        found, listed = seen
        # Never later than the server's clock: a block created after the purge must not count as older.
        at = client.clock() - (E if client.rules.purge_server_time else 0)
        forgets = found.data["forgets"]
        results = yield from commit(client, log, [Absorb(tuple(listed), forgets), Purge(at, forgets, call)], found)
        if results == UNKNOWN or results[1]:
            return


def _purge_by_delete(client: Client, log: Log) -> Steps:
    call = client.ghost.purges(log, client.world.bucket.now)
    for priority in PRIORITIES:
        _, page = yield from insist(("list", log, "inbox", priority, None))
        for key, _ in page or ():
            yield "delete", key
    client.ghost.purged_by_hand(call)


def sweep(client: Client, log: Log) -> Steps:
    """Parts whose manifest is absent: looked for first by name, then in the head that may have absorbed it."""
    _, parts = yield from insist(("list", log, "parts", None, None))
    for key in [key for key, _ in parts or () if margin(client) > key.birth + R]:
        status, manifest = yield from insist(("get", key.manifest))  # by its name: a list shows only the first page
        if manifest is not None or status == "error":  # whatever its date: if it is late, its parts are set aside too
            continue
        found = yield from read_head(client, log)
        if found is not None and not (client.rules.manifest_swept_by_head and is_known(found.data, key)):
            yield "delete", key


def delete_queue(client: Client) -> Steps:
    """The closing mark; the queue is gone when every producer must have read it."""
    status, found = yield from insist(("get", CONFIG))
    if status != "ok" or found.data[0] is None:
        return
    incarnation, last, closed = found.data
    closed = (*closed, (incarnation, client.clock()))
    status, _ = yield "swap", CONFIG, found.tag, (None, last, closed), None
    if status != "ok":
        return
    if client.rules.delete_waits:
        yield "wait", CACHE + 2 * E + 1
    client.ghost.deletes(incarnation)


def create_queue(client: Client) -> Steps:
    """A new incarnation: it inherits nothing, because nothing has its keys."""
    status, found = yield from insist(("get", CONFIG))
    if status == "ok" and found.data[0] is None:
        _, last, closed = found.data
        incarnation = last + 1 if client.rules.delete_incarnation else last
        yield "swap", CONFIG, found.tag, (incarnation, incarnation, closed), None
        client.ghost.creates(incarnation)


def remove_leftovers(client: Client) -> Steps:
    """After the window everything of a closed incarnation goes, its head last; again on every pass, for late writers.

    Head first, or too early, and a consumer that has not read the closing mark would begin anew with the old blocks.
    """
    status, found = yield from insist(("get", CONFIG))
    if status != "ok":
        return
    for incarnation, closed_at in found.data[2]:
        over = client.clock() > closed_at + CACHE + R + 3 * E
        if incarnation != found.data[0] and (over or not client.rules.delete_window):
            for log in [*client.shards(incarnation), (incarnation, "dead")]:
                yield from _remove(client, log)


def _remove(client: Client, log: Log) -> Steps:
    for folder in ("head", *FOLDERS) if not client.rules.delete_window else (*FOLDERS, "head"):
        while True:
            status, page = yield from insist(("list", log, folder, None, None))
            if status != "ok":
                return
            if not page:
                break
            for key, _ in page:
                yield from insist(("delete", key))


def waste(client: Client, logs: list[Log]) -> list[Any]:
    """What must not be left after a drain."""
    bucket = client.world.bucket
    left: list[Any] = []
    for log in logs:
        for folder in ("inbox", "later", "parts", "late"):
            left += list(bucket.folders.get((log, folder), ()))
        head = bucket.head(log)
        if head is not None:
            left += [name for name in ("blocks", "graveyard", "aside", "frozen") if head[name]]
    current = bucket.objects[CONFIG].data[0]
    return left + [key for key in bucket.objects if 0 < key.log[0] != current]
