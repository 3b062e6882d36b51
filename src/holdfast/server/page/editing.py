"""A message with another value: one that waits is changed under its id, one that has ended goes in again."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import msgspec
from litestar import Request, Response, get, post
from litestar.params import FromPath
from msgspec import UNSET

from ...deliveries import Record
from ...errors import CodecError, ConfigError, HoldfastError, InvalidPriority, MessageNotFound, MessageTooLarge
from ...queue import Queue
from ...stores.records import JSON
from ..bodies import unmasked
from ..problems import Refused, status_of
from ..replies import audit, sees_content, served_of
from . import contents
from .frame import page, sees, to

ENDED = ("dead", "completed", "failed")


@get("/queues/{queue:str}/messages/{id:str}/edit", opt={"role": "operate"})
async def ask(request: Request[Any, Any, Any], queue: FromPath[str], id: FromPath[str]) -> Response[bytes]:
    """The value as text, to be changed."""
    record = await _editable(request, queue, id)
    one = contents.opened(record, **sees(request))
    value = contents.of(one)
    if value is None or one.value is UNSET or not value.is_whole:
        raise Refused(422, "not here", "only JSON of up to 64 KiB can be edited on this page")
    return await _form(request, queue, record, value.text, str(record.priority))


async def _form(
    request: Request[Any, Any, Any], queue: str, record: Record[Any], text: str, priority: str, error: str = ""
) -> Response[bytes]:
    values = {
        "queue": queue,
        "id": record.id,
        "status": record.status,
        "is_ended": record.status in ENDED,
        "text": text,
        "priority": priority,
        "error": error,
        "nonce": uuid4().hex,
    }
    return await page(request, "edit.html", title=f"Edit a message of {queue}", here="m", live=False, **values)


@post("/queues/{queue:str}/messages/{id:str}/edit", opt={"role": "operate"})
async def edit(request: Request[Any, Any, Any], queue: FromPath[str], id: FromPath[str]) -> Response[bytes]:
    """What cannot be read comes back with the text as it was written."""
    form = {name: str(value) for name, value in (await request.form()).items()}
    record = await _editable(request, queue, id)
    found = await served_of(request).queue(queue)
    try:
        value, priority = _value(request, record, form.get("value", "")), _priority(form.get("priority", ""))
        if record.status in ENDED:
            return await _again(request, found, record, value, priority, form.get("nonce", ""))
        done = await found.change(id, value=value, priority=priority)
    except (ConfigError, CodecError, InvalidPriority, MessageTooLarge) as error:
        written = form.get("value", ""), form.get("priority", "")
        return _refused(await _form(request, queue, record, *written, str(error)), error)
    await audit(request, int(done))
    return to(request, f"/queues/{queue}/messages/{id}", "changed" if done else "held")


def _refused(answer: Response[bytes], error: HoldfastError) -> Response[bytes]:
    answer.status_code = status_of(error)
    return answer


async def _editable(request: Request[Any, Any, Any], queue: str, id: str) -> Record[Any]:
    if not sees_content(request):
        raise Refused(403, "not allowed", "contents are not shown to this role")
    record = await (await served_of(request).queue(queue)).get(id)
    if record is None:
        raise MessageNotFound(f"{queue}: there is no message {id!r}, or it ended and was not kept")
    if record.status == "processing":
        raise Refused(409, "held", "a worker has it: take it back first, or wait")
    return record


def _value(request: Request[Any, Any, Any], record: Record[Any], text: str) -> Any:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ConfigError(f"this is not JSON: {error}") from None
    hidden = served_of(request).settings.redact
    if not hidden:
        return value
    if record.content_type != JSON:
        raise ConfigError("only JSON can be edited on this page")
    return unmasked(value, msgspec.json.decode(record.payload), hidden)


def _priority(text: str) -> int:
    if not text.isdecimal():
        raise ConfigError(f"priority: 0 to 255, not {text!r}")
    return int(text)


async def _again(
    request: Request[Any, Any, Any], queue: Queue[Any], record: Record[Any], value: Any, priority: int, nonce: str
) -> Response[bytes]:
    """In again first, then a dead letter goes: a server that is killed in between leaves both, and loses nothing.

    Two clicks on one form are one message, by its nonce.
    """
    try:
        once = UUID(nonce)
    except ValueError:
        raise ConfigError("nonce: as the form gives it") from None
    own = record.max_attempts if record.max_attempts != queue.options.max_attempts else None
    new = await queue.enqueue(
        value,
        priority=priority,
        headers={**record.headers, "replayed_from": record.id},
        max_attempts=own,
        dedup_key=f"edited {record.id} {once}",
    )
    if record.status == "dead":
        await queue.dead.delete([record.id])
    await audit(request, 1)
    return to(request, f"/queues/{queue.name}/messages/{new}", "edited")


ROUTES = [ask, edit]
