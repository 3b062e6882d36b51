"""R9: the disk gets full while producers and workers are at work, and is freed again; on a folder and on SlateDB."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

import holdfast
from holdfast.retry import Fixed

from ..checker import check
from ..child import QUEUE, Spec, history_path
from ..disk.judging import Full, judge
from ..disk.small import NAMESPACE, SmallDisk, can_mount, small_disk
from ..fleet import Fleet, Member
from ..history import flatten, read_folder
from ..settings import Settings
from ..stage import Stage, staged
from ..verdict import Verdict
from .slate import drain, start_owner

_ATTEMPTS = 50  # leases expire while nothing can be written: this run is about losing nothing
_SIZE = 256 << 20
_BODY = 8 << 10  # the larger calls become files beside the database
_DEADLINE = 10.0  # seconds in which every call must be answered
_ROOM = (0, 0, 64 << 10, 1 << 20)  # bytes left: the store itself takes the last of them
_RESUME = 30.0
_OPTIONS = f"operation_timeout={_DEADLINE:g}&maintenance_interval=1"


async def disk(settings: Settings) -> Verdict:
    """`stops` times full for a lease and a half, with a worker killed in `kills` of them."""
    return await _started("disk", settings)


async def disk_slate(settings: Settings) -> Verdict:
    """The same for the one process that owns a SlateDB database."""
    return await _started("disk-slate", settings)


async def _started(name: str, settings: Settings) -> Verdict:
    """Here, or where a small disk can be mounted."""
    if can_mount() or not can_mount(*NAMESPACE):
        return await here(name, settings)
    command = [*NAMESPACE, sys.executable, "-m", "chaos.disk", name, msgspec.json.encode(settings).decode()]
    done = await asyncio.to_thread(subprocess.run, command, stdout=subprocess.PIPE, check=True)
    return msgspec.json.decode(done.stdout, type=Verdict)


async def here(name: str, settings: Settings) -> Verdict:
    root = Path(tempfile.mkdtemp(prefix="holdfast-chaos-"))
    try:
        with small_disk(root, _SIZE) as small:
            verdict = await _PROGRAMS[name](settings, small)
        verdict.notes["disk"] = "limits of the processes" if small.flag else f"tmpfs of {_SIZE >> 20} MiB"
        return verdict
    finally:
        shutil.rmtree(root, ignore_errors=True)


# ---------------------------------------------------------------------- a folder


async def _on_folder(settings: Settings, small: SmallDisk) -> Verdict:
    url = f"file://{small.folder}?{_OPTIONS}"
    async with staged("disk", settings, url=url, max_attempts=_ATTEMPTS, retry=Fixed(0.1)) as stage:
        stage.start_workers(full=small.flag)
        each = settings.interval + 1.5 * settings.lease + 1.0
        stage.start_producers(seconds=settings.stops * each, body=_BODY, persists=True, full=small.flag)
        faults = _Faults(settings, small, lambda: _completed(stage.broker), lambda: _is_done(stage))
        unclear = [await _fault(stage, faults, number) for number in range(settings.stops)]
        verdict = await stage.finish()
        judge(verdict, read_folder(stage.fleet.folder), faults.full, deadline=_DEADLINE, refused_is_nothing=True)
        verdict.notes["files left for the sweep"] = _orphans(small.folder)
    for text in filter(None, unclear):
        verdict.failures.append(f"a process that began on a full disk ended otherwise than by Unavailable: {text}")
    verdict.expect(verdict.dead == 0, f"{verdict.dead} messages died although none fails")
    return verdict


async def _fault(stage: Stage, faults: _Faults, number: int) -> str:
    """One; what a process that was started on the full disk says if it is not what it should."""
    await stage.pause()
    kills = number % max(1, stage.settings.stops // max(1, stage.settings.kills)) == 0 and stage.settings.kills > 0
    await faults.begin()
    if kills:
        await stage.kill_worker()
    await faults.end()
    stage.check_producers()
    failed = [member for member in stage.fleet.of("work") if not member.running]
    stage.fleet.replace_dead("work")
    stage.tell(f"{number + 1} of {stage.settings.stops} times full")
    await faults.resumed()
    return next((each.error() for each in failed if "Unavailable" not in each.error()), "")


def _orphans(folder: Path) -> int:
    """Files below the queues that no object of the database is about."""
    database = sqlite3.connect(f"file:{folder / 'holdfast.db'}?mode=ro", uri=True)
    with contextlib.closing(database):
        known = {key for (key,) in database.execute("SELECT key FROM objects WHERE data IS NULL")}
    files = [path for root in folder.glob("*@*") for path in root.rglob("*") if path.is_file()]
    return sum(str(path.relative_to(folder)) not in known for path in files)


async def _completed(broker: holdfast.Broker) -> int:
    return (await broker.store.stats(QUEUE)).completed


async def _is_done(stage: Stage) -> bool:
    """Producers that end before the last fault leave nothing that could be completed."""
    stats = await stage.broker.store.stats(QUEUE)
    return stats.total == 0 and not any(member.running for member in stage.fleet.of("produce"))


# ---------------------------------------------------------------------- SlateDB


async def _on_slate(settings: Settings, small: SmallDisk) -> Verdict:
    root = Path(tempfile.mkdtemp(prefix="holdfast-chaos-")) if settings.folder is None else settings.folder / "disk"
    histories = root / "history"
    histories.mkdir(parents=True, exist_ok=True)
    url = f"slatedb+file://{small.folder}?{_OPTIONS}"
    try:
        async with holdfast.connect(url) as broker:
            await broker.queue(QUEUE, lease=settings.lease, max_attempts=_ATTEMPTS, retry=Fixed(0.1))
        spec = Spec(
            name="", url=url, folder=str(histories), seed=settings.seed, work=settings.work, lease=settings.lease,
            concurrency=settings.concurrency, body=_BODY, persists=True, full=small.flag,
            rate=settings.messages / settings.stops / (settings.interval + 1.5 * settings.lease + 1.0),
        )  # fmt: skip
        with Fleet(histories) as fleet:
            owner = await start_owner(fleet, spec, 0)
            faults = _Faults(settings, small, lambda: _settled(owner))
            for _ in range(settings.stops):
                await asyncio.sleep(settings.interval)
                await faults.begin()
                await faults.end()
                await faults.resumed()
            late = fleet.stop("own")
        left = await drain(url, histories, settings.deadline)
        verdict = check(flatten(read_folder(histories)))
        verdict.run = "disk-slate"
        judge(verdict, read_folder(histories), faults.full, deadline=_DEADLINE, refused_is_nothing=False)
        verdict.notes["drained afterwards"] = left
        verdict.expect(not late, "the owner did not stop within its grace")
        verdict.expect(
            owner.process.returncode == 0, f"the owner ended with {owner.process.returncode}: {owner.error()}"
        )
        return verdict
    finally:
        if settings.folder is None:
            shutil.rmtree(root, ignore_errors=True)


async def _settled(owner: Member) -> int:
    if not owner.running:
        raise RuntimeError(f"{owner.spec.name} failed:\n{owner.error()}")
    return history_path(owner.spec.folder, owner.spec.name).read_bytes().count(b'"complete","ok"]')


class _Faults:
    """Fills and frees the disk, and notes when; `completed` counts what was."""

    def __init__(
        self,
        settings: Settings,
        small: SmallDisk,
        completed: Callable[[], Coroutine[Any, Any, int]],
        is_done: Callable[[], Coroutine[Any, Any, bool]] | None = None,
    ) -> None:
        self._seconds = 1.5 * settings.lease
        self._small = small
        self._chance = random.Random(settings.seed)
        self._completed = completed
        self._is_done = is_done
        self._before = 0
        self.full: list[Full] = []

    async def begin(self) -> None:
        self.full.append(Full(time.monotonic()))
        self._small.fill(leave=self._chance.choice(_ROOM))

    async def end(self) -> None:
        """After a while, in which what others give back is taken too."""
        begun = time.monotonic()
        while (spent := time.monotonic() - begun) < self._seconds:
            if spent > self._seconds / 3:
                self._small.fill()
            await asyncio.sleep(0.05)
        self._before = await self._completed()
        self._small.free()
        self.full[-1].freed = time.monotonic()

    async def resumed(self) -> None:
        """Messages are completed again, by themselves."""
        while await self._completed() <= self._before:
            if self._is_done is not None and await self._is_done():
                return
            if time.monotonic() > self.full[-1].freed + _RESUME:
                raise TimeoutError(f"nothing was completed within {_RESUME:g} s after the disk was freed")
            await asyncio.sleep(0.05)


_PROGRAMS = {"disk": _on_folder, "disk-slate": _on_slate}
