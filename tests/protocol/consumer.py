"""Consumers: list and absorb (A1-A6), claim, settle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .bucket import Object
from .committer import UNKNOWN, Steps, commit, insist, read_head
from .fate import LATE, PURGED, fate
from .head import Absorb, Claim, Extend, Head, SetAside, Settle, is_known, is_purged
from .keys import Key, Log
from .quarantine import identify
from .rules import E

if TYPE_CHECKING:
    from .world import Client

PRIORITIES = (0, 1)
ABSORBED = 2  # blocks taken into the head at a time


def look(client: Client, log: Log, *, everything: bool = False) -> Steps:
    """The head, and the listed blocks that it may absorb; None when there is no head.

    A1: the head is read before the list. A2: each priority from the start, and `later`; the first page counts.
    """
    found = yield from read_head(client, log)
    if found is None:
        return None
    cursors = found.data["cursors"]  # empty: from the start
    listed: list[tuple[Key, int]] = []
    for shard in [log] if client.rules.shard_in_key or log[1] == "dead" else client.shards(log[0]):
        for priority in PRIORITIES:
            _, page = yield from insist(("list", shard, "inbox", priority, cursors.get(priority)))
            listed += page or ()
    _, page = yield from insist(("list", log, "later", None, None))
    listed += [each for each in page or () if everything or each[0].due <= client.clock()]
    if not client.rules.A1_head_before_list:
        found = yield from read_head(client, log)
        if found is None:
            return None
    listed = yield from _refuse(client, log, found.data, listed)
    if not client.rules.A5_in_place:
        listed = yield from _move(client, log, listed)
    listed = yield from _written(client, log, listed)
    return found, listed


def _refuse(client: Client, log: Log, head: Head, listed: list[tuple[Key, int]]) -> Steps:
    """A3, A4: what is late is set aside, what is older than a purge is deleted; neither is absorbed."""
    fates = [_fate(client, log, head, each) for each in listed]
    if LATE in fates:
        yield from identify(client)  # no rule needs it: what is set aside by an old epoch is brought back by `maintain`
        fates = [_fate(client, log, head, each) for each in listed]
    wrong = (PURGED,) if client.rules.A3_set_aside else (PURGED, LATE)
    for each, its in zip(listed, fates, strict=True):
        if its in wrong:
            yield "delete", each[0]
    late = [each for each, its in zip(listed, fates, strict=True) if its == LATE]
    if late and client.rules.A3_set_aside:
        yield from commit(client, log, [SetAside(tuple(late))])
    return [each for each, its in zip(listed, fates, strict=True) if its not in (PURGED, LATE)]


def _fate(client: Client, log: Log, head: Head, listed: tuple[Key, int]) -> str:
    key, created_at = listed
    if is_known(head, key) and client.rules.A4_only_strangers:
        return "known"
    if client.rules.purge_spilled and is_purged(head, key, log):
        return PURGED
    return fate(key, created_at, epoch=client.epoch, purged_at=head["purged_at"], rules=client.rules)


def _move(client: Client, log: Log, listed: list[tuple[Key, int]]) -> Steps:
    """What A5 forbids: a due block is copied to the inbox, under a key and birth of its own, and deleted."""
    kept = []
    for key, created_at in listed:
        if key.folder == "later" and key.due <= client.clock():
            _, found = yield from insist(("get", key))
            if found is not None:
                moved = key._replace(folder="inbox", due=0, birth=client.birth(), unique=(client.world.fresh(),))
                yield "create", moved, found.data
                yield "delete", key
        else:
            kept.append((key, created_at))
    return kept


def _written(client: Client, log: Log, listed: list[tuple[Key, int]]) -> Steps:
    """A block that another log's flush wrote comes when its rows are dropped there: look there, after the list."""
    heads: dict[Log, Object | None] = {}
    kept = []
    for key, created_at in listed:
        origin = key.flush.log if key.flush else log
        if origin != log and client.rules.F4_absorbed_after_drop:
            if origin not in heads:
                heads[origin] = yield from read_head(client, origin)
            found = heads[origin]
            if found is None or (found.data["frozen"] and found.data["frozen"].flush == key.flush):
                continue
        kept.append((key, created_at))
    return kept


def claim(client: Client, log: Log, limit: int) -> Steps:
    """Deliveries: (log, key, place, token)."""
    seen = yield from look(client, log)
    if seen is None:
        return []
    found, listed = seen
    new = [each for each in listed if not is_known(found.data, each[0])]
    new.sort(key=lambda each: each[0].order)
    token = (client.world.fresh(),)
    intents = [Absorb(tuple(new[:ABSORBED]), found.data["forgets"]), Claim(token, limit)]
    results = yield from commit(client, log, intents, found)
    if results == UNKNOWN:
        return []  # abandoned: what it may have taken comes back when the lease is over
    client.ghost.claimed(log, results[1], token)
    return [(log, key, place, token) for key, place in results[1]]


def receive(client: Client, delivery: Any) -> Steps:
    """Read what was claimed; None when the view is old or the bucket does not answer."""
    _, key, place, _ = delivery
    status, found = yield from insist(("get", key))
    return found.data[place] if status == "ok" else None


def settle(client: Client, deliveries: list[Any], actions: list[str]) -> Steps:
    """Finish, put back or retry what is held; several at once, of one log."""
    log = deliveries[0][0]
    intents = [
        Settle(key, place, token, action, client.rng.choice((0, 2, 20)))
        for (_, key, place, token), action in zip(deliveries, actions, strict=True)
    ]
    results = yield from commit(client, log, intents)
    for intent, result in zip(intents, results if results != UNKNOWN else [UNKNOWN] * len(intents), strict=True):
        client.ghost.settled(log, intent, result)
    return results


def extend(client: Client, delivery: Any) -> Steps:
    log, key, place, token = delivery
    yield from commit(client, log, [Extend(key, place, token)])


def margin(client: Client) -> int:
    """Store time that is surely over, for a client whose clock may be fast."""
    return client.clock() - (E if client.rules.G2_server_margin else 0)
