"""Views in slices: the same rows as `scan`, as of the plan, filtered exactly."""

from __future__ import annotations

import pickle

import pytest

from holdfast.errors import StoreError
from holdfast.stores.batches import VIEWS, Filter, Sizing, arrow_schema
from holdfast.stores.records import Envelope, Settlement

QUEUE = "emails"
SMALL = Sizing(target=2000, least=4, smallest=500)


def message(number, **terms):
    headers = {"n": str(number)} if number % 3 == 0 else None
    return Envelope(b"%d" % number, headers=headers, **terms)


async def settle(store, claims, action, **terms):
    done = [Settlement(each.id, each.token, action, **terms) for each in claims.messages]
    assert set(await store.settle(QUEUE, done)) <= {"ok"}


async def mess(store):
    """Messages in every state, in blocks of every kind."""
    await store.append(QUEUE, [message(n, priority=n % 3) for n in range(60)])
    for n in range(60, 70):
        await store.append(QUEUE, [message(n)])
    await store.append(QUEUE, [message(n, delay=1000.0) for n in range(70, 75)])
    await settle(store, await store.claim(QUEUE, 6, 60), "retry", error="first")
    await settle(store, await store.claim(QUEUE, 12, 60), "complete", worker="w", result=b'"r"')
    await store.maintain(QUEUE)
    await settle(store, await store.claim(QUEUE, 5, 60), "dead", error="bad")
    await store.maintain(QUEUE)
    await settle(store, await store.claim(QUEUE, 5, 60), "retry", error="second")
    await settle(store, await store.claim(QUEUE, 5, 60), "complete", result=b"x" * 5000)
    await settle(store, await store.claim(QUEUE, 4, 60), "retry", error="third")
    await settle(store, await store.claim(QUEUE, 4, 60), "dead", error="worse")
    await settle(store, await store.claim(QUEUE, 6, 60), "retry", delay=100.0, error="again")
    await settle(store, await store.claim(QUEUE, 3, 60), "release")
    await store.claim(QUEUE, 7, 60, worker="host:1")


def of_stored(stored):
    return {
        "id": stored.id,
        "value": stored.payload,
        "content_type": stored.content_type,
        "headers": stored.headers,
        "priority": stored.priority,
        "attempt": stored.attempts,
        "max_attempts": stored.max_attempts,
        "enqueued_at": round(stored.enqueued_at * 1e3),
        "error": stored.error,
    } | (
        {
            "status": stored.status,
            "worker": stored.worker,
            "result": stored.result,
            "attempts": stored.attempts,
            "claimed_at": stored.claimed_at and round(stored.claimed_at * 1e6),
            "expires": stored.expires,
            "history": [
                (round((each.start or 0.0) * 1e6), round(each.end * 1e6), each.worker, each.error)
                for each in stored.history
            ],
        }
        if stored.finished_at
        else {"visible_at": stored.visible_at and round(stored.visible_at * 1e6)}
        | ({"worker": stored.worker} if stored.status == "processing" else {})
    )


def of_row(row):
    row = dict(row, headers=dict(row["headers"]) if row["headers"] is not None else None)
    assert row.pop("queue") == QUEUE
    row["enqueued_at"] = round(row["enqueued_at"].timestamp() * 1e3)
    row.pop("finished_at", None)
    for name in ("visible_at", "claimed_at"):
        if row.get(name) is not None:
            row[name] = round(row[name].timestamp() * 1e6)
    if "history" in row:
        instants = ("start", "end")
        row["history"] = [
            (*(round(each[name].timestamp() * 1e6) for name in instants), each["worker"], each["error"])
            for each in row["history"] or ()
        ]
    return row


async def plan(store, view, **terms):
    return pickle.loads(pickle.dumps(await store.batches.plan_scan(QUEUE, view, **terms)))


async def read(store, slices, **terms):
    rows = []
    for each in slices:
        count = 0
        async for batch in store.batches.read_slice(each, **terms):
            assert batch.schema == arrow_schema(each.view)
            count += batch.num_rows
            rows += batch.to_pylist()
        assert not each.rows or count <= each.rows
    return rows


def by_id(rows):
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.parametrize("view", VIEWS)
async def test_slices_hold_what_a_scan_shows(store, view):
    await mess(store)
    expected = [of_stored(each) for each in await store.scan(QUEUE, view, limit=1000)]
    slices = await plan(store, view, sizing=SMALL)
    assert expected
    assert by_id(map(of_row, await read(store, slices))) == by_id(expected)


