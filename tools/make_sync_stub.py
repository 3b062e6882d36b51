"""Write src/holdfast/sync.pyi: the async signatures without the `async`, for the names in `holdfast.sync.NAMES`.

python tools/make_sync_stub.py            writes it
python tools/make_sync_stub.py --check    exit 1 when it is not what it should be
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from holdfast import app, sync, worker

STUB = Path(__file__).resolve().parent.parent / "src" / "holdfast" / "sync.pyi"

HEADER = '''"""The blocking face, as type checkers see it.

Written by tools/make_sync_stub.py: change the async classes instead.
"""

import builtins
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, Literal, ParamSpec, Self, TypeVar, overload

from msgspec import UNSET, UnsetType

from . import errors as _errors
from .app import App as _App
from .app import AppHandler as _AppHandler
from .archive import Archive as _Archive
from .backups import Backup, OnProgress, Restored, Url
from .broker import Broker as _Broker
from .codecs import Format
from .config import QueueOptions, StoreOptions
from .dead_letters import DeadLetters as _DeadLetters
from .deliveries import Delivery as _Delivery
from .deliveries import Record
from .ended import Replayed
from .events import Callback
from .messages import Message
from .queue import Queue as _Queue
from .queue import State
from .schedules import Schedule
from .scheduling import ScheduleInfo
from .scheduling import Schedules as _Schedules
from .stores.base import Check, QueueInfo
from .stores.records import Dedup, Enqueued, Stats, Status
from .worker import Worker as _Worker
from .worker.choice import Wanted

NAMES: dict[type, str]

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F")

def connect(url: str | os.PathLike[str] | None = None, *, pool: Any = None, **options: Any) -> Broker: ...
def backup(source: Url | Broker, target: Url, *, on_progress: OnProgress | None = None) -> Backup: ...
def restore(
    target: Url, url: Url, *, prefix: str = "", number: int | None = None, on_progress: OnProgress | None = None
) -> Restored: ...
def move(url: Url, to: Url, *, prefix: str = "", on_progress: OnProgress | None = None) -> Restored: ...

class UnknownOutcome(_errors.UnknownOutcome):
    def retry(self) -> list[str]: ...  # type: ignore[override] # it blocks
'''

# Attributes that only a constructor sets have no annotation to read.
ATTRIBUTES = {
    (worker.Worker, "worker_id"): "str",
    (app.App, "url"): "str | os.PathLike[str] | None",
    (app.App, "handlers"): "dict[str, AppHandler[Any, Any, Any]]",
    (app.App, "schedules"): "dict[str, Schedule]",
    (app.AppHandler, "queue_name"): "str",
    (app.AppHandler, "queue_names"): "list[str]",
}

_EXIT = """    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ..."""


def main() -> int:
    made = formatted(stub())
    if sys.argv[1:] == ["--check"]:
        return 0 if STUB.read_text() == made else 1
    STUB.write_text(made)
    return 0


def stub() -> str:
    """The whole text, not yet formatted."""
    return "\n".join([HEADER, *(line for core in sync.NAMES for line in face(core))])


def face(core: type) -> Iterator[str]:
    """The lines of one class."""
    yield f"class {core.__name__}{_generic(core)}:"
    yield f"    core: _{core.__name__}{_parameters(core)}"
    if core is app.App:  # the one that users make themselves
        yield from _function("__init__", core.__init__)
    for name in sync.NAMES[core].split():
        yield from _member(core, name)
    if core is app.AppHandler:
        yield from _function("__call__", core.__call__)
    if hasattr(core, "__aenter__"):
        yield _EXIT
    yield ""


def formatted(text: str) -> str:
    """As `ruff format` wants it."""
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(STUB), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def _member(core: type, name: str) -> Iterator[str]:
    found = inspect.getattr_static(core, name, None)
    if isinstance(found, property):
        yield "    @property"
        yield f"    def {name}(self) -> {_annotation(found.fget, 'return')}: ..."
    elif not callable(found):
        yield "    @property"
        yield f"    def {name}(self) -> {core.__annotations__.get(name) or ATTRIBUTES[core, name]}: ..."
    elif overloads := typing.get_overloads(found):
        for one in overloads:
            yield "    @overload"
            yield from _function(name, one)
    else:
        yield from _function(name, found)


def _function(name: str, function: Callable[..., Any]) -> Iterator[str]:
    signature = str(inspect.signature(function)).replace("AsyncIterator[", "Iterator[")
    signature = re.sub(r"= '(\w+)'", r'= "\1"', signature)  # a default that is text
    # Annotations are text already, and inspect quotes it.
    yield f"    def {name}{re.sub(chr(39), '', signature)}: ..."


def _annotation(function: Any, name: str) -> str:
    return str(function.__annotations__[name])


def _generic(core: type) -> str:
    parameters = _parameters(core)
    return f"(Generic{parameters})" if parameters else ""


def _parameters(core: type) -> str:
    names = [parameter.__name__ for parameter in getattr(core, "__parameters__", ())]
    return f"[{', '.join(names)}]" if names else ""


if __name__ == "__main__":
    sys.exit(main())
