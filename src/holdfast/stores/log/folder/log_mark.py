"""How far the write-ahead log was synced, noted beside the database, so that a log that was cut off is not silent.

SQLite takes a log up to the first frame that does not match its checksum and forgets what was committed behind it. The
note is written after a commit is on the disk and is not synced itself: after a power cut it may be older than the log,
never ahead of it. Once for each log the count of commits goes into the database too: an earlier database, or one whose
log did not come along, has a lower one.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
import zlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import apsw
import msgspec

from ....escaping import logger_named
from ...base import Check
from .identity import DATABASE, LOG
from .wal import FRAME_HEADER_BYTES, HEADER_BYTES, WriteAheadLog, is_sound, salts_of

if TYPE_CHECKING:
    from pathlib import Path

MARK, CUT = "log-mark", "log-cut"
_NOTE = struct.Struct("<8s8sQdQQI")  # what it is, then as in `Noted`, and a sum
_MAGIC = b"hf mark2"
_COMMITS = _NOTE.size - 12  # where their number lies
_FAR = 1 << 32  # commits: more are not a number but damage
_COUNT = (
    "INSERT INTO meta (name, value) VALUES ('commits', ?1) "
    "ON CONFLICT (name) DO UPDATE SET value = max(value, ?1) + 1 RETURNING value"
)
_OPEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_CURE = f"restore a backup, or remove the file {CUT} once nothing is missed"
_TICK_S = 0.02  # by which a file's date may lag behind the clock: the kernel's tick
_LOG = logger_named("holdfast.stores.log")


class Noted(msgspec.Struct, frozen=True):
    """The last commit that was synced: the log it went to, the frames of that, and when; no frames: it was copied."""

    salts: bytes
    frames: int
    at: float
    known: int = 0  # commits that the database knows of at least
    commits: int = 0  # so far, in the life of the store


class Cut(msgspec.Struct, frozen=True):
    """What a log has lost: commits, the last of them at this time. `gone`: all of it, and these are at most so many.

    `older`: the database as a whole, or one without its log.
    """

    commits: int
    at: float
    found: float
    gone: bool = False
    older: bool = False

    def __str__(self) -> str:
        last, found = (datetime.fromtimestamp(at, UTC).isoformat(" ", "seconds") for at in (self.at, self.found))
        what = f"the write-ahead log was {'removed' if self.gone else 'cut off'}"
        if self.older:
            what = "the database is an earlier one, or its write-ahead log is missing"
        most = "up to " if self.gone or self.older else ""
        return f"{what}: {most}{self.commits:,} commits, the last of {last}, are lost (found {found})"


class LogMark:
    """The note of one folder, open as long as its database; used under the folder's lock."""

    def __init__(self, inside: int | None) -> None:
        """`inside` is the descriptor of the folder, whose database nobody here has opened yet: that may write to it.

        Who may not write the note, say since root made it, has none.
        """
        self._inside = inside
        self._copied = _date(DATABASE, inside)
        self._known = 0  # commits that the database knows of
        self._counted: bytes | None = None  # the log that this count went to
        self._seen = b""  # the log of the last commit
        self._asked = 0  # the count that this transaction writes
        self._fd: int | None = None
        with contextlib.suppress(OSError):
            self._fd = os.open(MARK, _OPEN, 0o666, dir_fd=inside)

    def close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def count(self, connection: apsw.Connection) -> None:
        """At the end of each transaction that is synced: one of the first of a log has the count with it."""
        self._asked = 0
        if self._fd is not None and self._counted != self._seen:
            noted = self.read()
            row = connection.execute(_COUNT, (noted.commits if noted is not None else 0,)).fetchone()
            assert row is not None
            self._asked = int(row[0])

    def note(self, wal: WriteAheadLog) -> None:
        """After a commit that was synced. A note that cannot be written leaves an older one, which is no harm."""
        if self._fd is None:
            return
        with contextlib.suppress(OSError):
            salts, frames = wal.reached()
            if self._asked:
                self._known, self._counted, self._asked = self._asked, salts, 0
            self._seen = salts
            others = int.from_bytes(os.pread(self._fd, 8, _COMMITS), "little")  # have noted since
            commits = others + 1 if self._known <= others < self._known + _FAR else self._known
            self._write(salts, frames, self._known, commits)

    def note_closed(self) -> None:
        """After the connection was closed: whether it was the last one, which copies the log and removes it."""
        if self._fd is not None and self._inside is not None:
            with contextlib.suppress(OSError):
                noted = self.read()
                if not _date(LOG, self._inside) and noted is not None:
                    self._write(bytes(8), 0, max(self._known, noted.known), noted.commits)

    def _write(self, salts: bytes, frames: int, known: int, commits: int) -> None:
        assert self._fd is not None
        body = _NOTE.pack(_MAGIC, salts, frames, time.time(), known, commits, 0)[:-4]
        os.pwrite(self._fd, body + zlib.crc32(body).to_bytes(4, "little"), 0)

    def read(self) -> Noted | None:
        """None: nobody has noted anything, or it cannot be read."""
        data = os.pread(self._fd, _NOTE.size, 0) if self._fd is not None else b""
        if len(data) < _NOTE.size or zlib.crc32(data[:-4]) != int.from_bytes(data[-4:], "little"):
            return None
        magic, salts, frames, at, known, commits, _ = _NOTE.unpack(data)
        return Noted(salts, frames, at, known, commits) if magic == _MAGIC else None

    def look(self, connection: apsw.Connection) -> Cut | None:
        """Before anything is written: whether synced commits were lost; it is told, and kept for `doctor`."""
        noted = self.read()
        self._known = _known(connection)
        cut = _cut(noted, connection, self._inside, self._copied) if noted is not None and noted.frames else None
        if cut is None and noted is not None and noted.known > self._known:
            cut = Cut(noted.commits - self._known, noted.at, time.time(), older=True)
        if cut is not None and noted is not None:
            _LOG.error("%s; %s", cut, _CURE)
            with contextlib.suppress(OSError):  # a full disk
                fd = os.open(CUT, _OPEN | os.O_APPEND, 0o666, dir_fd=self._inside)
                with open(fd, "ab") as file:
                    file.write(msgspec.json.encode(cut) + b"\n")
                self._write(bytes(8), 0, self._known, noted.commits)  # it is told once
        return cut


