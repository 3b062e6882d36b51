"""What an error looks like outside: application/problem+json, by one table. Never a traceback."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from .. import errors
from ..errors import HoldfastError
from ..escaping import logger_named
from ..stores.base import LOOK_AGAIN_S

PROBLEM_JSON = "application/problem+json"

_LOG = logger_named("holdfast.server")
_INDEX = re.compile(r"(?:message|result|settlement) (\d+): ")

# The first that fits; what is not here is the store's own trouble.
_STATUS: tuple[tuple[type[HoldfastError], int], ...] = (
    (errors.QueueNotFound, 404),
    (errors.MessageNotFound, 404),
    (errors.ScheduleNotFound, 404),
    (errors.LeaseLost, 409),
    (errors.QueueExists, 409),
    (errors.QueueNotEmpty, 409),
    (errors.MessageTooLarge, 413),
    (errors.QueueFull, 429),
    (errors.ConfigError, 422),
    (errors.CodecError, 422),
    (errors.InvalidPriority, 422),
    (errors.UnknownOutcome, 504),
    (errors.Unavailable, 503),
    (errors.StoreError, 503),
)


class Refused(Exception):
    """A request that is answered before anybody looks at what it asks for."""

    def __init__(self, status: int, title: str, detail: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title
        self.headers = headers


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """`type` is our error's name."""

    type: str
    title: str
    status: int
    detail: str = ""
    index: int | None = None  # of the bad one in a batch
    ids: list[str] | None = None  # UnknownOutcome: of messages that may be there


def status_of(error: Exception) -> int:
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def problem_of(error: Exception) -> Problem:
    """What to tell; an error that is not ours is logged and tells nothing."""
    if isinstance(error, Refused):
        return Problem("about:blank", error.title, error.status, str(error))
    if not isinstance(error, HoldfastError):
        _LOG.error("a request failed", exc_info=error)
        return Problem("about:blank", "internal error", 500, "see the log of the server")
    found = _INDEX.match(str(error))
    return Problem(
        type(error).__name__,
        (type(error).__doc__ or "").split("\n")[0].split(";")[0].rstrip("."),
        status_of(error),
        str(error),
        int(found[1]) if found else None,
        error.ids if isinstance(error, errors.UnknownOutcome) else None,
    )


def headers_of(error: Exception, status: int) -> dict[str, str]:
    if isinstance(error, Refused):
        return dict(error.headers)
    return {"retry-after": f"{LOOK_AGAIN_S:.0f}"} if status in (429, 503) else {}


async def send_problem(send: Any, error: Exception) -> None:
    """As the whole answer to a request, by ASGI."""
    problem = problem_of(error)
    body = msgspec.json.encode(problem)
    more = [(name.encode(), value.encode()) for name, value in headers_of(error, problem.status).items()]
    headers = [(b"content-type", PROBLEM_JSON.encode()), (b"content-length", b"%d" % len(body)), *more]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
