"""Local disk: SlateDB does not sync the files it writes. Here is what makes them survive a power cut.

`sync`, before every acknowledgement: the files of the log that have come since, and their folder. A manifest that has
come is synced too, after the tables it may refer to; then a note of our own says how far everything is on the disk.
`mend`, before SlateDB opens after a reboot: manifests beyond the note may refer to bytes that never arrived, and files
of the log beyond it may be torn. Both are taken away: nothing in them was acknowledged, and the log still has whatever
a manifest that goes had moved out of it, since SlateDB keeps the log a minute longer than the note may lag behind.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from ....errors import Damaged
from ....escaping import logger_named
from ..folder.files import sync, sync_directory
from ..machine_clock import boot_id

LOG, TABLES, MANIFESTS, COMPACTIONS = "wal", "compacted", "manifest", "compactions"
NOTE = "holdfast-synced"  # in the database's folder
ASIDE = "torn"
_NOTE_EVERY = 256  # files of the log: what opening after a kill has to sync at most, some ms each
_SUFFIX = {LOG: "sst", MANIFESTS: "manifest", COMPACTIONS: "compactions"}
logger = logger_named("holdfast.stores.log")


class Note(msgspec.Struct, frozen=True):
    """Up to these numbers every file is on the disk; `boot` is the life of the machine that says so."""

    boot: str
    log: int = 0
    manifest: int = 0
    compactions: int = 0


class Disk:
    """The files of one database; safe from any thread."""

    def __init__(self, folder: Path, *, boot: str | None = None) -> None:
        self._folder = folder
        self._boot = boot or boot_id()
        self._lock = threading.Lock()
        self._synced = {LOG: 0, MANIFESTS: 0, COMPACTIONS: 0}
        self._tables: set[str] = set()
        self._noted = 0  # the number of the log in our note

    # Before SlateDB opens.

    def refuse_shorter(self) -> None:
        """Damaged: the newest files are gone, of which SlateDB itself may know nothing; without a log it begins anew.

        What it collects are older ones.
        """
        note = self._read_note() or Note(self._boot)
        for kind, noted in ((LOG, note.log), (MANIFESTS, note.manifest)):
            last = max(self._numbers(kind), default=0)
            if last < noted:
                raise Damaged(
                    f"{self._folder}: files of {kind} are gone: they end at {last:,} and had come to {noted:,}; "
                    f"restore the folder from a backup, or remove {NOTE} there to go on with what is left",
                    key=f"{kind}/",
                )

    def mend(self) -> int | None:
        """After a reboot, take back what may not have arrived; the log is good up to here. None: nothing to doubt."""
        note = self._read_note()
        if note is None or note.boot == self._boot:
            return None
        for kind, last in ((MANIFESTS, note.manifest), (COMPACTIONS, note.compactions)):
            self._set_aside(kind, [number for number in self._numbers(kind) if number > last])
        return note.log

    async def mend_log(self, good: int, readable_after: Callable[[int], Awaitable[int]]) -> None:
        """Take away the torn end of the log; `readable_after(n)` gives the last file that can be read in a row."""
        numbers = [number for number in self._numbers(LOG) if number > good]
        last = good
        for number in numbers:
            # An empty file is a fence to SlateDB; after the note none can be one, since every life begins with a note.
            if number != last + 1 or os.path.getsize(self._path(LOG, number)) == 0:
                break
            last = number
        if last > good:
            last = min(last, await readable_after(good))
        self._set_aside(LOG, [number for number in numbers if number > last])

    # While it is open.

    def sync_everything(self) -> None:
        """At opening: the process before may have been killed between a write and its sync."""
        note = self._read_note() or Note(self._boot)
        known = {LOG: note.log, MANIFESTS: note.manifest, COMPACTIONS: note.compactions}
        with self._lock:
            for kind in self._synced:
                numbers = self._numbers(kind)
                for number in numbers:
                    if number > known[kind]:
                        _sync_file(self._path(kind, number))
                self._synced[kind] = max(numbers, default=0)
            self._sync_tables()
            for kind in (LOG, MANIFESTS, COMPACTIONS):
                self._sync_folder(kind)
            self._write_note()
            sync_directory(str(self._folder.parent))

    def sync(self) -> None:
        """What SlateDB says is durable is so after this."""
        with self._lock:
            if not self._sync_new(LOG):
                self._sync_listed_log()
            news = os.path.exists(self._path(MANIFESTS, self._synced[MANIFESTS] + 1))
            if news:
                self._sync_tables()
                self._sync_new(COMPACTIONS)
                self._sync_new(MANIFESTS)
            if news or self._synced[LOG] >= self._noted + _NOTE_EVERY:
                self._write_note()

    def _sync_new(self, kind: str) -> bool:
        """Numbers follow each other: look for the next until it is not there."""
        number = before = self._synced[kind]
        while _sync_file(self._path(kind, number + 1)):
            number += 1
        if number == before:
            return False
        self._sync_folder(kind)
        self._synced[kind] = number
        return True

    def _sync_listed_log(self) -> None:
        """Nothing next: it was synced already, or a number is missing. Be sure."""
        numbers = [number for number in self._numbers(LOG) if number > self._synced[LOG]]
        for number in numbers:
            _sync_file(self._path(LOG, number))
        if numbers:
            self._sync_folder(LOG)

    def _sync_tables(self) -> None:
        folder = self._folder / TABLES
        names = {name for name in _listed(folder) if "#" not in name}  # with "#": being written
        for name in names - self._tables:
            _sync_file(str(folder / name))
        if names - self._tables:
            self._sync_folder(TABLES)
        self._tables = names

    def _sync_folder(self, kind: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            sync_directory(str(self._folder / kind))

    # Our note, and the names.

    def _read_note(self) -> Note | None:
        try:
            return msgspec.json.decode((self._folder / NOTE).read_bytes(), type=Note)
        except FileNotFoundError:
            return None

    def _write_note(self) -> None:
        note = Note(self._boot, self._synced[LOG], self._synced[MANIFESTS], self._synced[COMPACTIONS])
        new = self._folder / f"{NOTE}-{os.getpid()}-{id(self):x}"  # an owner that is being fenced may write one too
        new.write_bytes(msgspec.json.encode(note))
        _sync_file(str(new))
        os.replace(new, self._folder / NOTE)
        sync_directory(str(self._folder))
        self._noted = note.log

    def _path(self, kind: str, number: int) -> str:
        return f"{self._folder}/{kind}/{number:020d}.{_SUFFIX[kind]}"

    def _numbers(self, kind: str) -> list[int]:
        stems = (name.partition(".") for name in _listed(self._folder / kind))
        return sorted(int(stem) for stem, _, end in stems if stem.isdecimal() and end == _SUFFIX[kind])

    def _set_aside(self, kind: str, numbers: list[int]) -> None:
        if not numbers:
            return
        logger.warning(
            "%s: after a reboot %d files of %s were not surely on the disk; nothing in them was acknowledged, they are "
            "in %s now", self._folder, len(numbers), kind, ASIDE,
        )  # fmt: skip
        aside = self._folder / ASIDE / f"{self._boot}-{kind}"
        aside.mkdir(parents=True, exist_ok=True)
        for number in reversed(numbers):  # from the end, so that a second power cut leaves no gap
            path = Path(self._path(kind, number))
            os.replace(path, aside / path.name)
        self._sync_folder(kind)


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _sync_file(path: str) -> bool:
    """False: it is not there (yet, or any more)."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        sync(fd)
    finally:
        os.close(fd)
    return True
