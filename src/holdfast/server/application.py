"""The whole as an ASGI application: one gate, and behind it the seam, the API and the numbers of each store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from litestar import Litestar, Request, Response, Router
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.enums import MediaType
from litestar.exceptions import HTTPException
from litestar.handlers import BaseRouteHandler
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin

from .. import __version__
from ..errors import ConfigError, HoldfastError, UnknownOutcome
from ..stores.http import wire
from . import letters, messages, numbers, queues, schedules, stream, workers
from .gate import BASE, HOLDER, Asgi, Gate, Receive, Scope, Send, send_redirect
from .page import front, routes
from .page.frame import told
from .problems import PROBLEM_JSON, Problem, Refused, headers_of, problem_of, send_problem
from .replies import AnyRequest
from .seam import Seam
from .served import Served
from .settings import ServerSettings
from .tokens import Holder

_FRONT = ("login", "logout", "static")  # the first word of paths above the stores


class Application:
    """Several stores lie below their names; one alone lies at the top."""

    def __init__(self, served: Mapping[str, Served], settings: ServerSettings) -> None:
        self.served: dict[str, Served] = {}
        self._path = settings.path
        self._front = _front(settings, lambda: sorted(self.served))
        self._doors: dict[str, Asgi] = {}
        self._gate = Gate(self._inside, settings)
        for name, each in served.items():
            self.add(name, each)

    def add(self, name: str, served: Served) -> None:
        """One more store; without a name it lies at the top."""
        if name in _FRONT:
            raise ConfigError(f"a store cannot be called {name}: that is a page")
        self.served[name] = served
        self._doors[f"/{name}" if name else ""] = _door(served)

    def close(self) -> None:
        """No new claims; waiting requests are answered."""
        for each in self.served.values():
            each.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await _live(receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close"})
        mounted: str = scope.get("root_path", "")
        base, path = mounted + self._path, scope["path"].removeprefix(mounted)
        if base and path in ("", self._path):
            return await send_redirect(send, f"{base}/")
        if not path.startswith(f"{self._path}/"):
            return await send_problem(send, _nothing_here())
        scope = {**scope, "path": path.removeprefix(self._path), "root_path": "", BASE: base}
        await self._gate(scope, receive, send)

    async def _inside(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path.split("/")[1] in _FRONT or (path == "/" and "" not in self._doors):
            return await self._front(scope, receive, send)
        prefix = "" if "" in self._doors else "/".join(path.split("/", 2)[:2])
        door = self._doors.get(prefix)
        if door is None:
            return await send_problem(send, _nothing_here())
        await door({**scope, "path": path.removeprefix(prefix)}, receive, send)


def _nothing_here() -> Refused:
    return Refused(404, "not found", "there is nothing here")


def _door(served: Served) -> Asgi:
    """What serves one store: requests of the `http://` store go past everything else."""
    seam, rest = Seam(served), _litestar(served)

    async def door(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].startswith(wire.PREFIX):
            return await seam(scope, receive, send)
        await rest(scope, receive, send)  # type: ignore[arg-type]  # a scope of ASGI is what Litestar calls one

    return door


def _front(settings: ServerSettings, names: Callable[[], list[str]]) -> Asgi:
    made = Litestar(
        front.ROUTES,
        state=State({"settings": settings, "names": names}),
        exception_handlers={Exception: _told},
        openapi_config=None,
        logging_config=None,
    )
    return made  # type: ignore[return-value]  # a scope of ASGI is what Litestar calls one


def _litestar(served: Served) -> Litestar:
    api = [*queues.ROUTES, *messages.ROUTES, *letters.ROUTES, *schedules.ROUTES, *workers.ROUTES, *stream.ROUTES]
    return Litestar(
        [
            Router("/api/v1", route_handlers=api),
            *numbers.ROUTES,
            Router("/", route_handlers=routes.ROUTES, exception_handlers={Exception: told}, include_in_schema=False),
        ],
        state=State({"served": served}),
        guards=[_check_role],
        request_class=AnyRequest,
        exception_handlers={Exception: _told},
        openapi_config=OpenAPIConfig(
            title="Holdfast",
            version=__version__,
            path="/schema",
            render_plugins=[JsonRenderPlugin(path="/", media_type=MediaType.JSON)],
            use_handler_docstrings=True,
        ),
        request_max_body_size=None,  # the gate has seen to it
        logging_config=None,
    )


def _check_role(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """What a route needs is in its `opt`; the schema and health are for everybody who came so far."""
    holder: Holder = connection.scope[HOLDER]  # type: ignore[literal-required]  # put there by the gate
    role = handler.opt.get("role", "read")
    if not holder.may(role):
        raise Refused(403, "not allowed", f"this needs the role {role}")
    queue = connection.path_params.get("queue")
    if queue is not None and not holder.reaches(queue):
        raise Refused(403, "not allowed", "this token is for other queues")


def _told(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Any error as a problem; Litestar's own have their status."""
    if isinstance(error, HTTPException) and not isinstance(error, HoldfastError | UnknownOutcome):
        is_input = error.status_code == 400
        status = 422 if is_input else error.status_code
        detail = "; ".join([error.detail, *_complaints(error)])
        problem = Problem("about:blank", "bad input" if is_input else "not answered", status, detail)
    else:
        problem = problem_of(error)
    headers = {
        **headers_of(error, problem.status),
        **(getattr(error, "headers", None) or {} if isinstance(error, HTTPException) else {}),
    }
    return Response(msgspec.json.encode(problem), media_type=PROBLEM_JSON, status_code=problem.status, headers=headers)


def _complaints(error: HTTPException) -> list[str]:
    extra = error.extra if isinstance(error.extra, list) else []
    return [f"{each.get('key', '')}: {each.get('message', '')}" for each in extra if isinstance(each, dict)]


async def _live(receive: Receive, send: Send) -> None:
    """Our caller opens and closes the stores."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
