"""Messages as they come: straight from the driver's reader to whoever waits for them.

The driver parses every header and hands every message through a queue and a task; that is most of what a message
costs. This one small module goes around that, and steps aside when the driver's reader is not the one it knows.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg

_LOG = logging.getLogger("holdfast.nats")
_KNOWN = ("self", "sid", "subject", "reply", "data", "headers")
_IS_KNOWN = tuple(inspect.signature(getattr(Client, "_process_msg", len)).parameters) == _KNOWN


class Word:
    """A message whose headers are read when somebody asks."""

    __slots__ = ("_headers", "data", "reply", "subject")

    def __init__(self, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        self.subject = subject.decode()
        self.reply = (reply or b"").decode()
        self.data = bytes(data)
        self._headers = headers

    @property
    def headers(self) -> dict[str, str]:
        return parse(bytes(self._headers)) if self._headers else {}


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


Handler = Callable[[Any], None]  # given a Word, or the driver's own message


class Ear(Client):
    """The driver's client, with handlers that hear at once."""

    def __init__(self) -> None:
        super().__init__()
        self._straight: dict[int, Handler] = {}

    async def listen(self, subject: str, handler: Handler) -> None:
        """Subscribe for good; the handler must be quick and must not raise."""

        async def heard(message: Msg) -> None:
            handler(message)

        found = await self.subscribe(subject, cb=heard, pending_bytes_limit=0, pending_msgs_limit=0)
        if _IS_KNOWN:
            self._straight[found._id] = handler

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        handler = self._straight.get(sid)
        if handler is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        try:
            handler(Word(subject, reply, data, headers))
        except Exception:  # noqa: BLE001 - a bad message must not end the connection
            _LOG.exception("nats: a message could not be taken")
