"""R3: half of the workers have wall clocks that are wrong or run too fast, and so had who opened the store first."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import msgspec

import holdfast
from holdfast.retry import Fixed

from .. import wrong_clocks
from ..fleet import until
from ..settings import Settings
from ..stage import Stage, staged
from ..verdict import Verdict

_ATTEMPTS = 50  # this run is about who holds a message, not about poison
_WRONG = ("+300", "-300", "x1.5")  # of every second worker
_YEAR = 365 * 86400
_FIRST = {"a year ahead": f"+{_YEAR}", "a year behind": f"-{_YEAR}", "in 1970": ""}
_SOON = 2.0  # seconds until a message with `at` is due
_START = 60.0  # seconds in which workers must have begun
_LATE = 10.0  # seconds by which it may be late on a busy machine
_OPEN = """
import sys
from chaos import wrong_clocks
wrong_clocks.apply(sys.argv[2])
from holdfast import sync
with sync.connect(sys.argv[1]) as broker:
    broker.queue("dated").enqueue("before")
"""


async def clocks(settings: Settings) -> Verdict:
    """Workers are killed `kills` times: their messages go to others when their lease is over, and not before."""
    root = Path(tempfile.mkdtemp(prefix="holdfast-chaos-")) if settings.folder is None else settings.folder / "clocks"
    root.mkdir(parents=True, exist_ok=True)
    try:
        verdict = await _at_work(settings, root / "store")
        for name, clock in _FIRST.items():
            await _at_follows(verdict, name, clock or f"-{int(time.time()) - 60}", root / name)
        verdict.notes["wrong at the first opening"] = ", ".join(_FIRST)
        return verdict
    finally:
        if settings.folder is None:
            shutil.rmtree(root, ignore_errors=True)


async def _at_work(settings: Settings, folder: Path) -> Verdict:
    await _open_first(folder, f"+{_YEAR}")
    url = f"file://{folder}"
    async with staged("clocks", settings, url=url, max_attempts=_ATTEMPTS, retry=Fixed(0.1)) as stage:
        _start_workers(stage)
        stage.start_producers(seconds=settings.kills * settings.interval + 1.0)
        for number in range(settings.kills):
            await stage.pause()
            await until(partial(_some_are_at_work, stage), seconds=_START, what="half of the workers are at work")
            await stage.kill_worker()
            stage.check_producers()
            stage.tell(f"{number + 1} of {settings.kills} kills")
        verdict = await stage.finish()
    verdict.notes["clocks of every second worker"] = ", ".join(
        f"{each} by {wrong_clocks.means(each)}" for each in _WRONG
    )
    verdict.expect(verdict.effective_kills > 0, "no kill hit a leased message: the run shows nothing")
    verdict.expect(verdict.dead == 0, f"{verdict.dead} messages died although none fails")
    return verdict


def _some_are_at_work(stage: Stage) -> bool:
    return 2 * sum(each.at_work for each in stage.fleet.of("work")) >= stage.settings.workers


def _start_workers(stage: Stage) -> None:
    for number in range(stage.settings.workers):
        clock = _WRONG[number // 2 % len(_WRONG)] if number % 2 else ""
        stage.fleet.start("work", f"w{number}", msgspec.structs.replace(stage.spec, clock=clock))


async def _open_first(folder: Path, clock: str) -> None:
    """A process makes the store with this clock, and ends."""
    command = [sys.executable, "-c", _OPEN, f"file://{folder}", clock]
    environment = wrong_clocks.environment(clock)
    await asyncio.to_thread(subprocess.run, command, env=environment, check=True, timeout=60)


async def _at_follows(verdict: Verdict, name: str, clock: str, folder: Path) -> None:
    """`at` is judged by the clock as it is now, whatever it was when the store was made."""
    await _open_first(folder, clock)
    async with holdfast.connect(f"file://{folder}") as broker:
        queue: holdfast.Queue[str] = await broker.queue("dated")
        begun, due = time.monotonic(), datetime.now(UTC) + timedelta(seconds=_SOON)
        await queue.enqueue("after", at=due)
        found: dict[str, float] = {}
        while len(found) < 2 and time.monotonic() < begun + _SOON + _LATE:
            for delivery in await queue.dequeue_many(5, wait=0.5):
                found[delivery.value] = time.monotonic() - begun
                await delivery.complete()
    early = found.get("after", _SOON) < _SOON - 0.2
    verdict.expect("before" in found, f"opened {name}: what was enqueued then never came")
    verdict.expect(not early, f"opened {name}: a message with at= came {_SOON - found.get('after', 0.0):.1f} s early")
    verdict.expect("after" in found, f"opened {name}: a message with at= never came")
