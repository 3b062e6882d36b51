"""Typed jobs: what does not fit the type never reaches the handler. Run: python examples/typed_jobs.py [URL]"""

import asyncio
import sys
from dataclasses import dataclass

import holdfast


@dataclass
class Resize:
    """A picture to make smaller."""

    picture: str
    width: int


async def main(url: str) -> None:
    async with holdfast.connect(url) as broker:
        jobs = await broker.queue("resize", Resize)
        first = await jobs.enqueue(Resize(picture="cat.png", width=640))

        # Somebody sends rubbish, as somebody always will.
        untyped = await broker.queue("resize")
        bad = await untyped.enqueue({"picture": "dog.png", "width": "very"})

        async def resize(job: Resize) -> dict[str, str]:
            print(f"resizing {job.picture} to {job.width}")
            return {"file": f"small-{job.picture}"}

        worker = jobs.worker(resize)
        await worker.start()
        record = await jobs.wait(first, timeout=10)
        print(f"result: {record.result}")
        broken = await jobs.wait(bad, timeout=10)
        print(f"the other one is {broken.status}")
        await worker.stop()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://"))
