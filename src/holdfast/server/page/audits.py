"""Who changed what."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from litestar import Request, Response, get
from litestar.params import QueryParameter

from ..problems import Refused
from ..replies import holder_of, served_of
from .frame import ROWS, page

Before = Annotated[int | None, QueryParameter(required=False, ge=0)]


@get("/audit", opt={"role": "operate"})
async def show(request: Request[Any, Any, Any], before: Before = None) -> Response[bytes]:
    """The newest first. Lines name queues: a token for some of them sees none."""
    if holder_of(request).queues:
        raise Refused(403, "not allowed", "this token is for some queues, and the lines are of all")
    audits = served_of(request).audits
    rows = await asyncio.to_thread(audits.newest, ROWS, before)
    values = {"rows": rows, "before": before, "next": rows[-1].id if len(rows) == ROWS else None}
    return await page(request, "audit.html", title="Who changed what", here="a", is_kept=audits.is_kept, **values)


ROUTES = [show]
