"""The three-terminal story: a producer and two `holdfast worker run` processes share one folder."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import ROOT

EXAMPLES = ROOT / "examples"
HOLDFAST = [sys.executable, "-c", "from holdfast.cli import main; main()"]
GUESTS = 60


class Worker:
    """A `holdfast worker run` process and what it printed."""

    def __init__(self, *arguments: str, cwd: Path, url: str) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [*HOLDFAST, "worker", "run", *arguments],
            cwd=cwd,
            env={**os.environ, "HOLDFAST_URL": url, "HOLDFAST_LOG_LEVEL": "info"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    def greeted(self) -> list[str]:
        """What handlers said. Processes that share a pipe may write on one line where Python does not buffer."""
        return re.findall(r"worker \d+: hello, guest \d+", "\n".join(self.lines))

    def stop(self) -> int:
        """SIGTERM, as a process manager would; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=30)
        self._reader.join(5)
        return code

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def until(holds: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("tasks.py", "producer.py"):
        shutil.copy(EXAMPLES / name, tmp_path)
    return tmp_path


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    running: list[Worker] = []
    yield running
    for worker in running:
        worker.end()


def produce(folder: Path, url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "producer.py", str(GUESTS)],
        cwd=folder,
        env={**os.environ, "HOLDFAST_URL": url},
        capture_output=True,
        text=True,
        timeout=45,
        check=False,
    )


def test_a_producer_and_two_workers_share_one_folder(folder: Path, workers: list[Worker]) -> None:
    url = (folder / "data").as_uri()
    workers += [Worker("tasks:app", cwd=folder, url=url) for _ in range(2)]
    until(lambda: all(any("workers.started" in line for line in worker.lines) for worker in workers))

    done = produce(folder, url)
    assert done.returncode == 0, done.stderr
    assert f"{GUESTS} of {GUESTS} greeted; the last answer: 'hello, guest {GUESTS}'" in done.stdout

    assert [worker.stop() for worker in workers] == [0, 0]
    greeted = [line.partition("hello, ")[2] for worker in workers for line in worker.greeted()]
    assert sorted(greeted) == sorted(f"guest {number}" for number in range(1, GUESTS + 1))
    assert all(worker.greeted() for worker in workers), "both took part"


def test_one_command_runs_several_processes(folder: Path, workers: list[Worker]) -> None:
    url = (folder / "data").as_uri()
    worker = Worker("tasks:app", "--processes", "2", cwd=folder, url=url)
    workers.append(worker)
    assert produce(folder, url).returncode == 0
    assert worker.stop() == 0
    assert len(worker.greeted()) == GUESTS
    assert os.path.exists(folder / "data")
    assert {re.findall(r"worker (\d+)", line)[0] for line in worker.greeted()}


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nothing:app", "nothing"),
        ("tasks:nothing", "nothing"),
        ("tasks", "MODULE:APP"),
        ("tasks:os", "App"),
    ],
)
def test_a_wrong_target_is_a_clear_line(folder: Path, target: str, words: str) -> None:
    done = subprocess.run(
        [*HOLDFAST, "worker", "run", target], cwd=folder, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode in (1, 2)
    assert words.lower() in done.stderr.lower()
    assert "Traceback" not in done.stderr
