"""The `slatedb` package, imported when it is used, and how plain threads call its coroutines."""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Coroutine
from functools import cache
from types import ModuleType
from typing import Any, TypeVar

from ....errors import ConfigError
from . import copying

T = TypeVar("T")
NEEDED = (0, 17)


@cache
def slatedb() -> ModuleType:
    """The package's own names; ConfigError when it is missing or too old."""
    try:
        package = importlib.import_module("slatedb.uniffi")
    except ImportError as error:
        raise ConfigError("slatedb+…:// needs the package slatedb: pip install 'holdfast[slatedb]'") from error
    if not hasattr(package, "WriteHandle") or not hasattr(package, "ObjectStoreBuilder"):
        need = ".".join(map(str, NEEDED))
        raise ConfigError(f"this slatedb package is too old, {need} is needed: pip install -U slatedb")
    copies()
    return package


@cache
def copies() -> copying.State:
    """Whether bytes go to the library in one copy, made so where they do not."""
    try:
        return copying.install(importlib.import_module("slatedb.uniffi._slatedb_uniffi.slatedb"))
    except ImportError:
        return "not understood"


class Caller:
    """Calls coroutines of the binding from threads that have no event loop, each on a loop of its own."""

    def __init__(self) -> None:
        self._mine = threading.local()
        self._loops: list[asyncio.AbstractEventLoop] = []

    def __call__(self, call: Coroutine[Any, Any, T], *, timeout: float | None = None) -> T:
        loop = getattr(self._mine, "loop", None)
        if loop is None:
            loop = self._mine.loop = asyncio.new_event_loop()
            self._loops.append(loop)
        result: T = loop.run_until_complete(asyncio.wait_for(call, timeout) if timeout else call)
        return result

    def close(self) -> None:
        """Once no thread calls any more."""
        for loop in self._loops:
            if not loop.is_running():
                loop.close()
        self._loops.clear()
