"""R8: the power fails on `file://`. Only what was synced is certain to exist; 200 cuts of one busy store are opened."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import holdfast

from ..power.image import Disk
from ..power.trace import Acknowledged, Trace, tracing
from ..settings import Settings
from ..verdict import EXAMPLES, Verdict

_QUEUE = "power"
_BATCH = 300  # messages of 1 KiB: more than a block in the database may have, so they become a file
_BODY = 1024
_NEWEST, _OTHERS = 200, 200  # messages looked at after each cut


class _Load:
    """Producers and consumers of one process that note what they were told."""

    def __init__(self, url: str, queue: holdfast.Queue[bytes], trace: Trace, settings: Settings) -> None:
        self._url = url
        self._queue = queue
        self._trace = trace
        self._random = Random(settings.seed)
        self._left = settings.messages

    async def run(self) -> None:
        """A blocking caller first, for whom its loop commits by itself; then one alone, then many together."""
        await asyncio.to_thread(self._blocking, self._left // 8)
        await self._one_by_one(self._left // 8)
        await asyncio.gather(*(self._one_by_one(self._left // 16) for _ in range(4)), self._in_bulk(), self._drain())

    def _told(self, kind: str, ids: list[str]) -> None:
        self._trace.note(Acknowledged(kind, ids))

    def _blocking(self, count: int) -> None:
        with holdfast.sync.connect(self._url) as broker:
            queue = broker.queue(_QUEUE, bytes)
            for number in range(count):
                self._told("enqueued", [queue.enqueue(self._random.randbytes(_BODY))])
                if (delivery := queue.dequeue()) is not None:
                    delivery.complete(result=number)
                    self._told("completed", [delivery.id])

    async def _one_by_one(self, count: int) -> None:
        for number in range(count):
            self._told("enqueued", [await self._queue.enqueue(self._random.randbytes(_BODY))])
            delivery = await self._queue.dequeue()
            if delivery is None:
                continue
            if number % 10 == 0:
                await delivery.fail("for a change", retry_in=3600)
            else:
                await delivery.complete(result=number)
                self._told("completed", [delivery.id])

    async def _in_bulk(self) -> None:
        for _ in range(max(2, self._left // 2 // _BATCH)):
            self._told("enqueued", await self._queue.enqueue_many([self._random.randbytes(_BODY)] * _BATCH))
            await asyncio.sleep(0.02)

    async def _drain(self) -> None:
        for _ in range(max(4, self._left // 200)):
            deliveries = await self._queue.dequeue_many(100)
            done = await self._queue.complete_many(deliveries) if deliveries else []
            self._told("completed", [each.id for each, ok in zip(deliveries, done, strict=True) if ok])
            await asyncio.sleep(0.01)


async def power(settings: Settings) -> Verdict:
    """`stops` is how many cuts are looked at."""
    root = Path(tempfile.mkdtemp(prefix="holdfast-chaos-")) if settings.folder is None else settings.folder / "power"
    store = root / "store"
    store.mkdir(parents=True, exist_ok=True)
    verdict, random = Verdict(run="power"), Random(settings.seed)
    logging.getLogger("holdfast").setLevel(logging.ERROR)  # every failure is a warning, and many are made to fail
    try:
        with tracing(store) as trace:
            async with holdfast.connect(f"file://{store}") as broker:
                queue = await broker.queue(_QUEUE, bytes, lease=3600.0)
                begin = trace.here()
                await _Load(f"file://{store}", queue, trace, settings).run()
                end = trace.here()
        disk, doubtful = Disk(trace), 0
        for number, cut in enumerate(sorted(random.randrange(begin, end) for _ in range(settings.stops))):
            if not settings.quiet and number % 20 == 0:
                print(f"power: {number} of {settings.stops} cuts", file=sys.stderr, flush=True)
            disk.play(cut)
            image = root / "image"
            image.mkdir()
            doubtful += bool(disk.cut(image, random))
            await _judge(verdict, image, disk.acknowledged, cut, random)
            shutil.rmtree(image)
    finally:
        if settings.folder is None:
            shutil.rmtree(root, ignore_errors=True)
    verdict.notes |= {"cuts": settings.stops, "cuts with something in doubt": doubtful, "events traced": end}
    verdict.expect(doubtful > settings.stops // 4, f"only {doubtful} cuts found anything in doubt")
    return verdict


async def _judge(verdict: Verdict, image: Path, told: list[Acknowledged], cut: int, random: Random) -> None:
    """Whether the newest messages that were acknowledged before the cut, and some of the others, are as was said."""
    enqueued = [id for each in told if each.kind == "enqueued" for id in each.ids]
    looked = {*enqueued[-_NEWEST:], *random.sample(enqueued, min(_OTHERS, len(enqueued)))}
    completed = {id for each in told if each.kind == "completed" for id in each.ids} & looked
    verdict.acknowledged += len(looked)
    verdict.completed += len(completed)
    try:
        async with asyncio.timeout(60), holdfast.connect(f"file://{image}") as broker:
            found = await _found(broker, sorted(looked))
    except Exception as error:  # noqa: BLE001  whatever it is, nobody may meet it after a power cut
        verdict.failures.append(f"cut {cut}: the store cannot be used: {type(error).__name__}: {error}")
        return
    _count(verdict, "lost", [f"{id} at cut {cut}" for id, state in found.items() if state is None])
    undone = [f"{id} is {found.get(id)} at cut {cut}" for id in completed if found.get(id) != "completed"]
    _count(verdict, "duplicate_completions", undone)


async def _found(broker: holdfast.Broker, ids: list[str]) -> dict[str, str | None]:
    """The state of each message, after some were claimed and given back as if nothing had happened.

    None: it is nowhere, or its bytes are not those that were sent.
    """
    queue: holdfast.Queue[Any] = await broker.queue(_QUEUE, bytes, create=False)
    deliveries = await queue.dequeue_many(20)
    for delivery in deliveries:
        len(delivery.value)
        await delivery.release()
    return {
        id: None if each is None or len(each.payload) != _BODY else each.status
        for id, each in zip(ids, await queue.store.get(_QUEUE, ids), strict=True)
    }


def _count(verdict: Verdict, name: str, found: list[str]) -> None:
    setattr(verdict, name, getattr(verdict, name) + len(found))
    if found:
        verdict.examples.setdefault(name, []).extend(found[:EXAMPLES])
        del verdict.examples[name][EXAMPLES:]
