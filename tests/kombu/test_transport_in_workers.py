"""Workers of Celery on a folder, as processes of their own: what they promise when something is killed."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import chord
from celery.exceptions import TaskRevokedError

from tests import ROOT

pytestmark = pytest.mark.timeout(300)
PATIENCE_S = 120.0


class Site:
    """An app, and how to start workers of it."""

    def __init__(self, url: str, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.notes = notes
        notes.touch()
        monkeypatch.setenv("STORE", url)
        monkeypatch.setenv("NOTES", str(notes))
        sys.modules.pop("tests.kombu.celery_app", None)
        self.tasks: Any = importlib.import_module("tests.kombu.celery_app")
        self._workers: list[subprocess.Popen[bytes]] = []

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "celery", "-A", "tests.kombu.celery_app", "worker", "-l", "WARNING"]
        worker = subprocess.Popen([*command, *options], cwd=ROOT, start_new_session=True)
        self._workers.append(worker)
        return worker

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        """The main process and its children."""
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(10)

    def close(self) -> None:
        for worker in self._workers:
            if worker.poll() is None:
                worker.terminate()
        for worker in self._workers:
            try:
                worker.wait(15)
            except subprocess.TimeoutExpired:
                self.kill(worker)
        self.tasks.app.close()


@pytest.fixture
def site(file_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    site = Site(file_url, tmp_path / "notes", monkeypatch)
    yield site
    site.close()


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_tasks_retries_chains_and_chords_run_in_every_pool(site: Site, pool: str) -> None:
    site.start("--pool", pool, "--concurrency", "2")
    tasks = site.tasks
    assert tasks.add.delay(1, 2).get(timeout=PATIENCE_S) == 3
    assert (tasks.add.s(1, 1) | tasks.add.s(2)).delay().get(timeout=PATIENCE_S) == 4
    assert tasks.flaky.delay().get(timeout=PATIENCE_S) == 2
    assert chord(tasks.add.s(each, each) for each in range(10))(tasks.total.s()).get(timeout=PATIENCE_S) == 90
    assert tasks.add.apply_async((2, 3), countdown=0.5).get(timeout=PATIENCE_S) == 5
    with pytest.raises(TaskRevokedError, match="expired"):  # its waiting caller is told
        tasks.add.apply_async((2, 3), countdown=1.0, expires=0.1).get(timeout=PATIENCE_S)
    [answer] = tasks.app.control.inspect(timeout=20, limit=1).ping().values()
    assert answer == {"ok": "pong"}


def test_a_task_longer_than_its_lease_runs_once_and_one_of_a_killed_child_again(site: Site) -> None:
    site.start("--concurrency", "2")
    tasks = site.tasks
    long = tasks.slow.delay("long", 8.0)
    killed = tasks.fatal_once.delay("killed")
    assert killed.get(timeout=PATIENCE_S) == "killed"
    assert long.get(timeout=PATIENCE_S) == "long"
    assert site.notes.read_text().split("\n").count("long began") == 1


def test_what_a_killed_worker_had_is_done_by_another(site: Site) -> None:
    first = site.start("--concurrency", "2", "-n", "first@%h")
    tasks = site.tasks
    results = [tasks.slow.delay(f"task {number}", 1.0) for number in range(6)]
    while "began" not in site.notes.read_text():
        assert first.poll() is None
    site.kill(first)
    site.start("--concurrency", "2", "-n", "second@%h")
    assert [result.get(timeout=PATIENCE_S) for result in results] == [f"task {number}" for number in range(6)]


BY_PATH = """
import sys
from celery import Celery
from celery.contrib.testing.worker import start_worker

url = sys.argv[1]
app = Celery("shop", broker_url=url, result_backend=f"holdfast.kombu.Backend+{url}")
app.conf.update(broker_transport="holdfast.kombu:Transport", broker_transport_options={"lease": 5})

@app.task
def add(x, y):
    return x + y

assert "holdfast" not in sys.modules
with start_worker(app, pool="solo", perform_ping_check=False, loglevel="ERROR"):
    print(add.delay(1, 2).get(timeout=60), app.connection().transport.lease)
"""


def test_without_the_import_an_app_names_the_classes(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BY_PATH, f"file://{tmp_path / 'store'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["3", "5.0"], done.stderr
