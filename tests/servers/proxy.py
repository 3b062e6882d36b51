"""What goes wrong between a client and a bucket: seeded faults by request, added latency, and a count of everything."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from types import TracebackType
from urllib.parse import parse_qs, urlsplit

from .http import HttpServer, Request, Response, Upstream

_WRITES = ("PUT", "POST", "DELETE")
_ERROR = '<?xml version="1.0" encoding="UTF-8"?><Error><Code>{}</Code><Message>by the proxy</Message></Error>'


@dataclass(frozen=True)
class Faults:
    """How often, from 0 to 1, of the requests that a fault can hit."""

    unavailable: float = 0.0  # 503, and the server never hears of it
    dropped: float = 0.0  # a write is applied, its reply is not given
    conflict: float = 0.0  # 409 to a conditional write, and the server never hears of it
    delayed: float = 0.0  # by `delay` seconds: before the server hears of it, or after
    truncated: float = 0.0  # the reply's body breaks off
    flipped: float = 0.0  # a bit of what a write brings
    slow_lists: float = 0.0  # of the lists alone: what a list shows is `delay` seconds old when it comes
    delay: float = 3.0

    def pick(self, dice: float) -> str:
        for kind in ("unavailable", "dropped", "conflict", "delayed", "truncated", "flipped"):
            dice -= getattr(self, kind)
            if dice < 0:
                return kind
        return ""


@dataclass
class Counts:
    """What passed, and which faults hit something."""

    requests: Counter[str] = field(default_factory=Counter)  # create swap put get head list delete
    sent: int = 0  # bytes of bodies towards the server
    received: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def since(self, before: Counts) -> Counts:
        return Counts(
            self.requests - before.requests,
            self.sent - before.sent,
            self.received - before.received,
            self.faults - before.faults,
        )

    def copy(self) -> Counts:
        return Counts(self.requests.copy(), self.sent, self.received, self.faults.copy())


class Proxy:
    """`with Proxy(server.port, Faults(unavailable=0.1)) as proxy: server.url("p", endpoint=proxy.endpoint)`.

    Faults begin and end with `faults = Faults(…)`; `latency` is added to every request, half before and half after.
    """

    def __init__(self, port: int, faults: Faults | None = None, *, latency: float = 0.0, seed: int = 0) -> None:
        self.faults = faults or Faults()
        self.latency = latency
        self.counts = Counts()
        self._chance = random.Random(seed)
        self._upstream = Upstream(port)
        self._server = HttpServer(self._handle)

    @property
    def endpoint(self) -> str:
        return self._server.endpoint

    @property
    def port(self) -> int:
        return self._server.port

    def __enter__(self) -> Proxy:
        self._server.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.__exit__(kind, error, trace)

    # ------------------------------------------------------------------ one request

    async def _handle(self, request: Request) -> Response | None:
        kind = kind_of(request)
        self.counts.requests[kind] += 1
        self.counts.sent += len(request.body)
        if kind == "list" and self.faults.slow_lists and self._chance.random() < self.faults.slow_lists:
            return await self._answer_late(request)
        fault = self.faults.pick(self._chance.random())
        if self.latency:
            await asyncio.sleep(self.latency / 2)
        response = await _MANNERS.get(fault, Proxy._pass)(self, request)
        if self.latency:
            await asyncio.sleep(self.latency / 2)
        self.counts.received += len(response.body) if response is not None else 0
        return response

    async def _pass(self, request: Request) -> Response | None:
        try:
            return await self._upstream.ask(request)
        except (OSError, EOFError):
            return None

    async def _unavailable(self, request: Request) -> Response | None:
        self.counts.faults["unavailable"] += 1
        return _error(503, "SlowDown")

    async def _conflict(self, request: Request) -> Response | None:
        if kind_of(request) not in ("create", "swap"):
            return await self._pass(request)
        self.counts.faults["conflict"] += 1
        return _error(409, "ConditionalRequestConflict")

    async def _drop(self, request: Request) -> Response | None:
        response = await self._pass(request)
        if request.method not in _WRITES or response is None or response.status >= 300:
            return response
        self.counts.faults["dropped"] += 1
        return None

    async def _delay(self, request: Request) -> Response | None:
        """A write comes late to the server, or its reply comes late: both happen."""
        early = self._chance.random() < 0.5
        self.counts.faults["delayed"] += 1
        if early:
            await asyncio.sleep(self.faults.delay)
        response = await self._pass(request)
        if not early:
            await asyncio.sleep(self.faults.delay)
        return response

    async def _answer_late(self, request: Request) -> Response | None:
        self.counts.faults["slow list"] += 1
        response = await self._pass(request)
        await asyncio.sleep(self.faults.delay)
        return response

    async def _truncate(self, request: Request) -> Response | None:
        response = await self._pass(request)
        if response is not None and response.body:
            self.counts.faults["truncated"] += 1
            response.cut = self._chance.randrange(len(response.body))
        return response

    async def _flip(self, request: Request) -> Response | None:
        if request.method != "PUT" or not request.body:
            return await self._pass(request)
        self.counts.faults["flipped"] += 1
        bit = self._chance.randrange(8 * len(request.body))
        body = bytearray(request.body)
        body[bit // 8] ^= 1 << bit % 8
        return await self._pass(replace(request, body=bytes(body)))


_MANNERS = {
    "unavailable": Proxy._unavailable,
    "conflict": Proxy._conflict,
    "dropped": Proxy._drop,
    "delayed": Proxy._delay,
    "truncated": Proxy._truncate,
    "flipped": Proxy._flip,
}


def kind_of(request: Request) -> str:
    """What a request is to an object store."""
    if request.method == "PUT":
        conditional = {"if-none-match": "create", "if-match": "swap"}
        return next((kind for header, kind in conditional.items() if header in request.headers), "put")
    if request.method == "GET":
        query = parse_qs(urlsplit(request.target).query, keep_blank_values=True)
        return "list" if "list-type" in query or query.get("comp") == ["list"] else "get"
    return {"POST": "delete"}.get(request.method, request.method.lower())  # by POST ?delete, on Azure ?comp=batch


def _error(status: int, code: str) -> Response:
    return Response(status, {"content-type": "application/xml"}, _ERROR.format(code).encode())
