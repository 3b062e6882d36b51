"""Messages as they come: straight from the connection to whoever waits for them.

The driver matches every line against six patterns, parses every header and hands every message through a queue and a
task; that is most of what a message costs. This one small module goes around that, and steps aside when the driver's
reader is not the one it knows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import ProtocolError
from nats.protocol.parser import AWAITING_CONTROL_LINE, Parser

from ...escaping import logger_named

_LOG = logger_named("holdfast.nats")
_LARGE_BYTES = 256 << 10  # the driver gathers what is longer: joining what has come so far costs more each time


def _takes(function: Any, *names: str) -> bool:
    return tuple(inspect.signature(function).parameters) == names


_IS_KNOWN = _takes(getattr(Client, "_process_msg", len), "self", "sid", "subject", "reply", "data", "headers")
_PARSER_IS_KNOWN = (
    _IS_KNOWN
    and _takes(Parser.parse, "self", "data")
    and {"buf", "state"} <= vars(Parser()).keys()
    and type(getattr(Client(), "_ps", None)) is Parser
)


class Incoming(msgspec.Struct, gc=False):
    """A message whose headers are read when somebody asks."""

    subject: str
    reply: str
    data: bytes
    head: bytes | None = None
    read: dict[str, str] | None = None  # the headers, once somebody has asked

    @property
    def headers(self) -> dict[str, str] | None:
        if self.read is None and self.head:
            self.read = parse(self.head)
        return self.read


def parse(raw: bytes) -> dict[str, str]:
    """Headers of the protocol: a first line that may hold a status, then `Name: value` lines."""
    first, *lines = raw.decode("utf-8", "replace").split("\r\n")
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            found[name] = value.strip()
    _, _, status = first.partition(" ")
    if status:
        found["Status"], _, found["Description"] = status.partition(" ")
    return found


Handler = Callable[[Any], None]  # given a Incoming, or the driver's own message


class FastClient(Client):
    """The driver's client, with handlers that hear at once."""

    def __init__(self) -> None:
        super().__init__()
        self.straight: dict[bytes, Handler] = {}  # by the number of the subscription
        if _PARSER_IS_KNOWN:
            self._ps = _FastParser(self)

    async def listen(self, subject: str, handler: Handler) -> None:
        """Subscribe for good; the handler must be quick and must not raise."""

        async def heard(message: Msg) -> None:
            handler(message)

        found = await self.subscribe(subject, cb=heard, pending_bytes_limit=0, pending_msgs_limit=0)
        if _IS_KNOWN:
            self.straight[b"%d" % found._id] = handler

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        handler = self.straight.get(b"%d" % sid)
        if handler is None:
            await super()._process_msg(sid, subject, reply, data, headers)  # type: ignore[arg-type]  # None is no header
            return
        head = bytes(headers) if headers else None
        _tell(handler, Incoming(subject.decode(), (reply or b"").decode(), bytes(data), head))


def _tell(handler: Handler, word: Incoming) -> None:
    try:
        handler(word)
    except Exception:  # noqa: BLE001 - a bad message must not end the connection
        _LOG.exception("nats: a message could not be taken")


class _FastParser(Parser):
    """The driver's parser, with a short way for whole messages that are heard at once; the rest it does itself."""

    def __init__(self, ear: FastClient) -> None:
        super().__init__(ear)
        self._straight = ear.straight

    def reset(self) -> None:
        super().reset()
        self._rest = b""  # the beginning of a line or message whose end has not come
        self._since = object()  # this connection

    async def parse(self, data: bytes = b"") -> None:
        if not self.buf and self.state == AWAITING_CONTROL_LINE:
            try:
                await self._whole(self._rest + data)
            except (ValueError, IndexError):
                raise ProtocolError("nats: malformed MSG") from None
            return
        await super().parse(data)  # a large message is being gathered
        if self.state == AWAITING_CONTROL_LINE:
            self._rest = bytes(self.buf)
            self.buf.clear()

    async def _whole(self, data: bytes) -> None:
        """Everything that is whole in these bytes; the rest waits for more."""
        at, straight, since = 0, self._straight, self._since
        while (end := data.find(b"\r\n", at)) >= 0:
            words, start, stop = data[at:end].split(b" "), end + 2, end + 2
            handler = None
            if words[0] == b"MSG" or words[0] == b"HMSG":
                stop += int(words[-1]) + 2
                if stop > len(data):
                    break
                handler = straight.get(words[2])
            if handler is None:
                await super().parse(data[at:stop])
                if self._since is not since:
                    return  # it was the last word of that connection
            elif words[0] == b"MSG":  # subject sid [reply] size
                reply = words[3].decode() if len(words) == 5 else ""
                _tell(handler, Incoming(words[1].decode(), reply, data[start : stop - 2]))
            else:  # subject sid [reply] header-size size
                reply, body = words[3].decode() if len(words) == 6 else "", start + int(words[-2])
                _tell(handler, Incoming(words[1].decode(), reply, data[body : stop - 2], data[start:body]))
            at = stop
        self._rest = data[at:]
        if len(self._rest) > _LARGE_BYTES:
            rest, self._rest = self._rest, b""
            await super().parse(rest)
