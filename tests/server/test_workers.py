"""Workers over HTTP: who runs, who is silent, and who may see it."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

import holdfast
from holdfast.errors import ConfigError
from holdfast.stores.log.store import LogStore
from holdfast.stores.worker_reports import ProcessReport, RunningMessage, WorkerReport
from tests import ROOT
from tests.server.fixtures import Http
from tests.servers.serving import ServerThread

ALIVE = ProcessReport(
    id="a" * 32, host="web-1", pid=11, version="1", started_at=0.0, at=0.0,
    workers=[
        WorkerReport(id="w1", queues=["emails"], slots=4, busy=1, running=[RunningMessage("emails", "id", 1.0)]),
        WorkerReport(id="w2", queues=["payments"], slots=2, busy=0),
    ],
)  # fmt: skip


async def report(url: str) -> None:
    async with holdfast.connect(url) as broker:
        reports = broker.store.worker_reports
        assert reports is not None
        now = await broker.store.clock()
        await reports.put(replace(ALIVE, started_at=now - 90, at=now))
        await reports.put(replace(ALIVE, id="b" * 32, pid=12, started_at=now - 900, at=now - 600))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"file://{tmp_path_factory.mktemp('workers')}/store"
    asyncio.run(report(url))
    return url


def test_those_that_report_are_alive_and_others_silent(url: str) -> None:
    with ServerThread(url) as server:
        body = Http(server.address).get("/api/v1/workers").body
        page = Http(server.address).get("/workers").body.decode()
    assert body["reported"] is True
    assert [(each["pid"], [one["id"] for one in each["workers"]]) for each in body["alive"]] == [(11, ["w1", "w2"])]
    assert [each["pid"] for each in body["silent"]] == [12]
    assert body["alive"][0]["workers"][0]["running"] == [{"queue": "emails", "id": "id", "seconds": 1.0}]
    assert "2 workers alive, 2 silent" in page
    assert "/queues/emails/messages/id" in page


def test_a_token_sees_the_workers_of_its_queues(url: str) -> None:
    with ServerThread(url, tokens=("ops:read:emails*:" + "t" * 20,)) as server:
        assert Http(server.address).get("/api/v1/workers").status == 401
        http = Http(server.address, authorization=f"Bearer {'t' * 20}")
        body = http.get("/api/v1/workers").body
        page = http.get("/workers").body.decode()
    assert [[one["id"] for one in each["workers"]] for each in body["alive"]] == [["w1"]]
    assert "w1" in page
    assert "w2" not in page


def test_where_nothing_is_kept_nobody_says_that_there_is_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    with ServerThread("memory://") as server:
        http = Http(server.address)
        assert http.get("/api/v1/workers").body == {"reported": True, "alive": [], "silent": []}
        assert "0 workers alive" in http.get("/workers").body.decode()
        monkeypatch.setattr(LogStore, "worker_reports", None)  # a store that keeps no reports
        assert http.get("/api/v1/workers").body == {"reported": False, "alive": [], "silent": []}
        assert "Workers are not reported here" in http.get("/workers").body.decode()


def test_a_client_reports_through_the_server(tmp_path: Path) -> None:
    async def go(address: str) -> None:
        async with holdfast.connect(address) as broker:
            reports = broker.store.worker_reports
            assert reports is not None
            now = await broker.store.clock()
            await reports.put(replace(ALIVE, started_at=now, at=now))
            assert [each.pid for each in await reports.all()] == [11]
            with pytest.raises(ConfigError):
                await reports.put(replace(ALIVE, id="../queues/emails"))

    with ServerThread(f"file://{tmp_path}/store") as server:
        asyncio.run(go(server.address))
        assert [each["pid"] for each in Http(server.address).get("/api/v1/workers").body["alive"]] == [11]


WORKER = """
import asyncio, sys
import holdfast

async def main():
    async with holdfast.connect(sys.argv[1]) as broker:
        jobs = await broker.queue("jobs")
        async with jobs.worker(lambda value: value, concurrency=2):
            print("started", flush=True)
            await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


@contextmanager
def working(url: str) -> Iterator[int]:
    """A process with a worker, which opens the store itself; its id."""
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", WORKER, url]
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "started\n"
            yield process.pid
        finally:
            process.stdin.close()
            process.wait(30)


def of_page(http: Http) -> tuple[bool, bool, bool, bool]:
    """Whether pages have rates in and out, a wait and a run."""
    row = bytes(http.get("/queues").body).decode().split('href="/queues/jobs"')[1].split("</tr>")[0]
    _, came, done, _ = re.findall(r'<td class="n mid">(.*?)</td>', row)  # between running and done in all
    page = bytes(http.get("/queues/jobs").body).decode()
    waits, runs = ("Seconds until the first attempt: p50 " in page, "Seconds from claim to outcome: p50 " in page)
    return came not in ("–", "0.0"), done not in ("–", "0.0"), waits, runs


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["file", "postgres"])
def test_what_workers_with_the_store_open_do_appears_within_15_seconds(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"file://{tmp_path}/store" if kind == "file" else request.getfixturevalue("postgres").url
    done = ({0, 1}, 50, "completed", (True, True, True, True))
    with ServerThread(url) as server, working(url) as one, working(url) as two:
        http = Http(server.address)
        watched = server.serving.application.served[""].history
        assert watched is not None
        begun = time.monotonic() + 30
        while not any(watched.span("jobs", 60)) and time.monotonic() < begun:  # a rate needs a look before the work
            time.sleep(0.1)
        deadline = time.monotonic() + 15
        ids = http.post("/api/v1/queues/jobs/messages", {"messages": [{"value": n} for n in range(50)]}).body["ids"]
        seen: object = None
        while time.monotonic() < deadline and seen != done:
            pids = {each["pid"] for each in http.get("/api/v1/workers").body["alive"]}
            completed = http.get("/api/v1/stats").body["jobs"]["completed"]
            status = http.get(f"/api/v1/queues/jobs/messages/{ids[-1]}").body["status"]
            seen = {[one, two].index(pid) for pid in pids}, completed, status, of_page(http)
            time.sleep(0.2)
        assert seen == done
