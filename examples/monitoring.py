"""Watch a queue: count events, alert on backlog and dead letters. Run: python examples/monitoring.py [URL]"""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator

import holdfast

MOST_WAITING = 50
MOST_DEAD = 0
OLDEST = 60.0  # seconds


async def alerts(queue: holdfast.Queue[int]) -> AsyncIterator[str]:
    """What a person should be told about this queue, now. Asking is cheap: it never blocks the queue."""
    stats = await queue.stats()
    if stats.pending > MOST_WAITING:
        yield f"backlog: {stats.pending} waiting"
    if stats.dead > MOST_DEAD:
        yield f"dead letters: {stats.dead}"
    if (stats.oldest_age or 0) > OLDEST:
        yield f"slow: the oldest message waits for {stats.oldest_age:.0f} s"


async def handle(number: int) -> None:
    if number % 40 == 0:
        raise holdfast.Dead(f"{number} is a bad number")


async def main(url: str) -> None:
    async with holdfast.connect(url) as broker:
        seen: Counter[str] = Counter()
        for event in ("message.enqueued", "message.completed", "message.dead"):
            broker.on(event, lambda event: seen.update([event.name]))

        numbers = await broker.queue("numbers")
        await numbers.enqueue_many(range(1, 101))
        print("before:", [alert async for alert in alerts(numbers)])

        worker = numbers.worker(handle)
        await worker.start()
        while (await numbers.stats()).pending or (await numbers.stats()).processing:
            await asyncio.sleep(0.05)
        await worker.stop()
        print("after:", [alert async for alert in alerts(numbers)])
        print("events:", dict(sorted(seen.items())))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://"))
