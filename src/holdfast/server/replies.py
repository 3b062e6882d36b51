"""JSON for people, msgpack for speed: what a request sends and what it accepts, the same on every route."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import msgspec
from litestar import Request, Response
from litestar.enums import MediaType
from litestar.exceptions import SerializationException

from ..stores.http.wire import MSGPACK
from .gate import HOLDER
from .problems import Refused
from .served import Served
from .tokens import Holder

T = TypeVar("T")


class AnyRequest(Request[Any, Any, Any]):
    """Reads its body as the content type says."""

    async def json(self) -> Any:
        kind = self.headers.get("content-type", "").split(";")[0].strip().lower()
        body = await self.body()
        try:
            if kind == MSGPACK:
                return msgspec.msgpack.decode(body)
            if kind in ("", "application/json", "application/x-www-form-urlencoded"):  # what curl says of -d
                return msgspec.json.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise SerializationException(str(error)) from error
        raise Refused(415, "unknown content type", "bodies are application/json or application/msgpack")


def reply(request: Request[Any, Any, Any], value: T, *, status: int = 200) -> Response[T]:
    """The answer as the client wants it."""
    if MSGPACK in request.headers.get("accept", ""):
        try:
            data: Any = msgspec.msgpack.encode(value)
            return Response(data, media_type=MSGPACK, status_code=status)
        except OverflowError:  # JSON has numbers that msgpack has not
            pass
    return Response(value, media_type=MediaType.JSON, status_code=status)


def served_of(request: Request[Any, Any, Any]) -> Served:
    served: Served = request.app.state.served
    return served


def holder_of(request: Request[Any, Any, Any]) -> Holder:
    holder: Holder = request.scope[HOLDER]  # type: ignore[literal-required]  # put there by the gate
    return holder


async def audit(request: Request[Any, Any, Any], count: int | None = None) -> None:
    """When, who, what, how many."""
    what = f"{request.method} {request.url.path}"
    await note(served_of(request), holder_of(request).name, what, count)


async def note(served: Served, who: str, what: str, count: int | None = None) -> None:
    """The same of what no request does."""
    await asyncio.to_thread(served.audits.add, who, what, None if count is None else int(count))


def sees_content(request: Request[Any, Any, Any]) -> bool:
    return holder_of(request).may("work") or served_of(request).settings.show_payloads
