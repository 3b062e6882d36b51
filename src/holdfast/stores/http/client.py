"""Requests to a server: one pool of connections, repeated while that changes nothing more, within their time."""

from __future__ import annotations

import asyncio
import errno
import http.client
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import msgspec

from ...config import StoreOptions
from ...errors import HoldfastError, StoreError, Unavailable
from . import wire

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5  # between two tries: a restarted server is back in a second
_MOST_REQUESTS = 64  # connections: a server answers some hundred requests in the time that one takes


class Unanswered(Unavailable):
    """The request may have been carried out, and asking again would not tell."""


class Client:
    """Belongs to one event loop."""

    def __init__(self, place: str, options: StoreOptions) -> None:
        parts = urlsplit(place)
        self._parts = parts
        self._url = parts._replace(query="").geturl()
        token = parse_qs(parts.query).get("token", [""])[0]
        self._headers = {"Content-Type": wire.MSGPACK, **({"Authorization": f"Bearer {token}"} if token else {})}
        self._timeout = options.operation_timeout
        # Each waiting claim holds a connection, so they are not counted; `_turns` counts the others.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60.0),
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
        )
        self._turns = asyncio.Semaphore(_MOST_REQUESTS)

    async def close(self) -> None:
        await self._session.close()

    def abandon(self) -> None:
        """Its loop is gone, and its connections with it."""
        self._session.detach()

    async def call(self, verb: str, body: bytes, *, wait: float = 0.0, timeout: float | None = None) -> Any:
        """The answer, or its error; Unavailable after the time of one operation, and Unanswered."""
        if wait:
            seconds = (timeout or self._timeout) + wait
            return await self._tried(verb, lambda first: body, seconds, time.monotonic() + seconds)
        return await self.call_with(verb, lambda first: body, timeout=timeout)

    async def call_with(self, verb: str, body: Callable[[bool], bytes], *, timeout: float | None = None) -> Any:
        """The same; the body may tell a first try from a repeat."""
        seconds = timeout or self._timeout
        deadline = time.monotonic() + seconds
        try:
            async with asyncio.timeout(seconds):
                await self._turns.acquire()
        except TimeoutError as error:
            raise Unavailable(f"{self._url} did not answer those before within {seconds:g} s") from error
        try:
            return await self._tried(verb, body, seconds, deadline)
        finally:
            self._turns.release()

    async def _tried(self, verb: str, body: Callable[[bool], bytes], seconds: float, deadline: float) -> Any:
        pause, is_first = _FIRST_PAUSE_S, True
        while True:
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    return await self._asked(verb, body(is_first))
            except aiohttp.ClientConnectorError as error:
                if verb == "open":  # a closed port or an unknown host: waiting does not help a wrong address
                    raise Unavailable(f"{self._url}: {_worded(error)}") from error
                reason: Exception = error
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                reason, is_first = error, False
                if not wire.VERBS[verb].repeats:
                    raise Unanswered(f"{self._url} did not answer {verb}: {_worded(error)}") from error
            if time.monotonic() + pause >= deadline:
                said = f"did not answer within {seconds:g} s: {_worded(reason)}"
                raise (Unavailable if is_first else Unanswered)(f"{self._url} {said}") from reason
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE_S, pause * 2)

    async def _asked(self, verb: str, body: bytes) -> Any:
        async with self._session.post(self._url + wire.PREFIX + verb, data=body, allow_redirects=False) as answer:
            data = await answer.read()
        return self._read(verb, answer.status, data)

    def _read(self, verb: str, status: int, data: bytes) -> Any:
        try:
            if status == 200:
                return wire.VERBS[verb].read_answer(data)
            error: HoldfastError = wire.raised(data)
        except msgspec.MsgspecError:
            error = self._refusal(verb, status, data)
        raise error

    def _refusal(self, verb: str, status: int, data: bytes) -> StoreError:
        """Of the server itself, or of somebody before it."""
        try:
            told = msgspec.json.decode(data, type=dict[str, Any])
            text = f"{told.get('title')}: {told.get('detail')}"
        except (msgspec.MsgspecError, UnicodeDecodeError):
            text = "is this a server of Holdfast, of the same version?"
        kind = Unavailable if status in (502, 503, 504) else StoreError
        return kind(f"{self._url} refused {verb} with {status}: {text}")

    def call_from_thread(self, verb: str, body: bytes) -> Any:
        """Blocking, by a connection of its own: the event loop has no time."""
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=self._timeout)
        try:
            connection.request("POST", self._parts.path + wire.PREFIX + verb, body, self._headers)
            answer = connection.getresponse()
            return self._read(verb, answer.status, answer.read())
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"{self._url} did not answer {verb}: {_worded(error)}") from error
        finally:
            connection.close()


def _worded(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"unknown host ({error.os_error.strerror})"
    if isinstance(error, aiohttp.ClientConnectorError) and _is_refused(error.os_error):
        return "connection refused: no server listens there"
    return str(error) or type(error).__name__


def _is_refused(error: OSError) -> bool:
    """Several addresses of one host make one error, which has no number but those in its text."""
    return error.errno == errno.ECONNREFUSED or (error.errno is None and f"[Errno {errno.ECONNREFUSED}]" in str(error))
