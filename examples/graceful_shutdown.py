"""SIGTERM: what runs finishes, the rest goes back at once. Run: python examples/graceful_shutdown.py [URL]"""

import asyncio
import os
import signal
import sys

import holdfast


async def main(url: str) -> None:
    started = asyncio.Event()

    async def slow(number: int) -> None:
        print(f"started {number}")
        started.set()
        await asyncio.sleep(0.5)
        print(f"finished {number}")

    async def stop_soon() -> None:
        await started.wait()
        os.kill(os.getpid(), signal.SIGTERM)  # as a process manager would

    async with holdfast.connect(url) as broker:
        numbers = await broker.queue("numbers")
        await numbers.enqueue_many([1, 2, 3])
        worker = numbers.worker(slow, concurrency=1, grace=10)
        stopper = asyncio.create_task(stop_soon())
        await worker.run()  # returns after SIGTERM or SIGINT, when all is given back
        await stopper
        stats = await numbers.stats()
        print(f"stopped: {stats.completed} completed, {stats.pending} waiting, {stats.processing} held")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://"))
