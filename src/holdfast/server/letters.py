"""Routes of dead letters and of the archive."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from litestar import Request, Response, get, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from ..errors import ConfigError
from ..stores.base import PAGE_ROWS
from . import bodies, searching
from .bodies import Chosen, Count, Page
from .replies import audit, reply, sees_content, served_of

View = Literal["dead", "archive"]
Limit = Annotated[int, QueryParameter(ge=1, le=PAGE_ROWS)]


def _both(verb: str = "") -> list[str]:
    return [f"/queues/{{queue:str}}/{view}{verb}" for view in get_args(View)]


@get(_both(), opt={"role": "read"})
async def list_ended(
    request: Request[Any, Any, Any],
    queue: FromPath[str],
    limit: Limit = 100,
    after: FromQuery[str | None] = None,
    text: FromQuery[str] = "",
    since: FromQuery[str] = "",
    until: FromQuery[str] = "",
) -> Response[Page]:
    """One page in id order; `after` is the last id of the page before. `text`, `since`, `until` and `header.NAME`
    search as among the messages."""
    asked = searching.asked(request, text, since, until)
    if asked:
        return await searching.found(request, queue, _view(request), asked, limit, after)
    served = served_of(request)
    found = await served.queue(queue)
    letters = found.dead if _view(request) == "dead" else found.archive
    records = await letters.list(limit, after)
    how = {"content": sees_content(request), "hidden": served.settings.redact}
    return reply(request, bodies.page(records, limit, **how))


@post(_both("/replay"), opt={"role": "operate"}, status_code=200)
async def replay_ended(
    request: Request[Any, Any, Any], queue: FromPath[str], data: JSONBody[Chosen]
) -> Response[Count]:
    """Dead letters move back, these or all; archived messages are copied: these, or what ended in a time."""
    found = await served_of(request).queue(queue)
    if _view(request) == "archive":
        count = await found.archive.replay(data.ids, since=data.since, until=data.until)
    elif data.since is None and data.until is None:
        count = await found.dead.replay(data.ids)
    else:
        raise ConfigError("since and until are for the archive")
    await audit(request, count)
    return reply(request, Count(int(count)))


@post(_both("/delete"), opt={"role": "operate"}, status_code=200)
async def delete_ended(
    request: Request[Any, Any, Any], queue: FromPath[str], data: JSONBody[Chosen]
) -> Response[Count]:
    """Delete these."""
    if data.ids is None:
        raise ConfigError("ids: which? All of them go with purge")
    found = await served_of(request).queue(queue)
    count = await (found.dead if _view(request) == "dead" else found.archive).delete(data.ids)
    await audit(request, count)
    return reply(request, Count(int(count)))


@post(_both("/purge"), opt={"role": "operate"}, status_code=200)
async def purge_ended(request: Request[Any, Any, Any], queue: FromPath[str]) -> Response[Count]:
    """Delete all."""
    found = await served_of(request).queue(queue)
    count = await (found.dead if _view(request) == "dead" else found.archive).purge()
    await audit(request, count)
    return reply(request, Count(int(count)))


def _view(request: Request[Any, Any, Any]) -> View:
    """The first word behind the queue's name, which may be `dead` itself."""
    behind = request.url.path.rpartition("/queues/")[2].split("/")[1]
    return "dead" if behind == "dead" else "archive"


ROUTES = [list_ended, replay_ended, delete_ended, purge_ended]
