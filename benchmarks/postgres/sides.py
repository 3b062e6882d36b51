"""One side each: the same messages in and out, durable, on one connection or one worker."""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Any

import asyncpg
import msgspec

import holdfast
from holdfast.stores.records import Envelope, Settlement

BATCH = 100
BULK = 1000


class Figures(msgspec.Struct, frozen=True):
    """Messages a second; WAL bytes and dead rows a message, of the drain; milliseconds of pick-up, p50 and p99."""

    bulk: float = 0.0
    drain: float = 0.0
    wal: float = 0.0
    dead: float = 0.0
    picked: float = 0.0
    picked_late: float = 0.0


def bodies(count: int, size: int) -> list[str]:
    """JSON texts that do not compress to nothing."""
    return [json.dumps({"n": n, "p": os.urandom(size // 2).hex()}) for n in range(min(count, 2000))]


class Timer:
    """Seconds of a block."""

    def __enter__(self) -> Timer:
        self._start = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._start


async def wal(connection: Any) -> int:
    return int(await connection.fetchval("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))


async def dead_rows(connection: Any, tables: list[str]) -> int:
    """Rows that are dead now, as counted by the server's own statistics."""
    await connection.execute("SELECT pg_stat_force_next_flush()")
    sql = "SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_all_tables WHERE relname = ANY ($1)"
    return int(await connection.fetchval(sql, tables))


async def raw_copy(url: str, count: int, size: int) -> Figures:
    """COPY into a table with a key, a transaction per thousand."""
    connection = await asyncpg.connect(url)
    await connection.execute("DROP TABLE IF EXISTS raw_copy")
    await connection.execute("CREATE TABLE raw_copy (id bigint PRIMARY KEY, at timestamptz DEFAULT now(), body bytea)")
    texts = [text.encode() for text in bodies(count, size)]
    with Timer() as timer:
        for start in range(0, count, BULK):
            records = [(start + n, texts[(start + n) % len(texts)]) for n in range(BULK)]
            await connection.copy_records_to_table("raw_copy", records=records, columns=["id", "body"])
    await connection.execute("DROP TABLE raw_copy")
    await connection.close()
    return Figures(bulk=count / timer.seconds)


async def pgmq(url: str, count: int, size: int, script: str) -> Figures:
    """send_batch of 1000; read 100, delete 100."""
    connection = await asyncpg.connect(url)
    if not await connection.fetchval("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'pgmq')"):
        await connection.execute(f"CREATE SCHEMA pgmq; {script}")
    await connection.execute("SELECT pgmq.create('bench')")
    texts = bodies(count, size)
    with Timer() as bulk:
        for start in range(0, count, BULK):
            part = [texts[(start + n) % len(texts)] for n in range(BULK)]
            await connection.fetch("SELECT pgmq.send_batch('bench', $1::jsonb[])", part)
    before, done = await wal(connection), 0
    with Timer() as drain:
        while rows := await connection.fetch("SELECT * FROM pgmq.read('bench', 30, $1)", BATCH):
            await connection.fetch("SELECT pgmq.delete('bench', $1::bigint[])", [row["msg_id"] for row in rows])
            done += len(rows)
    written, dead = await wal(connection) - before, await dead_rows(connection, ["q_bench"])
    await connection.execute("SELECT pgmq.drop_queue('bench')")
    await connection.close()
    return Figures(count / bulk.seconds, done / drain.seconds, written / count, dead / count)


async def ours(url: str, count: int, size: int, *, archive: bool) -> Figures:
    """The seam itself: append 1000; claim 100, settle 100."""
    async with holdfast.connect(url, notify=False) as broker:
        store, watcher = broker.store, await asyncpg.connect(url)
        await broker.queue("bench", archive=archive)
        texts = [text.encode() for text in bodies(count, size)]
        with Timer() as bulk:
            for start in range(0, count, BULK):
                await store.append("bench", [Envelope(texts[(start + n) % len(texts)]) for n in range(BULK)])
        before = await wal(watcher)
        with Timer() as drain:
            done = await drained(store, "bench")
        written = await wal(watcher) - before
        dead = await dead_rows(watcher, ["q_bench"])
        await watcher.close()
        await broker.delete_queue("bench", force=True)
    return Figures(count / bulk.seconds, done / drain.seconds, written / count, dead / count)


async def drained(store: Any, queue: str, limit: int | None = None) -> int:
    """Claim and settle in batches until there is nothing, or so many are done."""
    done = 0
    while limit is None or done < limit:
        claims = await store.claim(queue, BATCH, 30.0)
        if not claims.messages:
            break
        await store.settle(queue, [Settlement(m.id, m.token, "complete") for m in claims.messages])
        done += len(claims.messages)
    return done


async def our_worker(url: str, count: int, size: int) -> Figures:
    """One worker, an async handler that does nothing, the archive on as it is by default."""
    async with holdfast.connect(url) as broker:
        queue = await broker.queue("bench")
        texts = bodies(count, size)
        with Timer() as bulk:
            for start in range(0, count, BULK):
                await queue.enqueue_many([texts[(start + n) % len(texts)] for n in range(BULK)])
        seen, finished = 0, asyncio.Event()

        async def handle(_: str) -> None:
            nonlocal seen
            seen += 1
            if seen == count:
                finished.set()

        worker = queue.worker(handle, concurrency=1000, batch_size=1000)  # our best, as every peer gets its own
        watcher = await asyncpg.connect(url)
        before = await wal(watcher)
        with Timer() as drain:
            await worker.start()
            await finished.wait()
            await worker.stop()
        written, dead = await wal(watcher) - before, await dead_rows(watcher, ["q_bench"])
        await watcher.close()
        await broker.delete_queue("bench", force=True)
    return Figures(count / bulk.seconds, count / drain.seconds, written / count, dead / count)
