"""The example project: its worker is a process of its own, and so is who enqueues."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import holdfast
from tests import ROOT

pytest.importorskip("django", reason="the extra django is not installed")
PROJECT = ROOT / "examples" / "django_shop"
ENQUEUE = """
import time
from shop_tasks import charge, send

results = [charge.enqueue(20), send.enqueue("ada"), charge.enqueue(-1)]
deadline = time.monotonic() + 100
while not all(result.is_finished for result in results):
    assert time.monotonic() < deadline
    time.sleep(0.05)
    for result in results:
        result.refresh()
print([result.return_value for result in results[:2]], results[2].status.value)
"""


@pytest.mark.timeout(240)
def test_the_example_project_runs(tmp_path: Path) -> None:
    place = {"SHOP_STORE": f"file://{tmp_path / 'jobs'}", "SHOP_DB": str(tmp_path / "shop.db")}
    env, manage = {**os.environ, **place}, [sys.executable, "manage.py"]
    worker = subprocess.Popen([*manage, "holdfast_worker", "--concurrency", "2"], cwd=PROJECT, env=env)
    try:
        done = subprocess.run(
            [*manage, "shell", "-c", ENQUEUE],
            cwd=PROJECT, env=env, capture_output=True, text=True, timeout=150, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "['charged 20', 'sent to ada'] FAILED" in done.stdout
    finally:
        worker.terminate()
        assert worker.wait(40) == 0


@pytest.mark.timeout(180)
def test_a_worker_starts_again_when_code_changes(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(PROJECT, project, ignore=shutil.ignore_patterns("__pycache__"))
    place = {"SHOP_STORE": f"file://{tmp_path / 'jobs'}", "SHOP_DB": str(tmp_path / "shop.db")}
    env, command = {**os.environ, **place}, [sys.executable, "-u", "manage.py", "holdfast_worker", "--reload"]
    worker = subprocess.Popen(command, cwd=project, env=env, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    starts: list[str] = []
    reading = threading.Thread(target=lambda: starts.extend(line for line in worker.stdout if "working on" in line))
    reading.start()
    try:
        assert charged(project, env) == "charged 20"
        code = project / "shop_tasks.py"
        code.write_text(code.read_text().replace("charged", "billed"))
        deadline = time.monotonic() + 60
        while charged(project, env) != "billed 20":  # it looks every second, at what it has loaded by then
            assert time.monotonic() < deadline, "it did not start again"
            os.utime(code, (time.time(), time.time()))
    finally:
        worker.terminate()
        worker.wait(40)
        reading.join(40)
    assert len(starts) >= 2


def charged(project: Path, env: dict[str, str]) -> str:
    """What the worker made of a task."""
    ask = "from shop_tasks import charge; print(charge.enqueue(20).id)"
    shell = [sys.executable, "manage.py", "shell", "--verbosity", "0", "-c", ask]
    asked = subprocess.run(shell, cwd=project, env=env, capture_output=True, text=True, check=True)
    with holdfast.sync.connect(env["SHOP_STORE"]) as broker:
        return str(broker.queue("default").wait(asked.stdout.split()[-1], timeout=60).result)


@pytest.mark.timeout(180)
def test_bad_words_are_refused(tmp_path: Path) -> None:
    env = {**os.environ, "SHOP_STORE": f"file://{tmp_path / 'jobs'}"}
    command = [sys.executable, "manage.py", "holdfast_worker", "--backend", "nobody"]
    done = subprocess.run(command, cwd=PROJECT, env=env, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode != 0
    assert "nobody" in done.stderr
