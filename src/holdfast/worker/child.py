"""A worker process: `python -m holdfast.worker.child`, started and told what to do by `processes.py`.

The order comes as one line of JSON on standard input, so that a URL with credentials never stands in a command line.
The pipe stays open: when it ends, the parent is gone, and so is the reason to work.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from typing import Literal

import msgspec

from ..errors import ConfigError, HoldfastError
from ..escaping import logger_named
from ..log_lines import formatter

BAD_ORDER = 2  # the exit code for what a restart cannot cure


class Order(msgspec.Struct):
    """What a worker process is to do."""

    spec: str
    url: str | None = None
    concurrency: int | None = None
    queues: tuple[str, ...] = ()
    wait: bool = True  # for a store that is not there
    metrics_ports: tuple[int, ...] = ()  # of which each process takes one that is free
    log_format: Literal["text", "json"] = "text"


def main() -> int:
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order)
    threading.Thread(target=_watch_parent, name="holdfast-parent", daemon=True).start()
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(order.log_format))
    logging.basicConfig(handlers=[handler])
    from .processes import run_here

    try:
        run_here(order)
    except ConfigError as error:
        logger_named("holdfast.worker").critical("%s", error)
        return BAD_ORDER
    except HoldfastError as error:
        logger_named("holdfast.worker").critical("%s: %s", type(error).__name__, error)
        return 1
    return 0


def _watch_parent() -> None:
    """SIGTERM to ourselves when the pipe from the parent ends."""
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit(1)
