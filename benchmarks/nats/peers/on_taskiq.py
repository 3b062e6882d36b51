"""taskiq-nats on JetStream, in its own environment: URL, count and size are given, one line of JSON comes back."""

import asyncio
import json
import os
import sys
import time

from taskiq.api import run_receiver_task
from taskiq_nats import PullBasedJetStreamBroker

_WINDOW = 256


async def main(url: str, count: int, size: int) -> None:
    name = f"tq{os.urandom(4).hex()}"
    broker = PullBasedJetStreamBroker(
        servers=url, subject=name, stream_name=name, durable=name, pull_consume_batch=100, pull_consume_timeout=1
    )
    done, end, gate, payload = 0, asyncio.Event(), asyncio.Semaphore(_WINDOW), "x" * size

    @broker.task(task_name="bench")  # type: ignore[untyped-decorator]  # the peer is not installed where types are checked
    async def bench(_: str) -> None:
        nonlocal done
        done += 1
        if done == count:
            end.set()

    async def kick() -> None:
        async with gate:
            await bench.kiq(payload)

    await broker.startup()
    started = time.perf_counter()
    await asyncio.gather(*[kick() for _ in range(count)])
    published = time.perf_counter() - started
    started = time.perf_counter()
    receiver = asyncio.create_task(run_receiver_task(broker, max_async_tasks=100, run_startup=False))
    await end.wait()
    drained = time.perf_counter() - started
    receiver.cancel()
    await asyncio.gather(receiver, return_exceptions=True)
    sys.stdout.write(json.dumps({"publish": count / published, "drain": count / drained}) + "\n")
    sys.stdout.flush()
    os._exit(0)  # its shutdown waits for pulls that are under way


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
