"""Pick-up by an idle worker of a peer, in another process: the same way as `pickup.py` times ours."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

EVERY = 0.02  # seconds between two messages


async def timed(program: str, url: str, send: Callable[[], Awaitable[object]], count: int) -> dict[str, float]:
    """The program, called with `work` and the URL, says a line when it waits, then its clock at each message."""
    child = await asyncio.create_subprocess_exec(sys.executable, program, "work", url, stdout=asyncio.subprocess.PIPE)
    assert child.stdout is not None
    waits: list[float] = []
    try:
        await asyncio.wait_for(child.stdout.readline(), 60)
        await asyncio.sleep(2.0)  # it says so a little early
        for _ in range(count):
            sent = time.monotonic()
            await send()
            waits.append(float(await asyncio.wait_for(child.stdout.readline(), 60)) - sent)
            await asyncio.sleep(EVERY)
    finally:
        child.kill()
        await child.wait()
    waits.sort()
    return {"picked": waits[len(waits) // 2] * 1000, "picked_late": waits[int(len(waits) * 0.99)] * 1000}


def say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()
