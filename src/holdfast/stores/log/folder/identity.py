"""Whether the folder's path still leads to the files that are open.

A database that was moved or removed still takes commits, and syncs them: they are in a file that nobody who opens the
path will ever see. So what the path leads to is compared with what is open before a commit is acknowledged.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path

from ....errors import Unavailable

LOCK, DATABASE, LOG = "lock", "holdfast.db", "holdfast.db-wal"
SELDOM = 0.05  # seconds between two looks where nothing is promised, so that a lease costs no more than it did


class LogRemoved(Unavailable):
    """The write-ahead log alone: a second one beside it would be taken for the first by whoever has that open."""


class Identity:
    """Device and inode of every file by which a folder is known; safe from any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, tuple[str, int, int]] = {}
        self._links: dict[str, tuple[str, str]] = {}
        self._looked = 0.0

    def knows(self, name: str) -> bool:
        return name in self._known

    def note(self, name: str, found: os.stat_result, *, written_as: int | None = None) -> None:
        """The file of this name that is open; `written_as` is its descriptor if every commit writes it.

        Such a file is not asked for its state between two commits: since Linux 6.13 the next write then has to note a
        finer time, and the sync after it takes half as long again. What the descriptor is called tells the same.
        """
        self._known = {**self._known, name: (str(self._folder / name), found.st_dev, found.st_ino)}
        if written_as is not None and sys.platform == "linux":
            link = f"/proc/self/fd/{written_as}"
            with contextlib.suppress(OSError):  # no such file system is mounted
                self._links = {**self._links, name: (link, os.readlink(link))}

    def forget(self, name: str) -> None:
        """It is open no more, and may come again as another."""
        self._links = {known: link for known, link in self._links.items() if known != name}
        self._known = {known: mark for known, mark in self._known.items() if known != name}

    def check(self) -> None:
        """Raises Unavailable. By path and never by descriptor alone: it goes along with what was moved."""
        for name, (path, device, inode) in self._known.items():
            link = self._links.get(name)
            if link is not None and _is_called(*link):
                continue
            try:
                found = os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                raise self._lost(name, "is not there any more") from None
            if found.st_ino != inode or found.st_dev != device:
                raise self._lost(name, "is another file now")
        self._looked = time.monotonic()

    def check_seldom(self) -> None:
        """The same, unless somebody has just looked."""
        if time.monotonic() - self._looked >= SELDOM:
            self.check()

    def _lost(self, name: str, what: str) -> Unavailable:
        kind, cure = Unavailable, "put it back, or connect again to use what is there now"
        if name == LOG:  # the lock and the database are where they were
            kind, cure = LogRemoved, "close it in every process, then connect again"
        return kind(
            f"the store at {self._folder} was moved, removed or replaced while it was open ({name} {what}); nothing "
            f"was acknowledged: {cure}"
        )


def _is_called(link: str, name: str) -> bool:
    """Whether a descriptor's file still has the name that it had; False: it has not, or the descriptor is closed."""
    try:
        return os.readlink(link) == name
    except OSError:
        return False
