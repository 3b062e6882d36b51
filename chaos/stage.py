"""What every run of several processes needs: a store, a queue, a fleet, an end, and a verdict."""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

import holdfast

from .checker import check
from .child import QUEUE, Spec, history_path
from .fleet import Fleet, Member, until
from .history import Attempted, History, flatten, read, read_folder
from .recorder import audit
from .settings import Settings
from .verdict import Verdict


class Stage:
    """One run under way."""

    def __init__(self, run: str, settings: Settings, url: str, broker: holdfast.Broker, fleet: Fleet) -> None:
        self.run = run
        self.settings = settings
        self.fleet = fleet
        self.chance = random.Random(settings.seed)
        self.spec = Spec(
            name="", url=url, folder=str(fleet.folder), seed=settings.seed * 1000,
            work=settings.work, concurrency=settings.concurrency, lease=settings.lease,
        )  # fmt: skip
        self.broker = broker
        self._shares: dict[str, int] = {}
        self._told = 0.0

    # ------------------------------------------------------------------ processes

    def start_workers(self, **changes: Any) -> None:
        spec = msgspec.structs.replace(self.spec, **changes)
        for number in range(self.settings.workers):
            self.fleet.start("work", f"w{number}", spec)

    def start_producers(self, *, seconds: float, **changes: Any) -> None:
        """Their messages are spread over so many seconds."""
        count = self.settings.producers
        for number in range(count):
            share = self.settings.messages // count + (number < self.settings.messages % count)
            self._shares[f"p{number}"] = share
            rate = share / max(seconds, 0.1)
            spec = msgspec.structs.replace(self.spec, messages=share, rate=rate, seed=self.spec.seed + 500, **changes)
            self.fleet.start("produce", f"p{number}", spec)

    async def kill_worker(self) -> None:
        """One that has been given messages, if there is one; a new life takes its place at once."""
        workers = self.fleet.of("work")
        at_work = [member for member in workers if member.at_work] or workers
        self.fleet.kill(self.chance.choice(at_work))
        self.fleet.replace_dead("work")

    async def somebody_works(self) -> None:
        """Opening a bucket takes a while; to kill those who only open it would show nothing."""
        await until(
            lambda: any(member.at_work for member in self.fleet.of("work")), seconds=120, what="a worker gets messages"
        )

    async def kill_producer(self) -> None:
        """In the middle of what it does; its successor sends what is left under new keys."""
        running = [member for member in self.fleet.of("produce") if member.running]
        if running:
            await self.replace_producer(self.chance.choice(running))

    async def replace_producer(self, victim: Member) -> None:
        self.fleet.kill(victim)
        self._succeed(victim)

    def _succeed(self, victim: Member) -> None:
        path = history_path(self.fleet.folder, victim.spec.name)
        sent = sum(isinstance(event, Attempted) for event in read(path)) if path.exists() else 0
        left = victim.spec.messages - sent
        if left > 0:
            self.fleet.start("produce", victim.slot, msgspec.structs.replace(victim.spec, messages=left))

    def check_producers(self) -> None:
        """A producer that ended by itself must have ended well."""
        for member in self.fleet.of("produce"):
            if not member.running and member.process.returncode not in (0, -9):
                raise RuntimeError(f"{member.spec.name} failed:\n{member.error()}")

    async def pause(self) -> None:
        """Until the next fault."""
        await asyncio.sleep(self.chance.uniform(0.3, 1.7) * self.settings.interval)

    # ------------------------------------------------------------------ the end

    async def live(self) -> int:
        stats = await self.broker.store.stats(QUEUE)
        return stats.pending + stats.delayed + stats.processing + stats.retry

    async def finish(self) -> Verdict:
        """No more faults: producers end, the queue drains, workers stop, everything is read and judged."""
        await until(
            lambda: all(not member.running for member in self.fleet.of("produce")),
            seconds=self.settings.deadline,
            what="the producers end",
        )
        self.check_producers()
        await self._drain()
        late = self.fleet.stop("work")
        history = History(history_path(self.fleet.folder, "audit"))
        await audit(self.broker.store, QUEUE, history)
        history.close()
        verdict = check(flatten(read_folder(self.fleet.folder)))
        verdict.run = self.run
        verdict.expect(not late, f"workers did not stop within their grace: {', '.join(late)}")
        stats = await self.broker.store.stats(QUEUE)
        verdict.expect(stats.dead == verdict.dead, f"stats say {stats.dead} dead, {verdict.dead} were found")
        return verdict

    async def _drain(self) -> None:
        deadline = time.monotonic() + self.settings.deadline
        while (left := await self.live()) and time.monotonic() < deadline:
            self.fleet.replace_dead("work")
            self.tell(f"draining, {left:,} left")
            await asyncio.sleep(0.2)

    def tell(self, text: str) -> None:
        """A line now and then: long runs must not look dead."""
        if not self.settings.quiet and time.monotonic() > self._told + 2.0:
            self._told = time.monotonic()
            sys.stderr.write(f"{self.run}: {text}\n")
            sys.stderr.flush()


@asynccontextmanager
async def staged(
    run: str, settings: Settings, *, url: str | None = None, through: str | None = None, **options: Any
) -> AsyncIterator[Stage]:
    """A fresh store with one queue, and a fleet without members yet.

    The store is a new folder, or at `url`; the processes that are hurt go `through` another URL to the same place.
    """
    root = Path(tempfile.mkdtemp(prefix="holdfast-chaos-")) if settings.folder is None else settings.folder / run
    histories = root / "history"
    histories.mkdir(parents=True, exist_ok=True)
    try:
        url = url or f"file://{root / 'store'}"
        async with holdfast.connect(url, poll_interval=settings.poll) as broker:
            await broker.queue(QUEUE, lease=settings.lease, **options)
            with Fleet(histories) as fleet:
                yield Stage(run, settings, through or url, broker, fleet)
    finally:
        if settings.folder is None:
            shutil.rmtree(root, ignore_errors=True)
