"""A wire between client and server that a test can cut, and that can swallow notifications."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator


class Proxy:
    """`notifications = False` drops every notification, `muted` all, from `mute_after` answers on;
    `cut_after` ends each connection after so many bytes; `late` holds the next answer up, once."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.notifications = True
        self.dropped = 0
        self.muted = False  # whatever the server says is lost
        self.mute_after: int | None = None
        self.results = True  # False: rows and ends of statements are lost, their preparation goes on
        self.cut_after: tuple[int, int] | None = None  # between these numbers of bytes from the server
        self.cuts = 0
        self.version: bytes | None = None  # what the server shall say it is
        self.late = 0.0  # seconds by which the next answer comes later
        self.chance = random.Random(7)
        self._writers: set[asyncio.StreamWriter] = set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Proxy]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.cut_all()

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}?sslmode=disable"

    def cut_all(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            theirs, ours = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, ours}
        left = None if self.cut_after is None else self.chance.randint(*self.cut_after)
        pumps = [asyncio.create_task(self._up(reader, ours)), asyncio.create_task(self._down(theirs, writer, left))]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for end in (writer, ours):
            end.transport.abort()
        for pump in pumps:
            pump.cancel()
        self._writers -= {writer, ours}

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int | None) -> None:
        """Message by message: one byte of type, four of length, the rest."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readexactly(5)
                body = await reader.readexactly(int.from_bytes(head[1:]) - 4)
                if head[:1] == b"A" and not self.notifications:
                    self.dropped += 1
                    continue
                if self.muted or (head[:1] in b"DCZ" and not self.results):
                    continue
                if head[:1] == b"S" and self.version and body.startswith(b"server_version\0"):
                    body = b"server_version\0" + self.version + b"\0"
                    head = b"S" + (len(body) + 4).to_bytes(4)
                late, self.late = self.late, 0.0
                await asyncio.sleep(late)
                data = head + body
                if left is not None and len(data) >= left:
                    writer.write(data[:left])
                    await writer.drain()
                    self.cuts += 1
                    return
                left = None if left is None else left - len(data)
                writer.write(data)
                if head[:1] == b"Z" and self.mute_after is not None:  # ready for the next query
                    self.mute_after -= 1
                    self.muted = self.mute_after <= 0
                await writer.drain()
