"""A process that fires: `python -m chaos.scheduling.child URL STEPS`. It works on a paused queue until killed.

STEPS is JSON, [[instant, seconds], …]: from these instants on the wall clock of this process is so much ahead.
"""

from __future__ import annotations

import json
import sys
import time

_RIGHT = time.time


def _wrong(steps: list[tuple[float, float]]) -> float:
    now = _RIGHT()
    return now + next((ahead for since, ahead in reversed(steps) if now >= since), 0.0)


async def _work(url: str) -> None:
    import holdfast

    async with holdfast.connect(url) as broker:
        queue = await broker.queue("jobs", create=False)
        await queue.worker(lambda value: None, concurrency=1).run()


def main() -> None:
    import asyncio

    url, said = sys.argv[1:]
    steps = [(float(since), float(ahead)) for since, ahead in json.loads(said)]
    if steps:
        time.time = lambda: _wrong(steps)  # before anybody has taken it
    asyncio.run(_work(url))


if __name__ == "__main__":
    main()
