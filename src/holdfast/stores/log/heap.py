"""The C library's heaps: glibc keeps one for each thread, and in it what was freed."""

from __future__ import annotations

import contextlib
import ctypes


def give_back() -> None:
    """What was freed goes back to the system. Blocks for a millisecond or so: not in an event loop."""
    with contextlib.suppress(AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
