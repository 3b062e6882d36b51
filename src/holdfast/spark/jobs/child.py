"""A worker process of `process`: `python -m holdfast.spark.jobs.child`, started by a task of Spark (see `fleet.py`)."""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
import threading
from time import monotonic
from typing import Any

import msgspec

from ...broker import connect
from ...errors import HoldfastError
from ...queue import Queue
from .fleet import Order, Tally, Told
from .handler import work_of

_LOOK_S = 0.5  # between two looks at the queue; a task ends so much later than its work
_QUIET_LOOKS = 2  # in a row that find nothing left: one may come between two claims
_EVENTS = {
    "message.completed": "completed",
    "message.retry": "retried",
    "message.dead": "dead",
    "message.failed": "failed",
    "lease.lost": "lost",
}


class Voice:
    """The pipe to the task: lines of JSON. What handlers print goes elsewhere."""

    def __init__(self) -> None:
        self._pipe = os.dup(1)
        os.dup2(2, 1)

    def say(self, told: Told) -> None:
        os.write(self._pipe, msgspec.json.encode(told) + b"\n")


async def work(order: Order, target: Any, type: Any, voice: Voice) -> None:
    """Run the handler until nothing is left, the time is over or the task is gone."""
    gone, tally = asyncio.Event(), Tally()
    _watch_task(asyncio.get_running_loop(), gone)
    found = work_of(target, order.queue, type=type)
    async with connect(order.url) as broker:
        queue = await broker.queue(
            order.queue, found.type, codec=found.codec, create=False, **dict(found.queue_options)
        )
        for event, name in _EVENTS.items():
            broker.on(event, _counting(tally, name))
        worker = queue.worker(found.function, **{**found.worker_options, **order.options})
        await worker.start()
        voice.say(Told(ready=True))
        try:
            await _until_done(order, queue, worker, gone, lambda: voice.say(Told(tally=tally)))
        finally:
            await worker.stop(0.0 if gone.is_set() else None)
    voice.say(Told(tally=tally, over=True))


async def _until_done(order: Order, queue: Queue[Any], worker: Any, gone: asyncio.Event, tell: Any) -> None:
    started, quiet = monotonic(), 0
    while quiet < _QUIET_LOOKS and worker.is_running:
        if order.seconds is not None and monotonic() - started >= order.seconds:
            return
        try:
            await asyncio.wait_for(gone.wait(), _LOOK_S)
            return
        except TimeoutError:
            tell()
        if not order.forever:
            quiet = 0 if await _is_something_left(order, queue) else quiet + 1
    if not worker.is_running:
        await worker.wait()  # raises what ended it


async def _is_something_left(order: Order, queue: Queue[Any]) -> bool:
    try:
        stats = await queue.stats()
        info = await queue.store.queue(queue.name)
    except HoldfastError:  # an outage: the worker waits for its end, so do we
        return True
    if info is None or info.paused:
        return False
    return bool(stats.pending + stats.processing + (stats.retry if order.retries else 0))


def _counting(tally: Tally, name: str) -> Any:
    def count(event: Any) -> None:
        setattr(tally, name, getattr(tally, name) + 1)

    return count


def _watch_task(loop: asyncio.AbstractEventLoop, gone: asyncio.Event) -> None:
    def watch() -> None:
        while os.read(0, 1024):
            pass
        try:
            loop.call_soon_threadsafe(gone.set)
        except RuntimeError:  # the loop has ended
            pass

    threading.Thread(target=watch, name="holdfast-task", daemon=True).start()


def main() -> int:
    voice = Voice()
    try:
        size = int.from_bytes(_read(8), "big")
        # What Spark has brought here in its own way: the handler, which may be a function of a notebook.
        order, target, type = pickle.loads(_read(size))  # nosec B301 # our own driver sent it
        if order.folder and os.path.isdir(order.folder):
            sys.path.append(order.folder)
        asyncio.run(work(order, target, type, voice))
    except HoldfastError as error:
        voice.say(Told(wrong=str(error)))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a thread of a handler that never returns must not keep us


def _read(size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = os.read(0, size - len(data))
        if not part:
            raise SystemExit(1)
        data += part
    return data


if __name__ == "__main__":
    sys.exit(main())
