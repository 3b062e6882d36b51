"""Azure's blob storage for tests and chaos: Azurite from npm, on the loopback, stopped by its process id.

It is installed once, in a fixed version, into the user's cache, as the peers of the benchmarks are.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from email.utils import formatdate
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from holdfast.bench.environment import cache_folder

if TYPE_CHECKING:
    from obstore.store import AzureStore

VERSION = "3.35.0"  # the last one that runs on Node 20
FOLDER = f"azurite-{VERSION}"  # in the cache
CONTAINER = "holdfast"
ACCOUNT = "holdfast"
KEY = base64.b64encode(b"canary-azure-secret-of-the-account").decode()

_START = 60.0  # seconds until it must answer
_GRACE = 5.0  # seconds after SIGTERM
_INSTALL = 10 * 60.0  # seconds
_API = "2021-08-06"


class Server:
    """One server with one container. `with Server() as server: server.url("prefix")`. It can be killed and started."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-azure-"))
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def url(self, prefix: str = "", *, endpoint: str | None = None, key: str = KEY, container: str = CONTAINER) -> str:
        """What `holdfast.connect` takes; `endpoint` when something stands in between."""
        query = {
            "endpoint": f"{endpoint or self.endpoint}/{ACCOUNT}",
            "account_name": ACCOUNT,
            "account_key": key,
            "allow_http": "true",
        }
        return f"az://{container}/{prefix}?{urlencode(query)}"

    def driver(self, prefix: str = "") -> AzureStore:
        """The container without Holdfast, without retries."""
        from obstore.store import AzureStore

        return AzureStore(
            CONTAINER,
            prefix=prefix or None,
            endpoint=f"{self.endpoint}/{ACCOUNT}",
            account_name=ACCOUNT,
            account_key=KEY,
            client_options={"allow_http": True, "timeout": "20s"},
            retry_config={"max_retries": 0},
        )

    # ------------------------------------------------------------------ start and stop

    def start(self) -> Server:
        """Start it, or start it again with what it kept."""
        command = [*program(), "--silent", "--location", str(self.folder / "data"), "--skipApiVersionCheck"]
        command += ["--blobHost", "127.0.0.1", "--blobPort", str(self.port)]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, start_new_session=True,
                env={**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"},
            )  # fmt: skip
        deadline = time.monotonic() + _START
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"Azurite did not start:\n{(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.1)
        return self

    def _ready(self) -> bool:
        """It is when it has made the container, or has it already."""
        try:
            return _ask(self.port, "PUT", f"/{ACCOUNT}/{CONTAINER}", {"restype": "container"}) in (201, 409)
        except (OSError, HTTPException):
            return False

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

    def kill(self) -> None:
        """Without a word."""
        self.stop(signal.SIGKILL)

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Server:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _ask(port: int, method: str, path: str, query: dict[str, str]) -> int:
    """One signed request without a body; its status."""
    date = formatdate(usegmt=True)
    named = "".join(f"\n{name}:{value}" for name, value in sorted(query.items()))
    text = f"{method}\n{11 * chr(10)}x-ms-date:{date}\nx-ms-version:{_API}\n/{ACCOUNT}{path}{named}"
    signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)).decode()
    headers = {"x-ms-date": date, "x-ms-version": _API, "Authorization": f"SharedKey {ACCOUNT}:{signature}"}
    connection = HTTPConnection("127.0.0.1", port, timeout=5.0)
    try:
        connection.request(method, f"{path}?{urlencode(query)}", headers={**headers, "Content-Length": "0"})
        return connection.getresponse().status
    finally:
        connection.close()


def program() -> list[str]:
    """Node and the blob server's script; installs it when it is not there."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise RuntimeError("az:// is tested with Azurite, which needs Node and npm: install them, and run this again")
    folder = (cache_folder() / FOLDER).resolve()  # a link, where a run of the tests has a cache of its own
    if not (folder / "complete").exists():
        _install(npm, folder)
    return [node, str(folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js")]


def _install(npm: str, folder: Path) -> None:
    """Beside its place first, so that two who install it at once do not meet."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix="azurite-", dir=folder.parent))
    command = [npm, "install", "--prefix", str(beside), "--no-audit", "--no-fund", "--ignore-scripts"]
    try:
        subprocess.run([*command, f"azurite@{VERSION}"], check=True, capture_output=True, text=True, timeout=_INSTALL)
        (beside / "complete").touch()
        if not folder.exists():
            beside.rename(folder)
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"npm could not install Azurite {VERSION}: {error.stderr.strip()[-500:]}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
