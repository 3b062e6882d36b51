"""Who holds a message: the name that a claim carries."""

from __future__ import annotations

import os
import secrets
import socket


def process_name() -> str:
    """Of this process: what a plain `dequeue` claims under."""
    return f"{socket.gethostname()}-{os.getpid()}"


def worker_name() -> str:
    """Of one worker in it, unless it was given one."""
    return f"{process_name()}-{secrets.token_hex(4)}"
