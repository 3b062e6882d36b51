"""The conductor's hands: start processes, hurt them, replace them, end them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import msgspec

from . import older
from .child import Spec, history_path
from .history import History, Killed
from .wrong_clocks import environment

CONDUCTOR = "conductor"


@dataclass
class Member:
    """One process; a slot lives on under a new name when its process is replaced."""

    role: str
    slot: str
    spec: Spec
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def at_work(self) -> bool:
        """It has written something: it is up and has been given messages."""
        path = history_path(self.spec.folder, self.spec.name)
        return self.running and path.exists() and path.stat().st_size > 0

    def error(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]


class Fleet:
    """All processes of a run. Leaving the context ends every one that is still there, by its process id."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.members: dict[str, Member] = {}
        self.history = History(history_path(folder, CONDUCTOR))
        self._lives: dict[str, int] = {}

    def start(self, role: str, slot: str, spec: Spec) -> Member:
        """A new life of a slot: `w3` becomes `w3-1`, `w3-2` …"""
        life = self._lives[slot] = self._lives.get(slot, 0) + 1
        spec = msgspec.structs.replace(spec, name=f"{slot}-{life}", seed=spec.seed + life)
        log = self.folder / f"{spec.name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "chaos.child", role, msgspec.json.encode(spec).decode()],
                stdin=subprocess.PIPE, stdout=output, stderr=output, cwd=spec.tree or None,
                env=older.environment(spec.tree) if spec.tree else environment(spec.clock),
            )  # fmt: skip
        self.members[slot] = Member(role, slot, spec, process, log)
        return self.members[slot]

    def of(self, role: str) -> list[Member]:
        return [member for member in self.members.values() if member.role == role]

    def send(self, member: Member, number: signal.Signals) -> None:
        """A signal, noted right after it was sent."""
        member.process.send_signal(number)
        self.history.write(Killed(time.monotonic(), member.spec.name, number.name))

    def kill(self, member: Member) -> None:
        self.send(member, signal.SIGKILL)
        member.process.wait(10)
        self._release(member)

    def replace_dead(self, role: str) -> int:
        """Start a new life where a process has ended; how many."""
        ended = [member for member in self.of(role) if not member.running]
        for member in ended:
            self._release(member)
            self.start(role, member.slot, member.spec)
        return len(ended)

    def stop(self, role: str, *, timeout: float = 30.0) -> list[str]:
        """SIGTERM and wait; the names of those that had to be killed."""
        return self._stop([member for member in self.of(role) if member.running], timeout)

    def retire(self, members: list[Member], *, timeout: float = 30.0) -> list[str]:
        """The same, and nobody takes their place."""
        late = self._stop([member for member in members if member.running], timeout)
        for member in members:
            self._release(member)
            del self.members[member.slot]
        return late

    def _stop(self, members: list[Member], timeout: float) -> list[str]:
        for member in members:
            member.process.send_signal(signal.SIGCONT)
            member.process.terminate()
        late, deadline = [], time.monotonic() + timeout
        for member in members:
            try:
                member.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                late.append(member.spec.name)
                member.process.kill()
                member.process.wait(10)
        return late

    def _release(self, member: Member) -> None:
        if member.process.stdin is not None:
            with contextlib.suppress(OSError):
                member.process.stdin.close()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members.values():
            if member.running:
                member.process.kill()
                member.process.wait(10)
            self._release(member)
        self.history.close()


async def until(condition: Callable[[], bool], *, seconds: float, what: str, pause: float = 0.05) -> None:
    """Wait for something with a deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        await asyncio.sleep(pause)
