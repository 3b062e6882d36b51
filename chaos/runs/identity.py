"""A folder is moved, removed, recreated, swapped and restored while processes have it open, at work and at rest."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import holdfast
from holdfast.retry import Fixed

from ..fleet import until
from ..history import Refused, read_folder
from ..identity.hurting import KINDS, SLATE_KINDS, Hurting, make_other
from ..identity.judging import judge
from ..settings import Settings
from ..stage import Stage, staged
from ..verdict import Verdict

_ATTEMPTS = 50  # leases expire while the folder is gone: this run is about losing nothing
_BODY = 8 << 10  # the larger calls become files beside the database
_LARGE = 400_000  # bytes: a file of its own
_START = 60.0  # seconds in which every process must have begun
_FELT = 20.0  # seconds in which every process must notice, on a busy machine too


async def identity(settings: Settings) -> Verdict:
    """`stops` faults under load, each kind in turn; then each kind once on a store that is open and at rest."""
    root = Path(tempfile.mkdtemp(prefix="holdfast-chaos-")) if settings.folder is None else settings.folder / "identity"
    root.mkdir(parents=True, exist_ok=True)
    try:
        await asyncio.to_thread(make_other, root / "pattern")
        verdict = await _at_work(settings, Hurting(root / "store", pattern=root / "pattern"))
        for scheme, kinds in (("file", KINDS), ("slatedb+file", SLATE_KINDS)):
            pattern = root / scheme / "pattern"
            await asyncio.to_thread(make_other, pattern, scheme)
            for kind in kinds:
                await at_rest(verdict, kind, Hurting(root / scheme / kind / "store", pattern=pattern, scheme=scheme))
            verdict.notes[f"faults at rest, {scheme}"] = len(kinds)
        return verdict
    finally:
        if settings.folder is None:
            shutil.rmtree(root, ignore_errors=True)


# ---------------------------------------------------------------------- at work


async def _at_work(settings: Settings, hurting: Hurting) -> Verdict:
    async with staged(
        "identity",
        settings,
        url=f"file://{hurting.folder}?connect_timeout={_START:g}",
        max_attempts=_ATTEMPTS,
        retry=Fixed(0.1),
    ) as stage:
        stage.start_workers()
        each = 2 * settings.interval + 1.0
        stage.start_producers(seconds=settings.stops * each, body=_BODY, persists=True)
        await _everybody_is_at_work(stage, hurting)
        for number in range(settings.stops):
            await stage.pause()
            await _hurt(stage, hurting, KINDS[number % len(KINDS)])
            stage.tell(f"{number + 1} of {settings.stops} faults")
        verdict = await stage.finish()
        judge(verdict, read_folder(stage.fleet.folder), hurting.faults)
        await stage.broker.close()
    verdict.expect(verdict.dead == 0, f"{verdict.dead} messages died although none fails")
    await _expect_untouched(verdict, hurting)
    return verdict


async def _everybody_is_at_work(stage: Stage, hurting: Hurting) -> None:
    """Who only comes while the folder is gone makes a new one, and is right to do so."""

    def ready() -> bool:
        running = [each for each in stage.fleet.members.values() if each.running]
        return all(each.at_work or hurting.is_open_in(each.process.pid) for each in running)

    await until(ready, seconds=_START, what="every process has opened the folder")


async def _hurt(stage: Stage, hurting: Hurting, kind: str) -> None:
    """Until somebody has felt it, and a while longer."""
    await asyncio.to_thread(hurting.begin, kind)
    begun = hurting.faults[-1].begun
    while not _is_felt(stage, begun) and time.monotonic() < begun + _FELT:
        await asyncio.sleep(0.05)
    await asyncio.sleep(stage.settings.interval)
    if not hurting.end():
        await _begin_anew(stage, hurting)
    stage.check_producers()


def _is_felt(stage: Stage, since: float) -> bool:
    events = [event for history in read_folder(stage.fleet.folder).values() for event in history]
    return any(isinstance(event, Refused) and event.at > since for event in events)


async def _begin_anew(stage: Stage, hurting: Hurting) -> None:
    """Everybody connects again: what is there now are other files than those they have open."""
    for member in stage.fleet.of("work"):
        stage.fleet.kill(member)
    stage.fleet.replace_dead("work")
    for member in [member for member in stage.fleet.of("produce") if member.running]:
        await stage.replace_producer(member)
    await stage.broker.close()
    stage.broker = await holdfast.connect(stage.spec.url)
    await _everybody_is_at_work(stage, hurting)


# ---------------------------------------------------------------------- at rest


async def at_rest(verdict: Verdict, kind: str, hurting: Hurting) -> None:
    """Nobody is at work when it happens: the first call notices, whatever it is, and nothing that waits is harmed."""
    url = f"{hurting.scheme}://{hurting.folder}"
    async with holdfast.connect(url) as broker:
        queue: holdfast.Queue[bytes] = await broker.queue("rest", codec="raw")
        ids = await queue.enqueue_many([bytes(_LARGE), b"small", bytes(_LARGE)])
        [held] = await queue.dequeue_many(1, lease=600)
        await asyncio.sleep(0.1)
        await asyncio.to_thread(hurting.begin, kind)
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "enqueue": lambda: queue.enqueue(b"lost"),
            "dequeue": lambda: queue.dequeue_many(5),
            "complete": held.complete,
            "stats": queue.stats,
            "get": lambda: queue.get(ids[0]),
        }
        for name, call in calls.items():
            try:
                await call()
            except holdfast.Unavailable:
                continue
            verdict.failures.append(f"{name} was answered at rest while the folder was {kind}")
        hurting.end()
    async with holdfast.connect(url) as broker:
        stats = await (await broker.queue("rest", codec="raw")).stats()
        kept = stats.pending + stats.processing
        verdict.expect((kept, stats.dead) == (3, 0), f"at rest, {kind}: {kept} of 3 are kept, {stats.dead} dead")
    await _expect_untouched(verdict, hurting)


async def _expect_untouched(verdict: Verdict, hurting: Hurting) -> None:
    """A store of somebody else lay at the path for a while."""
    async with holdfast.connect(f"{hurting.scheme}://{hurting.other}") as broker:
        names = [each.name for each in await broker.store.queues()]
        stats = await broker.store.stats("other")
    verdict.expect(names == ["other"], f"the other store has the queues {names}")
    verdict.expect((stats.pending, stats.total) == (2, 2), f"the other store holds {stats.total} messages instead of 2")
