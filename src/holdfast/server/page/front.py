"""What lies above the stores: logging in, files, and the list of stores where there are several."""

from __future__ import annotations

import time
from typing import Any

from litestar import Request, Response, get, post
from litestar.datastructures import Cookie
from litestar.params import FromPath, FromQuery

from ..gate import SESSION
from ..problems import Refused
from ..settings import ServerSettings
from ..tokens import SESSION_S
from . import assets
from .frame import answer, base_of, outline


@get("/static/{name:str}", include_in_schema=False)
async def static(request: Request[Any, Any, Any], name: FromPath[str]) -> Response[bytes]:
    """A file of ours. Links name its version, so that browsers may keep it."""
    if name not in assets.NAMES:
        raise Refused(404, "not found", "there is nothing here")
    packed = "gzip" in request.headers.get("accept-encoding", "")
    headers = {"cache-control": "public, max-age=31536000, immutable", "vary": "accept-encoding"}
    if packed:
        headers["content-encoding"] = "gzip"
    kind = assets.KINDS[name.rpartition(".")[2]]
    content = assets.packed(name) if packed else assets.read(name)
    return Response(content, media_type=f"{kind}; charset=utf-8", headers=headers)


@get("/login", include_in_schema=False)
async def ask(request: Request[Any, Any, Any], next: FromQuery[str] = "/") -> Response[bytes]:
    return _door(request, next)


@post("/login", include_in_schema=False, status_code=303)
async def login(request: Request[Any, Any, Any]) -> Response[bytes]:
    """A token once; the browser keeps what was made of it."""
    form = await request.form()
    token, wanted = str(form.get("token", "")), str(form.get("next", "/"))
    settings: ServerSettings = request.app.state.settings
    if settings.tokens.find(token) is None:
        return _door(request, wanted, status=401)
    answered = _onward(request, wanted)
    answered.set_cookie(_cookie(request, settings.tokens.session(token, time.time()), int(SESSION_S)))
    return answered


@post("/logout", include_in_schema=False, status_code=303)
async def logout(request: Request[Any, Any, Any]) -> Response[bytes]:
    answered = _onward(request, "/login")
    answered.set_cookie(_cookie(request, "", 0))
    return answered


@get("/", include_in_schema=False)
async def stores(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Where there are several."""
    names: list[str] = request.app.state.names()
    return answer(request, "stores.html", {**outline(request, title="Stores"), "names": names, "live": False})


def _door(request: Request[Any, Any, Any], wanted: str, *, status: int = 200) -> Response[bytes]:
    host = request.headers.get("host", "")
    values = {"wanted": wanted, "host": host, "is_wrong": status != 200, "live": False}
    return answer(request, "login.html", {**outline(request, title="Log in"), **values}, status=status)


def _onward(request: Request[Any, Any, Any], wanted: str) -> Response[bytes]:
    """To a place of ours and nowhere else: a path has one slash in front, and no backslash, which browsers turn."""
    is_path = wanted.startswith("/") and not wanted.startswith("//") and "\\" not in wanted and wanted.isprintable()
    place = wanted if is_path else "/"
    return Response(b"", status_code=303, headers={"location": (base_of(request) + place).encode().decode("latin-1")})


def _cookie(request: Request[Any, Any, Any], value: str, seconds: int) -> Cookie:
    return Cookie(
        SESSION,
        value=value,
        max_age=seconds,
        path=f"{base_of(request)}/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )


ROUTES = [static, ask, login, logout, stores]
