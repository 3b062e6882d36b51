"""The first five minutes: send a message, take it, finish it. Run: python examples/first_queue.py [URL]"""

import asyncio
import sys

import holdfast


async def main(url: str) -> None:
    async with holdfast.connect(url) as broker:
        emails = await broker.queue("emails")

        await emails.enqueue({"to": "ada@example.com", "subject": "Hello"})
        await emails.enqueue({"to": "grace@example.com", "subject": "Urgent"}, priority=9)

        while delivery := await emails.dequeue():
            print(f"sending {delivery.value['subject']!r} to {delivery.value['to']}")
            await delivery.complete({"sent": True})

        stats = await emails.stats()
        print(f"{stats.completed} completed, {stats.pending} waiting")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://"))
