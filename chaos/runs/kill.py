"""R1: workers and producers are killed at random while messages flow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.retry import Fixed
from tests.servers import azure

from ..settings import Settings
from ..stage import Stage, staged
from ..verdict import Verdict

# Bystanders of many kills must not run out of attempts: this run is about losing nothing, not about poison.
_ATTEMPTS = 50


async def kill(settings: Settings) -> Verdict:
    """Nothing lost, nothing twice, recovered within the lease and one poll."""
    with _place(settings.store) as url:
        async with staged("kill", settings, url=url, max_attempts=_ATTEMPTS, retry=Fixed(0.1)) as stage:
            stage.start_workers()
            stage.start_producers(seconds=settings.kills * settings.interval + 1.0)
            await _faults(stage)
            verdict = await stage.finish()
    verdict.expect(verdict.completed > 0, "nothing was completed")
    verdict.expect(verdict.dead == 0, f"{verdict.dead} messages died although none fails")
    verdict.expect(verdict.effective_kills > 0, "no kill hit a leased message: the run shows nothing")
    if settings.strict:
        most = settings.lease + settings.poll
        p99 = verdict.recovery.p99
        verdict.expect(p99 <= most, f"recovery p99 {p99:.2f} s, more than lease + one poll ({most:.1f} s)")
    return verdict


@contextmanager
def _place(store: str) -> Iterator[str | None]:
    """Where the messages are: in a new folder, or in a container of Azure's."""
    if store == "file":
        yield None
    elif store == "azure":
        with azure.Server() as server:
            yield server.url("kill")
    else:
        raise SystemExit(f"the run kill knows the stores file and azure, not {store!r}")


async def _faults(stage: Stage) -> None:
    settings = stage.settings
    faults = ["work"] * settings.kills + ["produce"] * settings.producer_kills
    stage.chance.shuffle(faults)
    for number, fault in enumerate(faults, 1):
        await stage.pause()
        if fault == "work":
            await stage.somebody_works()
            await stage.kill_worker()
        else:
            await stage.kill_producer()
        stage.check_producers()
        stage.tell(f"{number} of {len(faults)} kills, {await stage.live():,} waiting or running")
