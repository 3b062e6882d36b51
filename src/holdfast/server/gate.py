"""Before every request: which host it names, where it comes from, who sends it, and how large it is."""

from __future__ import annotations

import time
import zlib
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, TypeAlias
from urllib.parse import quote, urlsplit

from .problems import Refused, send_problem
from .settings import LOOPBACK_NAMES, ServerSettings
from .tokens import LOCAL, Holder

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_SAFE = ("GET", "HEAD", "OPTIONS")
_BEARER = "bearer "
_OPEN = ("/health/live", "/health/ready", "/login")
_STATIC = "/static/"
HOLDER = "holdfast.holder"  # in the scope: who calls
BASE = "holdfast.base"  # in the scope: the path below which the application lies, for links
SESSION = "holdfast"  # the cookie of browsers that gave a token
_HEADERS = [
    (b"content-security-policy", b"default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]


class Gate:
    """Around the whole application."""

    def __init__(self, inner: Asgi, settings: ServerSettings) -> None:
        self._inner = inner
        self._settings = settings
        self._hosts = {*LOOPBACK_NAMES, *(name.lower() for name in settings.host_names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._inner(scope, receive, send)
        guarded = _with_headers(send)
        try:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            self._check_place(scope, headers)
            scope[HOLDER] = self._holder(scope["path"], headers)
            body = await self._body(scope, receive, headers)
        except Refused as refused:
            if refused.status == 401 and _is_browser(scope, headers):
                return await send_redirect(guarded, f"{scope.get(BASE, '')}/login?next={_wanted(scope)}")
            return await send_problem(guarded, refused)
        await self._inner(scope, _replayed(body, receive), guarded)

    def _check_place(self, scope: Scope, headers: dict[str, str]) -> None:
        """Pages of others must not reach us: neither by a name of theirs for our address, nor by a form or script."""
        host = headers.get("host", "")
        if "*" not in self._hosts and _name_of(host) not in self._hosts:
            raise Refused(421, "wrong host", "this server does not answer to that name: start it with --host-name")
        if scope["method"] in _SAFE:
            return
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if origin == "null" and site == "same-origin":
            return  # a form of ours: pages that send no referrer send no origin either
        is_foreign = site not in (None, "none", "same-origin")
        if is_foreign or (origin is not None and _place_of(origin) != host.lower()):
            raise Refused(403, "foreign origin", "requests that change something come from this server's own pages")

    def _holder(self, path: str, headers: dict[str, str]) -> Holder:
        settings = self._settings
        if path in _OPEN or path.startswith(_STATIC) or (settings.open_metrics and path == "/metrics"):
            return Holder("anybody", "read")
        holder: Holder | None = LOCAL
        if settings.tokens:
            given = headers.get("authorization", "")
            is_bearer = given[: len(_BEARER)].lower() == _BEARER
            holder = settings.tokens.find(given[len(_BEARER) :].strip()) if is_bearer else None
            if not given:
                holder = settings.tokens.find_session(_session(headers), time.time())
        if holder is None:
            challenge = (("www-authenticate", 'Bearer realm="holdfast"'),)
            raise Refused(401, "no such token", "send a token: Authorization: Bearer …", challenge)
        return Holder(holder.name, "read", holder.queues) if settings.read_only else holder

    async def _body(self, scope: Scope, receive: Receive, headers: dict[str, str]) -> bytes:
        """All of it, unpacked; what is too large is refused as soon as that is seen."""
        limit, length = self._settings.body_bytes, headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > limit:
            raise _too_large(limit)
        unpack, ended = _unpacker(headers.get("content-encoding", ""))
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(400, "gone", "the request ended before its body did")
            part = unpack(message.get("body", b""), limit - size + 1)
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            parts.append(part)
            if not message.get("more_body"):
                ended()
                return parts[0] if len(parts) == 1 else b"".join(parts)


def _session(headers: dict[str, str]) -> str:
    try:
        kept = SimpleCookie(headers.get("cookie", "")).get(SESSION)
    except CookieError:
        return ""
    return kept.value if kept else ""


def _is_browser(scope: Scope, headers: dict[str, str]) -> bool:
    """Somebody who can be asked for a token."""
    return scope["method"] == "GET" and "text/html" in headers.get("accept", "")


def _wanted(scope: Scope) -> str:
    query = scope.get("query_string", b"").decode("latin-1")
    return quote(scope["path"] + (f"?{query}" if query else ""), safe="/")


async def send_redirect(send: Send, where: str) -> None:
    """To a page of ours, by GET."""
    headers = [(b"location", where.encode("latin-1", "replace")), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _too_large(limit: int) -> Refused:
    return Refused(413, "too large", f"a body may have {limit} bytes, unpacked")


def _unpacker(encoding: str) -> tuple[Callable[[bytes, int], bytes], Callable[[], None]]:
    """What unpacks the next part, to no more than so many bytes; and what refuses a body that is not whole."""
    if encoding in ("", "identity"):
        return (lambda data, most: data), (lambda: None)
    if encoding != "gzip":
        raise Refused(415, "unknown encoding", "bodies are plain or gzip")
    inflate = zlib.decompressobj(wbits=31)

    def unpack(data: bytes, most: int) -> bytes:
        try:
            return inflate.decompress(data, most) if data else b""
        except zlib.error as error:
            raise Refused(400, "bad gzip", str(error)) from error

    def ended() -> None:
        if not inflate.eof or inflate.unused_data:
            raise Refused(400, "bad gzip", "a body is one whole gzip member and nothing else")

    return unpack, ended


def _place_of(origin: str) -> str:
    """Host and port; of what is no address, nothing that a host is called."""
    try:
        return urlsplit(origin).netloc.lower() or origin
    except ValueError:
        return origin


def _name_of(host: str) -> str:
    """Without the port."""
    if host.startswith("["):
        return host[1:].split("]")[0].lower()
    return host.rpartition(":")[0].lower() if host.count(":") == 1 else host.lower()


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body that was read, once; then what comes, which is the end of the connection."""
    left = [body]

    async def again() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": left.pop(), "more_body": False} if left else await receive()

    return again


def _with_headers(send: Send) -> Send:
    async def guarded(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            said = {name.lower() for name, _ in message["headers"]}
            message["headers"] = [*message["headers"], *(each for each in _HEADERS if each[0] not in said)]
        await send(message)

    return guarded
