"""A server from its start to its end: opens the stores, says where it is, answers, stops without losing anything."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from ..broker import Broker, connect
from ..config import StoreOptions
from ..errors import ConfigError
from ..stores.opening import locate
from ..worker import waiting
from ..worker.signals import caught
from . import connections
from .application import Application
from .served import Served
from .settings import ServerSettings


class _Server(uvicorn.Server):
    """Says when it has started, and tells everybody who waits before it stops."""

    def __init__(
        self, config: uvicorn.Config, application: Application, told: Callable[[uvicorn.Server], None]
    ) -> None:
        super().__init__(config)
        self._application = application
        self._told = told

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._told(self)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As theirs, but a signal that was obeyed is not raised again: then the exit code is 0."""
        with caught(lambda: self.handle_exit(signal.SIGTERM, None)):
            yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._application.close()
        await super().shutdown(sockets)


class Serving:
    """A server that answers."""

    def __init__(self, address: str, application: Application, server: uvicorn.Server) -> None:
        self.address = address
        self.application = application
        self._server = server

    def stop(self) -> None:
        """As SIGTERM does; from any thread."""
        self._server.should_exit = True


async def serve(
    urls: Mapping[str, str | None],
    settings: ServerSettings,
    *,
    host: str,
    port: int,
    tls: tuple[str, str] | None = None,
    trust_proxy: bool = False,
    wait: bool = False,
    started: Callable[[Serving], None],
) -> None:
    """Serve these stores, by name, until SIGTERM, SIGINT or `Serving.stop`; `wait` for those that are not there."""
    settings.check(host)
    async with AsyncExitStack() as stack:
        served: dict[str, Served] = {}
        for name, url in urls.items():

            async def open_it(name: str = name, url: str | None = url) -> None:
                served[name] = await opened(url, settings, name)

            if not await waiting.opened(open_it, wait=wait):
                return
            stack.push_async_callback(served[name].end)
        application = Application(served, settings)
        listening = _bound(host, port)
        config = uvicorn.Config(
            application,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            http=connections.Connection,
            timeout_keep_alive=connections.SLOW_S,
            timeout_graceful_shutdown=int(StoreOptions().operation_timeout),  # of requests under way
            proxy_headers=trust_proxy,
            forwarded_allow_ips="*" if trust_proxy else None,
            ssl_certfile=tls[0] if tls else None,
            ssl_keyfile=tls[1] if tls else None,
        )
        address = _address(listening, "https" if tls else "http", settings.path)
        await _Server(config, application, lambda server: started(Serving(address, application, server))).serve(
            sockets=[listening]
        )


async def opened(url: str | None, settings: ServerSettings, name: str) -> Served:
    """A store to be served."""

    async def reopen() -> Broker:
        return await connect(url)

    served = Served(await reopen(), settings, name, reopen=reopen)
    served.keep_history(Path(settings.state) if settings.state else _beside(served.broker.url))
    return served


def _beside(url: str) -> Path | None:
    """The file next to a folder store; None for every other."""
    location = locate(url)
    return Path(f"{location.place}.history.sqlite") if location.scheme == "file" and location.place else None


def _bound(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except OSError as error:
        raise ConfigError(f"cannot serve on {host}:{port}: {error.strerror or error}") from error
    return listening


def _address(listening: socket.socket, scheme: str, path: str) -> str:
    host, port, *_ = listening.getsockname()
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{path}"


def run(urls: Mapping[str, str | None], settings: ServerSettings, **how: Any) -> None:
    """The same, blocking, on the fastest event loop there is."""
    try:
        import uvloop

        factory: Any = uvloop.new_event_loop
    except ImportError:
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve(urls, settings, **how))
