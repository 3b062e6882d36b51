"""How a folder is taken from under the processes that have it open, and how it is put back."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

_MAKE = """
import sys
from holdfast import sync
with sync.connect(sys.argv[1]) as broker:
    broker.queue("other", codec="raw").enqueue_many([bytes(400_000), b"small"])
"""


_LOOKED = 0.1  # seconds: who gets the lock after this looks first, and claims nothing that the copy has not given


class Fault(msgspec.Struct):
    """One time: of which kind, from when on nothing may be answered, and until when."""

    kind: str
    begun: float = float("inf")
    ended: float = float("inf")


def make_other(folder: Path, scheme: str = "file") -> None:
    """A store of somebody else, with two messages in its queue `other`; by a process that ends."""
    subprocess.run([sys.executable, "-c", _MAKE, f"{scheme}://{folder}"], check=True, timeout=60)


class Hurting:
    """The folder under test. `begin` does what the kind says, `end` puts the old files back where it can."""

    def __init__(self, folder: Path, *, pattern: Path, scheme: str = "file") -> None:
        """`pattern` is what `make_other` made; each of these has copies of its own."""
        self.folder = folder
        self.scheme = scheme
        self._pattern = pattern
        self._aside = folder.with_name("aside")
        self.other = folder.with_name("other")
        shutil.copytree(pattern, self.other)
        self.faults: list[Fault] = []

    def begin(self, kind: str) -> None:
        fault = Fault(kind)
        self.faults.append(fault)
        _KINDS[kind](self)
        fault.begun = time.monotonic()

    def end(self) -> bool:
        """True: who had it open goes on by itself; False: the files are others now, as after a restore."""
        fault = self.faults[-1]
        fault.ended = time.monotonic()
        if fault.kind == "removed":
            for path in self._aside.iterdir():  # the same files: they were linked, not copied
                path.rename(self.folder / path.name)
            self._aside.rmdir()
        elif fault.kind == "swapped":
            self.folder.rename(self.other)
            self._aside.rename(self.folder)
        elif fault.kind != "restored":
            shutil.rmtree(self.folder, ignore_errors=True)
            self._aside.rename(self.folder)
        return fault.kind != "restored"

    def is_open_in(self, pid: int) -> bool:
        """Where the system tells: whether a process has opened the store. Its log is open twice then, once by us."""
        try:
            log = os.stat(self.folder / "holdfast.db-wal")
            return sum(os.path.samestat(log, each.stat()) for each in Path(f"/proc/{pid}/fd").iterdir()) >= 2
        except OSError:  # it has just ended or closed something, or this is another system
            return False

    def _move(self) -> None:
        self.folder.rename(self._aside)

    def _remove(self) -> None:
        self._aside.mkdir()
        for path in self.folder.glob("holdfast.db*"):
            (self._aside / path.name).hardlink_to(path)
            path.unlink()

    def _recreate(self) -> None:
        self.folder.rename(self._aside)
        shutil.copytree(self._pattern, self.folder)

    def _swap(self) -> None:
        self.folder.rename(self._aside)
        self.other.rename(self.folder)

    def _restore(self) -> None:
        """Over the top, from a copy of this very moment: each file is written beside and renamed over the old one."""
        with (self.folder / "lock").open("r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for name in ("holdfast.db-wal", "holdfast.db-shm", "holdfast.db", "lock"):
                path = self.folder / name
                if name.endswith("-shm"):
                    path.unlink(missing_ok=True)  # it is made again from the log
                elif path.exists():
                    copy = path.with_name(f".{name}")
                    shutil.copy2(path, copy)
                    copy.rename(path)
            time.sleep(_LOOKED)


_KINDS: dict[str, Callable[[Hurting], None]] = {
    "moved": Hurting._move,
    "removed": Hurting._remove,
    "recreated": Hurting._recreate,
    "swapped": Hurting._swap,
    "restored": Hurting._restore,
}
KINDS = tuple(_KINDS)
SLATE_KINDS = ("moved", "recreated", "swapped")  # of a folder without a database file of ours
