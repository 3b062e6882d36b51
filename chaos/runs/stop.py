"""R2: workers are stopped for three leases, and go on as if nothing had happened."""

from __future__ import annotations

import asyncio
import signal
import time

from holdfast.retry import Fixed

from ..fleet import Member
from ..settings import Settings
from ..stage import Stage, staged
from ..verdict import Verdict

_ATTEMPTS = 50


async def stop(settings: Settings) -> Verdict:
    """The store refuses what a sleeper brings too late: no zombie completion."""
    async with staged("stop", settings, max_attempts=_ATTEMPTS, retry=Fixed(0.1)) as stage:
        stage.start_workers()
        asleep = 3 * settings.lease
        together = max(1, settings.workers // 2)
        stage.start_producers(seconds=asleep * settings.stops / together + 1.0)
        await _faults(stage, asleep, together)
        verdict = await stage.finish()
    verdict.expect(verdict.effective_kills > 0, "no stop hit a leased message: the run shows nothing")
    verdict.expect(verdict.duplicate_executions > 0, "no message of a sleeper was taken over: the run shows nothing")
    verdict.notes["settlements refused"] = verdict.refused
    return verdict


async def _faults(stage: Stage, asleep: float, together: int) -> None:
    """Several at once: half of the workers go on."""
    done, end = 0, time.monotonic() + stage.settings.deadline
    while done < stage.settings.stops and time.monotonic() < end:
        await stage.pause()
        awake = [member for member in stage.fleet.of("work") if member.at_work]
        if not awake:  # nothing has come yet: a stop now would show nothing
            stage.check_producers()
            continue
        victims = stage.chance.sample(awake, min(together, len(awake), stage.settings.stops - done))
        for victim in victims:
            stage.fleet.send(victim, signal.SIGSTOP)
        await asyncio.sleep(asleep)
        for victim in victims:
            _wake(stage, victim)
        done += len(victims)
        stage.check_producers()
        stage.tell(f"{done} of {stage.settings.stops} stops")


def _wake(stage: Stage, victim: Member) -> None:
    if victim.running:
        victim.process.send_signal(signal.SIGCONT)
