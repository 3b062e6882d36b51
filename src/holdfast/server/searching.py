"""A search as the API asks for it and answers it."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response

from ..deliveries import Record
from ..errors import ConfigError
from ..ids import is_id
from ..stores.records import View
from . import bodies, search
from .bodies import Page
from .problems import Refused
from .replies import holder_of, reply, sees_content, served_of
from .search import Wanted

_HEADER = "header."  # before the name of one, in a query


def asked(request: Request[Any, Any, Any], text: str, since: str, until: str) -> Wanted:
    """ConfigError for what is no instant; Refused for those who ask for what they may not see."""
    pairs = ((name, str(value)) for name, value in request.query_params.multi_items())
    headers = tuple((name.removeprefix(_HEADER), value) for name, value in pairs if name.startswith(_HEADER))
    wanted = Wanted(text, headers, search.instant("since", since), search.instant("until", until))
    if wanted.of_content and not sees_content(request):
        raise Refused(403, "not allowed", f"contents are not shown to the role {holder_of(request).role}")
    return wanted


async def found(
    request: Request[Any, Any, Any], queue: str, view: View, wanted: Wanted, limit: int, after: str | None
) -> Response[Page]:
    """What one request finds."""
    if after is not None and not is_id(after):
        raise ConfigError("after: the id of a message")
    served = served_of(request)
    codec, hidden = (await served.queue(queue)).codec, served.settings.redact
    looked = await search.look(served.broker.store, queue, view, wanted, after=after, limit=limit, hidden=hidden)
    content = sees_content(request)
    shown = [bodies.shown(Record(each, codec), content=content, hidden=hidden) for each in looked.messages]
    return reply(request, Page(shown, looked.next, looked.scanned))
