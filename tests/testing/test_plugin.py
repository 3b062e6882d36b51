"""The fixtures as a project of somebody else has them."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

TASKS = """
import holdfast

app = holdfast.sync.App()
sent = []


@app.handler("emails", str)
def send(address):
    sent.append(address)
"""
TESTS = """
import asyncio

import holdfast
import pytest
import tasks


def test_broker(holdfast_broker, holdfast_drain):
    queue = holdfast_broker.queue("numbers", int, max_attempts=1)
    queue.enqueue_many([1, 2, 3])
    queue.enqueue(4, delay=60)
    done = []

    def handle(number):
        if number == 2:
            raise ValueError("two")
        done.append(number)

    assert holdfast_drain(queue, handle) == 3
    assert sorted(done) == [1, 3]
    assert queue.stats().dead == 1


def test_each_has_a_store_of_its_own(holdfast_broker):
    assert holdfast_broker.queues() == []

    async def look():
        async with holdfast.connect(holdfast_broker.url) as broker:
            await broker.queue("made")

    asyncio.run(look())
    assert [info.name for info in holdfast_broker.queues()] == ["made"]


def test_what_does_not_end_is_said(holdfast_broker, holdfast_drain):
    queue = holdfast_broker.queue("numbers", int)
    queue.enqueue(1)
    with pytest.raises(TimeoutError, match="1 are left"):
        holdfast_drain(queue, lambda number: (_ for _ in ()).throw(holdfast.Retry(60)), timeout=0.3)


def test_app(holdfast_app):
    assert holdfast_app is tasks.app
    tasks.send.enqueue("ada")
    assert tasks.sent == ["ada"]
"""


@pytest.mark.timeout(180)
def test_a_project_has_the_fixtures(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nholdfast_app = tasks:app\npythonpath = .\n")
    [entry] = [each for each in entry_points(group="pytest11") if each.name == "holdfast"]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # the others take long to load
    command = [sys.executable, "-m", "pytest", "-q", "-p", entry.value, "-p", "no:cacheprovider", str(tmp_path)]
    command.append(f"--basetemp={tmp_path}/nested")  # a numbered folder more would end that of the run around it
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
