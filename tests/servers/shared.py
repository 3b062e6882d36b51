"""One server for all processes of a test run: the first that needs it starts it, the last that leaves it stops it.

Eight Azurites and eight SeaweedFS take longer to start than all tests need of one.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp
from typing import Protocol, TypeVar

import pytest

_USER = "user-"  # begins the name of a file that stands for one who uses the server
_LOOK_S = 0.05  # between two looks whether a process of somebody else is gone


class Closing(Protocol):
    """A server of this package."""

    _process: object

    def close(self) -> None: ...


S = TypeVar("S", bound=Closing)


class ForeignProcess:
    """A process that another one has started, with what servers need of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        import psutil  # the fast tests under other Pythons share no server, and do not have it

        try:
            is_over = psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            is_over = True
        return 0 if is_over else None

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float = float("inf")) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(_LOOK_S)
        return code


@contextmanager
def shared(factory: pytest.TempPathFactory, name: str, start: Callable[[], S]) -> Iterator[S]:
    """The run's server of this name; `start` makes one that runs."""
    folder = run_folder(factory) / name
    folder.mkdir(exist_ok=True)
    with _locked(folder):
        server = _known(folder) or _started(folder, start)
        own = Path(mkstemp(dir=folder, prefix=_USER)[1])  # not by process: one may use the server twice
    try:
        yield server
    finally:
        with _locked(folder):
            own.unlink()
            if not any(folder.glob(f"{_USER}*")):
                (folder / "server").unlink()
                server.close()


def run_folder(factory: pytest.TempPathFactory) -> Path:
    """What all processes of a run have in common."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def _known(folder: Path) -> S | None:
    """The one that runs, seen from here."""
    if not (folder / "server").exists():
        return None
    pid, state = pickle.loads((folder / "server").read_bytes())  # nosec B301 # a file of this run
    kind, attributes = state
    server: S = object.__new__(kind)
    server.__dict__.update(attributes, _process=ForeignProcess(pid))
    return server


def _started(folder: Path, start: Callable[[], S]) -> S:
    server = start()
    attributes = {name: value for name, value in vars(server).items() if name != "_process"}
    pid = server._process.pid  # type: ignore[attr-defined] # it runs
    (folder / "server").write_bytes(pickle.dumps((pid, (type(server), attributes))))
    return server


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
