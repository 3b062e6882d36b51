"""What a history is made of: a line when a call begins and one when it has ended, by one machine's clock."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

Outcome: TypeAlias = Literal["ok", "lost", "gone", "refused", "unknown", "error"]
SETTLING = ("complete", "fail", "release", "kill")

now = time.monotonic  # one clock for all processes of a machine


class Terms(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a message was sent with."""

    priority: int = 0
    delay: float = 0.0
    max_attempts: int | None = None
    dedup_key: str | None = None
    expires: float | None = None  # seconds after which nobody gets it


class Given(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message as somebody got it."""

    id: str
    token: str
    attempt: int
    max_attempts: int
    priority: int
    uid: str  # its value: the name the sender gave it
    expires: float = float("inf")  # by the store's clock
    origin: str = ""  # the message it is a replay of


class Sighting(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message as a read showed it."""

    id: str
    status: str
    attempts: int
    max_attempts: int
    uid: str
    error: str | None = None
    result: str | None = None
    origin: str = ""


class Asked(msgspec.Struct, omit_defaults=True, tag="asked", kw_only=True):
    """A call begins. `call` names it: `process.thread#number`."""

    call: str
    began: float
    op: str
    queue: str
    uids: list[str] = []
    terms: Terms = Terms()
    id: str = ""
    wanted: list[str] = []  # ids to replay
    token: str = ""
    lease: float = 0.0
    delay: float = 0.0
    seconds: float = 0.0
    keep: bool | None = None
    result: str | None = None
    again: bool = False  # a repeat with the same token
    view: str = ""  # dead or archive
    generation: int = 0  # of a stream's consumer
    epoch: int = 0
    batch: int = 0  # settled up to here, or the one that is read

    @property
    def process(self) -> str:
        return self.call.partition(".")[0]


class Answered(msgspec.Struct, omit_defaults=True, tag="answered", kw_only=True):
    """It has ended."""

    call: str
    ended: float
    outcome: Outcome
    why: str = ""
    ids: list[str] = []
    given: list[Given] = []
    seen: list[Sighting] = []
    number: float | None = None  # how many, an instant, or whether
    generation: int = 0
    epoch: int = 0
    batch: int = 0  # the one that was claimed; 0: none


class Hurt(msgspec.Struct, omit_defaults=True, tag="hurt", kw_only=True):
    """The conductor has killed a process, or stopped it for a while."""

    process: str
    began: float
    ended: float
    killed: bool


Line: TypeAlias = Asked | Answered | Hurt


LEFT = "left the store after this read was planned"  # says a read of a batch whose messages somebody purged


class Call(Asked, tag="call", kw_only=True):
    """Both lines of a call. One that never ended is unknown, and may have had its effect until `ended`."""

    ended: float = float("inf")
    outcome: Outcome = "unknown"
    why: str = ""
    ids: list[str] = []
    given: list[Given] = []
    seen: list[Sighting] = []
    number: float | None = None
    answer: Answered | None = None

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"

    @property
    def may_have_happened(self) -> bool:
        return self.outcome in ("ok", "unknown")


class Log:
    """Append-only; a line is there as soon as `write` has returned, whoever is killed after."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
        self._encode: Callable[[object], bytes] = msgspec.json.Encoder().encode

    def write(self, line: object) -> None:
        os.write(self._file, self._encode(line) + b"\n")


def lines(path: Path) -> Iterator[Line]:
    """A torn last line is left out: whoever wrote it was killed."""
    decode = msgspec.json.Decoder(Line).decode
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield decode(line)


def read(folder: Path) -> tuple[list[Call], list[Hurt]]:
    """Every call and every signal of a run."""
    calls: dict[str, Call] = {}
    hurts: list[Hurt] = []
    for path in sorted(folder.glob("*.calls")):
        for line in lines(path):
            if isinstance(line, Asked):
                calls[line.call] = Call(**{name: getattr(line, name) for name in Asked.__struct_fields__})
            elif isinstance(line, Answered):
                _join(calls[line.call], line)
            else:
                hurts.append(line)
    return list(calls.values()), hurts


def _join(call: Call, line: Answered) -> None:
    call.ended, call.outcome, call.why, call.answer = line.ended, line.outcome, line.why, line
    call.ids, call.given, call.seen, call.number = line.ids, line.given, line.seen, line.number
