"""Types are shown to msgspec by one thread at a time.

It keeps what it learns of a struct with the type before it has looked at what is nested there: a second thread that
decodes such a type at that moment reads a null pointer, and the process dies (msgspec 0.22). After that all is well.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import msgspec

T = TypeVar("T")
_ONE_AT_A_TIME = threading.Lock()


def known(type: T) -> T:
    """A type of ours with nested structs, as a module is imported: `@known`."""
    looked(lambda: msgspec.json.Decoder(type))
    return type


def looked(make: Callable[[], T]) -> T:
    """What is made of a type that somebody gave us."""
    with _ONE_AT_A_TIME:
        return make()
