"""The first connection: what waiting cannot cure is said at once, anything else within `connect_timeout`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import asyncpg

from ...errors import HoldfastError, StoreError, Unavailable
from . import faults
from .address import Address
from .pool import RECONNECT

OLDEST_SERVER = 130000  # that these statements run on, as `server_version_num`
_POOLER_TRIES = 3  # others may use the same pool, and take what we mean to take
_POOLER_S = 2.0  # to wait for a server process; a pool may have one only
_PID = "SELECT pg_backend_pid()"
_LOOK = "SELECT pg_is_in_recovery() AS standby, current_setting('transaction_read_only') = 'on' AS read_only"


async def first_connection(address: Address, seconds: float) -> Any:
    """A connection to a server that Holdfast can work with; Unavailable, StoreError."""
    last: BaseException | None = None
    try:
        async with asyncio.timeout(seconds):
            failed = 0
            while True:
                try:
                    return await _examined(address)
                except HoldfastError:
                    raise
                except Exception as error:
                    if faults.is_final(error):
                        raise _refused(error, address) from error
                    last = error
                failed += 1
                await asyncio.sleep(RECONNECT.after(failed))
    except TimeoutError as error:
        because = faults.words(last or error)
        raise Unavailable(f"{address.shown} did not open within {seconds:g} s: {because}") from (last or error)


def _refused(error: BaseException, address: Address) -> HoldfastError:
    """Our error for one that another try would only repeat."""
    ours = faults.translated(error)
    cause = faults.unreachable(error)
    return type(ours)(f"{address.shown}: {cause}") if cause else ours


async def _examined(address: Address) -> Any:
    connection = await address.connect()
    try:
        _refuse_old(connection)
        await _refuse_read_only(connection)
        await _examine_pooler(connection, address.connect)
    except BaseException:
        connection.terminate()
        raise
    return connection


def _refuse_old(connection: Any) -> None:
    version = connection.get_server_version()
    if version.major * 10000 < OLDEST_SERVER:
        raise StoreError(f"this server is PostgreSQL {version.major}; Holdfast needs 13 or newer: upgrade the server")


async def _refuse_read_only(connection: Any) -> None:
    found = await connection.fetchrow(_LOOK)
    if found["standby"]:
        raise Unavailable(
            "this PostgreSQL server is a read-only standby; name the primary, or all hosts as in host1,host2"
        )
    if found["read_only"]:
        raise StoreError(
            "the sessions of this role are read-only (default_transaction_read_only); a queue has to write:"
            " ALTER ROLE … SET default_transaction_read_only = off, or use another role"
        )


async def _examine_pooler(connection: Any, connect: Callable[[], Awaitable[Any]]) -> None:
    """Is there a pooler in front of the server, and does it keep prepared statements? StoreError.

    A pooler gives its clients keys of its own, so the process that the greeting named is not the one that answers. In
    transaction mode such a client gets another server process whenever somebody else has taken the one it had. Then a
    prepared statement is missing there, or is there already under a name that another client has given: after a while,
    and only under load. So both are tried when the store is opened.
    """
    if await connection.fetchval(_PID) == connection.get_server_pid():
        return  # the server itself
    try:
        other = await asyncio.wait_for(connect(), _POOLER_S)
    except TimeoutError:
        return  # a pool that is used up: we keep what we have, which a pooler in transaction mode would not let us
    try:
        await _try_out(connection, other)
    except asyncpg.PostgresError as error:
        if faults.lacks_prepared_statements(error):
            raise faults.translated(error) from error
        raise
    finally:
        other.terminate()


async def _try_out(connection: Any, other: Any) -> None:
    for _ in range(_POOLER_TRIES):
        name = f"holdfast_{uuid4().hex}"
        ours = await connection.prepare(_PID, name=name)
        await ours.fetchval()
        await ours.fetchval()  # where processes are handed out in turn, already in another one
        async with other.transaction():
            await (await other.prepare(_PID, name=name)).fetchval()  # in the process that we had, if it is free for all
            try:
                await asyncio.wait_for(ours.fetchval(), _POOLER_S)
            except TimeoutError:
                return  # one process for all: no other one where the statement could be missing
