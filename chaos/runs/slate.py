"""A SlateDB database is taken over, again and again, by a second writer while the first is at work."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import holdfast
from holdfast.retry import Fixed

from ..checker import check
from ..child import FENCED, QUEUE, Spec, history_path
from ..fleet import Fleet, Member, until
from ..history import History, flatten, read_folder
from ..recorder import Recorder, audit
from ..settings import Settings
from ..verdict import Verdict

_ATTEMPTS = 50  # this run is about losing nothing, not about poison
_PATIENCE = 30.0  # seconds an owner has to begin, or to notice that it is none any more


async def slate(settings: Settings) -> Verdict:
    """`stops` second writers: the old one gets Fenced each time, nothing acknowledged is lost, nothing done twice."""
    root = Path(tempfile.mkdtemp(prefix="holdfast-chaos-")) if settings.folder is None else settings.folder / "slate"
    histories = root / "history"
    histories.mkdir(parents=True, exist_ok=True)
    try:
        return await _run(settings, f"slatedb+file://{root / 'store'}", histories)
    finally:
        if settings.folder is None:
            shutil.rmtree(root, ignore_errors=True)


async def _run(settings: Settings, url: str, histories: Path) -> Verdict:
    async with holdfast.connect(url) as broker:
        await broker.queue(QUEUE, lease=settings.lease, max_attempts=_ATTEMPTS, retry=Fixed(0.1))
    spec = Spec(
        name="", url=url, folder=str(histories), seed=settings.seed, work=settings.work, lease=settings.lease,
        concurrency=settings.concurrency, rate=settings.messages / (settings.stops * settings.interval),
    )  # fmt: skip
    with Fleet(histories) as fleet:
        ends, waits = await _take_overs(fleet, spec, settings)
    left = await drain(url, histories, settings.deadline)
    verdict = check(flatten(read_folder(histories)))
    verdict.run = "slate"
    fenced = ends.count(FENCED)
    verdict.notes |= {
        "second writers": settings.stops,
        "owners that got Fenced and stopped": fenced,
        "seconds until the old one had stopped, at most": round(max(waits), 2),
        "drained afterwards": left,
    }
    verdict.expect(fenced == settings.stops, f"owners ended with {ends}, {FENCED} is Fenced")
    verdict.expect(verdict.completed > 0, "nothing was completed")
    verdict.expect(verdict.dead == 0, f"{verdict.dead} messages died although none fails")
    return verdict


async def _take_overs(fleet: Fleet, spec: Spec, settings: Settings) -> tuple[list[int | None], list[float]]:
    """How every owner but the last ended, and how long after the next was at work."""
    ends: list[int | None] = []
    waits: list[float] = []
    owner = await start_owner(fleet, spec, 0)
    for number in range(1, settings.stops + 1):
        await asyncio.sleep(settings.interval)
        before, owner = owner, await start_owner(fleet, spec, number)
        begun = time.monotonic()
        await until(lambda before=before: not before.running, seconds=_PATIENCE, what=f"{before.spec.name} is fenced")  # type: ignore[misc]  # mypy does not see the default's type
        waits.append(time.monotonic() - begun)
        ends.append(before.process.returncode)
    await asyncio.sleep(settings.interval)
    fleet.stop("own")
    return ends, waits


async def start_owner(fleet: Fleet, spec: Spec, number: int) -> Member:
    member = fleet.start("own", f"o{number % 2}", spec)
    await until(lambda: member.at_work or not member.running, seconds=_PATIENCE, what=f"{member.spec.name} is at work")
    if not member.running:
        raise RuntimeError(f"{member.spec.name} failed:\n{member.error()}")
    return member


async def drain(url: str, histories: Path, deadline: float) -> int:
    """What the last owner left is worked off here, and everything is written down."""
    history = History(history_path(histories, "drain"))
    opened = await holdfast.connect(url)
    broker = holdfast.Broker(Recorder(opened.store, history, name="drain"))
    queue: holdfast.Queue[Any] = await broker.queue(QUEUE)
    stats = await queue.stats()
    left = waiting = stats.total - stats.archived - stats.dead
    end = time.monotonic() + deadline
    while waiting and time.monotonic() < end:
        await queue.complete_many(await queue.dequeue_many(500, lease=60, wait=1))
        stats = await queue.stats()
        waiting = stats.total - stats.archived - stats.dead
    await audit(broker.store, QUEUE, history)
    await broker.close()
    history.close()
    return left
