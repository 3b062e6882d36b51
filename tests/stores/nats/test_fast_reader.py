"""The short way of reading: in whatever pieces bytes come, the same messages as by the driver's own parser."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from nats.errors import ProtocolError
from nats.protocol.parser import Parser

from holdfast.stores.nats import fast_reader
from holdfast.stores.nats.fast_reader import FastClient, Incoming

LARGE = b"x" * (fast_reader._LARGE_BYTES + 70_000)
STREAM = b"".join(
    [
        b"MSG a.b 1 5\r\nhello\r\n",
        b"PING\r\n",
        b"MSG a.b 1 _INBOX.x.1 0\r\n\r\n",
        b"HMSG a.c 1 28 28\r\nNATS/1.0 404 No Messages\r\n\r\n\r\n",
        b"+OK\r\n",
        b"HMSG a.c 1 reply.to 18 22\r\nNATS/1.0\r\nA: 1\r\n\r\nbody\r\n",
        b"MSG theirs 7 4\r\n\r\n\r\n\r\n",
        b"MSG a.d 2 13\r\nMSG a.b 1 5\r\n\r\n",
        b"MSG a.e 1 %d\r\n%b\r\n" % (len(LARGE), LARGE),
        b"MSG a.f 1 3\r\nend\r\n",
        b"PONG\r\n",
    ]
)
Heard = tuple[str, str, bytes, dict[str, str] | None]


class Listener(FastClient):
    """Without a connection; what reaches the driver's own ways is heard too."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Heard] = []
        self.pings = 0
        self.straight |= {b"1": self.take, b"2": self.take}

    def take(self, word: Incoming) -> None:
        self.heard.append((word.subject, word.reply, word.data, word.headers))

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: Any) -> None:
        if sid == 7:
            self.heard.append((subject.decode(), reply.decode(), bytes(data), None))
        else:
            await super()._process_msg(sid, subject, reply, data, headers)

    async def _process_ping(self) -> None:
        self.pings += 1

    async def _process_pong(self) -> None:
        self.pings += 1


async def read(parser: Parser, pieces: list[bytes]) -> None:
    for piece in pieces:
        await parser.parse(piece)


def by_the_driver() -> list[Heard]:
    ear = Listener()
    asyncio.run(read(Parser(ear), [STREAM]))
    return ear.heard


def test_the_short_way_is_in_use() -> None:
    assert type(FastClient()._ps) is fast_reader._FastParser


@pytest.mark.parametrize("seed", range(40))
def test_pieces_of_any_size_give_the_messages_of_the_driver(seed: int) -> None:
    chance = random.Random(seed)
    most = chance.choice([3, 40, 1000, 40_000, 1 << 20])
    pieces, at = [], 0
    while at < len(STREAM):
        size = chance.randint(1, most) if most > 40 or at < 300 else 50_000
        pieces.append(STREAM[at : at + size])
        at += size
    ear = Listener()
    asyncio.run(read(ear._ps, pieces))
    assert ear.heard == by_the_driver()
    assert len(ear.heard) == 8
    assert ear.pings == 2


def test_a_new_connection_begins_anew() -> None:
    ear = Listener()

    async def broken() -> None:
        await ear._ps.parse(b"MSG a.b 1 5\r\nhel")
        ear._ps.reset()
        await ear._ps.parse(b"MSG a.b 1 2\r\nyo\r\n")

    asyncio.run(broken())
    assert ear.heard == [("a.b", "", b"yo", None)]


@pytest.mark.parametrize(
    "line", [b"MSG a.b 1 five\r\nhello\r\n", b"MSG 5\r\n" + b"x" * 9, b"HMSG a 1 x 5\r\nhello\r\n", b"?\r\n"]
)
def test_what_is_no_protocol_is_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        asyncio.run(read(Listener()._ps, [line]))


def test_a_handler_that_fails_does_not_end_the_reading(caplog: pytest.LogCaptureFixture) -> None:
    ear = Listener()

    def fail(_word: Incoming) -> None:
        raise ValueError("no")

    ear.straight[b"1"] = fail
    asyncio.run(read(ear._ps, [b"MSG a.b 1 1\r\nx\r\nMSG a.d 2 1\r\ny\r\n"]))
    assert [word[2] for word in ear.heard] == [b"y"]
    assert "could not be taken" in caplog.text
