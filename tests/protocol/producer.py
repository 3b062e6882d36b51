"""Producers: P1-P4, calls of several blocks, dedup keys, replay. They never touch the head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .committer import UNKNOWN, Steps, insist, read_head
from .fate import ADMIT, fate
from .head import was_absorbed
from .keys import Id, Key, Log, Row
from .rules import E, R

if TYPE_CHECKING:
    from .world import Client

STORED, REFUSED = "stored", "refused"


def append(
    client: Client, log: Log, values: list[str], *, priority: int = 0, delay: int = 0, sender: Any = None
) -> Steps:
    """One block, or several under a manifest when there are several values."""
    birth, unique = client.birth(), (client.world.fresh(),)
    if len(values) > 1:
        return (yield from _append_parts(client, log, values, birth, unique))
    folder, due = ("later", birth + delay) if delay else ("inbox", 0)
    key = Key(log, folder, priority, due, birth, unique)
    ids = client.ghost.sends(key, values, sender)
    answer = yield from create_in_time(client, key, rows_of(ids, values))
    client.ghost.answers(ids, answer)
    if answer == UNKNOWN and client.world.shape.retries:
        return (yield from _retry(client, key, rows_of(ids, values)))
    return answer


def _retry(client: Client, key: Key, rows: tuple[Row, ...]) -> Steps:
    """`UnknownOutcome.retry`: what is not there when nothing can arrive in time any more is sent again, same ids."""
    yield "wait", max(0, key.birth + R + E - client.clock()) + 1
    if client.ghost.is_there(rows[0].id):
        return UNKNOWN
    again = key._replace(birth=client.birth(), unique=(client.world.fresh(),))
    answer = yield from create_in_time(client, again, rows)
    client.ghost.answers([row.id for row in rows], answer)
    return answer


def rows_of(ids: list[Id], values: list[str]) -> tuple[Row, ...]:
    return tuple(Row(id, value) for id, value in zip(ids, values, strict=True))


def create_in_time(client: Client, key: Key, data: Any) -> Steps:
    """P1: key and bytes are made once, by the caller; tries repeat them."""
    rules = client.rules
    while True:
        status, _ = yield "create", key, data
        if status == "exists" and not rules.P2_exists_is_proof:
            return REFUSED
        if status in ("ok", "exists"):
            if client.clock() - key.birth <= R - E or not rules.P3_late_answer_is_read:
                return STORED  # P2
            return (yield from exists_in_time(client, key))  # P3
        if not rules.P4_error_is_unknown:
            return REFUSED
        if client.clock() - key.birth > R:
            return UNKNOWN  # P4
        if not rules.P1_key_once:
            key = key._replace(unique=(client.world.fresh(),))
            again = tuple(Row((key.birth, key.unique, *row.id[2:]), row.value) for row in data)
            client.ghost.sends_again(data, again)
            data = again


def exists_in_time(client: Client, key: Key) -> Steps:
    """Whether the block that is there now was created within R of its birth: then it is valid for ever."""
    status, found = yield from insist(("get", key))
    return STORED if status == "ok" and is_in_time(client, key, found.created_at) else UNKNOWN


def is_in_time(client: Client, key: Key, created_at: int) -> bool:
    return fate(key, created_at, epoch=client.epoch, purged_at=0, rules=client.rules) == ADMIT


def _append_parts(client: Client, log: Log, values: list[str], birth: int, unique: tuple[int, ...]) -> Steps:
    """Parts first, one manifest in the inbox is the commit; parts without one are swept."""
    manifest = Key(log, "inbox", 0, 0, birth, unique, count=0, parts=len(values))
    ids = client.ghost.sends(manifest, values)
    answer = STORED
    for number, row in enumerate(rows_of(ids, values)):
        part = manifest.part(number)
        if not client.rules.manifest:
            part = part._replace(folder="inbox")
        answer = yield from create_in_time(client, part, (row,))
        if answer != STORED:
            break
    if answer == STORED and client.rules.manifest:
        answer = yield from create_in_time(client, manifest, ())
    client.ghost.answers(ids, answer)
    return answer


def append_once(
    client: Client, log: Log, name: str, values: list[str], ids: list[Id] | None = None, like: Key | None = None
) -> Steps:
    """With a dedup key: the block that its note names is the message, for everybody.

    `ids` are given when they are those of other messages (brought back, `like` their old block) or derived (replay).
    """
    mine = (like or Key(log, "inbox", count=len(values)))._replace(
        birth=client.birth(), unique=(client.world.fresh(),), dedup=name
    )
    sent = client.ghost.sends_once(mine, name, ids, values)
    note = note_key(log, name)
    claim = (mine, rows_of(sent, values), False)  # key, bytes, and whether it is known that the block was valid
    answer: Any = UNKNOWN
    if not client.rules.dedup_object:
        answer = yield from create_in_time(client, *claim[:2])
        client.ghost.answers(sent, answer)
        return answer
    for _ in range(4):
        status, _ = yield "create", note, claim
        status, found = yield from insist(("get", note))
        if status == "error":
            break
        if status == "missing":
            continue
        answer, sent = yield from _follow(client, note, found, claim)
        if answer is not None:
            break
    client.ghost.answers(sent, answer or UNKNOWN)
    return answer


def note_key(log: Log, name: str) -> Key:
    """One for all shards of the queue."""
    return Key((log[0], "s0"), "dedup", dedup=name)


def _follow(client: Client, note: Key, found: Any, mine: Any) -> Steps:
    """Create the block that the note names if it is missing; (answer, ids), answer None: look again."""
    key, rows, confirmed = found.data
    ids = [row.id for row in rows]
    if confirmed or (not client.rules.dedup_holds_bytes and key != mine[0]):
        return STORED, ids
    answer = UNKNOWN
    if client.clock() - key.birth <= R:
        answer = yield from create_in_time(client, key, rows)
    if answer == STORED:
        return STORED, ids
    if client.clock() - key.birth <= R + E:
        return UNKNOWN, ids
    return (yield from _judge(client, note, found, mine))


def _judge(client: Client, note: Key, found: Any, mine: Any) -> Steps:
    """Nobody can create the block any more. Was it ever valid? One that was is forgotten only when its note says so."""
    key, rows, _ = found.data
    ids = [row.id for row in rows]
    status, block = yield from insist(("get", key))
    if status == "error":
        return UNKNOWN, ids
    if status == "ok" and is_in_time(client, key, block.created_at):
        return STORED, ids
    if client.rules.dedup_confirmed:
        head = yield from read_head(client, key.log)
        if head is None:
            return UNKNOWN, ids
        if was_absorbed(head.data, key):
            return STORED, ids
        status, again = yield from insist(("get", note))
        if status != "ok" or again.tag != found.tag:
            return None, ids
    values = [row.value for row in mine[1]]
    derived = ids if note.dedup.startswith(("replay", "late")) else None
    fresh = mine[0]._replace(birth=client.birth(), unique=(client.world.fresh(),))
    again = client.ghost.sends_once(fresh, note.dedup, derived, values, call=mine[1][0].id)
    yield "swap", note, found.tag, (fresh, rows_of(again, values), False), None
    return None, ids


def confirm(client: Client, key: Key) -> Steps:
    """Say in the note that its block was valid; True when that is sure. Done before such a block may be forgotten."""
    note = note_key(key.log, key.dedup)
    for _ in range(4):
        status, found = yield from insist(("get", note))
        if status == "missing" or (status == "ok" and (found.data[0] != key or found.data[2])):
            return True
        if status == "ok":
            yield "swap", note, found.tag, (*found.data[:2], True), None
    return False


def replay(client: Client, log: Log) -> Steps:
    """Copy an archive file's rows into the queue again. Ids are derived from file and row: a repeat adds nothing."""
    status, files = yield from insist(("list", log, "archive", None, None))
    if not files:
        return
    file, _ = client.rng.choice(files)
    status, found = yield from insist(("get", file))
    if status != "ok" or any(row.id[0] == "replay" for row in found.data):
        return
    ids: list[Id] = [("replay", file.unique, number) for number in range(len(found.data))]
    values = [row.value for row in found.data]
    if client.rules.replay_once:
        yield from append_once(client, log, f"replay {file.unique}", values, ids)
        return
    key = Key(log, "inbox", 0, 0, client.birth(), (client.world.fresh(),), count=len(ids))
    client.ghost.sends_once(key, "", ids, values)
    yield from create_in_time(client, key, rows_of(ids, values))
