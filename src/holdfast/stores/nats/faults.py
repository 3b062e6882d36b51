"""What the driver and the server say, as our own errors. The only place that knows theirs."""

from __future__ import annotations

import errno
import re
import socket
import ssl
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

import nats.errors

from ...errors import HoldfastError, MessageTooLarge, QueueNotFound, StoreError, Unavailable


class Code(IntEnum):
    """The server's own numbers for what it refuses."""

    NO_RESOURCES = 10002
    CLUSTER_NOT_READY = 10008
    NOT_THE_LEADER = 10009
    CONSUMER_NOT_MADE = 10012
    CONSUMER_NOT_FOUND = 10014
    ACCOUNT_FULL = 10023
    MESSAGE_NOT_FOUND = 10037
    NOT_FOR_ACCOUNT = 10039
    SEQUENCE_NOT_FOUND = 10043
    STORAGE_FULL = 10047
    MESSAGE_NOT_REMOVED = 10057
    STREAM_EXISTS = 10058
    STREAM_NOT_FOUND = 10059
    WRONG_SEQUENCE = 10071
    NO_JETSTREAM = 10076
    STREAM_FULL = 10077  # a limit of the stream itself
    DUPLICATE_IN_BATCH = 10201


NO_ROOM = (Code.NO_RESOURCES, Code.ACCOUNT_FULL, Code.STORAGE_FULL)  # of the account, of the server
NOT_THERE = (Code.SEQUENCE_NOT_FOUND, Code.MESSAGE_NOT_REMOVED, Code.MESSAGE_NOT_FOUND)  # of a stored message


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


class Denied(Exception):
    """This user may not publish or subscribe there."""

    def __init__(self, subject: str, *, hearing: bool) -> None:
        super().__init__(subject)
        self.subject = subject  # in small letters: so the driver gives it
        self.hearing = hearing

    def is_of(self, subjects: Iterable[str]) -> bool:
        return any(subject.lower() == self.subject for subject in subjects)


class Nobody(Exception):
    """Nobody listens on the subject: the stream or consumer is not there, or JetStream is not."""


def missing(queue: str) -> QueueNotFound:
    return QueueNotFound(f"there is no queue {queue!r}")


class Ignored:
    """`with Ignored(code):` around a request whose refusal with it is an answer like another."""

    def __init__(self, *codes: Code) -> None:
        self._codes = codes

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        return isinstance(error, Refused) and error.code in self._codes


@contextmanager
def of_queue(queue: str) -> Iterator[None]:
    """Around a request to one of its streams: one that is not there means that the queue is not; QueueNotFound."""
    try:
        yield
    except Refused as error:
        if error.code == Code.STREAM_NOT_FOUND:
            raise missing(queue) from None
        raise


def has_no_folder(error: Refused) -> bool:
    """A consumer that was made while it was being deleted: the server knows it, and has removed its folder."""
    return error.code == Code.CONSUMER_NOT_MADE and "no such file" in str(error)


NO_JETSTREAM = (
    "the server has no JetStream for this account; start it with `nats-server -js`, or enable it for the account"
)


TOO_OLD = "the server is NATS {}, and Holdfast needs 2.12 or newer: atomic batches, message TTL; upgrade the server"
_DENIAL = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"')


def denial(error: BaseException) -> Denied | None:
    """What the server says that this user may not do."""
    found = _DENIAL.search(str(error).lower())
    return Denied(found[2], hearing=found[1] == "subscription") if found else None


def refusal(error: dict[str, Any]) -> Refused:
    """The error in a reply of the server."""
    return Refused(int(error.get("err_code", 0)), str(error.get("description", error)))


def translated(error: BaseException, doing: str) -> HoldfastError:
    """Our error for one of theirs, without anything that could be a credential."""
    if isinstance(error, TooLarge):
        return MessageTooLarge(f"nats: {doing}: {error}", actual=error.size, limit=error.limit)
    if isinstance(error, Refused):
        if error.code in (Code.NOT_FOR_ACCOUNT, Code.NO_JETSTREAM):
            return StoreError(f"nats: {NO_JETSTREAM}")
        if error.code in NO_ROOM:
            return Unavailable(f"nats: the server has no room: {doing}: {error}")
        if error.code == Code.STREAM_FULL:
            return Unavailable(f"nats: a stream is at its limit: {doing}: {error}; see `holdfast doctor`")
        return StoreError(f"nats: the server refused: {doing}: {error}")
    if isinstance(error, Nobody):
        return StoreError(f"nats: a stream is gone (`holdfast doctor` names it), or {NO_JETSTREAM} ({doing})")
    if isinstance(error, Denied):
        what = "subscribe to" if error.hearing else "publish to"
        return StoreError(
            f"nats: this user may not {what} {error.subject!r} ({doing}); "
            "the rights that Holdfast needs are in docs/stores/nats.md"
        )
    why = "no connection to" if "no connection" in str(error) else "no answer from"
    return Unavailable(f"nats: {why} the server: {doing}")


def opening(error: BaseException | None, servers: Sequence[str], seconds: float) -> StoreError:
    """Why the connection could not be made."""
    text, where = str(error or "").lower(), ", ".join(server.removeprefix("nats://") for server in servers)
    if "authorization" in text or "authentication" in text or "nkey" in text or "jwt" in text:
        return StoreError("nats: the server refused the credentials")
    if isinstance(error, ssl.SSLError) or "certificate" in text or "ssl" in text or "tls" in text:
        return StoreError("nats: no secure connection: the certificate or the TLS settings do not fit")
    if isinstance(error, socket.gaierror):
        return Unavailable(f"nats: unknown host: {where}")
    if error is not None and _is_refused(error):
        return Unavailable(f"nats: connection refused: nothing listens on {where}")
    if error is None or isinstance(error, TimeoutError):
        return Unavailable(f"nats: no connection within {seconds:g} s: {where} does not answer")
    return Unavailable(f"nats: no connection to {where} within {seconds:g} s ({type(error).__name__})")


def is_final(error: BaseException) -> bool:
    """Whether trying again cannot help, whichever server says so."""
    if isinstance(error, nats.errors.AuthorizationError | ssl.SSLCertVerificationError):
        return True
    return "authorization violation" in str(error).lower()


def is_useless(error: BaseException) -> bool:
    """Whether trying this server again cannot help, as far as anybody knows."""
    return isinstance(error, socket.gaierror) or _is_refused(error)


def _is_refused(error: BaseException) -> bool:
    """A name may stand for several addresses: then one error tells of all."""
    if isinstance(error, ConnectionRefusedError):
        return True
    codes = {int(code) for code in _ERRNO.findall(str(error))} if isinstance(error, OSError) else set()
    return errno.ECONNREFUSED in codes and codes <= _NOT_THERE


_ERRNO = re.compile(r"\[Errno (\d+)\]")
_NOT_THERE = {errno.ECONNREFUSED, errno.EADDRNOTAVAIL, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EAFNOSUPPORT}


@contextmanager
def mapped(doing: str) -> Iterator[None]:
    """Around every call of the seam."""
    try:
        yield
    except (Refused, Nobody, Lost, Denied, TooLarge, nats.errors.Error, OSError) as error:
        raise translated(error, doing) from error
    except TimeoutError as error:
        raise translated(error, doing) from error
