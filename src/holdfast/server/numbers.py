"""Routes for machines: is it alive, can it work, what are the numbers."""

from __future__ import annotations

import asyncio
from typing import Any

from litestar import Request, Response, get

from ..errors import HoldfastError, Unavailable
from ..metrics import CONTENT_TYPE
from ..stores.base import DEAD
from .replies import holder_of, reply, served_of

_READY_S = 5.0  # for the store to answer; a load balancer has less patience than a client


@get("/health/live", include_in_schema=False)
async def live(request: Request[Any, Any, Any]) -> Response[dict[str, str]]:
    """The process answers."""
    return reply(request, {"status": "ok"})


@get("/health/ready", include_in_schema=False)
async def ready(request: Request[Any, Any, Any]) -> Response[dict[str, str]]:
    """The store answers, and the server is not about to stop."""
    served = served_of(request)
    if served.closing.is_set():
        raise Unavailable("the server is about to stop")
    try:
        async with asyncio.timeout(_READY_S):
            await served.broker.store.clock()
    except (HoldfastError, TimeoutError) as error:
        raise Unavailable("the store does not answer") from error
    return reply(request, {"status": "ok"})


@get("/metrics", include_in_schema=False)
async def metrics(request: Request[Any, Any, Any]) -> Response[bytes]:
    """For Prometheus: what this server did, and what each queue holds."""
    served, holder = served_of(request), holder_of(request)
    queues = await served.broker.store.stats_of_all()
    text = served.metrics.text_with(queues, lambda queue: holder.reaches(queue.removesuffix(DEAD)))
    return Response(text, media_type=CONTENT_TYPE)


ROUTES = [live, ready, metrics]
