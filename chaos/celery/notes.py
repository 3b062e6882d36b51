"""What each child of a worker notes of its tasks, and what follows from it: who was busy, what a kill has hit."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

_ACK_S = 5.0  # before its begin a task is held, after its end not yet acknowledged: a kill of the main hits it too


class Note(msgspec.Struct, frozen=True, array_like=True):
    """One line of a child."""

    kind: str  # start or end
    key: str
    at: float  # monotonic, the same for all processes of the machine
    pid: int
    main: int


class Noting:
    """In a child: one write for each note, so that a kill tears none."""

    def __init__(self, folder: Path) -> None:
        self._pid, self._main = os.getpid(), os.getppid()
        path = folder / f"{time.time_ns()}-{self._pid}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, kind: str, key: str) -> None:
        line = msgspec.json.encode(Note(kind, key, time.monotonic(), self._pid, self._main))
        os.write(self._file, line + b"\n")


@dataclass
class Execution:
    """Of one task, in one process."""

    key: str
    pid: int
    main: int
    begun: float
    ended: float | None = None


@dataclass(frozen=True)
class Kill:
    pid: int
    at: float
    is_main: bool

    def has_hit(self, execution: Execution) -> bool:
        """It was under way in the process that was killed, or in a child of it."""
        ended = float("inf") if execution.ended is None else execution.ended
        return self._concerns(execution) and execution.begun <= self.at < ended

    def excuses(self, execution: Execution) -> bool:
        """It may run again: what the main process had not acknowledged, even if its orphan went on."""
        ended = float("inf") if execution.ended is None else execution.ended
        return self._concerns(execution) and execution.begun - _ACK_S <= self.at < ended + _ACK_S

    def _concerns(self, execution: Execution) -> bool:
        return (execution.main if self.is_main else execution.pid) == self.pid


@dataclass
class Notes:
    """All children's, read on as they grow."""

    folder: Path
    executions: dict[str, list[Execution]] = field(default_factory=lambda: defaultdict(list))  # by key
    ended: int = 0
    _running: dict[int, Execution] = field(default_factory=dict)  # by process: it does one thing at a time
    _read: dict[Path, int] = field(default_factory=dict)

    def look(self) -> None:
        for path in sorted(self.folder.iterdir()):
            for note in self._new(path):
                if note.kind == "start":
                    execution = Execution(note.key, note.pid, note.main, note.at)
                    self.executions[note.key].append(execution)
                    self._running[note.pid] = execution
                elif note.pid in self._running:
                    self._running.pop(note.pid).ended = note.at
                    self.ended += 1

    def busy(self, main: int) -> list[int]:
        """Children of this main process that run a task."""
        return [pid for pid, execution in self._running.items() if execution.main == main]

    def gone(self, kill: Kill) -> None:
        """Who was killed runs nothing."""
        for pid in [pid for pid, each in self._running.items() if kill._concerns(each)]:
            if not kill.is_main:  # an orphan goes on until its task ends
                del self._running[pid]

    def hits(self, kills: list[Kill]) -> int:
        """Kills in whose process a task was under way."""
        all = [each for found in self.executions.values() for each in found]
        return sum(any(kill.has_hit(each) for each in all) for kill in kills)

    def repeated(self) -> dict[str, list[Execution]]:
        return {key: found for key, found in self.executions.items() if len(found) > 1}

    def _new(self, path: Path) -> Iterator[Note]:
        with path.open("rb") as file:
            file.seek(self._read.get(path, 0))
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read[path] = self._read.get(path, 0) + len(whole)
        for line in whole.splitlines():
            yield msgspec.json.decode(line, type=Note)
