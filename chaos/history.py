"""The append-only history of a fault run: one file per process, one event per line, safe against SIGKILL.

Times are seconds of a clock that every process of the machine shares (CLOCK_MONOTONIC); `begun` is taken before a call
and `at` after it, so that two events are ordered only when one call had ended before the other began.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec

from .disk.small import write_anyway


class _Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Kept as an array: histories are long."""


class Attempted(_Event, frozen=True, tag="attempted"):
    """A producer is about to enqueue; nothing of the store is known yet."""

    at: float
    key: str  # "<producer>/<number>"; every key is attempted once
    check: int  # of the payload
    priority: int


class Acknowledged(_Event, frozen=True, tag="acknowledged"):
    at: float
    key: str
    id: str


class Claimed(_Event, frozen=True, tag="claimed"):
    """A token was issued to this process."""

    begun: float
    at: float
    id: str
    token: str
    attempt: int
    max_attempts: int
    lease: float
    recovered: bool
    key: str
    check: int


class Started(_Event, frozen=True, tag="started"):
    """A handler began to run."""

    at: float
    id: str
    attempt: int


class Extended(_Event, frozen=True, tag="extended"):
    begun: float
    at: float
    id: str
    token: str
    seconds: float
    accepted: bool


class Asked(_Event, frozen=True, tag="asked"):
    """A release or retry is about to be asked for: whoever dies before the answer may have been heard."""

    at: float
    id: str
    token: str
    action: str


class Settled(_Event, frozen=True, tag="settled"):
    """What the store answered to a settlement; `raised` when the call ended with an exception instead."""

    begun: float
    at: float
    id: str
    token: str
    action: str
    answer: str


class Buried(_Event, frozen=True, tag="buried"):
    """A claim found it with its lease over and no attempt left."""

    at: float
    id: str
    attempts: int


class Refused(_Event, frozen=True, tag="refused"):
    """A call of the store ended with an exception."""

    begun: float
    at: float
    call: str
    error: str  # its type
    text: str
    keys: list[str]  # of the messages of an append


class Killed(_Event, frozen=True, tag="killed"):
    """The conductor sent a signal to a process."""

    at: float
    process: str
    signal: str


class Found(_Event, frozen=True, tag="found"):
    """What the store held of a message after the drain."""

    id: str
    key: str
    check: int
    status: str
    attempts: int


Event: TypeAlias = (
    Attempted | Acknowledged | Claimed | Started | Extended | Asked | Settled | Buried | Refused | Killed | Found
)
_decoder = msgspec.json.Decoder(Event)
_encoder = msgspec.json.Encoder()
RAISED = "raised"


class History:
    """Writes the events of one process; in memory when there is no path."""

    def __init__(self, path: Path | None = None) -> None:
        self.events: list[Event] = []
        self._file = None if path is None else os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, *events: Event) -> None:
        """All of a call in one write: what the kernel has taken survives the process."""
        if self._file is None:
            self.events.extend(events)
        elif events:
            write_anyway(self._file, _encoder.encode_lines(events))

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def read(path: Path) -> Iterator[Event]:
    """The events of one file; a last line that a kill has torn is left out."""
    with path.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                yield _decoder.decode(line)


def read_folder(folder: Path) -> dict[str, list[Event]]:
    """Every history of a run, by the name of its process."""
    return {path.stem: list(read(path)) for path in sorted(folder.glob("*.jsonl"))}


def flatten(histories: dict[str, list[Event]]) -> Iterable[tuple[str, Event]]:
    return ((process, event) for process, events in histories.items() for event in events)
