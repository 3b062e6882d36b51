"""A file system whose writes can be held back: Linux freezes it, as it does for a snapshot, and lets it go on."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path

_FREEZE, _THAW = 0xC0045877, 0xC0045878  # FIFREEZE and FITHAW of linux/fs.h
_HUNG_SECONDS = 6.0  # at the most: an event loop that waits for the disk itself could not end the fault
_SLOW_SECONDS, _PAUSE_SECONDS = 0.4, 0.1


class Valve:
    """Of the file system that is mounted here."""

    def __init__(self, mounted: Path) -> None:
        self._mounted = mounted
        self._opened = threading.Event()
        self._thread: threading.Thread | None = None

    def shut(self) -> None:
        """No write ends, until it is opened or the time is over."""
        self._start(self._hold, _HUNG_SECONDS)

    def pulse(self) -> None:
        """Writes wait for up to 0.4 s, four of five times."""
        self._start(self._hold_again_and_again)

    def open(self) -> None:
        if self._thread is not None:
            self._opened.set()
            self._thread.join()
            self._thread = None

    def _start(self, target: Callable[..., None], *args: float) -> None:
        self._opened.clear()
        held = threading.Event()
        self._thread = threading.Thread(target=target, args=(held, *args), daemon=True)
        self._thread.start()
        held.wait()

    def _hold_again_and_again(self, held: threading.Event) -> None:
        while not self._opened.wait(_PAUSE_SECONDS):
            self._hold(held, _SLOW_SECONDS)

    def _hold(self, held: threading.Event, seconds: float) -> None:
        mounted = os.open(self._mounted, os.O_RDONLY)
        try:
            fcntl.ioctl(mounted, _FREEZE, 0)
            held.set()
            self._opened.wait(seconds)
            with contextlib.suppress(OSError):  # somebody else let it go
                fcntl.ioctl(mounted, _THAW, 0)
        finally:
            os.close(mounted)
