"""Processes with workers in PostgreSQL: rows that belong to no queue."""

from __future__ import annotations

import os

import pytest

import holdfast
from holdfast import reporter
from holdfast.stores.worker_reports import ProcessReport, WorkerReport
from holdfast.testing.contract.base import eventually

from .fixtures import Database

SAID = ProcessReport(
    id="a" * 32, host="h", pid=1, version="1", started_at=1.0, at=2.0,
    workers=[WorkerReport(id="w", queues=["jobs"], slots=1, busy=0)],
)  # fmt: skip


async def test_a_worker_reports_itself_and_takes_it_back(postgres: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporter, "_NEWS_S", 0.05)
    async with holdfast.connect(postgres.url) as other:
        async with holdfast.connect(postgres.url) as broker:
            jobs = await broker.queue("jobs")
            async with jobs.worker(print, concurrency=3) as worker:

                async def is_reported() -> bool:
                    return [each.pid for each in await other.store.worker_reports.all()] == [os.getpid()]

                await eventually(is_reported)
                [process] = await other.store.worker_reports.all()
                assert [(each.id, each.slots) for each in process.workers] == [(worker.worker_id, 3)]
        assert await other.store.worker_reports.all() == []


async def test_a_report_is_no_consumer_of_a_queue_and_stays_when_queues_go(postgres: Database) -> None:
    async with holdfast.connect(postgres.url) as broker:
        await broker.queue("jobs")
        await broker.store.worker_reports.put(SAID)
        assert await broker.store.batches.consumers("jobs") == []
        await broker.delete_queue("jobs")
        assert await broker.store.worker_reports.all() == [SAID]
        assert postgres.value("SELECT count(*) FROM holdfast.consumers") == 1


async def test_a_report_of_another_version_is_left_out(postgres: Database) -> None:
    postgres.rows("INSERT INTO holdfast.consumers (queue, name, state) VALUES (0, 'x', '{\"said\": \"otherwise\"}')")
    async with holdfast.connect(postgres.url) as broker:
        await broker.store.worker_reports.put(SAID)
        assert await broker.store.worker_reports.all() == [SAID]


async def test_a_database_without_holdfast_has_no_reports(postgres: Database) -> None:
    async with holdfast.connect(postgres.url, schema="nothing_here") as broker:
        assert await broker.store.worker_reports.all() == []
