"""F1-F6: freeze, write, drop. Whoever finds a frozen set finishes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .committer import UNKNOWN, Steps, commit, insist, read_head
from .head import Drop, Freeze, Frozen, Head, Renew
from .keys import Id, Key, Log, Row
from .producer import STORED, create_in_time, is_in_time
from .quarantine import identify
from .rules import E, R

if TYPE_CHECKING:
    from .world import Client

Blocks = list[tuple[int, Key, tuple[Row, ...]]]  # number in the frozen set, key, rows


def flush(client: Client, log: Log) -> Steps:
    found = yield from read_head(client, log)
    if found is None:
        return
    head = found.data
    if head["frozen"] is None:
        head = yield from _freeze(client, log, found)
        if head is None or head["frozen"] is None:
            return
    frozen = head["frozen"]
    payloads = yield from _payloads(client, frozen)
    if payloads is None:
        return  # F3: what is missing was dropped by another: my view is old
    if not (yield from _write_all(client, log, head, payloads)):
        return
    if not client.rules.G3_nothing_else_deletes:
        for key in {row[0]: None for row in frozen.rows}:
            yield "delete", key
    yield from commit(client, log, [Drop(frozen.flush.id)])  # F5
    if not client.rules.G1_graveyard:
        yield from _delete_finished(client, log, frozen)


def _write_all(client: Client, log: Log, head: Head, payloads: Any) -> Steps:
    """F4: True when all that the set stands for is written. Retries that were purged meanwhile need not be."""
    frozen = head["frozen"]
    purged = client.rules.purge_spilled and head["purges"] > frozen.flush.purges
    if not (yield from _write_file(client, log, frozen, payloads)):
        return False
    for number, key, rows in _blocks(client, frozen, payloads):
        if purged and number:
            continue
        if not (yield from _write_block(client, log, frozen, number, key, rows)):
            return False
    return True


def _freeze(client: Client, log: Log, found: Any) -> Steps:
    """F1, and F2: rows are written only from a head that was read and holds them."""
    intent = Freeze(client.world.fresh(), (client.world.fresh(),))
    if not client.rules.F2_rows_from_head:
        head, _ = client.applied(found.data, log, [intent])
        yield from commit(client, log, [intent], found)
        return head
    yield from commit(client, log, [intent], found)
    found = yield from read_head(client, log)
    return found.data if found else None


def _payloads(client: Client, frozen: Frozen) -> Steps:
    """The rows of the frozen set by (block, place)."""
    payloads: dict[tuple[Key, int], Row] = {}
    for key in {row[0]: None for row in frozen.rows}:
        status, found = yield from insist(("get", key))
        if status == "error" or (status == "missing" and client.rules.F3_missing_abandons):
            return None
        for place in range(key.count):
            payloads[key, place] = found.data[place] if found else client.ghost.lost_row(key, place)
    return payloads


def _write_file(client: Client, log: Log, frozen: Frozen, payloads: Any) -> Steps:
    """F4: the archive file, until it is created or exists. Its name has no fence: it is never absorbed."""
    rows = tuple(payloads[key, place] for key, place, _ in frozen.of("completed"))
    if not rows:
        return True
    name = frozen.file if client.rules.F1_name_frozen else (client.world.fresh(),)
    status, _ = yield from insist(("create", Key(log, "archive", unique=name, count=len(rows)), rows))
    return status in ("ok", "exists") or not client.rules.F4_until_confirmed


def _blocks(client: Client, frozen: Frozen, payloads: Any) -> Blocks:
    """The blocks that a flush writes: dead letters (or, from the dead letters, replayed ones), and far retries."""
    flush, blocks = frozen.flush, []
    away = frozen.of("moved") or frozen.of("dead")
    if away:
        rows = tuple(_moved(payloads[key, place], flush.log) for key, place, _ in away)
        log = (flush.log[0], "s0" if flush.log[1] == "dead" else "dead")
        blocks.append((0, Key(log, "inbox", 0, 0, frozen.births[0], (flush.id, 0), len(rows), flush=flush), rows))
    for number, (key, place, state) in enumerate(frozen.of("retry"), 1):
        name = Key(flush.log, "later", key.priority, state.until, frozen.births[number], (flush.id, number))
        blocks.append((number, name._replace(attempts=state.attempts, flush=flush), (payloads[key, place],)))
    if not client.rules.F4_block_named_at_freeze:
        birth, unique = client.birth(), client.world.fresh()
        blocks = [(n, key._replace(birth=birth, unique=(unique, n)), rows) for n, key, rows in blocks]
    return blocks


def _moved(row: Row, log: Log) -> Row:
    """A dead letter keeps its id; one that is replayed gets a new one, derived from the old."""
    return Row(replayed_id(row.id), row.value) if log[1] == "dead" else row


def replayed_id(id: Id) -> Id:
    return ("again", *id)


def _write_block(client: Client, log: Log, frozen: Frozen, number: int, key: Key, rows: tuple[Row, ...]) -> Steps:
    """F4: created within R of the freeze, or it will be refused. Too late: a new birth, and another round writes it."""
    if not client.rules.F4_in_window:
        status, _ = yield from insist(("create", key, rows))
        return status in ("ok", "exists")
    answer = UNKNOWN
    if client.clock() - key.birth <= R:
        answer = yield from create_in_time(client, key, rows)
    if answer == STORED or (answer == UNKNOWN and not client.rules.F4_until_confirmed):
        return True
    if client.clock() - key.birth <= R + E:
        return False
    # Nobody can create a valid one any more, and a valid one cannot be gone: it is absorbed only after the drop.
    status, found = yield from insist(("get", key))
    if status == "ok" and (yield from _counts(client, key, found.created_at)):
        return True
    if status != "error" and client.rules.F4_renewed:
        yield from commit(client, log, [Renew(frozen.flush.id, number, frozen.births[number])])
    return False


def _counts(client: Client, key: Key, created_at: int) -> Steps:
    """Whether a block of a flush will be absorbed: by the same rule, and the same epoch, as those who absorb it."""
    if not client.rules.F4_by_fate:
        return created_at - key.birth <= R
    if not is_in_time(client, key, created_at):
        yield from identify(client)
    return is_in_time(client, key, created_at)


def _delete_finished(client: Client, log: Log, frozen: Frozen) -> Steps:
    """What G1 forbids: finished blocks are deleted and nobody remembers them."""
    found = yield from read_head(client, log)
    for key in {row[0]: None for row in frozen.rows}:
        if found is not None and key not in found.data["blocks"]:
            yield "delete", key
