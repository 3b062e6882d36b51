"""pgqueuer, its own worker. Run by a Python that has it: URL COUNT SIZE → one line of JSON."""

import asyncio
import json
import logging
import sys
import time
from datetime import timedelta

import asyncpg
from pgqueuer import AsyncpgDriver, PgQueuer, Queries  # type: ignore[import-not-found]  # in another environment

URL, COUNT, SIZE = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


async def main() -> None:
    logging.disable(logging.CRITICAL)
    connection = await asyncpg.connect(URL)
    driver = AsyncpgDriver(connection)
    queries = Queries(driver)
    await queries.install()
    start = time.perf_counter()
    body = b"x" * SIZE
    for _ in range(0, COUNT, 1000):
        await queries.enqueue(["bench"] * 1000, [body] * 1000, [0] * 1000)
    bulk = COUNT / (time.perf_counter() - start)
    pgq, done = PgQueuer(driver), 0

    @pgq.entrypoint("bench")  # type: ignore[untyped-decorator]  # not known here
    async def bench(job: object) -> None:
        nonlocal done
        done += 1
        if done == COUNT:
            pgq.shutdown.set()

    start = time.perf_counter()
    await asyncio.wait_for(pgq.run(dequeue_timeout=timedelta(seconds=1), batch_size=500), 120)
    sys.stdout.write(json.dumps({"bulk": bulk, "drain": COUNT / (time.perf_counter() - start)}))


asyncio.run(main())
