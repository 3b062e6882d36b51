"""The pipeline: Spark streams that read queues, what they hold, and how far they are behind."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, get, post
from litestar.params import FromPath, FromQuery

from ... import admin
from ...admin import ConsumerReport
from ...errors import Fenced
from ...stores.batches import batches_of
from ..problems import Refused
from ..replies import audit, served_of
from . import words
from .frame import page, reports_of, to


@get("/pipeline", opt={"role": "read"})
async def show(
    request: Request[Any, Any, Any], ask: FromQuery[str] = "", queue: FromQuery[str] = ""
) -> Response[bytes]:
    """By lag; `ask` and `queue` name a consumer whose messages shall be given back."""
    names = [each.name for each in await reports_of(request)]
    found = await admin.consumers(served_of(request).broker, names)
    found.sort(key=lambda each: (-each.lag, each.queue, each.consumer))
    asked = next((each for each in found if (each.consumer, each.queue) == (ask, queue) and not each.owner), None)
    heading = _heading(found)
    return await page(request, "pipeline.html", title=heading, here="p", heading=heading, rows=found, asked=asked)


def _heading(found: list[ConsumerReport]) -> str:
    if not found:
        return "No Spark stream reads these queues"
    alone = sum(not each.owner and each.claimed > 0 for each in found)
    said = words.plural(len(found), "Spark stream")
    return f"{said}: {alone} without an owner {'holds' if alone == 1 else 'hold'} messages" if alone else said


@post("/pipeline/{queue:str}/release", opt={"role": "operate"})
async def release(request: Request[Any, Any, Any], queue: FromPath[str], consumer: FromQuery[str]) -> Response[bytes]:
    """Give back what a stream without an owner holds; its checkpoint is refused from then on."""
    try:
        count = await batches_of(served_of(request).broker.store).release(queue, consumer)
    except Fenced as error:
        raise Refused(409, "in use", str(error)) from error
    await audit(request, count)
    return to(request, "/pipeline", "released", count)


ROUTES = [show, release]
