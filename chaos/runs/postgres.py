"""R6: PostgreSQL loses connections, dies without a word and comes back, while messages flow and workers are killed.

And failover: the server dies for good, its standby takes over, the next standby is made, again and again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import ExitStack
from typing import Protocol, Self

import asyncpg

from holdfast.retry import Fixed
from tests.servers.postgres import Server

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
    with Server() as server:
        faults = {"backend": settings.stops, "worker": settings.kills, "restart": settings.producer_kills}
        verdict, done = await _run("postgres", settings, server.url(), faults, _Lone(server))
    verdict.notes |= {"backends terminated": done["backend"], "immediate restarts": done["restart"]}
    verdict.expect(done["backend"] >= settings.stops * 0.9, f"only {done['backend']} backends were terminated")
    return verdict


async def failover(settings: Settings) -> Verdict:
    """The server dies `stops` times for good, its synchronous standby takes over; `kills` workers are killed."""
    with Pair() as pair:
        faults = {"failover": settings.stops, "worker": settings.kills}
        verdict, done = await _run("failover", settings, pair.url, faults, pair)
    verdict.notes |= {"failovers": done["failover"]}
    return verdict


class _Server(Protocol):
    async def suffer(self, fault: str) -> int:
        """How often the fault took effect."""


class _Lone:
    def __init__(self, server: Server) -> None:
        self._server = server

    async def suffer(self, fault: str) -> int:
        if fault == "backend":
            return await _terminate(self._server)
        await asyncio.to_thread(self._server.restart, immediate=True)
        return 1


class Pair:
    """A server and its synchronous standby; `suffer` changes their parts. The ports stay the same."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._writer = stack.enter_context(Server())
            self._standby = stack.enter_context(Server(follows=self._writer))
            self._writer.wait_for_standby()
            self._open = stack.pop_all()
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in (self._writer, self._standby))
        self.url = f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    async def suffer(self, fault: str) -> int:
        await asyncio.to_thread(self._change)
        return 1

    def _change(self) -> None:
        """The server dies without a word, its standby takes over, another one follows that."""
        self._writer.stop(immediate=True)
        self._standby.promote()
        old, self._writer = self._writer, self._standby
        self._standby = self._open.enter_context(Server(follows=self._writer, port=old.port))
        self._writer.wait_for_standby()


async def _run(
    name: str, settings: Settings, url: str, counts: dict[str, int], server: _Server
) -> tuple[Verdict, Counter[str]]:
    faults = [fault for fault, count in counts.items() for _ in range(count)]
    async with staged(name, settings, url=url, max_attempts=_ATTEMPTS, retry=Fixed(0.1)) as stage:
        stage.start_workers()
        stage.start_producers(seconds=len(faults) * settings.interval + 1.0)
        done = await _faults(stage, server, faults)
        verdict = await stage.finish()
    verdict.expect(verdict.completed > 0, "nothing was completed")
    verdict.expect(verdict.dead == 0, f"{verdict.dead} messages died although none fails")
    return verdict, done


async def _faults(stage: Stage, server: _Server, faults: list[str]) -> Counter[str]:
    stage.chance.shuffle(faults)
    done: Counter[str] = Counter()
    for number, fault in enumerate(faults, 1):
        await stage.pause()
        if fault == "worker":
            await stage.kill_worker()
        else:
            done[fault] += await server.suffer(fault)
        stage.check_producers()
        stage.tell(f"{number} of {len(faults)} faults, {await stage.live():,} waiting or running")
    return done


async def _terminate(server: Server) -> int:
    connection = await asyncpg.connect(server.url())
    try:
        return len(await connection.fetch(_VICTIM))
    finally:
        await connection.close()
