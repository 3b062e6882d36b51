"""A process that fires: `python -m chaos.scheduling.child URL FOLDER STEPS`. It works on a paused queue until killed.

STEPS is JSON, [[instant, seconds], …]: from these instants on the wall clock of this process is so much ahead.
Every slot it fires is a line of a file of its own: schedule, slot, and how late it was by the right clock.
"""

from __future__ import annotations

import json
import os
import sys
import time

_RIGHT = time.time


def _wrong(steps: list[tuple[float, float]]) -> float:
    now = _RIGHT()
    return now + next((ahead for since, ahead in reversed(steps) if now >= since), 0.0)


async def _work(url: str, folder: str) -> None:
    import holdfast

    with open(f"{folder}/{os.getpid()}.jsonl", "a", buffering=1, encoding="utf-8") as file:  # noqa: ASYNC230 - a line
        async with holdfast.connect(url) as broker:

            def note(event: holdfast.Event) -> None:
                file.write(json.dumps([event.schedule, event.slot.timestamp(), _RIGHT()]) + "\n")

            broker.on("schedule.fired", note)
            queue = await broker.queue("jobs", create=False)
            await queue.worker(lambda value: None, concurrency=1).run()


def main() -> None:
    import asyncio

    url, folder, said = sys.argv[1:]
    steps = [(float(since), float(ahead)) for since, ahead in json.loads(said)]
    if steps:
        time.time = lambda: _wrong(steps)  # before anybody has taken it
    asyncio.run(_work(url, folder))


if __name__ == "__main__":
    main()
