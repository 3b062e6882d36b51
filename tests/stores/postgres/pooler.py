"""A pooler in transaction mode, as pgbouncer is: after every transaction a client's server connection goes to whoever
comes next. Prepared statements are made again wherever they are needed, as by 1.21 and newer, or not, as by older ones;
LISTEN is not."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from itertools import count

_STARTUP = 196608  # protocol 3.0
_SSL = 80877103
_CANCEL = 80877102


def packed(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


async def message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """One byte of type, four of length, the rest."""
    head = await reader.readexactly(5)
    return head[:1], await reader.readexactly(int.from_bytes(head[1:]) - 4)


def _with_key(greeting: bytes, number: int) -> bytes:
    """The greeting with a key for cancelling that is the pooler's own: it names no process of the server."""
    made = b""
    while greeting:
        length = 1 + int.from_bytes(greeting[1:5])
        one, greeting = greeting[:length], greeting[length:]
        made += packed(b"K", struct.pack("!II", number, 0)) if one[:1] == b"K" else one
    return made


class Backend:
    """A connection to the server, and the prepared statements it has."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.prepared: set[bytes] = set()
        self.greeting = b""


class Pooler:
    """`size` server connections for any number of clients."""

    def __init__(self, port: int, database: str, *, size: int = 4, keeps_prepared: bool = True) -> None:
        self.keeps_prepared = keeps_prepared
        self._port, self._database, self._size = port, database, size
        self._free: asyncio.Queue[Backend] = asyncio.Queue()
        self._clients: set[asyncio.StreamWriter] = set()
        self._numbers = count(1)
        self._greeting = b""
        self.transactions = 0
        self.lost = 0  # notifications that came for a client that had gone on

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Pooler]:
        backends = [await self._backend() for _ in range(self._size)]
        self._greeting = backends[0].greeting
        for backend in backends:
            self._free.put_nowait(backend)
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"postgresql://postgres@127.0.0.1:{server.sockets[0].getsockname()[1]}/{self._database}"
        try:
            yield self
        finally:
            server.close()
            for writer in [*self._clients, *(backend.writer for backend in backends)]:
                writer.transport.abort()

    async def _backend(self) -> Backend:
        backend = Backend(*await asyncio.open_connection("127.0.0.1", self._port))
        words = f"user\0postgres\0database\0{self._database}\0\0".encode()
        backend.writer.write(struct.pack("!II", len(words) + 8, _STARTUP) + words)
        kind = b""
        while kind != b"Z":
            kind, body = await message(backend.reader)
            backend.greeting += packed(kind, body)
        return backend

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.add(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            number = next(self._numbers)
            if await self._greeted(reader, writer, number):
                await _Client(self, reader, writer, b"c%d_" % number if self.keeps_prepared else b"").run()
        writer.transport.abort()
        self._clients.discard(writer)

    async def _greeted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> bool:
        while True:
            length, code = struct.unpack("!II", await reader.readexactly(8))
            await reader.readexactly(length - 8)
            if code == _STARTUP:
                writer.write(_with_key(self._greeting, number))
                return True
            if code == _CANCEL:
                return False
            assert code == _SSL
            writer.write(b"N")

    async def take(self) -> Backend:
        return await self._free.get()

    def give(self, backend: Backend) -> None:
        """To the end of the line: its client gets another one next time."""
        self.transactions += 1
        self._free.put_nowait(backend)


class _Client:
    def __init__(
        self, pooler: Pooler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, prefix: bytes
    ) -> None:
        self._pooler, self._reader, self._writer, self._prefix = pooler, reader, writer, prefix
        self._statements: dict[bytes, bytes] = {}  # our name, and the message that prepares it
        self._backend: Backend | None = None
        self._swallow = 0  # answers to what we prepared anew
        self._speaking: asyncio.Task[None] | None = None

    async def run(self) -> None:
        while True:
            kind, body = await message(self._reader)
            if kind == b"X":
                return
            if self._backend is None:
                self._backend = await self._pooler.take()
                self._speaking = asyncio.create_task(self._answers(self._backend))
            self._backend.writer.write(self._renamed(self._backend, kind, body))

    def _renamed(self, backend: Backend, kind: bytes, body: bytes) -> bytes:
        """Names of prepared statements are a client's own; here they are told apart."""
        if kind == b"P":
            name, _, rest = body.partition(b"\0")
            own = self._prefix + name
            prepares = self._statements[own] = packed(kind, own + b"\0" + rest)
            backend.prepared.add(own)
            return prepares
        if kind == b"B":
            portal, name, rest = body.split(b"\0", 2)
            own = self._prefix + name
            return self._missing(backend, own) + packed(kind, portal + b"\0" + own + b"\0" + rest)
        if kind in b"DC" and body[:1] == b"S":
            own = self._prefix + body[1:-1]
            before = self._missing(backend, own) if kind == b"D" else b""
            if kind == b"C":
                backend.prepared.discard(own)
            return before + packed(kind, b"S" + own + b"\0")
        return packed(kind, body)

    def _missing(self, backend: Backend, own: bytes) -> bytes:
        if own in backend.prepared or not self._pooler.keeps_prepared:
            return b""
        backend.prepared.add(own)
        self._swallow += 1
        return self._statements[own]

    async def _answers(self, backend: Backend) -> None:
        """Until the transaction is over; then the connection is not ours any more."""
        while True:
            kind, body = await message(backend.reader)
            if kind == b"Z" and body == b"I":
                self._backend = None
                self._pooler.give(backend)
                self._writer.write(packed(kind, body))
                return
            if kind == b"A":
                self._pooler.lost += 1
            elif kind == b"1" and self._swallow:
                self._swallow -= 1
            else:
                self._writer.write(packed(kind, body))
