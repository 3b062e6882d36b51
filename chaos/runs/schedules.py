"""Schedules that fire every second, by processes that are killed and whose clocks are set: each slot exactly once."""

from __future__ import annotations

import asyncio
import json
import math
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import holdfast
from holdfast.schedules import Schedule

from ..settings import Settings
from ..verdict import Verdict

STORES = ("file", "postgres", "s3", "nats")
_HOUR_S = 3600.0
_LATE_S = 2.0  # the p99 that is promised, with a worker running
_START_S = 5.0  # after the first slot of all: what was due before any worker ran is done by then
_PAGE = 1000


async def schedules(settings: Settings) -> Verdict:
    """`messages` schedules for `seconds`, `workers` processes, `kills` SIGKILLs; half of the clocks are an hour off."""
    verdict = Verdict(run="schedules")
    for store in STORES if settings.store == "all" else (settings.store,):
        with _place(store) as url:
            await _on_store(store, url, settings, verdict)
    return verdict


@contextmanager
def _place(store: str) -> Iterator[str]:
    from tests.servers import nats, postgres, s3

    if store == "file":
        folder = tempfile.mkdtemp(prefix="holdfast-chaos-")
        try:
            yield f"file://{folder}/store"
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    elif store == "postgres":
        with postgres.Server() as server:
            yield server.url("postgres")
    elif store == "s3":
        with s3.Server() as server:
            yield server.url("schedules")
    elif store == "nats":
        with nats.Server() as server:
            yield server.url
    else:
        raise SystemExit(f"the run schedules knows the stores {', '.join(STORES)}, not {store!r}")


class _Fleet:
    """Processes that fire; who is killed is replaced at once."""

    def __init__(self, url: str, *, store: str, seconds: float) -> None:
        self._command = [sys.executable, "-m", "chaos.scheduling.child", url]
        self._file = store == "file"
        self._third = seconds / 3
        self.begun = time.time()
        self.running: list[tuple[int, subprocess.Popen[bytes]]] = []

    def start(self, number: int) -> None:
        command = [*self._command, json.dumps(self._steps(number))]
        self.running.append((number, subprocess.Popen(command, stdin=subprocess.DEVNULL)))

    def _steps(self, number: int) -> list[tuple[float, float]]:
        """One machine has one clock; on a network every second process has one that is wrong, in either direction."""
        first, second = self.begun + self._third, self.begun + 2 * self._third
        if self._file:
            return [(first, -_HOUR_S), (second, 0.0)]
        return [] if number % 2 else [(first, _HOUR_S if number % 4 else -_HOUR_S)]

    def kill(self, chance: random.Random) -> None:
        number, victim = self.running.pop(chance.randrange(len(self.running)))
        victim.kill()
        victim.wait()
        self.start(number)

    def stop(self) -> None:
        for _, process in self.running:
            process.terminate()
        for _, process in self.running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


async def _on_store(store: str, url: str, settings: Settings, verdict: Verdict) -> None:
    chance = random.Random(settings.seed)
    async with holdfast.connect(url) as broker:
        queue = await broker.queue("jobs", shards=settings.shards)
        await queue.pause()  # what was fired stays, to be counted
        names = [f"s{number:03d}" for number in range(settings.messages)]
        for name in names:
            await broker.schedules.put(Schedule(name=name, queue="jobs", every=1.0, missed="all", value=name))
        fleet = _Fleet(url, store=store, seconds=settings.seconds)
        for number in range(settings.workers):
            fleet.start(number)
        end = time.monotonic() + settings.seconds
        for kill in range(settings.kills):
            rest = end - time.monotonic()
            await asyncio.sleep(max(0.0, rest / (settings.kills - kill) * chance.uniform(0.5, 1.0)))
            fleet.kill(chance)
        await asyncio.sleep(max(0.0, end - time.monotonic()))
        await asyncio.to_thread(fleet.stop)
        await broker.schedules.tick()  # what nobody came to
        await _judge(store, broker, settings, verdict, fleet.begun)


async def _judge(store: str, broker: holdfast.Broker, settings: Settings, verdict: Verdict, begun: float) -> None:
    """By what is there, and an own count of the seconds. How late a slot was is judged while a worker runs, by a clock
    that is right: on a folder not while everybody's was an hour behind, nor for what was due right before. What the
    tick at the end found counts as any other."""
    third = settings.seconds / 3 if store == "file" else 0.0
    stepped = range(int(begun + third - _LATE_S), int(begun + 2 * third) + 3)
    found: Counter[tuple[str, float]] = Counter()
    fired: list[tuple[float, float]] = []  # each slot, and when it became a message by the store's clock
    after = None
    while page := await broker.store.scan("jobs", "ready", after=after, limit=_PAGE):
        after = page[-1].id
        found.update((each.payload.decode().strip('"'), _instant(each.headers)) for each in page)
        fired += [(_instant(each.headers), each.enqueued_at) for each in page]
    wanted = 0
    for info in await broker.schedules.list():
        assert info.last_slot is not None, f"{store}: {info.schedule.name} never fired"
        slots = range(math.floor(info.created_at.timestamp()) + 1, int(info.last_slot.timestamp()) + 1)
        wanted += len(slots)
        verdict.lost += sum(1 for slot in slots if not found[info.schedule.name, float(slot)])
    twice = {key: count for key, count in found.items() if count > 1}
    verdict.duplicate_completions += len(twice)
    verdict.unexpected += max(0, sum(found.values()) - wanted)
    verdict.acknowledged += wanted
    verdict.kills += settings.kills
    running = min((at for _, at in fired), default=0.0) + _START_S
    late = sorted(at - slot for slot, at in fired if slot > running and slot not in stepped)
    p99 = late[int(len(late) * 0.99)] if late else math.inf
    verdict.notes[store] = (
        f"{wanted:,} slots of {settings.messages} schedules, {len(twice)} twice; {len(late):,} judged, late p50 "
        f"{late[len(late) // 2] if late else 0:.2f} s, p99 {p99:.2f} s, max {late[-1] if late else 0:.2f} s"
    )
    least = settings.messages * (settings.seconds - 5)
    verdict.expect(wanted >= least, f"{store}: only {wanted} slots were decided in {settings.seconds:g} s")
    if settings.strict:
        verdict.expect(p99 <= _LATE_S, f"{store}: slots were {p99:.2f} s late (p99), more than {_LATE_S:g} s")


def _instant(headers: dict[str, str] | None) -> float:
    from datetime import datetime

    return datetime.fromisoformat((headers or {})["scheduled_for"]).timestamp()
