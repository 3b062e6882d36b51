"""What the driver raises, and what we raise for it. Messages never carry the connection string."""

from __future__ import annotations

import errno
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from ...errors import Damaged, HoldfastError, QueueNotFound, StoreError, Unavailable

_AGAIN = {
    "25006",  # read only: a failover has left us with a standby; a new connection finds the new primary
    "53300",  # too many connections
    "57P01", "57P02", "57P03", "57P05", "25P03",  # shutting down, crashed, starting, idle too long
    "40001", "40P01",  # serialization failure, deadlock
    "55P03",  # somebody's lock
}  # fmt: skip
_UNPREPARED = {"26000", "42P05"}  # a prepared statement is missing, or there twice
_POOLED = (
    "behind a pooler in transaction mode Holdfast needs one that keeps prepared statements"
    " (pgbouncer 1.21 or newer with max_prepared_statements), or session mode"
)
_ADVICE = {  # what to do about it
    "3D000": "create the database first",
    "42501": "`holdfast grants ROLE` prints what a worker's role needs, and `install` needs CREATE on the database",
    "53300": "too many connections: lower `max_connections` here, or raise the server's",
    **dict.fromkeys(_UNPREPARED, _POOLED),
}
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_NOBODY = {errno.ECONNREFUSED, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}  # "localhost" has two addresses, or one
_CORRUPT = {"XX001", "XX002"}  # data, or an index: the server's own checksums say so
_AWAY = {"53100", "53200", "53400", "57014"}  # disk full, out of memory, a limit, the statement timeout


_DRIVERS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)


class Unanswered(Unavailable):
    """The store went away after the call was sent: it may or may not have taken effect."""


def passes(error: BaseException) -> bool:
    """Whether the same call may work on another connection, or a moment later."""
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        return state in _AGAIN or state.startswith("08")
    return isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError | OSError | EOFError | TimeoutError)


def is_final(error: BaseException) -> bool:
    """Whether waiting cannot help to open a store: nothing listens there, or the server refuses."""
    if isinstance(error, asyncpg.ClientConfigurationError):
        return True
    return unreachable(error) is not None if isinstance(error, OSError) else not passes(error)


def most_telling(errors: list[BaseException]) -> BaseException:
    """Of what several hosts said: what may pass, else what a server said itself."""
    passing = [error for error in errors if not is_final(error)]
    said = [error for error in errors if isinstance(error, asyncpg.PostgresError)]
    order: list[BaseException] = [*passing, *said, *errors]
    return order[0]


def unreachable(error: BaseException) -> str | None:
    """Why nobody can be reached there, in words; None: somebody is, or may be in a moment."""
    if not isinstance(error, OSError) or isinstance(error, TimeoutError):
        return None
    if isinstance(error, socket.gaierror):
        return f"unknown host ({error.strerror})"
    if _is_refused(error):
        return "connection refused: no server listens there"
    if isinstance(error, FileNotFoundError):
        return "there is no such socket, or no such file of a certificate"
    if isinstance(error, PermissionError):
        return "this user may not connect there (permission denied)"
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return f"TLS failed: {first_line(error)}"
    return first_line(error) if "rejected SSL upgrade" in str(error) else None


def _is_refused(error: OSError) -> bool:
    """Several addresses of one host make one error, which has no number but those in its text."""
    if error.errno is not None:
        return error.errno == errno.ECONNREFUSED
    numbers = {int(found) for found in _ERRNO.findall(str(error))}
    return errno.ECONNREFUSED in numbers and numbers <= _NOBODY


def words(error: BaseException) -> str:
    """The cause, for the end of a sentence."""
    if isinstance(error, TimeoutError):
        return "no answer"
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        return "none of its hosts takes writes"
    if isinstance(error, asyncpg.PostgresError):
        return str(translated(error)).removeprefix("PostgreSQL: ")
    return unreachable(error) or first_line(error)


def lacks_prepared_statements(error: BaseException) -> bool:
    """Whether a pooler has lost or mixed up prepared statements."""
    return getattr(error, "sqlstate", None) in _UNPREPARED


def lacks_letters(error: StoreError) -> bool:
    """Whether the encoding of the database has no letters for a text it was given."""
    return getattr(error.__cause__, "sqlstate", None) == "22P05"


def spares_connection(error: BaseException) -> bool:
    """Whether the connection is as good as before: the server itself said no, and is still there."""
    return isinstance(error, asyncpg.PostgresError) and not passes(error)


def translated(error: BaseException, queue: str | None = None) -> HoldfastError:
    """Our error for the driver's."""
    if isinstance(error, HoldfastError):
        return error
    if isinstance(error, asyncpg.PostgresError):
        return _said(error.sqlstate or "", first_line(error), queue, passing=passes(error))
    if isinstance(error, TimeoutError):
        return Unavailable("PostgreSQL did not answer in time")
    if isinstance(error, asyncpg.ClientConfigurationError):
        return StoreError(f"PostgreSQL: {first_line(error)}")
    if passes(error):
        return Unavailable(f"PostgreSQL is away: {words(error)}")
    return _by_other_drivers(error, queue)


@contextmanager
def translating(queue: str | None = None) -> Iterator[None]:
    """Raise ours for what the driver raises inside: where a connection is used for longer than one call."""
    try:
        yield
    except _DRIVERS as error:
        raise translated(error, queue) from error


def _by_other_drivers(error: BaseException, queue: str | None) -> HoldfastError:
    """On the caller's own connection another driver speaks; it tells the same states."""
    state = getattr(error, "sqlstate", None)
    if isinstance(state, str):
        return _said(state, first_line(error), queue, passing=state.startswith("08") or state in _AGAIN)
    return StoreError(f"PostgreSQL: {first_line(error)}")


def _said(state: str, said: str, queue: str | None, *, passing: bool) -> HoldfastError:
    if state in ("42P01", "3F000") and queue is not None:
        return QueueNotFound(f"there is no queue {queue!r}")
    if state in _CORRUPT:
        advice = "restore it from a backup; what else is there, `pg_amcheck` and `pg_checksums --check` tell"
        return Damaged(f"PostgreSQL: {said}: {advice}", queue=queue or "", why=said)
    if state.startswith("28"):
        return StoreError(f"PostgreSQL refuses the connection: {said}")
    if state == "57014":
        return Unavailable("PostgreSQL ended a statement that took longer than its timeout")
    if state in _ADVICE:
        said = f"{said}; {_ADVICE[state]}"
    if state in _AWAY or passing:
        return Unavailable(f"PostgreSQL: {said}")
    return StoreError(f"PostgreSQL: {said}")


def first_line(error: BaseException) -> str:
    """What the server said, without its details: those may quote data."""
    return (str(error) or type(error).__name__).splitlines()[0][:300]
