"""`process` on real executors, some of them killed: every message ends once, with the attempts it may have."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import holdfast
from tests.servers.spark import kill_executor

from ..settings import Settings
from ..spark_job import QUEUE
from ..verdict import Verdict

_TRIES = 3
_POISON = 3
_START = 240.0  # seconds a JVM and its executors get on a busy machine
_PAGE = 5000


async def spark_process(settings: Settings) -> Verdict:
    """1 % of the messages fail, some kill their process, executors are killed in the middle."""
    root = Path(tempfile.mkdtemp(prefix="holdfast-chaos-")) if settings.folder is None else settings.folder / "spark"
    root.mkdir(parents=True, exist_ok=True)
    url, verdict = (root / "store").as_uri(), Verdict(run="spark-process")
    try:
        sent = await _fill(url, settings)
        verdict.attempted = verdict.acknowledged = len(sent)
        await _process(url, root, settings, verdict)
        await _judge(url, sent, verdict)
    finally:
        if settings.folder is None:
            shutil.rmtree(root, ignore_errors=True)
    return verdict


async def _fill(url: str, settings: Settings) -> dict[str, dict[str, Any]]:
    """The messages by their ids."""
    orders = [{"n": number, "kind": "healthy"} for number in range(settings.messages)]
    step = max(1, settings.messages // (_POISON + 1))
    for place in range(_POISON, 0, -1):
        orders.insert(place * step, {"n": 0, "kind": "poison"})
    async with holdfast.connect(url) as broker:
        queue = await broker.queue(QUEUE, max_attempts=_TRIES, lease=settings.lease, retry=holdfast.Fixed(0.1))
        return dict(zip(await queue.enqueue_many(orders), orders, strict=True))


async def _process(url: str, root: Path, settings: Settings, verdict: Verdict) -> None:
    """The job in a process of its own, and the kills."""
    environment = {**os.environ, "CHAOS_WORK": str(settings.work)}
    driver = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "chaos.spark_job", url, str(root)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_START):
            await _line(driver, "ready")
        async with asyncio.timeout(settings.deadline):
            killing = asyncio.create_task(_kill_executors(url, driver.pid, settings, verdict))
            said = await _line(driver, "done")
            killing.cancel()
            await driver.wait()
        verdict.notes["the job says"] = said
    except TimeoutError:
        verdict.expect(False, "the job did not end in time")
    finally:
        if driver.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)  # a session of its own: the JVM and the executors too
            await driver.wait()
    verdict.expect(driver.returncode == 0, f"the job ended with {driver.returncode}")


async def _line(driver: asyncio.subprocess.Process, wanted: str) -> str:
    assert driver.stdout is not None
    async for line in driver.stdout:
        if line.startswith(wanted.encode()):
            return line.decode().strip()
    return f"the driver ended without saying {wanted!r}"


async def _kill_executors(url: str, driver: int, settings: Settings, verdict: Verdict) -> None:
    """At even steps of the work, when messages are held."""
    async with holdfast.connect(url) as broker:
        queue = await broker.queue(QUEUE, create=False)
        for number in range(1, settings.kills + 1):
            goal = settings.messages * number // (settings.kills + 2)
            while (stats := await queue.stats()).completed < goal:
                await asyncio.sleep(0.05)
            if kill_executor(driver) is not None:
                verdict.kills += 1
                verdict.effective_kills += stats.processing > 0


async def _judge(url: str, sent: dict[str, dict[str, Any]], verdict: Verdict) -> None:
    started = time.monotonic()
    ends: dict[str, list[tuple[str, int]]] = {}
    async with holdfast.connect(url) as broker:
        queue = await broker.queue(QUEUE, create=False)
        stats = await queue.stats()
        for letters in (queue.archive, queue.dead):
            after: str | None = None
            while page := await letters.list(limit=_PAGE, after=after):
                after = page[-1].id
                for record in page:
                    ends.setdefault(record.id, []).append((record.status, record.attempts))
    verdict.completed = sum(end[0] == "completed" for found in ends.values() for end in found)
    verdict.dead = sum(end[0] == "dead" for found in ends.values() for end in found)
    verdict.lost = sum(id not in ends for id in sent)
    verdict.unexpected = sum(id not in sent for id in ends)
    verdict.duplicate_completions = sum(len(found) > 1 for found in ends.values())
    verdict.unfinished = stats.pending + stats.processing + stats.retry + stats.delayed
    for id, order in sent.items():
        verdict.miscounted_attempts += any(not _is_right(order, end) for end in ends.get(id, []))
    verdict.expect(verdict.completed + verdict.dead == len(sent), "completed + dead is not the total")
    verdict.expect(verdict.kills > 0, "no executor was killed")
    verdict.notes["seconds to read the ends"] = round(time.monotonic() - started, 1)


def _is_right(order: dict[str, Any], end: tuple[str, int]) -> bool:
    """Attempts as configured; a killed executor may cost an attempt more, and a healthy message all three in the
    worst case: then it dies as its policy says."""
    status, attempts = end
    hopeless = order["kind"] == "poison" or order["n"] % 100 == 5
    if hopeless:
        return status == "dead" and attempts == _TRIES
    if status == "dead":
        return attempts == _TRIES
    return (2 if order["n"] % 20 == 6 else 1) <= attempts <= _TRIES
