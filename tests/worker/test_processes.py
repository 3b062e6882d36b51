"""Worker processes: started, started again when they die, stopped with us."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import holdfast
from holdfast.worker.processes import load_app, run_app, run_processes
from tests.worker_stores import until

TASKS = """
    import asyncio, os, holdfast
    app = holdfast.App()

    @app.handler("jobs", max_attempts=2, lease=1)
    async def work(value):
        if value == "die" and not os.path.exists("died"):
            open("died", "w").close()
            os._exit(7)
        if value == "slow":
            open("slow", "w").close()
            await asyncio.sleep(0.5)
        return os.getpid()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "inline_tasks.py").write_text(textwrap.dedent(TASKS))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("inline_tasks", None)


def run(folder, *, processes, url):
    call = f"run_app('inline_tasks:app', url={url!r}, processes={processes})"
    code = f"from holdfast.worker.processes import run_app; {call}"
    return subprocess.Popen([sys.executable, "-c", code], cwd=folder, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("processes", [1, 2])
async def test_processes_drain_on_sigterm(folder, processes):
    url = (folder / "data").as_uri()
    async with holdfast.connect(url) as broker:
        queue = await broker.queue("jobs")
        ids = await queue.enqueue_many(["slow"] * 4)
        runner = run(folder, processes=processes, url=url)
        try:
            await until(lambda: (folder / "slow").exists(), 30)
            runner.send_signal(signal.SIGTERM)
            _, errors = await asyncio.to_thread(runner.communicate, timeout=30)
        finally:
            runner.kill()
        assert runner.returncode == 0, errors
        states = {await queue.status(id) for id in ids}
        assert states <= {"completed", "pending"}
        assert (await queue.stats()).completed >= 1


async def test_a_process_that_dies_is_started_again(folder):
    url = (folder / "data").as_uri()
    async with holdfast.connect(url) as broker:
        queue = await broker.queue("jobs", lease=1, max_attempts=2)
        id = await queue.enqueue("die")
        runner = run(folder, processes=2, url=url)
        try:
            record = await queue.wait(id, timeout=40)
            assert (record.status, record.attempts) == ("completed", 2)
            runner.send_signal(signal.SIGINT)
            _, errors = await asyncio.to_thread(runner.communicate, timeout=30)
        finally:
            runner.kill()
    assert runner.returncode == 0, errors
    assert "ended with 7" in errors


async def test_children_end_when_their_parent_is_killed(folder):
    url = (folder / "data").as_uri()
    async with holdfast.connect(url) as broker:
        queue = await broker.queue("jobs")
        id = await queue.enqueue("quick")
        runner = run(folder, processes=2, url=url)
        try:
            child = (await queue.wait(id, timeout=40)).result
        finally:
            runner.kill()
            runner.wait()
    await until(lambda: not is_alive(child), 30)


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # an orphan that nobody buries is still a process, of the state Z
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return not state.strip().startswith("Z")


async def test_a_hopeless_order_ends_everything():
    async def start():
        return await asyncio.create_subprocess_exec(sys.executable, "-c", "raise SystemExit(2)")

    before = time.monotonic()
    assert await asyncio.wait_for(run_processes(start, 3, grace=1), 30) == 1
    assert time.monotonic() - before < 20


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("inline_tasks", "MODULE:APP"),
        ("nowhere:app", "no module 'nowhere'"),
        ("inline_tasks:ap", "did you mean 'app'"),
        ("inline_tasks:os", "not a holdfast.App"),
    ],
)
def test_a_wrong_spec_is_a_clear_sentence(folder, spec, words):
    with pytest.raises(holdfast.ConfigError, match=words):
        load_app(spec)


def test_an_app_and_its_sync_face_are_found(folder):
    assert isinstance(load_app("inline_tasks:app"), holdfast.App)


@pytest.mark.parametrize("url", ["memory://jobs", "slatedb+file:///var/lib/jobs", "slatedb+s3://bucket/jobs"])
def test_a_store_of_one_process_refuses_many(folder, url):
    with pytest.raises(holdfast.ConfigError, match="belongs to one process at a time"):
        run_app("inline_tasks:app", url=url, processes=2)
