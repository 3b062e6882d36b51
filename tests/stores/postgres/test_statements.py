"""The claim and the settle stay index scans with 100,000 rows, whatever the statistics say; a claim is a HOT update."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast.config import StoreOptions
from holdfast.stores.postgres.address import Address
from holdfast.stores.postgres.claiming import EVERYTHING, LITTER_ROWS, Bounds
from holdfast.stores.postgres.statements import Statements
from holdfast.stores.records import Envelope, Settlement
from holdfast.testing.contract.base import eventually

from .fixtures import Database

ROWS = 100_000
_FILL = """
INSERT INTO holdfast.q_jobs (id, enqueued_at, visible_at, rank, payload)
SELECT ('01890a5d-ac96-7000-8' || lpad(to_hex(255 * 64 & 4095), 3, '0') || '-' || lpad(to_hex(n), 12, '0'))::uuid,
    clock_timestamp(), clock_timestamp(), n %% 3, 'x' FROM generate_series(1, %s) n
"""
_WAIT = """
INSERT INTO holdfast.w_jobs (id, enqueued_at, visible_at, rank, payload, waits)
SELECT gen_random_uuid(), clock_timestamp(), clock_timestamp() + interval '1 hour', 0, 'x', 'retry'
FROM generate_series(1, %s) n
"""


@pytest.fixture
async def full(postgres: Database):
    """100,000 ready and as many waiting, right after they came: nobody has analyzed anything."""
    async with holdfast.connect(postgres.url) as broker:
        await broker.queue("jobs")
        postgres.rows(_FILL, ROWS)
        postgres.rows(_WAIT, ROWS)
        yield await Address(postgres.url, StoreOptions()).connect()


async def plan(connection: Any, name: str, *args: Any) -> dict[str, Any]:
    """The generic plan, as it runs."""
    statement = Statements("holdfast", "jobs")[name]
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    [(text,)] = await connection.fetch(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", *args)
    return json.loads(text)[0]["Plan"]


def nodes(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield tree
    for child in tree.get("Plans", []):
        yield from nodes(child)


def scans(tree: dict[str, Any], table: str) -> set[str]:
    return {
        node["Node Type"] for node in nodes(tree) if node.get("Relation Name") == table and "Scan" in node["Node Type"]
    }


def touched(tree: dict[str, Any]) -> int:
    """Rows read from tables, those thrown away included."""
    return sum(
        int((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
        for node in nodes(tree)
        if "Relation Name" in node and "Scan" in node["Node Type"]
    )


async def test_claim_reads_what_it_gives_and_no_more(full: Any) -> None:
    tree = await plan(full, "claim", "jobs", 100, 30.0, 1, *EVERYTHING, 100, None)
    assert scans(tree, "q_jobs") == {"Index Scan", "Tid Scan"}
    assert scans(tree, "w_jobs") == {"Index Scan"}
    assert touched(tree) < 300
    tree = await plan(full, "claim_ready", "jobs", 100, 30.0, 2, *EVERYTHING, None)
    assert scans(tree, "q_jobs") == {"Index Scan", "Tid Scan"}
    assert scans(tree, "w_jobs") <= {"Index Scan", "Index Only Scan"}
    assert touched(tree) < 400  # the hundred that the first claim holds are walked over


async def test_settle_reads_what_it_ends_and_no_more(full: Any) -> None:
    sql = Statements("holdfast", "jobs")
    rows = await full.fetch(sql["claim"], "jobs", 100, 30.0, 5, *EVERYTHING, 100, None)
    ids, ranks = [str(row["id"]) for row in rows], [row["rank"] for row in rows]
    for name, more in (("settle_done", ([None] * 50, [None] * 50, [None] * 50)), ("settle_gone", ())):
        part, ids, ranks_part, ranks = ids[:50], ids[50:], ranks[:50], ranks[50:]
        tree = await plan(full, name, "jobs", part, ranks_part, [5] * 50, *more)
        assert scans(tree, "q_jobs") == {"Index Scan"}
        assert touched(tree) < 200


async def test_settle_of_one_claim_descends_the_index_once_for_many_messages(full: Any) -> None:
    rows = await full.fetch(Statements("holdfast", "jobs")["claim_ready"], "jobs", 100, 30.0, 5, *EVERYTHING, None)
    *rows, told = rows
    assert (len(rows), told["rank"]) == (100, 0)
    ids = [str(row["id"]) for row in rows]
    for name, more in (("settle_done_alike", (None, None)), ("settle_gone_alike", ())):
        part, ids = ids[:50], ids[50:]
        tree = await plan(full, name, "jobs", part, rows[0]["rank"], 5, *more)
        [scan] = [node for node in nodes(tree) if node.get("Relation Name") == "q_jobs" and "Scan" in node["Node Type"]]
        assert scan["Node Type"] == "Index Scan"
        assert (scan["Actual Loops"], scan["Actual Rows"]) == (1, 50)
        assert scan.get("Index Searches", 1) < 10  # told since PostgreSQL 18
        assert touched(tree) < 60


async def test_looking_at_one_message_and_counting_do_not_scan_the_world(full: Any) -> None:
    [(id, rank)] = await full.fetch("SELECT id, rank FROM holdfast.q_jobs ORDER BY rank DESC, id DESC LIMIT 1")
    tree = await plan(full, "get", "jobs", [str(id)], [rank])
    assert touched(tree) < 10
    assert touched(await plan(full, "stats", "jobs", 10_000)) < 21_000
    assert touched(await plan(full, "next_due")) < 2100


async def test_claim_is_a_hot_update(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as broker:
        queue = await broker.queue("jobs")
        await queue.enqueue_many([b"x" * 1000] * 2000)
        taken = await queue.dequeue_many(1000)
        for delivery in taken[:20]:
            await delivery.extend(60)
        await broker.close()

    def updates() -> tuple[int, int]:
        [row] = postgres.rows("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_all_tables WHERE relname = 'q_jobs'")
        return row

    await eventually(lambda: updates()[0] >= 1020, "the counters of the server")
    all_of_them, hot = updates()
    assert hot >= 0.98 * all_of_them


async def test_claim_writes_no_payload_to_the_log(postgres: Database) -> None:
    """What a claim changes lies before the payload, so that the log of the update leaves the payload out."""
    async with holdfast.connect(postgres.url) as broker:
        await (await broker.queue("jobs")).enqueue_many([b"x" * 1000] * 100)
        connection = await Address(postgres.url, StoreOptions()).connect()
        explained = f"EXPLAIN (ANALYZE, WAL, FORMAT JSON) {Statements('holdfast', 'jobs')['claim_ready']}"
        [(text,)] = await connection.fetch(explained, "jobs", 100, 60.0, 9, *EVERYTHING, None)
        await connection.close()
        [taken] = [node for node in nodes(json.loads(text)[0]["Plan"]) if node.get("Operation") == "Update"]
        assert taken["Actual Rows"] == 100
        whole_pages = 8192 * taken["WAL FPI"]  # written once after every checkpoint
        assert taken["WAL Bytes"] - whole_pages < 300 * 100


async def test_claims_walk_over_litter_once_a_second_not_always(postgres: Database) -> None:
    """An open transaction keeps vacuum away: finished messages stay in the index, and the claims begin behind them."""
    async with holdfast.connect(postgres.url) as broker:
        await broker.queue("jobs", archive=False)
        store = broker.store
        await store.append("jobs", [Envelope(b"x")] * 30_000)
        with postgres.connect() as other, other.transaction():
            other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            other.execute("SELECT 1")
            claimer = store._topic("jobs").claimer
            done = 0
            while done < 25_000:
                claims = await store.claim("jobs", 1000, 60)
                done += len(claims.messages)
                await store.settle("jobs", [Settlement(m.id, m.token, "complete") for m in claims.messages])
            claimer.bounds.learn(LITTER_ROWS)
            await store.claim("jobs", 10, 60)
            ranges, whole = claimer.bounds.ranges()
            assert not whole
            connection = await Address(postgres.url, StoreOptions()).connect()
            from_start = await plan_cost(connection, EVERYTHING)
            from_bound = await plan_cost(connection, ranges)
            assert from_bound * 5 < from_start
            await connection.close()
            # What comes back below the bound is found, by whoever brought it back at once.
            [message] = (await store.claim("jobs", 1, 60)).messages
            await store.settle("jobs", [Settlement(message.id, message.token, "release")])
            assert [m.id for m in (await store.claim("jobs", 1, 60)).messages] == [message.id]


async def plan_cost(connection: Any, ranges: Any) -> int:
    """Pages read by a claim."""
    statement = Statements("holdfast", "jobs")["claim_ready"]
    explained = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"
    transaction = connection.transaction()
    await transaction.start()
    [(text,)] = await connection.fetch(explained, "jobs", 10, 1.0, 9, *ranges, None)
    await transaction.rollback()
    tree = json.loads(text)[0]["Plan"]
    return tree["Shared Hit Blocks"] + tree["Shared Read Blocks"]


def test_bounds_begin_at_the_start_until_there_is_litter() -> None:
    now = [100.0]
    bounds = Bounds(clock=lambda: now[0])
    bounds.found([(5, "a"), (5, "b"), (9, "c")], whole=True, took=0.001)
    assert bounds.ranges() == (EVERYTHING, True)
    bounds.learn(LITTER_ROWS)
    bounds.found([(5, "a"), (5, "b"), (9, "c")], whole=True, took=0.001)
    start = EVERYTHING[1][0]
    assert bounds.ranges() == (([0, 5, 9], [start, "b", "c"], [5, 9, 256]), False)
    now[0] += 1.1
    assert bounds.ranges() == (EVERYTHING, True)
    bounds.found([(5, "d")], whole=True, took=3.0)  # looking everywhere took long: it is done more seldom
    now[0] += 20
    assert bounds.ranges() == (([0, 5], [start, "d"], [5, 256]), False)
    bounds.reset()
    assert bounds.ranges() == (EVERYTHING, True)
    bounds.learn(0)
    assert bounds.ranges() == (EVERYTHING, True)
