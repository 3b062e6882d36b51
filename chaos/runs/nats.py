"""R7: NATS is killed and started again, its consumers are deleted and workers killed, while messages flow."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import holdfast
from holdfast.retry import Fixed
from holdfast.stores.nats.faults import Refused
from tests.servers.nats import Cluster, Server

from ..child import QUEUE
from ..fleet import Fleet
from ..settings import Settings
from ..stage import Stage
from ..verdict import Verdict

_ATTEMPTS = 50  # this run is about losing nothing, not about poison
_DOWN = 0.3  # seconds a server is away

Fault = Callable[[Stage], Awaitable[None]]


async def nats(settings: Settings) -> Verdict:
    """The server is killed `producer_kills` times, a consumer deleted `stops` times, a worker killed `kills` times."""
    with Server() as server:

        async def restart(stage: Stage) -> None:
            await asyncio.to_thread(server.kill)
            await asyncio.sleep(_DOWN)
            await asyncio.to_thread(server.start)

        return await _staged("nats", settings, server.url, restart)


async def nats_cluster(settings: Settings) -> Verdict:
    """Three servers, three copies: the leader of the tasks is killed `producer_kills` times."""
    with Cluster() as cluster:

        async def kill_leader(stage: Stage) -> None:
            api: Any = stage.broker.store
            info = await api.connection.api(f"STREAM.INFO.holdfast={QUEUE}=tasks")
            leader = info["cluster"]["leader"]
            [victim] = [server for number, server in enumerate(cluster.servers) if f"n{number}" == leader]
            await asyncio.to_thread(victim.kill)
            await asyncio.sleep(10 * _DOWN)
            await asyncio.to_thread(victim.start)

        return await _staged("nats-cluster", settings, f"{cluster.url}?replicas=3", kill_leader)


async def _staged(run: str, settings: Settings, url: str, restart: Fault) -> Verdict:
    root = Path(tempfile.mkdtemp(prefix="holdfast-chaos-")) if settings.folder is None else settings.folder / run
    histories = root / "history"
    histories.mkdir(parents=True, exist_ok=True)
    try:
        async with holdfast.connect(url, poll_interval=settings.poll) as broker:
            await _create(broker, settings)
            with Fleet(histories) as fleet:
                return await _play(Stage(run, settings, url, broker, fleet), restart)
    finally:
        if settings.folder is None:
            shutil.rmtree(root, ignore_errors=True)


async def _create(broker: holdfast.Broker, settings: Settings) -> None:
    """A fresh cluster elects its leaders first."""
    for _ in range(50):
        try:
            await broker.queue(QUEUE, lease=settings.lease, max_attempts=_ATTEMPTS, retry=Fixed(0.1))
            return
        except holdfast.StoreError:
            await asyncio.sleep(0.3)
    await broker.queue(QUEUE, lease=settings.lease, max_attempts=_ATTEMPTS, retry=Fixed(0.1))


async def _play(stage: Stage, restart: Fault) -> Verdict:
    settings = stage.settings
    faults = ["restart"] * settings.producer_kills + ["worker"] * settings.kills + ["consumer"] * settings.stops
    stage.chance.shuffle(faults)
    stage.start_workers()
    stage.start_producers(seconds=len(faults) * settings.interval + 1.0)
    for number, fault in enumerate(faults, 1):
        await stage.pause()
        if fault == "restart":
            await restart(stage)
        elif fault == "worker":
            await stage.kill_worker()
        else:
            await _delete_consumer(stage)
        stage.check_producers()
        stage.tell(f"{number} of {len(faults)} faults, {await stage.live():,} waiting or running")
    verdict = await stage.finish()
    verdict.notes |= {"server kills": settings.producer_kills, "consumers deleted": settings.stops}
    await _judge(stage, verdict)
    return verdict


async def _delete_consumer(stage: Stage) -> None:
    """As an operator's mistake would; one that is not there yet again is left alone."""
    store: Any = stage.broker.store
    try:
        await store.connection.api(f"CONSUMER.DELETE.{store.prefix}={QUEUE}=tasks.0")
    except Refused:
        pass


async def _judge(stage: Stage, verdict: Verdict) -> None:
    """Nothing may be left with a consumer: neither waiting for one that stalled, nor given up by the server."""
    store: Any = stage.broker.store
    consumers = (await store.connection.api(f"CONSUMER.LIST.{store.prefix}={QUEUE}=tasks")).get("consumers") or []
    stalled = [consumer["name"] for consumer in consumers if consumer["num_pending"]]
    state = (await store.connection.api(f"STREAM.INFO.{store.prefix}={QUEUE}=tasks"))["state"]
    verdict.notes |= {"stalled consumers": len(stalled), "stranded tasks": state["messages"]}
    verdict.expect(not stalled, f"consumers with a backlog that nobody gets: {stalled}")
    verdict.expect(state["messages"] == 0, f"{state['messages']} tasks are left in their stream")
    verdict.expect(verdict.completed > 0, "nothing was completed")
    verdict.expect(verdict.dead == 0, f"{verdict.dead} messages died although none fails")
