"""A process with workers says so in its store."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import reporter
from holdfast.broker import Broker
from holdfast.errors import Unavailable
from holdfast.stores.worker_reports import ProcessReport
from holdfast.testing.contract.base import eventually

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporter, "_NEWS_S", 0.05)


async def told(broker: Broker) -> list[ProcessReport]:
    assert broker.store.worker_reports is not None
    return await broker.store.worker_reports.all()


async def test_workers_of_a_process_are_reported_while_they_run(tmp_path: Path) -> None:
    free = asyncio.Event()
    async with holdfast.connect(tmp_path / "store") as broker, holdfast.connect(tmp_path / "store") as other:
        jobs, mails = await broker.queue("jobs"), await broker.queue("mails")
        id = await jobs.enqueue(1)
        async with jobs.worker(lambda _: free.wait(), concurrency=3) as one, mails.worker(print) as two:
            await eventually(lambda: one.busy == 1)

            async def all_reported() -> bool:
                return [len(each.workers) for each in await told(other)] == [2]

            await eventually(all_reported)
            [process] = await told(other)
            assert (process.host, process.pid) == (socket.gethostname(), os.getpid())
            first, second = sorted(process.workers, key=lambda each: each.queues)
            assert (first.id, first.queues, first.slots, first.busy) == (one.worker_id, ["jobs"], 3, 1)
            assert [(each.queue, each.id) for each in first.running] == [("jobs", id)]
            assert first.running[0].seconds < 30
            assert (second.id, second.queues, second.busy, second.running) == (two.worker_id, ["mails"], 0, [])
            free.set()

        async def nothing_reported() -> bool:
            return await told(other) == []

        await eventually(nothing_reported)


async def test_a_broker_that_closes_takes_its_report_back(tmp_path: Path) -> None:
    async with holdfast.connect(tmp_path / "store") as other:
        broker = await holdfast.connect(tmp_path / "store")
        await (await broker.queue("jobs")).worker(print).start()

        async def reported() -> bool:
            return len(await told(other)) == 1

        await eventually(reported)
        await broker.close()
        assert await told(other) == []


async def test_what_killed_processes_said_is_removed_after_a_day(tmp_path: Path) -> None:
    async with holdfast.connect(tmp_path / "store") as broker:
        assert broker.store.worker_reports is not None
        now = await broker.store.clock()
        async with (await broker.queue("jobs")).worker(print) as worker:
            said = worker._report()
        assert said is not None
        for pid, at in ((1, now - 86460), (2, now - 3600)):
            await broker.store.worker_reports.put(
                ProcessReport(id=f"{pid:032x}", host="h", pid=pid, version="", started_at=at, at=at, workers=[said])
            )
        async with (await broker.queue("jobs")).worker(print):

            async def only_the_old_one_is_gone() -> bool:
                return sorted(each.pid for each in await told(broker)) == sorted({2, os.getpid()})

            await eventually(only_the_old_one_is_gone)


async def test_nothing_is_reported_when_that_is_not_wanted(tmp_path: Path) -> None:
    async with holdfast.connect(tmp_path / "store", report_workers=False) as broker:
        worker = (await broker.queue("jobs")).worker(print)
        await worker.start()
        await asyncio.sleep(0.5)
        assert await told(broker) == []


async def test_a_store_that_refuses_a_report_does_not_disturb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    tried = asyncio.Event()
    async with holdfast.connect(tmp_path / "store") as broker:

        async def refuse(report: ProcessReport) -> None:
            tried.set()
            raise Unavailable("away")

        monkeypatch.setattr(broker.store.worker_reports, "put", refuse)
        queue = await broker.queue("jobs")
        async with queue.worker(done.append):
            await asyncio.wait_for(tried.wait(), 10)
            await queue.enqueue(1)
            await eventually(lambda: done == [1])


async def test_a_process_writes_once_however_many_workers_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporter, "_NEWS_S", 1.0)
    async with holdfast.connect(tmp_path / "store") as broker:
        reports = broker.store.worker_reports
        assert reports is not None
        puts: list[ProcessReport] = []
        put = reports.put

        async def count(report: ProcessReport) -> None:
            puts.append(report)
            await put(report)

        monkeypatch.setattr(reports, "put", count)
        workers = [(await broker.queue(f"q{number}")).worker(print, concurrency=1) for number in range(20)]
        for worker in workers:
            await worker.start()
        await eventually(lambda: bool(puts))
        began = time.monotonic()
        while time.monotonic() - began < 1.5:
            await asyncio.sleep(0.1)
        assert [len(each.workers) for each in puts] == [20]
