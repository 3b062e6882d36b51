"""The open stores of a process, by URL; a child of a fork opens its own."""

from __future__ import annotations

import os
import threading

from .. import sync


class _Open:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process = os.getpid()
        self.brokers: dict[str | None, sync.Broker] = {}


_open = _Open()


def store_of(url: str | None) -> sync.Broker:
    """The broker of this URL, None: of the environment or the configuration file; opened when it is not."""
    global _open
    if _open.process != os.getpid():  # the parent's lock may be held by a thread that is not here
        _open = _Open()
    with _open.lock:
        if url not in _open.brokers:
            _open.brokers[url] = sync.connect(url)
        return _open.brokers[url]


def close_all() -> None:
    """Give every store of this process back, for tests; the end of a process does it too."""
    if _open.process == os.getpid():
        while _open.brokers:
            _open.brokers.popitem()[1].close()
