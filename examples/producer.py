"""The producer of the three-terminal story. In the third terminal: cd examples && python producer.py 20"""

import asyncio
import sys

from tasks import app, greet


async def main(count: int) -> None:
    async with app:
        ids = [await greet.enqueue(f"guest {number}") for number in range(1, count + 1)]
        queue = await greet.queue()
        records = [await queue.wait(id, timeout=30) for id in ids]
        done = sum(record.status == "completed" for record in records)
        print(f"{done} of {count} greeted; the last answer: {records[-1].result!r}")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
