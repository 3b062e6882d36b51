"""Routes of messages: in, out, settled, looked up."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Annotated, Any

from litestar import Request, Response, get, post
from litestar.params import FromPath, FromQuery, HeaderParameter, JSONBody, QueryParameter
from msgspec import UNSET, UnsetType

from ..errors import MessageNotFound
from ..once import PLAIN, Once
from ..queue import Queue, State
from ..stores.base import PAGE_ROWS, CallName, remembering
from . import bodies, searching, settling
from .bodies import Changed, Claim, Count, Deliveries, Enqueue, Ids, Page, Results, Settlements, Shown
from .problems import Refused
from .replies import audit, reply, sees_content, served_of
from .served import is_gone

_KEY_CHARS = 255  # of an Idempotency-Key: a UUID has 36
_MOST_WAIT_S = 60.0  # of one request: beyond that, proxies cut it

Limit = Annotated[int, QueryParameter(ge=1, le=PAGE_ROWS)]
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
    how = Once(dedup=data.dedup, replace=data.replace, report=data.report)
    how.check(found.store.capabilities)
    how.check_keys(made)
    if not made:
        return reply(request, Ids([], [] if data.report else UNSET), status=201)
    if how == PLAIN:
        append = partial(found._opened.append, made, call=await _call(request, found, key))
        is_single = len(made) == 1 and made[0].dedup_key is None and key is None
        ids = await (served_of(request).single(queue, append) if is_single else append())
        return reply(request, Ids(ids), status=201)
    if key is not None or (len(made) > 1 and data.dedup != "window"):
        raise Refused(
            422, "bad input", "`dedup` is for one message, and neither it nor `report` has an Idempotency-Key"
        )
    enqueued = await found._opened.append_once(made, how)
    return reply(request, Ids([each.id for each in enqueued], enqueued if data.report else UNSET), status=201)


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
    claiming = found._claim(data.limit, data.lease, min(data.wait, _MOST_WAIT_S), data.worker)
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


@get("/queues/{queue:str}/messages", opt={"role": "read"})
async def list_live(
    request: Request[Any, Any, Any],
    queue: FromPath[str],
    wanted: Annotated[State, QueryParameter(name="state")] = "ready",
    limit: Limit = 100,
    after: FromQuery[str | None] = None,
    text: FromQuery[str] = "",
    since: FromQuery[str] = "",
    until: FromQuery[str] = "",
) -> Response[Page]:
    """One page of messages that wait or are held, in id order, `delayed` and `retry` by due time.

    With `text`, `since`, `until` or `header.NAME` those that fit, in id order: what one request finds while it looks at
    10,000 messages or for a second, with `scanned` and `next`.
    """
    asked = searching.asked(request, text, since, until)
    if asked:
        view = "ready" if wanted == "pending" else wanted
        return await searching.found(request, queue, view, asked, limit, after)
    served = served_of(request)
    records = await (await served.queue(queue)).list(wanted, limit, after)
    how = {"content": sees_content(request), "hidden": served.settings.redact}
    return reply(request, bodies.page(records, limit, **how))


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
async def cancel(
    request: Request[Any, Any, Any],
    queue: FromPath[str],
    id: FromPath[str],
    running: Annotated[bool, QueryParameter()] = False,
) -> Response[Count]:
    """End a message that waits, with `running` also one that is held; 0: it was held, or had ended."""
    done = await (await served_of(request).queue(queue)).cancel(id, running=running)
    await audit(request, int(done))
    return reply(request, Count(int(done)))


@post("/queues/{queue:str}/messages/{id:str}/change", opt={"role": "operate"}, status_code=200)
async def change(
    request: Request[Any, Any, Any], queue: FromPath[str], id: FromPath[str], data: JSONBody[Changed]
) -> Response[Count]:
    """Replace a message that waits under its id; 0: it was held, or had ended."""
    found = await served_of(request).queue(queue)
    done = await found.change(id, priority=data.priority, delay=data.delay, at=data.at, value=data.value)
    await audit(request, int(done))
    return reply(request, Count(int(done)))


@post("/queues/{queue:str}/messages/{id:str}/take-back", opt={"role": "operate"}, status_code=200)
async def take_back(request: Request[Any, Any, Any], queue: FromPath[str], id: FromPath[str]) -> Response[Count]:
    """End its lease now, as if it had expired; 0: nobody held it."""
    count = await (await served_of(request).queue(queue)).take_back(id)
    await audit(request, count)
    return reply(request, Count(count))


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
    await audit(request, count)
    return reply(request, Count(int(count)))


ROUTES = [enqueue, claim, settle, list_live, show, cancel, change, take_back, replay]
