"""Processes with workers on JetStream: a stream that forgets them after a day."""

from __future__ import annotations

import os

import pytest
from msgspec.structs import replace

import holdfast
from holdfast import reporter
from holdfast.stores.worker_reports import ProcessReport, WorkerReport
from holdfast.testing.contract.base import eventually
from tests.servers.nats import Server

SAID = ProcessReport(
    id="a" * 32, host="h", pid=1, version="1", started_at=1.0, at=2.0,
    workers=[WorkerReport(id="w", queues=["jobs"], slots=1, busy=0)],
)  # fmt: skip


async def test_a_worker_reports_itself_and_takes_it_back(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporter, "_NEWS_S", 0.05)
    prefix = f"t{os.urandom(6).hex()}"
    async with holdfast.connect(server.url, prefix=prefix) as other:
        async with holdfast.connect(server.url, prefix=prefix) as broker:
            jobs = await broker.queue("jobs")
            async with jobs.worker(print, concurrency=3) as worker:

                async def is_reported() -> bool:
                    return [each.pid for each in await other.store.worker_reports.all()] == [os.getpid()]

                await eventually(is_reported)
                [process] = await other.store.worker_reports.all()
                assert [(each.id, each.slots) for each in process.workers] == [(worker.worker_id, 3)]
        assert await other.store.worker_reports.all() == []
        assert await other.uninstall() == []


async def test_a_store_of_an_earlier_version_gets_the_stream_with_the_first_report(broker: holdfast.Broker) -> None:
    await broker.queue("jobs")
    store = broker.store
    await store.register.drop_stream(f"{store.prefix}=workers")
    assert await store.worker_reports.all() == []
    await store.worker_reports.put(replace(SAID, workers=[]))
    await store.worker_reports.put(SAID)
    assert await store.worker_reports.all() == [SAID]
    config = await store.register.config(f"{store.prefix}=workers")
    assert config["max_age"] == 86_400 * 10**9
    assert config["max_msgs_per_subject"] == 1


async def test_a_stream_that_forgets_reports_is_no_danger_and_is_scrubbed(
    broker: holdfast.Broker, server: Server
) -> None:
    await broker.queue("jobs")
    await broker.store.worker_reports.put(SAID)
    assert next(each for each in await broker.store.check() if each.name == "streams").state == "ok"
    read = [each async for each in broker.store.scrub(None, quarantine=False)]
    assert [(each.queue, each.problem) for each in read if "._.worker." in each.key] == [("", "")]
    async with holdfast.connect(server.url, prefix=broker.store.prefix) as again:
        assert await again.store.worker_reports.all() == [SAID]
