"""As much HTTP/1.1 as stands between a client and an object store: a server in a thread of its own, and a client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType
from typing import TypeAlias

_LONGEST_HEAD = 256 * 1024
_PATIENCE = 30.0  # seconds until the thread must have begun or ended


@dataclass
class Request:
    method: str
    target: str  # path and query, as the client wrote them: they are signed
    headers: dict[str, str]  # names in lower case
    body: bytes = b""


@dataclass
class Response:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut: int | None = None  # hang up after so many bytes of the body


Handler: TypeAlias = Callable[[Request], Awaitable[Response | None]]  # None: hang up without a word


class HttpServer:
    """Answers on a free port of the loopback while the context lasts, also while the caller's event loop is busy."""

    def __init__(self, handler: Handler) -> None:
        self.port = 0
        self._handler = handler
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="http server")
        self._talks: set[asyncio.Task[None]] = set()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> HttpServer:
        self._thread.start()
        if not self._ready.wait(_PATIENCE):
            raise RuntimeError("the server did not begin")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(_PATIENCE)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_LONGEST_HEAD)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._end.wait()
        server.close()
        for talk in self._talks:
            talk.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.current_task()
        assert talk is not None
        self._talks.add(talk)
        try:
            while await self._answer(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has gone, or we are closing
        finally:
            self._talks.discard(talk)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; False: the connection is over."""
        first, headers = await _read_head(reader)
        method, target, _ = first.split(" ", 2)
        request = Request(method, target, headers, await _read_body(reader, headers))
        response = await self._handler(request)
        if response is None:
            return False
        await _write_response(writer, request, response)
        return response.cut is None


class Upstream:
    """Connections to one server, kept and used again."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, request: Request) -> Response:
        """The server's answer; OSError or EOFError when there is none."""
        reader, writer = await self._connection()
        try:
            head = [f"{request.method} {request.target} HTTP/1.1"]
            head += [f"{name}: {value}" for name, value in request.headers.items()]
            writer.write("\r\n".join([*head, "", ""]).encode("latin-1") + request.body)
            await writer.drain()
            first, headers = await _read_head(reader)
            status = int(first.split(" ", 2)[1])
            bodiless = request.method == "HEAD" or status in (204, 304)
            body = b"" if bodiless else await _read_body(reader, headers)
        except BaseException:
            writer.transport.abort()
            raise
        if headers.get("connection", "").lower() == "close":
            writer.close()
        else:
            self._idle.append((reader, writer))
        headers.pop("transfer-encoding", None)
        return Response(status, headers, body)

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof() and not writer.is_closing():
                return reader, writer
        return await asyncio.open_connection("127.0.0.1", self._port, limit=_LONGEST_HEAD)


async def _read_head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *rest = head[:-4].split("\r\n")
    pairs = (line.partition(":") for line in rest)
    return first, {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(headers.get("content-length", 0)))
    parts = []
    while size := int((await reader.readline()).split(b";")[0], 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return b"".join(parts)


async def _write_response(writer: asyncio.StreamWriter, request: Request, response: Response) -> None:
    head = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
    headers = dict(response.headers)
    if request.method != "HEAD" and response.status not in (204, 304):  # to HEAD the length is of what is not sent
        headers["content-length"] = str(len(response.body))
    head += [f"{name}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join([*head, "", ""]).encode("latin-1") + response.body[: response.cut])
    await writer.drain()
