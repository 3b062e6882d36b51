"""procrastinate, its own worker. Run by a Python that has it: URL COUNT SIZE → one line of JSON."""

import asyncio
import json
import logging
import sys
import time

import procrastinate  # type: ignore[import-not-found]  # lives in another environment

URL, COUNT, SIZE = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


async def main() -> None:
    logging.disable(logging.CRITICAL)
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=URL, min_size=5, max_size=20))
    done = 0

    @app.task(name="bench")  # type: ignore[untyped-decorator]  # not known here
    async def bench(p: str) -> None:
        nonlocal done
        done += 1

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        start = time.perf_counter()
        for _ in range(0, COUNT, 1000):
            await bench.batch_defer_async(*[{"p": "x" * SIZE} for _ in range(1000)])
        bulk = COUNT / (time.perf_counter() - start)
        some = min(COUNT, 2000)  # it is slow: a part is enough for a rate
        start = time.perf_counter()
        worker = asyncio.create_task(
            app.run_worker_async(concurrency=50, install_signal_handlers=False, delete_jobs="always")
        )
        while done < some:  # noqa: ASYNC110 - nothing tells us
            await asyncio.sleep(0.005)
        drain = done / (time.perf_counter() - start)
        worker.cancel()
        await asyncio.wait({worker}, timeout=10)
    sys.stdout.write(json.dumps({"bulk": bulk, "drain": drain}))


asyncio.run(main())
