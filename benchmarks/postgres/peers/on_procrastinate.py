"""procrastinate, its own worker. Run by a Python that has it: URL COUNT SIZE PICKUPS → one line of JSON."""

import asyncio
import json
import logging
import sys
import time

import procrastinate  # type: ignore[import-not-found]  # lives in another environment
from timed import say, timed  # type: ignore[import-not-found]  # the file beside this program

WAL = "SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint AS n"
DEAD = "SELECT coalesce(sum(n_dead_tup), 0)::bigint AS n FROM pg_stat_user_tables"


def opened(url: str) -> procrastinate.App:
    return procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, min_size=5, max_size=20))


async def main(url: str, count: int, size: int, pickups: int) -> None:
    app, done = opened(url), 0

    @app.task(name="bench")  # type: ignore[untyped-decorator]  # not known here
    async def bench(p: str) -> None:
        nonlocal done
        done += 1

    @app.task(name="pickup", queue="pickup")  # type: ignore[untyped-decorator]  # not known here
    async def pickup() -> None:
        pass

    async def asked(sql: str) -> int:
        return int((await app.connector.execute_query_one_async(sql))["n"])

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        start = time.perf_counter()
        for _ in range(0, count, 1000):
            await bench.batch_defer_async(*[{"p": "x" * size} for _ in range(1000)])
        figures = {"bulk": count / (time.perf_counter() - start)}
        some = min(count, 2000)  # it is slow: a part is enough for a rate
        before = await asked(WAL)
        start = time.perf_counter()
        worker = asyncio.create_task(
            app.run_worker_async(
                queues=["default"], concurrency=50, install_signal_handlers=False, delete_jobs="always"
            )
        )
        while done < some:  # noqa: ASYNC110 - nothing tells us
            await asyncio.sleep(0.005)
        figures["drain"] = done / (time.perf_counter() - start)
        figures["wal"] = (await asked(WAL) - before) / done
        worker.cancel()
        await asyncio.wait({worker}, timeout=10)
        figures["dead"] = await asked(DEAD) / done
        if pickups:
            figures |= await timed(__file__, url, pickup.defer_async, pickups)
    say(json.dumps(figures))


async def work(url: str) -> None:
    app = opened(url)

    @app.task(name="pickup", queue="pickup")  # type: ignore[untyped-decorator]  # not known here
    async def pickup() -> None:
        say(time.monotonic())

    async with app.open_async():
        say("ready")
        await app.run_worker_async(queues=["pickup"], delete_jobs="always", install_signal_handlers=False)


logging.disable(logging.CRITICAL)
if sys.argv[1] == "work":
    asyncio.run(work(sys.argv[2]))
else:
    asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:])))
