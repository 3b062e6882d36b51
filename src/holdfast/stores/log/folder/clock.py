"""The folder's clock: time since boot, anchored once per boot, so that steps of the wall clock move nothing."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from pathlib import Path

import apsw

SCHEMA = "CREATE TABLE IF NOT EXISTS clock (boot TEXT PRIMARY KEY, ahead REAL NOT NULL, latest REAL NOT NULL)"
MARK_INTERVAL = 60.0


def since_boot() -> float:
    """Seconds since boot, time asleep included, the same in every process."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    else:
        return time.clock_gettime(time.CLOCK_MONOTONIC)


def boot_id() -> str:
    """A name for this boot of this machine."""
    if sys.platform == "darwin":
        return _sysctl(b"kern.bootsessionuuid")
    else:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _sysctl(name: bytes) -> str:
    buffer = ctypes.create_string_buffer(64)
    size = ctypes.c_size_t(len(buffer))
    if ctypes.CDLL(None).sysctlbyname(name, buffer, ctypes.byref(size), None, ctypes.c_size_t(0)) != 0:
        raise OSError(f"sysctl {name.decode()} failed")
    return buffer.value.decode()


class FolderClock:
    """Seconds since 1970 for everybody who shares the folder."""

    def __init__(self, boot: str, ahead: float, *, ticks: Callable[[], float] = since_boot) -> None:
        self._boot = boot
        self._ahead = ahead
        self._ticks = ticks
        self._next_mark = self.now() + MARK_INTERVAL

    @classmethod
    def anchored(
        cls,
        connection: apsw.Connection,
        *,
        boot: str | None = None,
        wall: Callable[[], float] = time.time,
        ticks: Callable[[], float] = since_boot,
    ) -> FolderClock:
        """The clock of this boot; the first to come sets it. Needs a write transaction."""
        boot = boot_id() if boot is None else boot
        row = connection.execute("SELECT ahead FROM clock WHERE boot = ?", (boot,)).fetchone()
        if row is None:
            latest = connection.execute("SELECT max(latest) FROM clock").fetchone()
            # Never behind what an earlier boot has seen, or leases and delays of that time would start over.
            start = max(wall(), (latest and latest[0]) or 0.0)
            row = (start - ticks(),)
            connection.execute("INSERT INTO clock (boot, ahead, latest) VALUES (?, ?, ?)", (boot, row[0], start))
        return cls(boot, row[0], ticks=ticks)

    def now(self) -> float:
        return self._ticks() + self._ahead

    def mark(self, connection: apsw.Connection, now: float) -> None:
        """Now and then, inside a commit that happens anyway: how far this boot has come."""
        if now >= self._next_mark:
            self._next_mark = now + MARK_INTERVAL
            connection.execute("UPDATE clock SET latest = max(latest, ?) WHERE boot = ?", (now, self._boot))
