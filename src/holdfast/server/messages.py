"""Routes of messages: in, out, settled, looked up."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from litestar import Request, Response, get, post
from litestar.params import FromPath, HeaderParameter, JSONBody, QueryParameter
from msgspec import UnsetType

from ..errors import MessageNotFound
from ..queue import Queue
from ..stores.base import CallName, remembering
from . import bodies, settling
from .bodies import Claim, Count, Deliveries, Enqueue, Ids, Results, Settlements, Shown
from .problems import Refused
from .replies import audit, reply, sees_content, served_of
from .served import is_gone

_KEY_CHARS = 255  # of an Idempotency-Key: a UUID has 36
_MOST_WAIT_S = 60.0  # of one request: beyond that, proxies cut it

Key = Annotated[str | None, HeaderParameter(name="Idempotency-Key", required=False)]


@post("/queues/{queue:str}/messages", opt={"role": "work"}, status_code=201)
async def enqueue(
    request: Request[Any, Any, Any], queue: FromPath[str], data: JSONBody[Enqueue], key: Key = None
) -> Response[Ids]:
    """Add one message, or several: all or none. Under one Idempotency-Key they are added once within an hour."""
    found = await served_of(request).queue(queue)
    await found._opened.options()  # looked up again now and then
    if isinstance(data.messages, UnsetType):
        made = bodies.envelopes(found, [data])
    else:
        if not (isinstance(data.value, UnsetType) and isinstance(data.payload, UnsetType)):
            raise Refused(422, "bad input", "give one message, or `messages`")
        made = bodies.envelopes(found, data.messages)
    if not made:
        return reply(request, Ids([]), status=201)
    ids = await found._opened.append(made, call=await _call(request, found, key))
    return reply(request, Ids(ids), status=201)


async def _call(request: Request[Any, Any, Any], queue: Queue[Any], key: str | None) -> CallName | None:
    if key is None:
        return None
    if not 0 < len(key) <= _KEY_CHARS:
        raise Refused(422, "bad input", f"Idempotency-Key: 1 to {_KEY_CHARS} characters")
    if remembering(queue.store) is None:
        raise Refused(422, "not here", "this store remembers no calls: give each message a dedup_key instead")
    return CallName(f"key {key}", hashlib.blake2b(await request.body(), digest_size=16).hexdigest())


@post("/queues/{queue:str}/claims", opt={"role": "work"}, status_code=200)
async def claim(request: Request[Any, Any, Any], queue: FromPath[str], data: JSONBody[Claim]) -> Response[Deliveries]:
    """Take up to `limit` messages under a lease. Nothing comes while the queue is paused, or the server stops."""
    served = served_of(request)
    found = await served.queue(queue)
    claiming = found.dequeue_many(data.limit, lease=data.lease, wait=min(data.wait, _MOST_WAIT_S))
    deliveries = await served.wait_for(claiming, request.receive) or []
    if deliveries and await is_gone(request.receive):
        for each in deliveries:
            await each.release()
    return reply(request, Deliveries([bodies.held(each) for each in deliveries]))


@post("/queues/{queue:str}/settlements", opt={"role": "work"}, status_code=200)
async def settle(
    request: Request[Any, Any, Any], queue: FromPath[str], data: JSONBody[Settlements]
) -> Response[Results]:
    """What became of messages in your hands; each has its own answer."""
    found = await served_of(request).queue(queue)
    return reply(request, Results(await settling.settle(found, data.settlements)))


@get("/queues/{queue:str}/messages/{id:str}", opt={"role": "read"})
async def show(
    request: Request[Any, Any, Any],
    queue: FromPath[str],
    id: FromPath[str],
    wait: Annotated[float, QueryParameter(ge=0)] = 0.0,
) -> Response[Shown]:
    """What is known of a message; with `wait` once it has ended, or after so many seconds."""
    served = served_of(request)
    found = await served.queue(queue)
    if wait:
        try:
            await served.wait_for(found.wait(id, min(wait, _MOST_WAIT_S)), request.receive)
        except TimeoutError:
            pass
    record = await found.get(id)
    if record is None:
        raise MessageNotFound(f"{queue}: there is no such message, or it ended and was not kept")
    hidden = served.settings.redact
    return reply(request, bodies.shown(record, content=sees_content(request), hidden=hidden))


@post("/queues/{queue:str}/messages/{id:str}/cancel", opt={"role": "operate"}, status_code=200)
async def cancel(request: Request[Any, Any, Any], queue: FromPath[str], id: FromPath[str]) -> Response[Count]:
    """End a message that waits; 0: it was held, or had ended."""
    done = await (await served_of(request).queue(queue)).cancel(id)
    audit(request, int(done))
    return reply(request, Count(int(done)))


@post("/queues/{queue:str}/messages/{id:str}/replay", opt={"role": "operate"}, status_code=200)
async def replay(request: Request[Any, Any, Any], queue: FromPath[str], id: FromPath[str]) -> Response[Count]:
    """Move a dead letter back, or copy a message that has ended; 0: it was so before."""
    found = await served_of(request).queue(queue)
    status = await found.status(id)
    if status is None:
        raise MessageNotFound(f"{queue}: there is no such message, or it ended and was not kept")
    count = 0
    if status == "dead":
        count = await found.dead.replay([id])
    elif status in ("completed", "failed"):
        count = await found.archive.replay([id])
    audit(request, count)
    return reply(request, Count(count))


ROUTES = [enqueue, claim, settle, show, cancel, replay]
