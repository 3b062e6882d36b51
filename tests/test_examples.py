"""Every example runs as a program, on memory and on a folder, and says what it should."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

EXAMPLES = ROOT / "examples"

EXPECTED = {
    "first_queue.py": [
        "sending 'Urgent' to grace@example.com",
        "sending 'Hello' to ada@example.com",
        "2 completed, 0 waiting",
    ],
    "first_queue_sync.py": [
        "sending 'Urgent' to grace@example.com",
        "sending 'Hello' to ada@example.com",
        "2 completed, 0 waiting",
    ],
    "typed_jobs.py": ["resizing cat.png to 640", "result: {'file': 'small-cat.png'}", "the other one is dead"],
    "workers_with_retries.py": [
        "completed after 2 attempts: charged 20",
        "dead after 1 attempts: an order needs an amount",
        "dead after 3 attempts: ConnectionError: the gateway does not answer",
        "replayed 1 dead letter",
        "2 completed, 1 dead",
    ],
    "monitoring.py": [
        "before: ['backlog: 100 waiting']",
        "after: ['dead letters: 2']",
        "events: {'message.completed': 98, 'message.dead': 2, 'message.enqueued': 100}",
    ],
    "web_lifespan.py": ["welcome, ada@example.com", "the message is completed", "stopped"],
    "celery_drop_in.py": ["charging 20", "20", "3 payments, 6 in all"],
    "graceful_shutdown.py": ["started 1", "finished 1", "stopped: 1 completed, 2 waiting, 0 held"],
}
STORY = {"tasks.py", "producer.py"}  # run together, by test_cli_worker.py


def run(name: str, *arguments: str, cwd: Path, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("place", ["memory", "folder"])
@pytest.mark.parametrize("name", EXPECTED)
def test_example(name: str, place: str, tmp_path: Path) -> None:
    url = "memory://" if place == "memory" else (tmp_path / "data").as_uri()
    lines = run(name, url, cwd=tmp_path).splitlines()
    found = [line for line in lines if line in EXPECTED[name]]
    assert found == EXPECTED[name], lines


@pytest.mark.parametrize("framework", ["fastapi", "starlette"])
def test_the_lifespan_is_the_same_in_other_frameworks(framework: str, tmp_path: Path) -> None:
    pytest.importorskip(framework)
    lines = run("web_lifespan.py", (tmp_path / "data").as_uri(), framework, cwd=tmp_path).splitlines()
    assert [line for line in lines if line in EXPECTED["web_lifespan.py"]] == EXPECTED["web_lifespan.py"]


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(EXPECTED) | STORY


def test_every_example_says_how_to_run_it() -> None:
    for path in EXAMPLES.glob("*.py"):
        assert re.search(rf"\b({path.name}|{path.stem}:app)\b", path.read_text().splitlines()[0]), path
