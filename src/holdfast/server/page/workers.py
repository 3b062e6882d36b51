"""Workers: which run where, on which queues, with what in hand."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, get

from .. import workers
from . import words
from .frame import page


@get("/workers", opt={"role": "read"})
async def show(request: Request[Any, Any, Any]) -> Response[bytes]:
    """As they reported themselves; where nobody does, that is what is said."""
    found = await workers.look(request)
    alive = [each for process in found.alive for each in process.workers]
    gone = sum(len(process.workers) for process in found.silent)
    if not found.reported:
        heading = "Workers are not reported here"
    else:
        heading = f"{words.plural(len(alive), 'worker')} alive" + (f", {gone} silent" if gone else "")
    values = {
        "heading": heading,
        "found": found,
        "busy": sum(each.busy for each in alive),
        "slots": sum(each.slots for each in alive),
        "hosts": len({process.host for process in found.alive}),
    }
    return await page(request, "workers.html", title=heading, here="w", **values)


ROUTES = [show]
