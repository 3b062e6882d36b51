"""R6: PostgreSQL loses connections, dies without a word and comes back, while messages flow and workers are killed."""

from __future__ import annotations

import asyncio

import asyncpg

from holdfast.retry import Fixed
from holdfast.testing.postgres import Server

from ..settings import Settings
from ..stage import Stage, staged
from ..verdict import Verdict

_ATTEMPTS = 50  # this run is about losing nothing, not about poison
_VICTIM = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND datname = current_database()"
    " ORDER BY random() LIMIT 1"
)


async def postgres(settings: Settings) -> Verdict:
    """`stops` backends are terminated, `kills` workers killed, the server restarted `producer_kills` times."""
    faults = ["backend"] * settings.stops + ["worker"] * settings.kills + ["restart"] * settings.producer_kills
    with Server() as server:
        async with staged("postgres", settings, url=server.url(), max_attempts=_ATTEMPTS, retry=Fixed(0.1)) as stage:
            stage.start_workers()
            stage.start_producers(seconds=len(faults) * settings.interval + 1.0)
            terminated = await _faults(stage, server, faults)
            verdict = await stage.finish()
    verdict.notes |= {"backends terminated": terminated, "immediate restarts": settings.producer_kills}
    verdict.expect(verdict.completed > 0, "nothing was completed")
    verdict.expect(verdict.dead == 0, f"{verdict.dead} messages died although none fails")
    verdict.expect(terminated >= settings.stops * 0.9, f"only {terminated} backends were terminated")
    return verdict


async def _faults(stage: Stage, server: Server, faults: list[str]) -> int:
    stage.chance.shuffle(faults)
    terminated = 0
    for number, fault in enumerate(faults, 1):
        await stage.pause()
        if fault == "backend":
            terminated += await _terminate(server)
        elif fault == "worker":
            await stage.kill_worker()
        else:
            await asyncio.to_thread(server.restart, immediate=True)
        stage.check_producers()
        stage.tell(f"{number} of {len(faults)} faults, {await stage.live():,} waiting or running")
    return terminated


async def _terminate(server: Server) -> int:
    connection = await asyncpg.connect(server.url())
    try:
        return len(await connection.fetch(_VICTIM))
    finally:
        await connection.close()
