"""A disk under SQLite that can be watched, and that fails when told to."""

from __future__ import annotations

from collections.abc import Callable

import apsw


class Disk(apsw.VFS):
    """Records what SQLite syncs, and fails when told to."""

    def __init__(self, name: str):
        self.name = name
        self.log: list[str] = []
        self.failing: type[apsw.Error] | None = None
        self.full = ""  # "db": there is no room for the database any more, only for the log
        self.synced: Callable[[], object] = lambda: None  # called after every sync
        super().__init__(name, base="")

    def xOpen(self, name, flags):
        return DiskFile(self, name, flags)


class DiskFile(apsw.VFSFile):
    def __init__(self, disk: Disk, name, flags):
        self._disk = disk
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._kind = "wal" if str(path).endswith("-wal") else "db"
        super().__init__("", name, flags)

    def xSync(self, flags):
        if self._disk.failing is not None and self._kind == "wal":
            raise self._disk.failing("told to fail")
        super().xSync(flags)
        self._disk.log.append(f"sync {self._kind}")
        self._disk.synced()

    def xWrite(self, data, offset):
        if self._disk.failing is apsw.FullError and self._kind == "wal":
            raise apsw.FullError("told to be full")
        if self._disk.full == self._kind:
            raise apsw.FullError("told to be full")
        super().xWrite(data, offset)
        self._disk.log.append(f"write {self._kind}")
