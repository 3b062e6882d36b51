"""`holdfast top` in a real terminal: what it shows, what keys do, and how it ends."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.cli.top import keys_of
from tests.cli_runner import Cli

SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
START_S = 40.0  # a process starts, on a machine that does other things too


class Terminal:
    """A program in a terminal of 80 columns; the screen is what it drew last."""

    def __init__(self, *arguments: str, rows: int = 24, columns: int = 80) -> None:
        self._ours, theirs = pty.openpty()
        self._theirs = theirs
        self.resize(rows, columns)
        self.before = termios.tcgetattr(theirs)
        env = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *arguments],
            stdin=theirs, stdout=theirs, stderr=theirs, env=env | {"TERM": "xterm-256color"}, start_new_session=True,
        )  # fmt: skip
        self._drawn = ""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def screen(self) -> list[str]:
        """The lines of the last whole picture."""
        pictures = self._drawn.split("\x1b[H")[1:]
        whole = [each for each in pictures if "q quit" in each]
        return [SEQUENCE.sub("", line).rstrip() for line in whole[-1].splitlines()] if whole else []

    def until(self, holds: Callable[[list[str]], bool], seconds: float = START_S) -> list[str]:
        deadline = time.monotonic() + seconds
        while not holds(self.screen()):
            assert time.monotonic() < deadline, "\n".join(self.screen()) or self._drawn
            if select.select([self._ours], [], [], 0.1)[0]:
                self._drawn += os.read(self._ours, 65536).decode()
        return self.screen()

    def end(self) -> int:
        """How it ended; what it still draws is read, so that it can."""
        deadline = time.monotonic() + START_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline
            if select.select([self._ours], [], [], 0.1)[0]:
                self._drawn += os.read(self._ours, 65536).decode()
        return self.process.returncode

    def is_as_before(self) -> bool:
        return termios.tcgetattr(self._theirs) == self.before

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)


def names(screen: list[str]) -> list[str]:
    """The queues, from above."""
    start = next((at for at, line in enumerate(screen) if line.startswith("queue")), len(screen))
    rows = [line.split()[0] for line in screen[start + 1 :] if line]
    return [name for name in rows if name in ("emails", "payments", "reports")]


@pytest.fixture
def url(tmp_path: Path) -> str:
    async def fill(url: str) -> None:
        async with holdfast.connect(url) as broker:
            for name, count in (("emails", 3), ("payments", 12), ("reports", 7)):
                await (await broker.queue(name)).enqueue_many(range(count))
            await (await (await broker.queue("reports")).dequeue()).kill("broken")

    url = f"file://{tmp_path}/store"
    asyncio.run(fill(url))
    return url


@pytest.fixture
def terminal(url: str) -> Iterator[Terminal]:
    made = Terminal("top", "--url", url, "--interval", "0.3")
    yield made
    made.close()


@pytest.mark.timeout(150)
def test_it_shows_queues_sorts_filters_and_ends(terminal: Terminal, url: str) -> None:
    screen = terminal.until(lambda screen: names(screen) == ["emails", "payments", "reports"])
    assert max(map(len, screen)) <= 80
    assert len(screen) <= 24
    payments = next(line for line in screen if line.startswith("payments")).split()
    assert payments[1:6] == ["12", "0", "0", "0", "0"]
    assert "3 queues" in screen[1]

    terminal.press("r")  # the most messages first
    terminal.until(lambda screen: names(screen) == ["payments", "reports", "emails"])
    terminal.press("R")
    terminal.until(lambda screen: names(screen) == ["emails", "reports", "payments"])
    terminal.press("d")
    terminal.until(lambda screen: names(screen)[:1] == ["reports"])
    terminal.press("/PAY\r")
    terminal.until(lambda screen: names(screen) == ["payments"])
    terminal.press("\x1b")
    terminal.until(lambda screen: len(names(screen)) == 3)

    with holdfast.sync.connect(url) as broker:  # what another process does appears by itself, with its rate
        broker.queue("emails").enqueue_many(range(100))

    def has_come(screen: list[str]) -> bool:
        found = [line.split() for line in screen if line.startswith("emails")]
        return bool(found) and found[0][1] == "103" and float(found[0][7]) > 0

    terminal.until(has_come)
    terminal.press("q")
    assert terminal.end() == 0
    assert terminal.is_as_before()
    assert "\x1b[?1049l" in terminal._drawn  # the screen that was there before is back


@pytest.mark.timeout(150)
def test_workers_that_report_are_shown(url: str) -> None:
    async def work() -> None:
        seen = asyncio.Event()
        async with holdfast.connect(url) as broker:
            emails = await broker.queue("emails")
            async with emails.worker(lambda _: seen.wait(), concurrency=2):
                try:
                    await asyncio.to_thread(look)
                finally:
                    seen.set()

    def look() -> None:
        terminal = Terminal("top", "--url", url, "--interval", "0.3", "--sort", "workers", rows=30, columns=100)
        try:
            screen = terminal.until(lambda screen: any(f"pid {os.getpid()}" in line for line in screen))
            assert names(screen)[0] == "emails"
            assert "1 worker on 1 host, 2 of 2 slots busy" in screen[1]
            [line] = [line for line in screen if f"pid {os.getpid()}" in line]
            assert "2/2" in line
            assert line.endswith("emails")
            os.kill(terminal.process.pid, 2)  # as ctrl-c does
            assert terminal.end() == 0
        finally:
            terminal.close()

    asyncio.run(work())


def test_without_a_terminal_it_answers_once(url: str, tmp_path: Path) -> None:
    cli = Cli(tmp_path / "store")
    found = cli.json("top", "--interval", "0.1", "--sort", "pending", "--filter", "e")
    assert [each["name"] for each in found["queues"]] == ["payments", "reports", "emails"]
    assert found["queues"][0]["incoming"] == 0
    assert found["processes"] == []
    lines = cli.out("top", "--interval", "0.1").splitlines()
    assert [line.split()[0] for line in lines] == ["name", "emails", "payments", "reports"]
    assert "one of name, pending" in cli.error("top", "--sort", "size", code=2)


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q", ["q"]),
        (b"/ab\x7f\r", ["/", "a", "b", "backspace", "enter"]),
        (b"\x1b[A\x1bOB", ["up", "down"]),
        (b"\x1b", ["escape"]),
        (b"\x1b[5~j", ["j"]),  # a page up means nothing here
        ("é\x00ü".encode(), ["é", "ü"]),
        (b"\xff\xfeq", ["q"]),
        (b"\x03", ["ctrl-c"]),
    ],
)
def test_keys_are_read_from_what_a_terminal_sends(data: bytes, keys: list[str]) -> None:
    assert keys_of(data) == keys
