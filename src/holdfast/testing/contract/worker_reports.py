"""Reports of processes with workers, where a store keeps them."""

from __future__ import annotations

from uuid import uuid4

import pytest
from msgspec.structs import replace

from ...stores.worker_reports import ProcessReport, RunningMessage, WorkerReport
from ...stores.worker_reports import WorkerReports as Stored
from .base import StoreContract


class WorkerReports(StoreContract):
    """What `Store.worker_reports` promises."""

    @property
    def reports(self) -> Stored:
        found = self.store.worker_reports
        if found is None:
            pytest.skip("this store keeps no reports of workers")
        return found

    async def said(self, pid: int = 1) -> ProcessReport:
        running = [RunningMessage("jobs", "an id", 2.5)]
        worker = WorkerReport(id="mailer-1", queues=["jobs", "jobs/dead"], slots=10, busy=1, running=running)
        now = await self.clock()
        return ProcessReport(
            id=uuid4().hex, host="höst", pid=pid, version="0.1", started_at=now - 60, at=now, workers=[worker]
        )

    async def test_a_process_is_kept_as_it_reported_itself_last(self) -> None:
        first, other = await self.said(1), await self.said(2)
        for each in (first, other, first):
            await self.reports.put(each)
        assert sorted(await self.reports.all(), key=lambda each: each.pid) == [first, other]
        idle = replace(first, at=first.at + 60, workers=[replace(first.workers[0], busy=0, running=[])])
        await self.reports.put(idle)
        assert sorted(await self.reports.all(), key=lambda each: each.pid) == [idle, other]

    async def test_a_process_without_workers_is_forgotten(self) -> None:
        first, other = await self.said(1), await self.said(2)
        await self.reports.put(first)
        await self.reports.put(other)
        for _ in range(2):
            await self.reports.put(replace(first, workers=[]))
            assert await self.reports.all() == [other]

    async def test_reports_are_no_queues_and_go_with_the_store(self) -> None:
        await self.reports.put(await self.said())
        assert await self.broker.queues() == []
        assert await self.broker.uninstall() == []
