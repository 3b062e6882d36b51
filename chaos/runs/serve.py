"""`holdfast serve` is killed and started again while clients send and work through it; some workers are killed too."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from holdfast.retry import Fixed
from tests.servers.serving import ServerProcess

from ..restoring.places import opened
from ..settings import Settings
from ..stage import Stage, staged
from ..verdict import Verdict

_ATTEMPTS = 50  # a claim whose answer died with the server costs an attempt; this run is about losing nothing
_PATIENCE_S = 120  # of clients: on a busy machine a server takes long to start


async def serve(settings: Settings) -> Verdict:
    """The server is killed `stops` times, a worker `kills` times. Clients go on by themselves."""
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-served-") as folder,
        opened(settings.store, Path(folder)) as place,
        ServerProcess(place.url) as server,
    ):
        url = f"{server.address}?operation_timeout={_PATIENCE_S}"
        async with staged("serve", settings, url=url, max_attempts=_ATTEMPTS, retry=Fixed(0.1)) as stage:
            stage.start_workers()
            stage.start_producers(seconds=(settings.stops + settings.kills) * settings.interval + 1.0)
            await _faults(stage, server)
            verdict = await stage.finish()
    verdict.expect(verdict.completed > 0, "nothing was completed")
    verdict.expect(verdict.dead == 0, f"{verdict.dead} messages died although none fails")
    return verdict


async def _faults(stage: Stage, server: ServerProcess) -> None:
    faults = ["server"] * stage.settings.stops + ["work"] * stage.settings.kills
    stage.chance.shuffle(faults)
    for number, fault in enumerate(faults, 1):
        await stage.pause()
        await stage.somebody_works()
        if fault == "server":
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        else:
            await stage.kill_worker()
        stage.check_producers()
        stage.tell(f"{number} of {len(faults)} kills, {await stage.live():,} waiting or running")
