"""pgqueuer, its own worker. Run by a Python that has it: URL COUNT SIZE PICKUPS → one line of JSON."""

import asyncio
import json
import logging
import sys
import time
from datetime import timedelta

import asyncpg
from pgqueuer import AsyncpgDriver, PgQueuer, Queries  # type: ignore[import-not-found]  # in another environment
from timed import say, timed  # type: ignore[import-not-found]  # the file beside this program

WAL = "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"
DEAD = "SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables"


async def main(url: str, count: int, size: int, pickups: int) -> None:
    connection = await asyncpg.connect(url)
    driver = AsyncpgDriver(connection)
    queries = Queries(driver)
    await queries.install()
    start = time.perf_counter()
    body = b"x" * size
    for _ in range(0, count, 1000):
        await queries.enqueue(["bench"] * 1000, [body] * 1000, [0] * 1000)
    figures = {"bulk": count / (time.perf_counter() - start)}
    pgq, done = PgQueuer(driver), 0

    @pgq.entrypoint("bench")  # type: ignore[untyped-decorator]  # not known here
    async def bench(job: object) -> None:
        nonlocal done
        done += 1
        if done == count:
            pgq.shutdown.set()

    before = await connection.fetchval(WAL)
    start = time.perf_counter()
    await asyncio.wait_for(pgq.run(dequeue_timeout=timedelta(seconds=1), batch_size=500), 120)
    figures["drain"] = count / (time.perf_counter() - start)
    await connection.close()
    connection = await asyncpg.connect(url)
    figures["wal"] = float(await connection.fetchval(WAL) - before) / count
    figures["dead"] = float(await connection.fetchval(DEAD)) / count
    queries = Queries(AsyncpgDriver(connection))
    if pickups:
        figures |= await timed(__file__, url, lambda: queries.enqueue("pickup", b"1"), pickups)
    say(json.dumps(figures))


async def work(url: str) -> None:
    pgq = PgQueuer(AsyncpgDriver(await asyncpg.connect(url)))

    @pgq.entrypoint("pickup")  # type: ignore[untyped-decorator]  # not known here
    async def pickup(job: object) -> None:
        say(time.monotonic())

    say("ready")
    await pgq.run()


logging.disable(logging.CRITICAL)
if sys.argv[1] == "work":
    asyncio.run(work(sys.argv[2]))
else:
    asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:])))
