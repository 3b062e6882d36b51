"""What obstore and the server say, sorted into what we do about it. The only place that knows their errors.

Their texts may hold keys of the caller, so none of them is kept: a status and the server's own code say enough.
"""

from __future__ import annotations

import re

from obstore import exceptions as theirs

from ....errors import HoldfastError, StoreError, Unavailable

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"(?:<Code>|\(code: )([A-Za-z0-9]{1,60})")  # of the reply, or of one key of a deletion
_DENIED = ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch")
_MAKE = {  # what a server calls a missing bucket, and how to make one
    "NoSuchBucket": "aws s3 mb s3://NAME",
    "ContainerNotFound": "az storage container create --name NAME",
}
_RETRYABLE = (408, 409, 425, 429)


class Absent(Exception):
    """There is no such object."""


class Refused(Exception):
    """The condition does not hold, or (409) somebody else is writing: look again before anything is concluded."""


class Doubt(Exception):
    """No clear answer: a write may have happened."""


class Unreached(Doubt):
    """Nobody is there: nothing happened, and waiting cannot help whoever opens a store."""


class Denied(StoreError):
    """The server knows who we are not, or what we may not."""


class Unchanged(Exception):
    """The object is still the one we know."""


def sorted_out(error: Exception, place: str) -> Exception:
    """The error as one of the above, or as ours when trying again cannot help."""
    text = str(error)
    status = int(found[1]) if (found := _STATUS.search(text)) else 0
    code = found[1] if (found := _CODE.search(text)) else ""
    if code in _MAKE:
        return StoreError(f"{place}: there is no such bucket; make it first, for example `{_MAKE[code]}`")
    denied = isinstance(error, theirs.PermissionDeniedError | theirs.UnauthenticatedError) or code in _DENIED
    if denied or status in (401, 403):
        return Denied(f"{place}: the server refuses our credentials ({_said(status or 403, code)})")
    if isinstance(error, FileNotFoundError | theirs.NotFoundError):
        return Absent()
    if isinstance(error, theirs.AlreadyExistsError | theirs.PreconditionError) or status in (409, 412):
        return Refused()
    if isinstance(error, theirs.NotModifiedError):
        return Unchanged()
    if 400 <= status < 500 and status not in _RETRYABLE:
        return StoreError(f"{place}: the server refuses the request ({_said(status, code)})")
    if isinstance(error, theirs.BaseError | OSError):
        return Doubt(_said(status, code)) if status else _wire_trouble(text)
    return error


def unanswered(place: str, seconds: float, why: Exception | None) -> HoldfastError:
    detail = f" ({why})" if why is not None and str(why) else ""
    return Unavailable(f"{place} did not answer within {seconds:.3g} s{detail}")


def unreached(place: str, why: Unreached) -> HoldfastError:
    return Unavailable(f"{place}: {why}; is its endpoint right, and does the server run?")


def _said(status: int, code: str) -> str:
    return f"HTTP {status} {code}".strip()


def _wire_trouble(text: str) -> Doubt:
    for sign, words in (("ConnectionRefused", "connection refused"), ("dns error", "unknown host")):
        if sign in text:
            return Unreached(words)
    return Doubt("timed out" if "timed out" in text or "TimedOut" in text else "the connection failed")
