"""Watching files on Linux."""

from __future__ import annotations

import ctypes
import os
import struct

_MODIFY, _OVERFLOW, _DONT_FOLLOW = 0x0002, 0x4000, 0x02000000
_HEADER = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows


class Inotify:
    """One inotify descriptor."""

    name = "inotify"

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def add(self, path: str) -> int:
        return self._checked(
            self._libc.inotify_add_watch(self.fd, os.fsencode(path), ctypes.c_uint32(_MODIFY | _DONT_FOLLOW))
        )

    def changed(self) -> tuple[set[int], bool]:
        try:
            events = os.read(self.fd, 65_536)
        except BlockingIOError:
            return set(), False
        except OSError:  # closed meanwhile
            return set(), True
        changed: set[int] = set()
        overflow = False
        at = 0
        while at < len(events):
            watch, mask, _, length = _HEADER.unpack_from(events, at)
            at += _HEADER.size + length
            overflow = overflow or bool(mask & _OVERFLOW)
            changed.add(watch)  # also when the kernel dropped the watch: looking at the file finds that out
        return changed, overflow

    def forget(self, identity: int) -> None:
        self._libc.inotify_rm_watch(self.fd, identity)

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def _checked(self, result: int) -> int:
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return result
