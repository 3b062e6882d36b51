"""Routes of queues: what there is, how it is set, what is in it."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Request, Response, delete, get, post, put
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from .. import admin, config
from ..admin import ConsumerReport, QueueReport
from ..errors import QueueNotFound
from ..stores.base import Check
from ..stores.records import Stats
from .bodies import Count
from .replies import audit, holder_of, reply, served_of

Options = JSONBody[dict[str, Any]]  # of a queue, such as lease or max_attempts


@get("/queues", opt={"role": "read"})
async def list_queues(request: Request[Any, Any, Any]) -> Response[list[QueueReport]]:
    """All queues, with what is in them."""
    holder = holder_of(request)
    found = await admin.overview(served_of(request).broker)
    return reply(request, [each for each in found if holder.reaches(each.name)])


@get("/queues/{queue:str}", opt={"role": "read"})
async def show_queue(request: Request[Any, Any, Any], queue: FromPath[str]) -> Response[QueueReport]:
    """One queue: options and counts."""
    return reply(request, await admin.report(served_of(request).broker, queue))


@put("/queues/{queue:str}", opt={"role": "admin"})
async def put_queue(request: Request[Any, Any, Any], queue: FromPath[str], data: Options) -> Response[QueueReport]:
    """Create the queue, or change these of its options."""
    served = served_of(request)
    served.forget(queue)
    await served.broker.queue(queue, **_keywords(data))
    await audit(request)
    return reply(request, await admin.report(served.broker, queue))


def _keywords(options: dict[str, Any]) -> dict[str, Any]:
    """Only options: `broker.queue` takes other keywords too."""
    config.options(config.QueueOptions, options, where="queue")
    return options


@delete("/queues/{queue:str}", opt={"role": "admin"}, status_code=200)
async def delete_queue(
    request: Request[Any, Any, Any], queue: FromPath[str], force: FromQuery[bool] = False
) -> Response[Count]:
    """Delete a queue with its archive; one that holds messages or dead letters only by force."""
    served = served_of(request)
    served.forget(queue)
    if await served.broker.store.queue(config.queue_name(queue)) is None:
        raise QueueNotFound(f"there is no queue {queue!r}")
    await served.broker.delete_queue(queue, force)
    await audit(request)
    return reply(request, Count(1))


@post("/queues/{queue:str}/pause", opt={"role": "operate"}, status_code=200)
async def pause(request: Request[Any, Any, Any], queue: FromPath[str]) -> Response[Count]:
    """Give out no more messages; new ones are taken."""
    await (await served_of(request).queue(queue)).pause()
    await audit(request)
    return reply(request, Count(1))


@post("/queues/{queue:str}/resume", opt={"role": "operate"}, status_code=200)
async def resume(request: Request[Any, Any, Any], queue: FromPath[str]) -> Response[Count]:
    """Give out messages again."""
    await (await served_of(request).queue(queue)).resume()
    await audit(request)
    return reply(request, Count(1))


@post("/queues/{queue:str}/purge", opt={"role": "operate"}, status_code=200)
async def purge(request: Request[Any, Any, Any], queue: FromPath[str]) -> Response[Count]:
    """Drop delayed, pending and retrying messages."""
    count = await (await served_of(request).queue(queue)).purge()
    await audit(request, count)
    return reply(request, Count(count))


@post("/queues/{queue:str}/cleanup", opt={"role": "operate"}, status_code=200)
async def cleanup(
    request: Request[Any, Any, Any], queue: FromPath[str], older_than: Annotated[float, QueryParameter(ge=0)] = 0.0
) -> Response[Count]:
    """Delete settled messages from the archive, those that ended at least so many seconds ago."""
    count = await (await served_of(request).queue(queue)).cleanup(older_than)
    await audit(request, count)
    return reply(request, Count(count))


@get("/stats", opt={"role": "read"})
async def stats(request: Request[Any, Any, Any]) -> Response[dict[str, Stats]]:
    """Counts of every queue."""
    holder = holder_of(request)
    found = await served_of(request).broker.stats()
    return reply(request, {name: each for name, each in found.items() if holder.reaches(name)})


@get("/consumers", opt={"role": "read"})
async def consumers(request: Request[Any, Any, Any]) -> Response[list[ConsumerReport]]:
    """Spark streams, and how far they are behind; none where the store serves no streams."""
    broker, holder = served_of(request).broker, holder_of(request)
    found = [] if broker.store.batches is None else await admin.consumers(broker)
    return reply(request, [each for each in found if holder.reaches(each.queue)])


@get("/doctor", opt={"role": "operate"})
async def doctor(request: Request[Any, Any, Any]) -> Response[list[Check]]:
    """One line per check."""
    return reply(request, await admin.look_into(served_of(request).broker))


ROUTES = [
    *(list_queues, show_queue, put_queue, delete_queue, pause, resume, purge, cleanup),
    *(stats, consumers, doctor),
]
