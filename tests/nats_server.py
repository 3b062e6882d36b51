"""A real nats-server for tests: JetStream in a temporary folder, a free port of the loopback, stopped by its pid."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

BINARY = Path(sys.executable).parent / "nats-server"


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class NatsServer:
    """One server; it can be killed and started again on the same port and folder."""

    def __init__(self, *, config: str = "", jetstream: bool = True, port: int | None = None) -> None:
        self.port = port or free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-nats-"))
        self.jetstream = jetstream
        self.process: subprocess.Popen[bytes] | None = None
        self._config = config

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"nats://{self.host}"

    def command(self) -> Sequence[str]:
        lines = [
            "server_name: test" if "server_name" not in self._config else "",
            f'listen: "{self.host}"',
            self._config,
        ]
        if self.jetstream and "jetstream" not in self._config:
            lines.append(f'jetstream: {{store_dir: "{self.folder}/data"}}')
        path = self.folder / "server.conf"
        path.write_text("\n".join(lines))
        return [str(BINARY), "-c", str(path), "-l", str(self.folder / "log")]

    def start(self) -> NatsServer:
        self.process = subprocess.Popen(self.command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 0.2).close()
                return self
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise RuntimeError((self.folder / "log").read_text()[-2000:]) from None
                time.sleep(0.01)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
