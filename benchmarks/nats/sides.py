"""The sides of the comparison. Each publishes and drains the same messages on the same server."""

from __future__ import annotations

import asyncio
import os
import time

import msgspec
import nats
from nats.js.api import ConsumerConfig, StreamConfig

import holdfast

_WINDOW = 256  # publishes under way at once
_BATCH = 100


class Figures(msgspec.Struct):
    """Messages a second."""

    publish: float
    drain: float
    worker: float | None = None  # drained by a worker, where that is another thing
    single: float | None = None  # one awaited call after the other


async def raw(url: str, count: int, size: int) -> Figures:
    """nats-py: publish with a window; fetch, publish one record per message, acknowledge."""
    client = await nats.connect(url)
    try:
        js, name = client.jetstream(), f"raw{os.urandom(4).hex()}"
        await js.add_stream(StreamConfig(name=name, subjects=[f"{name}.*"], retention="workqueue"))  # type: ignore[arg-type]  # text is taken
        await js.add_stream(StreamConfig(name=f"{name}d", subjects=[f"{name}d.*"]))
        gate, payload = asyncio.Semaphore(_WINDOW), os.urandom(size)

        async def publish(subject: str, data: bytes) -> None:
            async with gate:
                await js.publish(subject, data)

        started = time.perf_counter()
        for start in range(0, count, 1000):
            await asyncio.gather(*[publish(f"{name}.{start + n}", payload) for n in range(min(1000, count - start))])
        published = time.perf_counter() - started
        pulls = await js.pull_subscribe(f"{name}.*", durable="d", config=ConsumerConfig(max_ack_pending=10_000))
        done, started = 0, time.perf_counter()
        while done < count:
            found = await pulls.fetch(min(_BATCH, count - done), timeout=5)
            await asyncio.gather(*[publish(f"{name}d.{done + n}", one.data) for n, one in enumerate(found)])
            for message in found:
                await message.ack()
            done += len(found)
        await client.flush()
        drained = time.perf_counter() - started
        single = await _single(lambda: js.publish(f"{name}.x", payload))
        await js.delete_stream(name)
        await js.delete_stream(f"{name}d")
        return Figures(count / published, count / drained, single=single)
    finally:
        await client.close()


async def ours(url: str, count: int, size: int) -> Figures:
    """`enqueue_many` of 1,000; `dequeue_many` and `complete_many` of 100; a worker with a handler that does nothing."""
    async with holdfast.connect(url, prefix=f"b{os.urandom(4).hex()}") as broker:
        payload = os.urandom(size)
        queue = await broker.queue("bench")
        published = await _fill(queue, payload, count)
        done, started = 0, time.perf_counter()
        while done < count:
            taken = await queue.dequeue_many(_BATCH, lease=60, wait=5)
            done += sum(await queue.complete_many(taken))
        drained = time.perf_counter() - started
        await _fill(queue, payload, count)
        worked = await _work(queue, count)
        single = await _single(lambda: queue.enqueue(payload))
        await broker.uninstall()
    return Figures(count / published, count / drained, count / worked, single)


async def _fill(queue: holdfast.Queue[bytes], payload: bytes, count: int) -> float:
    started = time.perf_counter()
    for start in range(0, count, 1000):
        await queue.enqueue_many([payload] * min(1000, count - start))
    return time.perf_counter() - started


async def _work(queue: holdfast.Queue[bytes], count: int) -> float:
    """Until the last completion is durable."""
    done, end = 0, asyncio.Event()

    def note(_delivery: object, _result: object) -> None:
        nonlocal done
        done += 1
        if done >= count:
            end.set()

    async def handle(_value: bytes) -> None:
        return None

    worker = queue.worker(handle, concurrency=100, on_complete=note)
    started = time.perf_counter()
    await worker.start()
    await end.wait()
    worked = time.perf_counter() - started
    await worker.stop()
    return worked


async def _single(call: object, count: int = 200) -> float:
    started = time.perf_counter()
    for _ in range(count):
        await call()  # type: ignore[operator]  # a function without arguments
    return count / (time.perf_counter() - started)
