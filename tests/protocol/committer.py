"""C1-C4: read the head, apply, swap. A client has one commit in flight."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from .bucket import Object, Reply, Request
from .head import Head, apply, fresh_head, sign
from .keys import Log, head_key
from .rules import SESSION

if TYPE_CHECKING:
    from .world import Client

Steps = Generator[Request, Reply, Any]  # a program of a client
UNKNOWN = "unknown"
TRIES = 8


def insist(request: Request) -> Steps:
    """Ask until there is an answer, but not for ever; a read may be repeated freely."""
    for _ in range(TRIES):
        reply = yield request
        if reply[0] != "error":
            return reply
    return "error", None


def read_head(client: Client, log: Log, *, first: bool = True) -> Steps:
    """The head and its tag, or None when there is none: the queue was deleted, or the bucket does not answer.

    A head is begun only by who has listed nothing yet: an absorb from an old list must not meet a fresh head.
    """
    key = head_key(log)
    status, found = yield from insist(("get", key))
    if status == "missing" and client.knows_queue(log[0]) and (first or not client.rules.C1_head_begun_first):
        yield "create", key, fresh_head()
        status, found = yield from insist(("get", key))
    return found if status == "ok" else None


def commit(client: Client, log: Log, intents: list[Any], found: Object | None = None) -> Steps:
    """The results of the intents, or UNKNOWN. `found` is a head that was just read."""
    client.seq += 1
    unresolved: dict[int, tuple[list[Any], int]] = {}  # attempt -> the results computed for it, its head.now
    for _ in range(TRIES):
        if found is None:
            found = yield from read_head(client, log, first=False)  # C1
        if found is None:
            return UNKNOWN
        results = _resolved(client, found.data, unresolved)  # C2
        if results is not None:
            return results
        if not client.rules.C2_same_head:
            found = (yield from read_head(client, log, first=False)) or found
        head, results = apply(
            found.data, intents, client.clock(), log=log, most=client.world.shape.attempts, rules=client.rules
        )
        if head is found.data and not unresolved:
            return results
        attempt = client.world.fresh()
        signed = sign(head, client.me, client.seq, attempt)  # C3
        status, _ = yield "swap", head_key(log), found.tag, signed, (intents, client.world.bucket.now)  # C4
        found = None
        if status == "ok":
            return results
        if status == "error":
            unresolved[attempt] = (results, head["now"])
    return UNKNOWN


def _resolved(client: Client, head: Head, unresolved: dict[int, tuple[list[Any], int]]) -> Any:
    """What became of earlier attempts: the results of the applied one, UNKNOWN, or None for not applied."""
    rules = client.rules
    if not unresolved or not rules.C2_sessions:
        return None
    if not rules.C2_more_than_last_nonce:
        return unresolved[head["nonce"]][0] if head["nonce"] in unresolved else None
    entry = head["sessions"].get(client.me)
    if entry is not None:
        return unresolved[entry[1]][0] if entry[1] in unresolved else None
    # No entry: never written, or dropped since, once the oldest attempt is old enough.
    oldest = min(now for _, now in unresolved.values())
    return UNKNOWN if rules.C2_dropped_session and head["now"] > oldest + SESSION else None
