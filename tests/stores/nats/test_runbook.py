"""The runbook's cluster, as it stands on the page: three servers, the rights it gives, one of them lost and back."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

import holdfast
from holdfast.testing.contract.base import eventually
from tests import ROOT
from tests.servers.nats import Server, free_port

PATIENCE = 40.0  # seconds: a cluster votes before it answers
PAGE = ROOT / "docs" / "guide" / "nats-runbook.md"


def documented(routes: list[int]) -> list[str]:
    """What follows name, address and folder in the configuration of each server, on other ports."""
    [block] = re.findall(r"```conf\n(.*?)```", PAGE.read_text(), re.S)
    rest = str(block)[str(block).index("cluster {") :]
    for number, port in enumerate(routes, 1):
        rest = rest.replace(f"n{number}:6222", f"127.0.0.1:{port}")
    return [rest.replace("0.0.0.0:6222", f"127.0.0.1:{port}") for port in routes]


@pytest.fixture
def cluster() -> Iterator[list[Server]]:
    configs = documented([free_port() for _ in range(3)])
    with ExitStack() as stack:
        yield [stack.enter_context(Server(text, name=f"n{at}")) for at, text in enumerate(configs, 1)]


async def answered(call: Any) -> Any:
    """What a call answers, once the cluster can."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            if answer := await call():
                return answer
        except holdfast.UnknownOutcome as unknown:
            call = unknown.retry
        except holdfast.StoreError:
            pass
        assert time.monotonic() < until, "the cluster does not answer"
        await asyncio.sleep(0.05)


async def test_work_goes_on_when_a_server_is_lost(cluster: list[Server]) -> None:
    hosts = ",".join(server.host for server in cluster)
    url = f"nats://worker:secret@{hosts}?replicas=3&operation_timeout=5"
    broker = await answered(lambda: holdfast.connect(url))
    queue = await answered(lambda: broker.queue("jobs"))
    await answered(lambda: queue.enqueue("before"))
    await asyncio.to_thread(cluster[0].kill)
    await answered(lambda: queue.enqueue("while one is away"))
    taken: list[object] = []
    while len(taken) < 2:
        delivery = await answered(lambda: queue.dequeue(wait=2))
        assert await answered(partial(queue.complete_many, [delivery])) == [True]
        taken.append(delivery.value)
    # In any order: a claim whose answer was lost comes again, later.
    assert sorted(map(str, taken)) == ["before", "while one is away"]

    async def tells_of_it() -> bool:
        checks = {check.name: check for check in await broker.store.check()}
        return "1 of them behind" in checks["replicas"].detail

    assert await answered(tells_of_it)
    await asyncio.to_thread(cluster[0].start)

    async def whole() -> bool:
        checks = {check.name: check for check in await broker.store.check()}
        return bool(checks["replicas"].state == "ok")

    assert await answered(whole)
    await broker.close()


async def test_an_idle_wait_goes_on_with_the_next_leader_at_once(cluster: list[Server]) -> None:
    """Its pull ends with the old one: the next look is seconds away by then."""
    hosts = ",".join(server.host for server in cluster)
    broker = await answered(
        lambda: holdfast.connect(f"nats://worker:secret@{hosts}?replicas=3&operation_timeout=5&poll_interval=0.1")
    )
    queue = await answered(lambda: broker.queue("jobs"))
    partition = broker.store.parts("jobs").partition
    took: list[float] = []
    for _ in range(3):
        waiting = asyncio.create_task(answered(lambda: queue.dequeue(wait=20)))
        claimer = broker.store.parts("jobs").claimer
        await eventually(lambda claimer=claimer: claimer._quiet >= 6, "looks that are seconds apart", within=PATIENCE)
        [consumer] = partition.consumers._consumers.values()
        stood, began = consumer.standing_until, time.monotonic()
        await partition.connection.api(f"CONSUMER.LEADER.STEPDOWN.{partition.names.task_stream}.{consumer.name}")
        await eventually(lambda c=consumer, old=stood: c.standing and c.standing_until != old, "another pull")
        took.append(time.monotonic() - began)
        await answered(lambda: queue.enqueue(1))
        assert await answered(partial(queue.complete_many, [await waiting])) == [True]
    assert max(took) < 3, f"{took}: looks came, not the word of the server"
    await broker.close()
