"""What all pages share: templates, who looks, what the navigation says, how an error is shown."""

from __future__ import annotations

import functools
import gzip
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from litestar import Request, Response
from litestar.exceptions import HTTPException

from ...errors import StoreError
from ...queue_reports import QueueReport
from ..gate import BASE
from ..problems import Problem, problem_of
from ..replies import holder_of, sees_content, served_of
from ..served import Served
from ..tokens import ROLES
from . import assets, findings, words

HTML = "text/html; charset=utf-8"
FEW_ROWS = 20  # of findings, and of queues to choose from: what one takes in
ROWS = 50  # of a long list on one page: a screen or two
_PACKED_BYTES = 1024  # of an answer: less is not worth packing


@functools.cache
def templates() -> Environment:
    """Everything is escaped; a name that is not there is an error."""
    made = Environment(
        loader=PackageLoader("holdfast.server.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for each in (
        words.state,
        words.number,
        words.rate,
        words.duration,
        words.exact,
        words.iso,
        words.clock,
        words.tail,
        words.moment,
    ):
        made.filters[each.__name__] = each
    made.globals.update(plural=words.plural, ago=words.ago)
    return made


def base_of(request: Request[Any, Any, Any]) -> str:
    """The path below which the whole application lies."""
    base: str = request.scope.get(BASE, "")  # type: ignore[assignment]  # put there by the application
    return base


def root_of(request: Request[Any, Any, Any], served: Served) -> str:
    """The path below which the pages of this store lie."""
    return base_of(request) + (f"/{served.name}" if served.name else "")


async def reports_of(request: Request[Any, Any, Any]) -> list[QueueReport]:
    """The queues that the caller may look at."""
    holder = holder_of(request)
    return [each for each in await served_of(request).watch.recent() if holder.reaches(each.name)]


async def page(
    request: Request[Any, Any, Any], template: str, *, title: str, here: str, **values: Any
) -> Response[bytes]:
    """A page of a store. `here` is the key of its place in the navigation."""
    reports = await reports_of(request)
    found = findings.of(reports)
    frame = _frame(request, served_of(request), title=title, here=here)
    frame["problems"] = sum(each.tone == "bad" for each in found)
    frame["dead"] = sum(each.stats.dead for each in reports)
    return answer(request, template, {**frame, **values})


def _frame(request: Request[Any, Any, Any], served: Served, *, title: str, here: str) -> dict[str, Any]:
    holder, query = holder_of(request), request.query_params
    return {
        **outline(request, title=title, here=here),
        "root": root_of(request, served),
        "store": served.broker.url,
        "who": holder,
        "may": {role: holder.may(role) for role in ROLES},
        "may_log_out": bool(served.settings.tokens),
        "read_only": served.settings.read_only,
        "done": words.done(query.get("did", ""), query.get("count", "")),
        "has_schedules": served.broker.store.schedules is not None,
        "has_pipeline": served.broker.store.batches is not None,
    }


def outline(request: Request[Any, Any, Any], *, title: str, here: str = "") -> dict[str, Any]:
    """What a page needs that belongs to no store."""
    now = datetime.now(UTC)
    return {"title": title, "here": here, "top": base_of(request), "now": now, "problems": 0, "dead": 0, "live": True}


def answer(
    request: Request[Any, Any, Any], template: str, values: dict[str, Any], *, status: int = 200
) -> Response[bytes]:
    parts = templates().get_template("parts.html").make_module({"sprite": _sprite(request)})
    text = templates().get_template(template).render(values, p=parts, version=assets.version()).encode()
    headers = {"vary": "accept-encoding"}
    if len(text) >= _PACKED_BYTES and "gzip" in request.headers.get("accept-encoding", ""):
        text, headers["content-encoding"] = gzip.compress(text, mtime=0), "gzip"
    return Response(text, media_type=HTML, status_code=status, headers=headers)


def _sprite(request: Request[Any, Any, Any]) -> str:
    return f"{base_of(request)}/static/sprite.svg?{assets.version()}"


def to(
    request: Request[Any, Any, Any], path: str, did: str = "", count: int | None = None, *, forget: bool = True
) -> Response[bytes]:
    """Back to a page of this store, which says what was done; without `forget` nothing was."""
    if forget:
        served_of(request).watch.forget()
    where, _, query = path.partition("?")
    said = urlencode({key: value for key, value in (("did", did), ("count", count)) if value not in ("", None)})
    more = "&".join(filter(None, (query, said)))
    location = root_of(request, served_of(request)) + where + (f"?{more}" if more else "")
    return Response(b"", status_code=303, headers={"location": location}, media_type=HTML)


def told(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Any error as a page; a store that does not answer has one of its own."""
    served = served_of(request)
    frame = _frame(request, served, title="", here="")
    if isinstance(error, StoreError | TimeoutError):
        served.watch.note_away(error)
        holder = holder_of(request)
        seen = [each for each in served.watch.seen if holder.reaches(each.name)]
        frame |= {"title": "The store is away", "watch": served.watch, "seen": seen}
        return answer(request, "unavailable.html", frame, status=503)
    problem = _problem(error)
    frame |= {"title": problem.title, "problem": problem, "live": False}
    return answer(request, "error.html", frame, status=problem.status)


def _problem(error: Exception) -> Problem:
    if isinstance(error, HTTPException):
        return Problem("about:blank", "not answered", error.status_code, error.detail)
    return problem_of(error)


def sees(request: Request[Any, Any, Any]) -> dict[str, Any]:
    """How contents are shown to the caller: arguments of `bodies.shown`."""
    return {"content": sees_content(request), "hidden": served_of(request).settings.redact}
