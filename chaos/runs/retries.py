"""An outage: every message fails once with `Retry(3600)`. The head stays small, claims stay fast, all come back."""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import apsw

import holdfast
from holdfast.stores.log.space import Reading

from ..checker import check
from ..child import QUEUE, history_path
from ..history import History, Started, flatten, read_folder
from ..recorder import KEY, Recorder, audit
from ..settings import Settings
from ..verdict import Verdict

_HOUR = 3600.0
_BATCH = 1000
_MOST_HEAD = 256 * 1024  # bytes
_MOST_SLOWER = 1.5
_DOWN = "the other side is down"


class Outage:
    """One run under way; the store is closed and opened again around the jump of its clock."""

    def __init__(self, settings: Settings, root: Path) -> None:
        self.settings = settings
        self.root = root
        self.largest_head = 0
        self.claims: list[float] = []  # seconds of each claim of a full batch while retries pile up
        self.ids: list[str] = []

    @asynccontextmanager
    async def opened(self, name: str) -> AsyncIterator[holdfast.Queue[Any]]:
        history = History(history_path(self.root / "history", name))
        async with holdfast.connect(f"file://{self.root / 'store'}") as inner:
            broker = holdfast.Broker(Recorder(inner.store, history, name=name))
            yield await broker.queue(QUEUE, lease=60.0, max_attempts=3)
        history.close()

    async def look_at_head(self, queue: holdfast.Queue[Any]) -> None:
        """The size of the only object that changes under load."""

        def size(reading: Reading) -> int:
            found = [reading.get(key) for key in reading.list(f"{QUEUE}@") if key.endswith("/head")]
            return max((len(head.data) for head in found if head is not None), default=0)

        space: Any = queue.store._space  # type: ignore[attr-defined]  # the log engine's, through the recorder
        self.largest_head = max(self.largest_head, await space.read(size))

    async def enqueue(self) -> None:
        async with self.opened("p0-1") as queue:
            for first in range(0, self.settings.messages, _BATCH):
                size = min(_BATCH, self.settings.messages - first)
                keys = [f"p0-1/{first + place}" for place in range(size)]
                self.ids += await queue.enqueue_many([holdfast.Message(key, headers={KEY: key}) for key in keys])

    async def fail_all(self) -> None:
        """Every message once, as a worker would whose dependency is down."""
        async with self.opened("w0-1") as queue:
            while True:
                begun = time.perf_counter()
                deliveries = await queue.dequeue_many(_BATCH)
                if not deliveries:
                    return
                self.claims.append(time.perf_counter() - begun)
                answers = await queue.fail_many(deliveries, _DOWN, retry_in=_HOUR)
                if not all(answers):
                    raise RuntimeError("a lease was lost although nobody was killed")
                await self.look_at_head(queue)

    async def look(self, verdict: Verdict) -> None:
        """Everything says that it waits for its retry."""
        async with self.opened("w0-2") as queue:
            stats = await queue.stats()
            count = self.settings.messages
            verdict.expect(stats.retry == count, f"stats say {stats.retry} retries, not {count}")
            await self.look_at_attempts(queue, verdict, "retry", [_DOWN])
            verdict.expect(await queue.dequeue_many(1) == [], "a message came back before its time")

    async def look_at_attempts(
        self, queue: holdfast.Queue[Any], verdict: Verdict, status: str, errors: list[str | None]
    ) -> None:
        """Some of them, evenly spread: each remembers when, by whom and how it was tried."""
        step = max(1, len(self.ids) // 50)
        for id in self.ids[::step]:
            record = await queue.get(id)
            history = [] if record is None else list(record.history)
            found = None if record is None else (record.status, [each.error for each in history])
            verdict.expect(found == (status, errors), f"{id} is known as {found}, not {(status, errors)}")
            named = all(each.worker and each.start and each.start <= each.end for each in history)
            verdict.expect(named, f"{id} was tried by somebody unknown, or at no time: {history}")

    def jump(self) -> None:
        """An hour passes: the anchor of the folder's clock is moved while nobody has it open."""
        connection = apsw.Connection(str(next((self.root / "store").glob("*.db"))))
        connection.execute("UPDATE clock SET ahead = ahead + ?", (_HOUR + 1.0,))
        connection.close()

    async def work(self) -> None:
        """All of them are due now: a worker runs them."""
        async with self.opened("w0-3") as queue:
            history = queue.store._history  # type: ignore[attr-defined]  # the recorder's
            finished, handled = asyncio.Event(), 0

            async def handle(value: str, context: holdfast.Context) -> None:
                nonlocal handled
                history.write(Started(time.monotonic(), context.message_id, context.attempt))
                handled += 1
                if handled == self.settings.messages:
                    finished.set()

            worker = queue.worker(handle, concurrency=100)
            await worker.start()
            try:
                async with asyncio.timeout(self.settings.deadline):
                    await finished.wait()
            except TimeoutError:
                pass  # what is missing will be called unfinished
            await worker.stop()
            await self.look_at_head(queue)

    async def judge(self, promises: Verdict) -> Verdict:
        async with self.opened("audit") as queue:
            await self.look_at_attempts(queue, promises, "completed", [_DOWN, None])
            await audit(queue.store, QUEUE, queue.store._history)  # type: ignore[attr-defined]  # the recorder's
        histories = read_folder(self.root / "history")
        verdict = check(flatten(histories))
        attempts = {event.attempts for event in histories["audit"] if hasattr(event, "attempts")}
        verdict.expect(attempts == {2}, f"every message ran twice, the store says {sorted(attempts)}")
        return verdict


async def retries(settings: Settings) -> Verdict:
    """200,000 failures do not grow the head (architecture.md §4) and do not slow a claim."""
    root = Path(tempfile.mkdtemp(prefix="holdfast-chaos-")) if settings.folder is None else settings.folder / "retries"
    (root / "history").mkdir(parents=True, exist_ok=True)
    logging.getLogger("holdfast").setLevel(logging.ERROR)  # every failure is a warning, and all of them fail
    outage, promises = Outage(settings, root), Verdict()
    try:
        await outage.enqueue()
        await outage.fail_all()
        await outage.look(promises)
        outage.jump()
        await outage.work()
        verdict = await outage.judge(promises)
    finally:
        if settings.folder is None:
            shutil.rmtree(root, ignore_errors=True)
    verdict.run, verdict.failures = "retries", verdict.failures + promises.failures
    _judge_size_and_speed(verdict, outage)
    return verdict


def _judge_size_and_speed(verdict: Verdict, outage: Outage) -> None:
    head, tenth = outage.largest_head, max(1, len(outage.claims) // 10)
    early, late = median(outage.claims[:tenth]), median(outage.claims[-tenth:])
    verdict.notes |= {
        "largest head, bytes": head,
        f"claim of {_BATCH} at first, ms": round(early * 1000, 2),
        "claim with all others pending, ms": round(late * 1000, 2),
    }
    verdict.expect(head < _MOST_HEAD, f"the head grew to {head} bytes")
    if outage.settings.strict:
        verdict.expect(late <= _MOST_SLOWER * early, f"claims became {late / early:.2f} times slower")