def check(folder: Path) -> Check | None:
    """The line of `doctor`, if a log was ever cut off and nobody has removed what was noted of it."""
    try:
        lines = (folder / CUT).read_bytes().splitlines()
        cuts = [msgspec.json.decode(line, type=Cut) for line in lines]
    except (OSError, msgspec.MsgspecError):
        return None
    return Check("log", "fail", f"{cuts[-1]}; {len(cuts)} times in all; {_CURE}") if cuts else None


def _cut(noted: Noted, connection: apsw.Connection, inside: int | None, copied: float) -> Cut | None:
    try:
        fd = os.open(LOG, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=inside)
    except FileNotFoundError:
        return _gone(noted, copied)
    with open(fd, "rb", buffering=0) as log:
        header = log.read(HEADER_BYTES)
        if len(header) < HEADER_BYTES or not any(header):  # it was emptied, and nothing was synced since
            return _gone(noted, copied)
        if salts_of(header) != noted.salts and is_sound(header):  # another log: all of the one before was copied
            return None
        frames = max(0, connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_NOOP)[0])
        if frames >= noted.frames:
            return None
        page = int(connection.pragma("page_size"))
        lost = sum(_is_commit(log.fileno(), frame, page, noted.salts) for frame in range(frames, noted.frames))
    return Cut(max(1, lost), noted.at, time.time())


def _gone(noted: Noted, copied: float) -> Cut | None:
    """Of a log that is not there, or empty; None: the database was written since, so it was copied."""
    return Cut(noted.frames, noted.at, time.time(), gone=True) if copied < noted.at - _TICK_S else None


def _known(connection: apsw.Connection) -> int:
    """The commits that the database knows of; 0: none, or it is of a version that did not count."""
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").fetchone() is None:
        return 0
    row = connection.execute("SELECT value FROM meta WHERE name = 'commits'").fetchone()
    return 0 if row is None else int(row[0])


def _date(name: str, inside: int | None) -> float:
    """When a file was written last; 0: it is not there."""
    try:
        return os.stat(name, dir_fd=inside, follow_symlinks=False).st_mtime
    except FileNotFoundError:
        return 0.0


def _is_commit(fd: int, frame: int, page: int, salts: bytes) -> bool:
    """Whether a transaction ends with this frame of the log."""
    header = os.pread(fd, FRAME_HEADER_BYTES, HEADER_BYTES + frame * (FRAME_HEADER_BYTES + page))
    return len(header) == FRAME_HEADER_BYTES and header[8:16] == salts and any(header[4:8])
