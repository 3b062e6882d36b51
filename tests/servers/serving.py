"""A real server of ours in a thread, or in a process that can be killed."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

from holdfast.server.run import Serving, opened, serve
from holdfast.server.served import Served
from holdfast.server.settings import ServerSettings
from holdfast.server.tokens import Tokens

T = TypeVar("T")

_PATIENCE_S = 30.0  # for a server to start on a busy machine


class ServerThread:
    """`with ServerThread(url) as server:` answers at `server.address`; further stores lie below their names."""

    def __init__(self, *urls: str, tokens: tuple[str, ...] = (), **settings: Any) -> None:
        self._urls = {"" if len(urls) == 1 else f"store{number}": url for number, url in enumerate(urls)}
        self._settings = ServerSettings(tokens=Tokens(tokens), **settings)
        self._started = threading.Event()
        self._serving: Serving | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="served", daemon=True)

    @property
    def serving(self) -> Serving:
        assert self._serving is not None
        return self._serving

    @property
    def address(self) -> str:
        return self.serving.address

    def _run(self) -> None:
        try:
            asyncio.run(serve(self._urls, self._settings, host="127.0.0.1", port=0, started=self._note))
        except BaseException as error:  # noqa: BLE001 - told where somebody waits
            self._error = error
            self._started.set()

    def _note(self, serving: Serving) -> None:
        self._serving, self._loop = serving, asyncio.get_running_loop()
        self._started.set()

    def inside(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it in the server's event loop."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_S)

    @contextmanager
    def store(self, url: str) -> Iterator[str]:
        """One more store for a while; the name below which it lies."""
        name = f"s{os.urandom(6).hex()}"

        async def add() -> Served:
            served = await opened(url, self._settings, name)
            self.serving.application.add(name, served)
            return served

        served = self.inside(add())
        try:
            yield name
        finally:
            self.inside(served.end())

    def __enter__(self) -> ServerThread:
        self._thread.start()
        assert self._started.wait(_PATIENCE_S), "the server did not start"
        if self._error is not None:
            raise self._error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._serving is not None:
            self._serving.stop()
        self._thread.join(_PATIENCE_S)


class ServerProcess:
    """`holdfast serve` as a process: killed and started again, it is found at the same address."""

    def __init__(self, url: str, *words: str, **environment: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._url = url
        self._words = words
        self._environment = environment
        self._process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> ServerProcess:
        words = ["serve", "--url", self._url, "--port", str(self._port), "--json", *self._words]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *words],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **self._environment},
        )
        assert self._process.stdout is not None
        lines = [self._process.stdout.readline() for _ in range(3)]
        assert json.loads("".join(lines))["url"] == self.address
        return self

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """As SIGTERM; the exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(_PATIENCE_S)

    def __enter__(self) -> ServerProcess:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
