"""Whether the path still leads to the folders that were opened.

SlateDB opens every file by its path, and makes the folders that are missing: moved away, a database would go on in new
folders of the same name, and swapped with another, in that.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..folder.identity import Identity
from .disk import LOG, MANIFESTS


class Pinned:
    """The folders of a local database. Each stays open, so that its number cannot become another's."""

    def __init__(self, folder: Path, path: str) -> None:
        self._folder = folder
        self._names = (".", path, f"{path}/{LOG}", f"{path}/{MANIFESTS}")
        self._identity = Identity(folder)
        self._open: list[int] = []

    def pin(self) -> None:
        """They are open now; what was pinned before stays what it was."""
        if self._open:
            return
        for name in self._names:
            fd = os.open(self._folder / name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._open.append(fd)
            self._identity.note(name, os.fstat(fd))

    def check(self) -> None:
        """Raises Unavailable."""
        self._identity.check()

    def close(self) -> None:
        while self._open:
            os.close(self._open.pop())
