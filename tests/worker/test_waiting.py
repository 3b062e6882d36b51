"""`holdfast worker run` and `serve` while the store is not there: one line, and it waits or ends; never a traceback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import holdfast
from holdfast.worker import waiting
from tests.servers.postgres import Server

HOLDFAST = [sys.executable, "-c", "from holdfast.cli import main; main()"]
TASKS = """
import holdfast
app = holdfast.App()

@app.handler("jobs")
async def work(value):
    return value
"""
A_WHILE_S = 3.0  # in which a command that tells too much has told it


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tasks.py").write_text(TASKS)
    return tmp_path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


WORK = ("worker", "run", "tasks:app")
SERVE = ("serve", "--port", "0")


class Command:
    """`holdfast worker run tasks:app` or another one, and what it said."""

    def __init__(self, folder: Path, url: str, *arguments: str, command: tuple[str, ...] = WORK) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [*HOLDFAST, *command, *arguments],
            cwd=folder,
            env={**os.environ, "HOLDFAST_URL": url},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip())

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.ended()

    def ended(self, seconds: float = 30) -> int:
        code = self.process.wait(seconds)
        self._reader.join(5)
        return code

    def stopped(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.ended()


def until_said(command: Command, words: str, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not any(words in line for line in command.lines):
        assert time.monotonic() < deadline, command.lines
        assert command.process.poll() is None, command.lines
        time.sleep(0.05)


COMMANDS = pytest.mark.parametrize(
    "words", [(*WORK, "--processes", "1"), (*WORK, "--processes", "2"), SERVE], ids=["worker", "workers", "server"]
)


@COMMANDS
def test_no_wait_is_one_line_and_an_exit(folder: Path, words: tuple[str, ...]) -> None:
    url = f"postgresql://me:canary@127.0.0.1:{free_port()}/app"
    with Command(folder, url, "--no-wait", command=words) as command:
        assert command.ended() == 1
    [line] = command.lines
    assert "connection refused" in line
    assert "canary" not in line


@COMMANDS
def test_waiting_is_one_line_a_minute_and_ends_with_a_signal(folder: Path, words: tuple[str, ...]) -> None:
    url = f"postgresql://me:canary@127.0.0.1:{free_port()}/app"
    with Command(folder, url, command=words) as command:
        until_said(command, "connection refused")
        time.sleep(A_WHILE_S)  # nothing more must come: there is nothing to wait for
        assert command.stopped() == 0
    [line] = command.lines
    assert "waiting for the store" in line
    assert waiting.LINE_S == 60


@pytest.mark.timeout(120)
def test_work_begins_when_the_server_comes(folder: Path) -> None:
    port = free_port()
    url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
    with Command(folder, url, "--processes", "2") as command:
        until_said(command, "connection refused")
        with Server(port=port, settings={"fsync": "off"}), holdfast.sync.connect(url) as broker:
            queue = broker.queue("jobs")
            record = queue.wait(queue.enqueue("hello"), 60)
            assert record is not None
            assert record.result == "hello"
            assert command.stopped() == 0
    assert not any("Traceback" in line for line in command.lines)


@pytest.mark.timeout(120)
def test_it_serves_when_the_store_comes(folder: Path) -> None:
    port, listening = free_port(), free_port()
    url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
    with Command(folder, url, command=("serve", "--port", str(listening))) as command:
        until_said(command, "connection refused")
        with Server(port=port, settings={"fsync": "off"}):
            until_said(command, "the store is there")
            with sync_when_there(f"http://127.0.0.1:{listening}") as broker:
                assert broker.queue("jobs").enqueue("hello")
            assert command.stopped() == 0
    assert not any("Traceback" in line for line in command.lines)


def sync_when_there(url: str) -> holdfast.sync.Broker:
    """It listens a moment after its store is open."""
    until = time.monotonic() + 30
    while True:
        try:
            return holdfast.sync.connect(url)
        except holdfast.Unavailable:
            assert time.monotonic() < until
            time.sleep(0.1)


def test_what_waiting_cannot_cure_ends_at_once(folder: Path) -> None:
    (folder / "data").write_text("a file, not a folder")
    with Command(folder, (folder / "data").as_uri(), "--processes", "2") as command:
        assert command.ended() == 1
    [line] = command.lines
    assert "is not a folder" in line
