"""What the driver and the server say, as our own errors. The only place that knows theirs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import nats.errors

from ...errors import HoldfastError, MessageTooLarge, StoreError, Unavailable

WRONG_SEQUENCE = 10071
DUPLICATE_IN_BATCH = 10201
STREAM_NOT_FOUND = 10059
CONSUMER_NOT_FOUND = 10014
CONSUMER_NOT_MADE = 10012
MESSAGE_NOT_FOUND = 10037
_NO_JETSTREAM = (10039, 10076)
NO_ROOM = (10002, 10023, 10047)  # of the account, of the server
STREAM_FULL = 10077  # a limit of the stream itself


class Refused(Exception):
    """The server answered with an error of JetStream."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Lost(Exception):
    """No answer: the connection broke, or the time was over. What was asked may have been done."""


class TooLarge(Exception):
    """More than the server takes in one message; nothing was sent."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"{size} bytes, and the server takes {limit} (its max_payload)")
        self.size = size
        self.limit = limit


class Nobody(Exception):
    """Nobody listens on the subject: the stream or consumer is not there, or JetStream is not."""


def has_no_folder(error: Refused) -> bool:
    """A consumer that was made while it was being deleted: the server knows it, and has removed its folder."""
    return error.code == CONSUMER_NOT_MADE and "no such file" in str(error)


NO_JETSTREAM = (
    "the server has no JetStream for this account; start it with `nats-server -js`, or enable it for the account"
)


def refusal(error: dict[str, Any]) -> Refused:
    """The error in a reply of the server."""
    return Refused(int(error.get("err_code", 0)), str(error.get("description", error)))


def translated(error: BaseException, doing: str) -> HoldfastError:
    """Our error for one of theirs, without anything that could be a credential."""
    if isinstance(error, TooLarge):
        return MessageTooLarge(f"nats: {doing}: {error}", actual=error.size, limit=error.limit)
    if isinstance(error, Refused):
        if error.code in _NO_JETSTREAM:
            return StoreError(f"nats: {NO_JETSTREAM}")
        if error.code in NO_ROOM:
            return Unavailable(f"nats: the server has no room: {doing}: {error}")
        if error.code == STREAM_FULL:
            return Unavailable(f"nats: a stream is at its limit: {doing}: {error}; see `holdfast doctor`")
        return StoreError(f"nats: the server refused: {doing}: {error}")
    if isinstance(error, Nobody):
        return StoreError(f"nats: {NO_JETSTREAM} ({doing})")
    return Unavailable(f"nats: no answer from the server: {doing}")


def opening(error: BaseException | None, seconds: float) -> StoreError:
    """Why the connection could not be made."""
    text = str(error or "").lower()
    if "authorization" in text or "authentication" in text or "nkey" in text or "jwt" in text:
        return StoreError("nats: the server refused the credentials")
    if "certificate" in text or "ssl" in text or "tls" in text:
        return StoreError("nats: no secure connection: the certificate or the TLS settings do not fit")
    kind = type(error).__name__ if error is not None else "no answer"
    return Unavailable(f"nats: no connection within {seconds:g} s ({kind})")


def is_final(error: BaseException) -> bool:
    """Whether trying again cannot help."""
    return isinstance(error, nats.errors.AuthorizationError) or "authorization violation" in str(error).lower()


@contextmanager
def mapped(doing: str) -> Iterator[None]:
    """Around every call of the seam."""
    try:
        yield
    except (Refused, Nobody, Lost, TooLarge, nats.errors.Error, OSError) as error:
        raise translated(error, doing) from error
    except TimeoutError as error:
        raise translated(error, doing) from error
