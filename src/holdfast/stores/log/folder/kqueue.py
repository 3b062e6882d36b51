"""Watching files on macOS."""

from __future__ import annotations

import os
import select
import sys

assert sys.platform == "darwin"  # tells type checkers which names `select` has


class Kqueue:
    """One kqueue descriptor, and one for each watched file."""

    name = "kqueue"

    def __init__(self) -> None:
        self._queue = select.kqueue()
        self.fd = self._queue.fileno()
        self._watched: set[int] = set()

    def add(self, path: str) -> int:
        fd = os.open(path, os.O_EVTONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        event = select.kevent(
            fd,
            filter=select.KQ_FILTER_VNODE,
            flags=select.KQ_EV_ADD | select.KQ_EV_CLEAR,
            fflags=select.KQ_NOTE_WRITE | select.KQ_NOTE_EXTEND | select.KQ_NOTE_DELETE,
        )
        try:
            self._queue.control([event], 0)
        except BaseException:
            os.close(fd)
            raise
        self._watched.add(fd)
        return fd

    def changed(self) -> tuple[set[int], bool]:
        try:
            events = self._queue.control(None, 1024, 0)
        except (OSError, ValueError):  # closed meanwhile
            return set(), True
        return {event.ident for event in events}, False

    def forget(self, identity: int) -> None:
        if identity in self._watched:
            self._watched.discard(identity)
            os.close(identity)

    def close(self) -> None:
        self._queue.close()
        while self._watched:
            os.close(self._watched.pop())
