"""Wall clocks that are wrong in one process: by libfaketime where it is there, else by what Python reads.

Holdfast reads clocks through Python alone, so the two are the same to it; libfaketime is what others would use. A clock
that runs too fast is always Python's: libfaketime makes the system refuse sleeps then.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

_PLACES = ("/usr/lib", "/usr/local/lib", "/opt/homebrew/lib")
_NAMES = ("libfaketime.so.1", "libfaketime.1.dylib")
FAST = "x"  # before a rate; else a clock is seconds ahead, with a sign


def library() -> str:
    """Of libfaketime; empty: it is not installed."""
    for place in map(Path, _PLACES):
        for name in _NAMES:
            for pattern in (f"faketime/{name}", f"*/faketime/{name}"):
                for found in place.glob(pattern):
                    return str(found)
    return ""


def means(clock: str) -> str:
    """How such a clock is made wrong, in words."""
    return "libfaketime" if library() and not clock.startswith(FAST) else "Python"


def environment(clock: str) -> dict[str, str]:
    """What a process is started with, so that its wall clock is wrong from its first moment on."""
    if not clock or means(clock) == "Python":
        return dict(os.environ)
    wrong = {"FAKETIME": clock, "FAKETIME_DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1", "LD_PRELOAD": library()}
    return {**os.environ, **wrong}


def apply(clock: str) -> None:
    """In the process itself, where its environment did not do it."""
    if clock and means(clock) == "Python":
        time.time = _wrong(clock, time.time)


def _wrong(clock: str, right: Callable[[], float]) -> Callable[[], float]:
    begun = right()
    if clock.startswith(FAST):
        rate = float(clock[len(FAST) :])
        return lambda: begun + rate * (right() - begun)
    ahead = float(clock)
    return lambda: right() + ahead