async def test_a_large_view_is_cut(store):
    for start in range(0, 2000, 100):
        await store.append(QUEUE, [Envelope(b"x" * 100) for _ in range(start, start + 100)])
    slices = await plan(store, "ready", sizing=Sizing(target=50_000, least=1, smallest=1))
    assert len(slices) >= 4
    assert max(each.size for each in slices) < 150_000
    assert len(await read(store, slices)) == 2000
    assert len(await plan(store, "ready", sizing=Sizing(target=1 << 30, least=3, smallest=1000))) == 3
    assert len(await plan(store, "ready")) == 1


@pytest.mark.parametrize(
    "filters",
    [
        [Filter("priority", "=", 1)],
        [Filter("priority", ">", 0), Filter("priority", "<=", 1)],
        [Filter("priority", "in", [0, 2])],
        [Filter("enqueued_at", "<", 0)],
        [Filter("enqueued_at", ">=", 0)],
        [Filter("id", "<", "02")],
        [Filter("id", "=", "nonsense")],
    ],
    ids=str,
)
@pytest.mark.parametrize("store", ["memory"], indirect=True)
@pytest.mark.parametrize("view", VIEWS)
async def test_filters_are_exact(store, view, filters):
    await mess(store)
    rows = await read(store, await plan(store, view))
    few = await read(store, await plan(store, view, filters=filters), filters=filters)
    kept = [row for row in rows if all(each.passes(_plain(row[each.column])) for each in filters)]
    assert by_id(few) == by_id(kept)


def _plain(value):
    return round(value.timestamp() * 1e6) if hasattr(value, "timestamp") else value


@pytest.mark.parametrize("only", [("value",), ("id", "attempt"), ("headers", "enqueued_at", "value")], ids=str)
@pytest.mark.parametrize("view", VIEWS)
async def test_columns_that_are_asked_for_are_the_same(store, view, only):
    await mess(store)
    slices, filters = await plan(store, view), [Filter("priority", "<=", 1)]
    found = []
    for each in slices:
        async for batch in store.batches.read_slice(each, filters=filters, only=only):
            found += batch.select(list(only)).to_pylist()
    rows = await read(store, slices, filters=filters)
    assert rows
    assert found == [{name: row[name] for name in only} for row in rows]


async def test_filters_on_outcomes(store):
    await mess(store)
    rows = await read(store, await plan(store, "archive"))
    cut = max(_plain(row["finished_at"]) for row in rows)
    filters = [Filter("finished_at", ">=", cut), Filter("status", "in", ["completed"])]
    few = await read(store, await plan(store, "archive", filters=filters), filters=filters)
    assert by_id(few) == by_id(row for row in rows if _plain(row["finished_at"]) >= cut)
    assert 0 < len(few) < len(rows)
    none = [Filter("status", "=", "failed")]
    assert await read(store, await plan(store, "archive", filters=none), filters=none) == []


async def test_a_plan_is_a_snapshot(store):
    """What was planned is read, although every message has been finished, and its block removed, since."""
    await store.append(QUEUE, [message(n) for n in range(40)])
    slices = await plan(store, "ready")
    before = await read(store, slices)
    await settle(store, await store.claim(QUEUE, 100, 60), "complete")
    await store.maintain(QUEUE)
    assert await read(store, await plan(store, "ready")) == []
    assert by_id(map(of_row, await read(store, slices))) == by_id(map(of_row, before))


@pytest.mark.parametrize("store", ["memory", "folder"], indirect=True)
async def test_what_was_not_kept_is_told(store):
    await store.append(QUEUE, [message(n) for n in range(40)])
    slices = await plan(store, "ready")
    await settle(store, await store.claim(QUEUE, 100, 60), "complete", keep=False)
    with pytest.raises(StoreError, match="failOnDataLoss"):
        await read(store, slices)
    assert await read(store, slices, lenient=True) == []


async def test_maintenance_leaves_files_alone_that_a_read_may_need(store):
    for start in range(0, 200, 10):
        await store.append(QUEUE, [message(n) for n in range(start, start + 10)])
        await settle(store, await store.claim(QUEUE, 100, 60), "complete")
        await store.maintain(QUEUE)
    slices = await plan(store, "archive")
    done = await store.maintain(QUEUE)
    assert not done.get("merged_files")
    assert len(await read(store, slices)) == 200


async def test_many_plans_and_reads_that_end_early_use_nothing_up(store):
    await store.append(QUEUE, [message(n) for n in range(40)])
    for _ in range(15):
        for each in await plan(store, "ready"):
            batches = store.batches.read_slice(each)
            await anext(batches)
            await batches.aclose()
    assert len(await read(store, await plan(store, "ready"))) == 40


async def test_nothing_gives_no_slices(store):
    assert [await plan(store, view) for view in VIEWS] == [[]] * len(VIEWS)
